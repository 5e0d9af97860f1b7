//! The JSON of a tree, as far as it does not follow from the fields: `docs/reference/command_line.md` has it, and it stays as it is.

use std::time::{Duration, SystemTime};

use scoop_core::EventKind;
use serde::{Serialize, Serializer};

use super::{RunEvent, RunInfo, RunState, with_descendants};
use crate::RunPhase;
use crate::model::json::FailureReport;
pub(super) use crate::model::json::{lineage, millis, time};

/// All runs, each before its children, which name it as their parent.
pub(super) fn runs<S: Serializer>(roots: &[RunInfo], serializer: S) -> Result<S::Ok, S::Error> {
    with_descendants(roots).serialize(serializer)
}

/// A state with its reason or its failure, for `flatten`.
pub(super) fn state<S: Serializer>(state: &RunState, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Json<'a> {
        state: RunPhase,
        reason: Option<&'a str>,
        failure: Option<FailureReport<'a>>,
    }
    let (reason, failure) = match state {
        RunState::Retrying { reason, .. } | RunState::Stuck { reason } => (Some(&**reason), None),
        RunState::RolledBack(failure) => (None, Some(FailureReport::of(failure))),
        RunState::RollbackFailed(failed) => (None, Some(FailureReport::of_rollback(failed))),
        _ => (None, None),
    };
    Json { state: state.phase(), reason, failure }.serialize(serializer)
}

/// The run of a bar, for `flatten`.
pub(super) fn run_of_bar<S: Serializer>(run: &RunInfo, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Json<'a> {
        run: crate::RunId,
        handler: &'a str,
        state: RunPhase,
    }
    Json { run: run.id(), handler: &run.handler, state: run.state.phase() }.serialize(serializer)
}

/// With its word and its step, which depend on its meaning.
impl Serialize for RunEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json<'a> {
            kind: EventKind,
            what: &'static str,
            step: Option<&'a str>,
            #[serde(serialize_with = "time")]
            at: Option<SystemTime>,
            #[serde(rename = "took_ms", serialize_with = "millis")]
            duration: Option<Duration>,
            #[serde(rename = "waited_ms", serialize_with = "millis")]
            waited: Option<Duration>,
            worker: Option<&'a str>,
            failure: Option<FailureReport<'a>>,
            unreadable: Option<&'a str>,
            follows_gap: bool,
        }
        let failure = self.failure.as_ref().map(match self.kind {
            EventKind::RollbackFailed => FailureReport::of_rollback,
            _ => FailureReport::of,
        });
        Json {
            kind: self.kind,
            what: self.word(),
            step: self.subject(),
            at: self.at,
            duration: self.duration,
            waited: self.waited,
            worker: self.worker.as_deref(),
            failure,
            unreadable: self.unreadable.as_deref(),
            follows_gap: self.follows_gap,
        }
        .serialize(serializer)
    }
}
