//! The rows of a database in memory, as simulations read them.

use std::time::SystemTime;

use scoop_core::{Context, Failure, Lineage, SignalKey};
use serde_json::Value;
use uuid::Uuid;

use super::RunOutcome;

/// A period of subscription of a handler to a topic. Times are those of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The topic.
    pub topic: String,
    /// The handler.
    pub handler: String,
    /// The start of the subscription.
    pub since: SystemTime,
    /// The end of the subscription, if it was retired (`operate().handlers().retire`).
    pub until: Option<SystemTime>,
    /// Whether its pending deliveries were dropped then.
    pub dropped: bool,
}

/// An event of an entity, as in the table `entity_event`, with its message.
#[derive(Clone, Debug, PartialEq)]
pub struct EntityEvent {
    /// The name of the entity.
    pub entity: &'static str,
    /// The key of the entity.
    pub key: String,
    /// The version of the entity after it.
    pub version: i64,
    /// The message.
    pub message_id: Uuid,
    /// The topic of the message; none if there is no such message.
    pub topic: Option<String>,
    /// The payload of the message; null if there is no such message.
    pub payload: Value,
    /// The run of the command.
    pub run: Uuid,
}

/// The rows of the tables beside the event log. Times are those of the database.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Tables {
    /// All signals that were sent.
    pub signals: Vec<StoredSignal>,
    /// The outputs of steps, and the signals with which waits ended.
    pub outputs: Vec<Output>,
    /// The steps that run at most once and have begun.
    pub begun_steps: Vec<BegunStep>,
    /// The executions of runs that continued as new, without the first one of each run.
    pub executions: Vec<Execution>,
    /// The runs whose rollback has failed and that have not ended.
    pub failed_runs: Vec<FailedRun>,
    /// The runs that have ended.
    pub ended_runs: Vec<EndedRun>,
}

/// A run whose rollback has failed and that has not ended, as in the table `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRun {
    /// The run.
    pub run: Uuid,
    /// Whether it rests as failed. Otherwise a repair is under way.
    pub rests: bool,
    /// The run that waits for it, or that failed because of it.
    pub parent: Option<Uuid>,
}

/// A run that has ended, as in the table `ended_run`.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRun {
    /// The lineage of the run.
    pub lineage: Lineage,
    /// The message that it handled.
    pub message_id: Uuid,
    /// The saga.
    pub handler: String,
    /// What became of it.
    pub outcome: RunOutcome,
    /// Why it was rolled back.
    pub failure: Option<Failure>,
    /// Why its rollback had failed the last time, if it was repaired.
    pub rollback_failure: Option<Failure>,
    /// The context that it ended with.
    pub context: Context,
    /// The time of its last event.
    pub ended_at: SystemTime,
}

/// A signal that was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSignal {
    /// Its id.
    pub id: Uuid,
    /// Its name and key.
    pub to: SignalKey,
    /// Its payload.
    pub payload: Value,
    /// The time at which it was sent.
    pub sent_at: SystemTime,
    /// The time until which it is kept if no run awaits it.
    pub expires_at: SystemTime,
    /// The time of its delivery, if it was delivered.
    pub delivered_at: Option<SystemTime>,
    /// The number of runs that it reached.
    pub reached: u64,
}

/// The output of a step, or the signal with which a wait ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The run.
    pub run: Uuid,
    /// The step.
    pub step: String,
    /// The number of the suspension among those of the forward path of the run, from 0 on.
    pub number: usize,
    /// The output.
    pub value: Value,
}

/// A step that runs at most once, and whose code may have run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunStep {
    /// The run.
    pub run: Uuid,
    /// The step.
    pub step: String,
    /// The number that its suspension has among those of the forward path of the run, from 0 on.
    pub number: usize,
    /// The time at which it began.
    pub at: SystemTime,
}

/// An execution of a run that continued as new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The run.
    pub run: Uuid,
    /// The number of executions before it.
    pub number: usize,
    /// The time at which it began.
    pub began_at: SystemTime,
}
