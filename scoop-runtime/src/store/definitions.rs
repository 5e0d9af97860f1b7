//! The definitions of sagas in different programs, and the queues that follow from them.

use scoop_core::{Definition, RecordedStep};
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use super::limit::LimitedSaga;
use super::queue::LimitedTopics;
use super::types::ClaimKey;
use crate::model::pause::PauseTarget;
use crate::model::program::Program;

/// The runs that a worker may claim: those of some handlers, on some topic each, that are reserved for one definition
/// of the handler, or for none. Lists with an element for each such queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClaimQueues {
    pub(crate) topics: Vec<String>,
    pub(crate) handlers: Vec<String>,
    /// The definition that the runs are reserved for; 0 for those that continue under the current definition.
    pub(crate) reserved_for: Vec<i32>,
    /// Whether a pause for new runs only covers the queue: then claims pass over its new runs.
    pub(crate) begun_only: Vec<bool>,
    /// The definition at hand.
    pub(crate) definitions: Vec<i32>,
    /// The last step of the definition at hand.
    pub(crate) last_steps: Vec<String>,
    /// The value of `worker.topology` that the lists follow from. With another value nothing is claimed.
    pub(crate) topology: i64,
}

impl ClaimQueues {
    pub(crate) fn push(
        &mut self,
        topic: &str,
        saga: &Definition,
        definition: i32,
        reserved_for: i32,
        begun_only: bool,
    ) {
        self.topics.push(topic.to_owned());
        self.handlers.push(saga.saga.to_string());
        self.reserved_for.push(reserved_for);
        self.begun_only.push(begun_only);
        self.definitions.push(definition);
        self.last_steps.push(saga.last_step().unwrap_or_default().to_owned());
    }

    pub(crate) fn extend(&mut self, queues: &Self) {
        self.topics.extend_from_slice(&queues.topics);
        self.handlers.extend_from_slice(&queues.handlers);
        self.reserved_for.extend_from_slice(&queues.reserved_for);
        self.begun_only.extend_from_slice(&queues.begun_only);
        self.definitions.extend_from_slice(&queues.definitions);
        self.last_steps.extend_from_slice(&queues.last_steps);
    }

    /// The queues of runs that are not reserved, of these topics and handlers.
    #[cfg(test)]
    pub(crate) fn unreserved(topics: &[String], handlers: &[String]) -> Self {
        let count = topics.len();
        Self {
            topics: topics.to_vec(),
            handlers: handlers.to_vec(),
            reserved_for: vec![0; count],
            begun_only: vec![false; count],
            definitions: vec![0; count],
            last_steps: vec![String::new(); count],
            topology: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    /// The topics, handlers and reservations.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &str, i32)> {
        let pairs = self.topics.iter().zip(&self.handlers);
        pairs.zip(&self.reserved_for).map(|((topic, handler), queue)| (&**topic, &**handler, *queue))
    }

    /// The queues that `accepts` accepts, by topic, handler and reservation.
    pub(crate) fn only(&self, accepts: impl Fn((&str, &str, i32)) -> bool) -> Self {
        let mut only = Self { topology: self.topology, ..Self::default() };
        for (at, queue) in self.each().enumerate().filter(|(_, queue)| accepts(*queue)) {
            only.topics.push(queue.0.to_owned());
            only.handlers.push(queue.1.to_owned());
            only.reserved_for.push(queue.2);
            only.begun_only.push(self.begun_only[at]);
            only.definitions.push(self.definitions[at]);
            only.last_steps.push(self.last_steps[at].clone());
        }
        only
    }
}

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
