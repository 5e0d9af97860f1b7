//! The lock file of a program: what it stores, and what its runs rely on. A test compares it with the program.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use scoop_core::{Definition, NameKind, NamedType, RecordedStep, Stuck};
use serde::{Deserialize, Serialize};

use self::ChangeClass::{BreaksData, BreaksRuns, NeedsWas, Safe};
use crate::saga::Registration;
use crate::saga::shape::{StoredType, unreadable};

/// What becomes of runs whose saga no program has.
const WAITS: &str = "those under way wait for a program that has it";

/// The variable that has the file written in place of compared.
const WRITE: &str = "SCOOP_LOCK";

/// What a program stores, and what its runs rely on.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    sagas: BTreeMap<String, LockedSaga>,
    context: BTreeSet<String>,
    signals: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedSaga {
    topics: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    was: Vec<String>,
    steps: Vec<RecordedStep>,
    /// The shapes of its messages, replies and values, line by line, by what they are.
    types: BTreeMap<String, Vec<String>>,
}

/// What a difference means for a system that is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChangeClass {
    /// Runs under way and stored data go on.
    Safe,
    /// Something has another name: with `was` it is found under both.
    NeedsWas,
    /// Runs under way would be stuck, or not be undone.
    BreaksRuns,
    /// Stored data cannot be read any more.
    BreaksData,
}

/// A difference between a program and its lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockChange {
    /// What it means.
    pub class: ChangeClass,
    /// What has changed, and what follows from that.
    pub what: String,
}

/// Why a program is not as its lock file says. Display it for all of it, with the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// There is no such file, or it cannot be read or written.
    #[error("{}: {source}; `{WRITE}=write` in the environment of the test writes it", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// It is no lock file.
    #[error("{}: {source}; restore it, or write it anew with `{WRITE}=write` in the environment of the test", file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// The error.
        source: serde_json::Error,
    },
    /// The program has changed.
    #[error("{}", describe(file, changes))]
    Changed {
        /// The file.
        file: PathBuf,
        /// The differences, the worst first.
        changes: Vec<LockChange>,
    },
}

fn describe(file: &Path, changes: &[LockChange]) -> String {
    let mut text = format!("the program is not as {} says:\n", file.display());
    for LockChange { class, what } in changes {
        let _ = writeln!(text, "  {class}: {what}");
    }
    let _ = write!(
        text,
        "correct what breaks something, or wait until no run and no data of it is left; then write the file with \
         `{WRITE}=write` in the environment of the test, and commit it"
    );
    text
}

impl fmt::Display for ChangeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safe => "safe",
            Self::NeedsWas => "needs `was`",
            Self::BreaksRuns => "breaks runs under way",
            Self::BreaksData => "breaks stored data",
        })
    }
}

/// Compares the linked program with its lock file: its sagas with their steps, messages and values, its context keys and its signals.
/// [`assert_lock!`](crate::assert_lock) calls it with a path from the folder of the package.
///
/// With `SCOOP_LOCK=write` in the environment, it writes the file.
///
/// # Errors
///
/// [`LockError`], which says of each difference what it means: nothing; that a former name is missing; that runs under way would
/// be stuck; or that stored data cannot be read.
pub fn check_lock(file: impl AsRef<Path>) -> Result<(), LockError> {
    let file = file.as_ref();
    let failed = |source| LockError::File { file: file.to_owned(), source };
    let now = Lock::of_program();
    if env::var_os(WRITE).is_some_and(|it| it == "write") {
        return fs::write(file, now.to_text()).map_err(failed);
    }
    let then: Lock = serde_json::from_str(&fs::read_to_string(file).map_err(failed)?)
        .map_err(|source| LockError::Format { file: file.to_owned(), source })?;
    let mut changes = then.changes(&now, &definitions());
    if changes.is_empty() && then != now {
        changes.push(LockChange {
            class: Safe,
            what: "the file is not written as this program would write it".into(),
        });
    }
    changes.sort_by_key(|change| Reverse(change.class));
    if changes.is_empty() { Ok(()) } else { Err(LockError::Changed { file: file.to_owned(), changes }) }
}

/// Fails the test unless the program is as its lock file says: see [`check_lock`]. The path begins at the folder of the package.
///
/// ```no_run
/// #[test]
/// fn program_is_as_its_lock_file_says() {
///     # use scoop_runtime as scoop;
///     scoop::testing::assert_lock!("saga.lock");
/// }
/// ```
///
/// The idea is that of the lock files of schemas, such as those of Protocol Buffers' `buf breaking`.
#[macro_export]
macro_rules! assert_lock {
    ($file:expr) => {
        if let ::core::result::Result::Err(error) =
            $crate::testing::check_lock(::std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join($file))
        {
            ::core::panic!("{error}");
        }
    };
}

fn definitions() -> BTreeMap<String, Definition> {
    let all = inventory::iter::<Registration>().map(Registration::definition);
    all.map(|definition| (definition.saga.to_string(), definition)).collect()
}

impl Lock {
    fn of_program() -> Self {
        let sagas = inventory::iter::<Registration>().map(|registration| {
            let definition = registration.definition();
            let locked = LockedSaga {
                topics: registration.topics().iter().map(|(of, _)| of.topic.to_string()).collect(),
                was: (registration.former_names)().iter().map(|was| (*was).to_owned()).collect(),
                steps: definition.recorded_steps(),
                types: (registration.types)().iter().map(lines).collect(),
            };
            (definition.saga.into_owned(), locked)
        });
        // What records the messages of a joined set is a handler of its own.
        let collectors = inventory::iter::<Registration>().filter_map(|registration| {
            let (collector, of) = (registration.collector()?, registration.definition());
            let topics = registration.collectors(&of.saga);
            let was = registration.collectors_were();
            let (name, topics) = (
                topics.first()?.0.saga.to_string(),
                topics.iter().map(|(of, _)| of.topic.to_string()).collect(),
            );
            let types = collector.stored_types().iter().map(lines).collect();
            Some((name, LockedSaga { topics, was, steps: vec![], types }))
        });
        let named = |kind| NamedType::all().filter(move |it| it.kind == kind).map(|it| it.name.to_owned());
        Self {
            sagas: sagas.chain(collectors).collect(),
            context: named(NameKind::ContextKey).collect(),
            signals: named(NameKind::Signal).collect(),
        }
    }

    fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("names and shapes are texts");
        text + "\n"
    }

    fn find(&self, name: &String) -> Option<(&String, &LockedSaga)> {
        let renamed = || self.sagas.iter().find(|(_, saga)| saga.was.contains(name));
        self.sagas.get_key_value(name).or_else(renamed)
    }

    /// The differences of `now`, whose sagas have these definitions.
    fn changes(&self, now: &Self, definitions: &BTreeMap<String, Definition>) -> Vec<LockChange> {
        let mut changes = vec![];
        let mut found = |class, what: String| changes.push(LockChange { class, what });
        let mut new: BTreeSet<_> = now.sagas.keys().filter(|name| !self.sagas.contains_key(*name)).collect();
        for (name, then) in &self.sagas {
            if let Some((own, saga)) = now.find(name) {
                if new.remove(own) {
                    found(Safe, format!("saga `{name}` is `{own}` now, with its former name"));
                }
                then.changes(name, saga, definitions.get(own), &mut found);
            } else if let Some(same) = new.iter().copied().find(|own| now.sagas[*own].steps == then.steps) {
                new.remove(same);
                let write = format!("write `#[saga(was = \"{name}\")]` there");
                found(NeedsWas, format!("saga `{name}` is gone, and `{same}` has its steps; {write}"));
            } else {
                found(
                    BreaksRuns,
                    format!("saga `{name}` is gone: {WAITS}; see `operate().handlers().retire`"),
                );
            }
        }
        new.into_iter().for_each(|name| found(Safe, format!("saga `{name}` is new")));
        let names = [("context key", &self.context, &now.context), ("signal", &self.signals, &now.signals)];
        for (what, then, now) in names {
            for name in then.difference(now) {
                found(
                    BreaksData,
                    format!("{what} `{name}` is gone: what is stored under that name is not read"),
                );
            }
            now.difference(then).for_each(|name| found(Safe, format!("{what} `{name}` is new")));
        }
        changes
    }
}

impl LockedSaga {
    fn changes(
        &self,
        name: &str,
        now: &Self,
        definition: Option<&Definition>,
        found: &mut impl FnMut(ChangeClass, String),
    ) {
        let of = format!("saga `{name}`");
        for topic in self.topics.iter().filter(|topic| !now.topics.contains(topic)) {
            found(BreaksRuns, format!("{of} has left topic `{topic}`: of its runs, {WAITS}"));
        }
        for topic in now.topics.iter().filter(|topic| !self.topics.contains(topic)) {
            found(Safe, format!("{of} has a further topic, `{topic}`"));
        }
        for was in self.was.iter().filter(|was| !now.was.contains(was)) {
            found(BreaksRuns, format!("{of} has lost its former name `{was}`: {WAITS}"));
        }
        for was in now.was.iter().filter(|was| *was != name && !self.was.contains(was)) {
            found(Safe, format!("{of} has a further former name, `{was}`"));
        }
        self.step_changes(&of, now, definition, found);
        for what in now.types.keys().filter(|what| !self.types.contains_key(*what)) {
            let is_compensated = now.steps.iter().any(|step| step.name == *what && step.compensated);
            match self.steps.iter().any(|step| step.name == *what) && is_compensated {
                true => found(
                    BreaksRuns,
                    format!(
                        "{of}, step `{what}` returns a value now: the compensation of runs that have completed it has none"
                    ),
                ),
                false => found(Safe, format!("{of} has a further type, `{what}`")),
            }
        }
        for what in self.types.keys().filter(|what| !now.types.contains_key(*what)) {
            found(Safe, format!("{of} has no type `{what}` any more"));
        }
        for (what, then) in &self.types {
            let Some(is) = now.types.get(what).filter(|is| *is != then) else { continue };
            let unreadable = unreadable(&then.join("\n"), &is.join("\n"));
            if unreadable.is_empty() {
                found(Safe, format!("{of}, `{what}`: the type has changed, and reads what was stored"));
            }
            for why in unreadable {
                found(BreaksData, format!("{of}, `{what}`: in what was stored, {why}"));
            }
        }
    }

    fn step_changes(
        &self,
        of: &str,
        now: &Self,
        definition: Option<&Definition>,
        found: &mut impl FnMut(ChangeClass, String),
    ) {
        let mut is_safe = true;
        let returns = |step: &str| self.types.contains_key(step);
        for stuck in definition.map_or_else(Vec::new, |it| it.strands(&self.steps, returns)) {
            is_safe = false;
            let class = match stuck {
                Stuck::Ambiguous { .. } | Stuck::NoSuchStep { .. } => NeedsWas,
                _ => BreaksRuns,
            };
            found(class, stuck.to_string());
        }
        for then in self.steps.iter().filter(|step| step.compensated) {
            let is = |step: &&RecordedStep| step.name == then.name || step.was.contains(&then.name);
            if now.steps.iter().find(is).is_some_and(|step| !step.compensated) {
                is_safe = false;
                let why = "has no compensation any more: runs that have completed it are not undone";
                found(BreaksRuns, format!("{of}, step `{}` {why}", then.name));
            }
        }
        for then in &self.steps {
            let Some(is) = now.steps.iter().find(|step| step.name == then.name) else { continue };
            let mut broken = |why: String| {
                is_safe = false;
                found(BreaksRuns, format!("{of}, step `{}` {why}", then.name));
            };
            for was in then.was.iter().filter(|was| !is.was.contains(was)) {
                broken(format!(
                    "has lost its former name `{was}`: runs that have it stop, and its idempotency keys change"
                ));
            }
            let first = |step: &RecordedStep| step.was.first().unwrap_or(&step.name).clone();
            if then.was.iter().all(|was| is.was.contains(was)) && first(then) != first(is) {
                broken("has another first name: its idempotency keys change".into());
            }
        }
        let awaited = |signal: &String| now.steps.iter().any(|step| step.awaits.as_ref() == Some(signal));
        for signal in self.steps.iter().filter_map(|step| step.awaits.as_ref()).filter(|it| !awaited(it)) {
            is_safe = false;
            found(
                BreaksRuns,
                format!("{of} does not await signal `{signal}` any more: runs that do are stuck"),
            );
        }
        if is_safe && self.steps != now.steps {
            let (are, were) = (names(&now.steps), names(&self.steps));
            found(Safe, format!("{of} has other steps: {are}; they were {were}"));
        }
    }
}

fn names(steps: &[RecordedStep]) -> String {
    steps.iter().map(|step| format!("`{}`", step.name)).collect::<Vec<_>>().join(", ")
}

fn lines(stored: &StoredType) -> (String, Vec<String>) {
    let (what, shape) = stored.described();
    (what.to_owned(), shape.lines().map(str::to_owned).collect())
}
