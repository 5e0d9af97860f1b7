//! The numbers of the checks: what holds today, and the targets.
//!
//! A budget may be lowered freely, and has to follow a number that has fallen: the check says to what. It is
//! raised only with a comment above its line that says why.

/// The product, by folder. The facade is at the root.
pub(crate) const PRODUCT: &str = "\
    scoop-core scoop-cron scoop-embedded scoop-macros scoop-runtime scoop-operate scoop-cli scoop-web .";

/// Crates for tests, of which only the lines are counted.
pub(crate) const DEVELOPMENT: &str = "scoop-audit scoop-store-contract";

/// Name, budget, target. Lines that are blank, a comment or of a test do not count. The targets of the lines
/// of Rust are 50 000 in total.
pub(crate) const BUDGETS: &[(&str, usize, usize)] = &[
    ("Rust lines of scoop-core", 4_855, 3_900),
    ("Rust lines of scoop-cron", 179, 180),
    ("Rust lines of scoop-embedded", 1_244, 400),
    ("Rust lines of scoop-macros", 5_015, 4_200),
    ("Rust lines of scoop-runtime", 42_316, 27_500),
    ("Rust lines of scoop-operate", 0, 4_000),
    ("Rust lines of scoop-cli", 4_959, 3_300),
    ("Rust lines of scoop-web", 3_818, 3_000),
    ("Rust lines of scoop-saga", 103, 100),
    ("Rust lines of scoop-audit", 1_991, 1_700),
    ("Rust lines of scoop-store-contract", 1_708, 1_700),
    ("SQL lines", 6_082, 4_200),
    ("columns of run", 38, 38),
    ("indexes of run", 8, 8),
    ("storage operations", 139, 75),
    ("names at the root of the facade", 206, 100),
    ("public methods of Scoop", 70, 18),
    ("bytes of ARCHITECTURE.md", 103_609, 15_000),
];

/// The modules at the root of scoop-runtime, lowest first: each imports only from those before it.
pub(crate) const LAYERS: &[&str] = &[
    "bug util",
    // Plain values.
    "model error testing settings telemetry completion",
    // What users write as sagas, and decisions without IO.
    "saga find repair tree entity_fold",
    // Runs and their history.
    "store",
    "unhandled engine api simulation",
];

/// How many files of a layer import from which ones above it. The target is none.
pub(crate) const UPWARD: &[(&str, &[(&str, usize)])] = &[
    ("api", &[("simulation", 1)]),
    ("engine", &[("api", 1)]),
    ("entity_fold", &[("engine", 1), ("store", 1)]),
    ("error", &[("api", 2), ("engine", 2), ("store", 2), ("telemetry", 1)]),
    ("find", &[("store", 4)]),
    ("repair", &[("store", 1)]),
    ("saga", &[("api", 2), ("engine", 1), ("store", 5), ("unhandled", 1)]),
    ("settings", &[("api", 1), ("store", 1)]),
    ("store", &[("api", 8), ("engine", 2), ("simulation", 4)]),
    ("telemetry", &[("api", 1), ("store", 1)]),
    ("testing", &[("api", 1), ("saga", 1)]),
    ("tree", &[("api", 2), ("engine", 1), ("store", 3)]),
    ("util", &[("error", 3)]),
];

/// The numbers of files that import each other in a circle, largest first. Circles of two are left
/// out, and imports between a module and what it contains. The target is none.
pub(crate) const CYCLES: &[usize] = &[90, 10, 4, 3];

pub(crate) const FILE_LINES_MAX: usize = 600;

/// Files that are longer. The target is none.
pub(crate) const LONG_FILES: &[(&str, usize)] =
    &[("scoop-core/src/continuation.rs", 605), ("scoop-runtime/src/store/postgres/limit.rs", 691)];

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

/// Words that are no names, and how many names have them. The target is none: the glossary has the words to
/// use.
pub(crate) const BANNED: &[(&str, usize)] = &[
    ("alone", 2),
    ("anew endless", 9),
    ("announce news", 0),
    ("aside", 2),
    ("bell bells", 1),
    ("bereft", 0),
    ("books", 0),
    ("disown", 0),
    ("done", 6),
    ("doubts", 1),
    ("either", 0),
    ("fired", 1),
    ("gather gathered", 2),
    ("halt", 0),
    ("here", 5),
    ("hold holds held", 12),
    ("home", 1),
    ("job jobs", 0),
    ("keep kept", 39),
    ("lane lanes", 8),
    ("launching", 0),
    ("lent", 1),
    ("listed listing listened published", 11),
    ("look looks", 28),
    ("made", 6),
    ("mend mending mended", 1),
    ("offer offers", 4),
    ("pairs", 4),
    ("past", 1),
    ("place places", 18),
    ("plain", 5),
    ("plans", 0),
    ("question", 4),
    ("reach reaches", 2),
    ("remains", 1),
    ("remedy remedied", 3),
    ("revive", 0),
    ("ring rings rung", 2),
    ("room rooms", 10),
    ("seat seats", 0),
    ("shapes", 3),
    ("share shares", 7),
    ("shelf", 1),
    ("spare", 0),
    ("standing stands", 8),
    ("strike struck", 0),
    ("surroundings", 0),
    ("tell tells telling told", 7),
    ("took", 4),
    ("turn turns", 24),
    ("turned", 2),
    ("undone unrolled", 6),
    ("vitals", 2),
    ("waiter waiters", 4),
    ("warm", 0),
    ("way", 5),
];
