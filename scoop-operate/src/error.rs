//! The error of the reads and requests of operators.

use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use scoop_runtime::internal::{DamagedRollback, GivenUp, humane, unarchived, written};
use scoop_runtime::{IdKind, IdObject, PauseTarget, RuntimeError, SetupError};

use crate::{EntityNotRebuilt, RebuiltEntities};

/// An error of a read or a request of an operator. Display it, and its sources, for the reason; its methods say what a program can
/// do about it.
///
/// ```no_run
/// # use scoop_operate::{OperateError, OperateExt as _};
/// # async fn example(scoop: scoop_runtime::Scoop, run: scoop_runtime::RunId) -> Result<(), OperateError> {
/// match scoop.operate().failures().retry(run).await {
///     Ok(answer) => println!("{answer}"),
///     Err(error) if error.is_not_found() => println!("nothing has this id: {error}"),
///     Err(error) if error.is_transient() => println!("try again later: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OperateError(Box<ErrorKind>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ErrorKind {
    #[error(transparent)]
    Runtime(RuntimeError),

    #[error(transparent)]
    DamagedRollback(DamagedRollback),

    #[error(
        "nothing younger than {} can be pruned, and `older_than` is {}; write `.older_than({})` or more",
        humane(*least),
        humane(*age),
        written(*least)
    )]
    PruneAge { age: Duration, least: Duration },

    #[error("{}, and so not deleted: {source}", unarchived(*count))]
    Archive { count: usize, source: Box<dyn Error + Send + Sync> },

    #[error("{target} cannot be paused: a name has 1 to 255 bytes without NUL")]
    PauseTarget { target: PauseTarget },

    #[error(
        "a pause for {} would end at once; write `.for_at_most({})` or more, or leave it out: then the pause lasts until \
         `resume` ends it",
        humane(*time),
        written(*least)
    )]
    PauseTime { time: Duration, least: Duration },

    #[error("the {part} of a pause has {chars} characters, and {chars_max} are possible")]
    PauseText { part: &'static str, chars: usize, chars_max: usize },

    #[error("{failed} entities of `{entity}` cannot be rebuilt:{}", not_rebuilt(*.failed, .failures))]
    EntitiesNotRebuilt {
        entity: &'static str,
        failed: u64,
        failures: Vec<EntityNotRebuilt>,
        rebuilt: RebuiltEntities,
    },

    #[error("{needs} needs PostgreSQL, and this program runs in memory")]
    InMemory { needs: &'static str },
}

impl fmt::Display for OperateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for OperateError {
    /// A transient error of the runtime is its own source, with the same text: the engine repeats a step that fails because of one.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &*self.0 {
            ErrorKind::Runtime(error) if error.is_transient() => Some(error),
            kind => kind.source(),
        }
    }
}

impl From<RuntimeError> for OperateError {
    fn from(error: RuntimeError) -> Self {
        ErrorKind::Runtime(error).into()
    }
}

impl From<ErrorKind> for OperateError {
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl OperateError {
    /// The error of the runtime that this one is, if so.
    fn of_runtime(&self) -> Option<&RuntimeError> {
        match &*self.0 {
            ErrorKind::Runtime(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the call may succeed when repeated: the connection or the server failed, or there was no connection for a read, not
    /// the request.
    pub fn is_transient(&self) -> bool {
        self.of_runtime().is_some_and(RuntimeError::is_transient)
    }

    /// Whether the request may have taken effect despite this error, since the answer of the database was lost.
    pub fn may_have_happened(&self) -> bool {
        self.of_runtime().is_some_and(RuntimeError::may_have_happened)
    }

    /// Whether there is no such run, hierarchy, message, unique key, schedule or handler: it was never there, or it was deleted. So it
    /// is with an id that is [of another kind](Self::wrong_id), and a key that [outlives](Self::key_valid_until) its hierarchy.
    pub fn is_not_found(&self) -> bool {
        self.of_runtime().is_some_and(|error| error.is_not_found() || error.is_no_handler())
    }

    /// Whether an argument is wrong: a name, a text, a time or a value that is not possible.
    pub fn is_invalid(&self) -> bool {
        use ErrorKind::{PauseTarget, PauseText, PauseTime, PruneAge};
        matches!(*self.0, PruneAge { .. } | PauseTarget { .. } | PauseTime { .. } | PauseText { .. })
            || self.of_runtime().is_some_and(RuntimeError::is_invalid)
    }

    /// Whether the role of the connections lacks a right. The guide has a page about security, which lists the rights.
    pub fn is_denied(&self) -> bool {
        self.of_runtime().is_some_and(RuntimeError::is_denied)
    }

    /// Whether the database did not answer in time, or the program was shut down.
    pub fn is_unavailable(&self) -> bool {
        self.of_runtime().is_some_and(RuntimeError::is_unavailable)
    }

    /// Whether other reads of this program had all its connections for reads, for too long.
    pub fn is_busy(&self) -> bool {
        self.of_runtime().is_some_and(RuntimeError::is_busy)
    }

    /// Whether the record of a failed rollback is damaged. So neither can its run be repaired, nor a run whose repair concerns it.
    pub fn is_damaged(&self) -> bool {
        matches!(*self.0, ErrorKind::DamagedRollback(_))
    }

    /// What the given id names, and the kind of id that the call takes, if these differ.
    pub fn wrong_id(&self) -> Option<(&IdObject, IdKind)> {
        self.of_runtime()?.wrong_id()
    }

    /// The time until which a unique key is kept whose hierarchy was deleted.
    pub fn key_valid_until(&self) -> Option<SystemTime> {
        self.of_runtime()?.key_valid_until()
    }

    /// The least time that is possible, if a shorter one was given: as the age of what is pruned, or for a pause.
    pub fn least(&self) -> Option<Duration> {
        match *self.0 {
            ErrorKind::PruneAge { least, .. } | ErrorKind::PauseTime { least, .. } => Some(least),
            _ => None,
        }
    }

    /// The entities that are rebuilt although others cannot be.
    pub fn rebuilt(&self) -> Option<&RebuiltEntities> {
        match &*self.0 {
            ErrorKind::EntitiesNotRebuilt { rebuilt, .. } => Some(rebuilt),
            _ => None,
        }
    }

    /// The entities that cannot be rebuilt, up to 100.
    pub fn not_rebuilt(&self) -> &[EntityNotRebuilt] {
        match &*self.0 {
            ErrorKind::EntitiesNotRebuilt { failures, .. } => failures,
            _ => &[],
        }
    }

    /// What is wrong with the schema, if the tables are missing or do not fit.
    pub fn setup(&self) -> &[SetupError] {
        self.of_runtime().map_or(&[], RuntimeError::setup)
    }
}

/// The error of an operation that was given up.
pub(crate) fn failed(doing: &'static str) -> impl FnOnce(GivenUp) -> OperateError {
    move |given_up| GivenUp::error(doing)(given_up).into()
}

/// The first of these failures, and the number of the others.
fn not_rebuilt(failed: u64, failures: &[EntityNotRebuilt]) -> String {
    const SHOWN_MAX: usize = 10;
    let shown: String = failures.iter().take(SHOWN_MAX).map(|failure| format!("\n  - {failure}")).collect();
    match failed.saturating_sub(SHOWN_MAX as u64) {
        0 => shown,
        others => format!("{shown}\n  - and {others} others"),
    }
}

#[cfg(test)]
mod tests {
    use scoop_runtime::internal;

    use super::*;

    #[test]
    fn transient_error_of_the_runtime_is_among_the_sources() {
        let kind = internal::ErrorKind::ReadsBusy { doing: "runs were listed", waited: Duration::ZERO };
        let busy = OperateError::from(RuntimeError::from(kind));
        assert!(busy.is_busy() && busy.is_unavailable() && busy.is_transient(), "{busy:?}");
        assert!(busy.source().is_some_and(|source| source.is::<RuntimeError>()), "{busy:?}");
        let absent = RuntimeError::from(internal::ErrorKind::NoSchedule { saga: "daily".into() });
        let absent = OperateError::from(absent);
        assert!(absent.is_not_found() && absent.source().is_none(), "{absent:?}");
    }

    #[test]
    fn hierarchies_that_are_not_archived_are_counted_in_words() {
        let archive = |count| ErrorKind::Archive { count, source: "no space".into() }.to_string();
        assert_eq!(archive(1), "1 hierarchy was not archived, and so not deleted: no space");
        assert_eq!(archive(2), "2 hierarchies were not archived, and so not deleted: no space");
    }
}
