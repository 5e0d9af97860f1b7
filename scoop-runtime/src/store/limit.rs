//! The limits of sagas, and claims under them.

use super::definitions::Lanes;
use super::types::{ClaimedRun, Unclaimed};
use crate::saga::limits::Limits;

/// A saga of this program with its limits.
#[derive(Clone, Debug)]
pub(crate) struct SagaLimit {
    pub(crate) saga: String,
    /// Its former names.
    pub(crate) was: Vec<String>,
    pub(crate) limits: Limits,
}

/// A saga with a limit: its newest name, and all of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitedSaga {
    pub(crate) saga: String,
    pub(crate) handlers: Vec<String>,
}

/// A recorded limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedLimit {
    pub(crate) of: LimitedSaga,
    /// How many of its runs are executed at once.
    pub(crate) concurrency: i32,
}

/// The queues of a saga with a limit, from which a worker claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LimitedQueue {
    pub(crate) saga: String,
    pub(crate) lanes: Lanes,
}

/// The result of a claim under a limit.
#[derive(Debug, Default)]
pub(crate) struct LimitedClaim {
    pub(crate) runs: Vec<Result<ClaimedRun, Unclaimed>>,
    /// Whether the limit leaves room for no further run.
    pub(crate) is_reached: bool,
}

impl SagaLimit {
    fn names(&self) -> impl Iterator<Item = &String> {
        self.was.iter().chain([&self.saga])
    }

    /// The recorded limits of this saga, under any of its names.
    pub(crate) fn recorded<'a>(
        &'a self,
        all: &'a [RecordedLimit],
    ) -> impl Iterator<Item = &'a RecordedLimit> {
        all.iter().filter(|it| self.names().any(|name| it.of.handlers.contains(name)))
    }

    /// The limit to record, if it has one: for all names that it has here or in these recorded ones.
    pub(crate) fn to_record(&self, all: &[RecordedLimit]) -> Option<RecordedLimit> {
        let concurrency = i32::try_from(self.limits.concurrency?).unwrap_or(i32::MAX);
        let mut handlers: Vec<_> = self.names().cloned().collect();
        handlers.extend(self.recorded(all).flat_map(|it| it.of.handlers.iter().cloned()));
        handlers.sort_unstable();
        handlers.dedup();
        Some(RecordedLimit { of: LimitedSaga { saga: self.saga.clone(), handlers }, concurrency })
    }

    /// Whether these recorded ones differ from the limit to record.
    pub(crate) fn is_outdated(&self, all: &[RecordedLimit]) -> bool {
        let recorded: Vec<_> = self.recorded(all).collect();
        match self.to_record(all) {
            Some(limit) => recorded != [&limit],
            None => !recorded.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(saga: &str, handlers: &[&str], concurrency: i32) -> RecordedLimit {
        let handlers = handlers.iter().map(|name| (*name).to_owned()).collect();
        RecordedLimit { of: LimitedSaga { saga: saga.to_owned(), handlers }, concurrency }
    }

    fn limit(saga: &str, was: &[&str], limits: Limits) -> SagaLimit {
        let was = was.iter().map(|name| (*name).to_owned()).collect();
        SagaLimit { saga: saga.to_owned(), was, limits }
    }

    #[test]
    fn limit_of_a_renamed_saga_replaces_those_of_its_names() {
        let known = [recorded("b", &["a", "b"], 2), recorded("x", &["x"], 1)];
        let same = limit("b", &["a"], Limits::NONE.concurrency(2));
        assert!(!same.is_outdated(&known));
        let renamed = limit("c", &["b"], Limits::NONE.concurrency(2));
        assert!(renamed.is_outdated(&known));
        assert_eq!(renamed.to_record(&known), Some(recorded("c", &["a", "b", "c"], 2)));
        assert_eq!(renamed.recorded(&known).count(), 1);
        assert!(limit("a", &[], Limits::NONE.concurrency(2)).is_outdated(&known), "the newest start decides");
    }

    #[test]
    fn removed_limit_is_outdated() {
        let known = [recorded("b", &["a", "b"], 2)];
        assert!(limit("a", &[], Limits::NONE).is_outdated(&known));
        assert!(!limit("y", &[], Limits::NONE).is_outdated(&known));
        assert_eq!(limit("a", &[], Limits::NONE).to_record(&known), None);
    }
}
