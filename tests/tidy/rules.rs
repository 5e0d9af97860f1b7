//! The layers, and the numbers of the checks: what holds today, and the targets.
//!
//! A budget may be lowered freely, and has to follow a number that has fallen: the check says to what. It is
//! raised only with a comment above its line that says why.

/// The product, by folder. The facade is at the root.
pub(crate) const PRODUCT: &str = "\
    scoop-core scoop-cron scoop-embedded scoop-macros scoop-runtime scoop-operate scoop-http scoop-cli scoop-web .";

/// Crates for tests, of which only the lines are counted.
pub(crate) const DEVELOPMENT: &str = "scoop-audit scoop-store-contract";

/// Name, budget, target. Lines that are blank, a comment or of a test do not count. The targets of the lines
/// of Rust are 50 000 in total.
pub(crate) const BUDGETS: &[(&str, usize, usize)] = &[
    // Fields to find runs by: declared in the core and the macros, written in the runtime, and read by the others.
    // Kinds of events have JSON. `Stuck` has a file of its own.
    ("Rust lines of scoop-core", 4_976, 3_900),
    ("Rust lines of scoop-cron", 179, 180),
    ("Rust lines of scoop-embedded", 400, 400),
    ("Rust lines of scoop-macros", 5_137, 4_200),
    // `WaitKind` came back from scoop-operate, beside the other enums with names. Fields to find runs by are written. What operators
    // read serializes itself. The error has methods in place of its public variants. Longer names, and no long file.
    ("Rust lines of scoop-runtime", 35_413, 27_500),
    // What moves here from scoop-runtime: the requests of operators, which need only PostgreSQL, and an error of their own. What
    // operators read serializes itself.
    ("Rust lines of scoop-operate", 6_290, 4_000),
    // The calls of scoop-operate have longer paths than those of one large type. `--where` of lists, counts and trees. The doctor says
    // how to begin where no program has started.
    ("Rust lines of scoop-cli", 4_346, 3_300),
    // The search finds fields and keys. The API, and its bounds. Rates beside counts. Hierarchies are played, with their steps in the
    // tree.
    ("Rust lines of scoop-web", 4_336, 3_000),
    // Webhooks of three senders, signed callbacks, CloudEvents. What would make unique keys ambiguous is refused.
    ("Rust lines of scoop-http", 559, 500),
    // Its names are in modules by subject. Those of scoop-operate depend on a feature.
    ("Rust lines of scoop-saga", 105, 100),
    ("Rust lines of scoop-audit", 1_926, 1_700),
    ("Rust lines of scoop-store-contract", 1_708, 1_700),
    // The tables of fields to find runs by, and the lists that follow them.
    ("SQL lines", 6_258, 4_200),
    ("columns of run", 38, 38),
    ("indexes of run", 8, 8),
    ("storage operations", 75, 75),
    // `FindField` and `FindKind`, for implementations of `Message` by hand.
    ("names at the root of the facade", 98, 100),
    ("public methods of Scoop", 18, 18),
    ("bytes of ARCHITECTURE.md", 15_000, 15_000),
];

/// The modules at the root of scoop-runtime, lowest first: each imports only from those before it.
pub(crate) const LAYERS: &[&str] = &[
    // Plain values, and errors that name them.
    "model error",
    "util rehearsal telemetry completion",
    // Decisions without IO.
    "repair tree",
    // Runs and their history.
    "store unhandled",
    "settings",
    // What users write as sagas.
    "saga",
    "engine",
    // What users call, and what their tests do.
    "api testing simulation internal",
];

/// The lines of code that a file may have.
pub(crate) const FILE_LINES_MAX: usize = 600;

/// Where statements of SQL are.
pub(crate) const SQL_FOLDERS: &[&str] = &[
    "scoop-runtime/src/store/postgres/",
    "scoop-runtime/sql/",
    "scoop-runtime/migrations/",
    "scoop-operate/",
    // The doctor reads catalogs of the server, no tables of ours.
    "scoop-cli/sql/",
];

/// Texts of SQL elsewhere, by file.
pub(crate) const SQL_TEXTS: &[(&str, usize)] = &[
    // Shown to the operator, not executed.
    ("scoop-cli/src/commands/doctor/server.rs", 1),
];

/// Words that are no names: the glossary has those to use.
pub(crate) const BANNED: &str = "\
    alone anew endless announce news aside bell bells bereft books disown done doubts either fired \
    gather gathered halt here hold holds held home job jobs keep kept lane lanes launching lent listed \
    listing listened published look looks made mend mending mended offer offers pairs past place places \
    plain plans question reach reaches remains remedy remedied revive ring rings rung room rooms seat \
    seats shapes share shares shelf spare standing stands strike struck surroundings tell tells telling \
    told took turn turns turned undone unrolled vitals waiter waiters warm way";

/// Names of other crates that have one of them, with the crate.
pub(crate) const EXTERNAL: &[(&str, &str)] =
    &[("KeepAlive", "axum"), ("keep_alive", "axum"), ("extend_pairs", "form_urlencoded")];
