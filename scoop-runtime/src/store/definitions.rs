//! The definitions of sagas in different programs, and the queues that follow from them.

use scoop_core::RecordedStep;
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use super::limit::LimitedSaga;
use super::queue_limit::LimitedTopics;
use super::types::ClaimKey;
use crate::model::pause::PauseTarget;
use crate::model::program::Program;

/// A run that a program cannot continue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandOverRequest<'a> {
    pub(crate) key: ClaimKey,
    pub(crate) reason: &'a str,
    pub(crate) worker: Uuid,
    pub(crate) definition: i32,
    /// Whether it is stuck if no living worker has another definition; otherwise the claim of it stays.
    pub(crate) or_stuck: bool,
    /// The only definition that may have it.
    pub(crate) only: Option<i32>,
}

/// The result for a run that a program cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// No living worker has a definition that has not refused it.
    Stuck,
    /// It is ready for a worker with another definition.
    HandedOver,
    /// The claim no longer held, or it stays.
    Void,
}

/// A definition of a program, to be recorded.
#[derive(Debug)]
pub(crate) struct NewDefinition {
    pub(crate) handler: String,
    pub(crate) fingerprint: Uuid,
    pub(crate) steps: Vec<NewStep>,
}

/// A step of a definition, as it is stored.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewStep {
    #[serde(flatten)]
    pub(crate) step: RecordedStep,
    /// The shape of the type of the signal for which it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal_shape: Option<String>,
}

/// What there is of the registration of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramRegistration {
    /// Whether its worker is not registered.
    pub(crate) lacks_worker: bool,
    /// The positions of its subscriptions without any row, also of an ended subscription.
    pub(crate) missing: Vec<usize>,
}

impl ProgramRegistration {
    pub(crate) fn is_complete(&self) -> bool {
        !self.lacks_worker && self.missing.is_empty()
    }
}

/// The living workers, the pauses and the limits of sagas, of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    pub(crate) living: Vec<LivingWorker>,
    /// What is paused: handlers under all their names, and whether for new runs only.
    pub(crate) paused: Vec<(PauseTarget, bool)>,
    /// The sagas with limits for claims, of those that were asked for, with the names that were asked for.
    pub(crate) limited: Vec<LimitedSaga>,
    pub(crate) limited_topics: LimitedTopics,
}

/// A living worker. The lists have an element for each of its sagas.
#[derive(Clone, Debug)]
pub(crate) struct LivingWorker {
    pub(crate) id: Uuid,
    pub(crate) topology: i64,
    /// The topology that it read last while something was paused.
    pub(crate) acknowledged: i64,
    pub(crate) started_at: OffsetDateTime,
    pub(crate) topics: Vec<String>,
    pub(crate) handlers: Vec<String>,
    pub(crate) definitions: Vec<i32>,
}

/// A worker that starts, or has a new session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered<'a> {
    pub(crate) worker: Uuid,
    pub(crate) topics: &'a [String],
    pub(crate) handlers: &'a [String],
    pub(crate) definitions: &'a [i32],
    /// When the worker started, if this is not its first session.
    pub(crate) started_at: Option<OffsetDateTime>,
    pub(crate) program: &'a Program,
}
