//! The limits of sagas, and claims under them.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

use super::definitions::Lanes;
use super::types::{ClaimedRun, Claimer, Suspect, Unclaimed};
use crate::bug::{Bug, is_injected};
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitedSaga {
    pub(crate) saga: String,
    pub(crate) handlers: Vec<String>,
    /// The field or function of the program that decides, from which the keys come. None if all runs count together.
    pub(crate) key_from: Option<String>,
}

/// A recorded limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedLimit {
    pub(crate) of: LimitedSaga,
    /// How many of its runs are executed at once: of the saga, or of each key.
    pub(crate) concurrency: i32,
}

/// The queues of a saga with a limit, from which a worker claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LimitedQueue {
    pub(crate) of: LimitedSaga,
    pub(crate) lanes: Lanes,
}

/// What a worker asks for of a saga with a limit.
#[derive(Clone, Copy)]
pub(crate) struct LimitedRequest<'a> {
    pub(crate) claimer: Claimer<'a>,
    pub(crate) queue: &'a LimitedQueue,
    /// How many runs it takes; none if it only returns parked ones to their queues.
    pub(crate) slots: usize,
    /// The only run that it takes.
    pub(crate) suspect: Option<&'a Suspect>,
    pub(crate) freed: &'a FreedKeys,
    /// The key of a run.
    pub(crate) key_of: &'a (dyn Fn(&Candidate) -> String + Send + Sync),
}

/// The keys that may have free places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FreedKeys {
    /// These.
    Some(Vec<String>),
    /// Any: runs may have ended in processes that died.
    Any,
}

/// A due run that may be claimed, as far as its key follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) payload: Value,
}

/// The result of a claim under a limit.
#[derive(Debug, Default)]
pub(crate) struct LimitedClaim {
    pub(crate) runs: Vec<Result<ClaimedRun, Unclaimed>>,
    /// Whether there may be more to claim.
    pub(crate) is_full: bool,
    /// Whether the limit of the saga leaves room for no further run.
    pub(crate) is_reached: bool,
}

/// The runs of a claim, each with its key.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    pub(crate) runs: Vec<(Candidate, String)>,
    /// Those whose key has no free place.
    pub(crate) over: Vec<(Candidate, String)>,
}

impl Admitted {
    /// Divides candidates, in their order, until so many runs are admitted. `running` has the number of runs in execution of
    /// each key.
    pub(crate) fn divide(
        candidates: Vec<(Candidate, String)>,
        mut running: BTreeMap<String, i64>,
        concurrency: i32,
        most: usize,
    ) -> Self {
        let mut admitted = Self::default();
        for (candidate, key) in candidates {
            if admitted.runs.len() == most {
                break;
            }
            let count = running.entry(key.clone()).or_default();
            if *count < i64::from(concurrency) || is_injected(Bug::ExceedLimits) {
                *count += 1;
                admitted.runs.push((candidate, key));
            } else {
                admitted.over.push((candidate, key));
            }
        }
        admitted
    }
}

impl FreedKeys {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Some(keys) if keys.is_empty())
    }
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
        let key_from = self.limits.by.map(str::to_owned);
        Some(RecordedLimit { of: LimitedSaga { saga: self.saga.clone(), handlers, key_from }, concurrency })
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
        let of = LimitedSaga { saga: saga.to_owned(), handlers, key_from: None };
        RecordedLimit { of, concurrency }
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
        assert!(limit("b", &["a"], Limits::NONE.concurrency_by(2, "key")).is_outdated(&known));
    }

    #[test]
    fn removed_limit_is_outdated() {
        let known = [recorded("b", &["a", "b"], 2)];
        assert!(limit("a", &[], Limits::NONE).is_outdated(&known));
        assert!(!limit("y", &[], Limits::NONE).is_outdated(&known));
        assert_eq!(limit("a", &[], Limits::NONE).to_record(&known), None);
    }

    fn candidate(id: u128) -> Candidate {
        let id = Uuid::from_u128(id);
        Candidate { root: id, id, topic: "t".into(), handler: "h".into(), payload: Value::Null }
    }

    #[test]
    fn run_of_a_reached_key_holds_up_no_run_of_another_key() {
        let runs = [(1, "a"), (2, "a"), (3, "b"), (4, "a"), (5, "b"), (6, "c")];
        let runs = runs.map(|(id, key)| (candidate(id), key.to_owned())).to_vec();
        let ids = |of: &[(Candidate, String)]| of.iter().map(|(it, _)| it.id.as_u128()).collect::<Vec<_>>();
        let divide = |most| {
            let running = [("a".into(), 1), ("c".into(), 2)].into();
            let Admitted { runs, over } = Admitted::divide(runs.clone(), running, 2, most);
            (ids(&runs), ids(&over))
        };
        assert_eq!(divide(10), (vec![1, 3, 5], vec![2, 4, 6]));
        assert_eq!(divide(2), (vec![1, 3], vec![2]), "those behind stay in their queue");
    }
}
