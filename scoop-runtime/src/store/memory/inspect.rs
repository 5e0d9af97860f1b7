//! The contents of a database in memory, for tests.

use std::time::SystemTime;

use scoop_core::{Context, EventKind, Failure, Lineage, SignalKey, Wait};
use serde_json::Value;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::{Event, EventLog};
use super::row::WorkingRow;
use crate::model::run::RowState;

/// An event, as in the protocol's table `message_event`, with the topic of its message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LoggedEvent {
    /// Its id.
    pub id: Uuid,
    /// The message that it is about.
    pub message_id: Uuid,
    /// The topic of that message.
    pub topic: String,
    /// The type of the event.
    pub kind: EventKind,
    /// The saga; none for an event without a run: a launch from outside, a request.
    pub handler: Option<String>,
    /// The recording process, as in the column `coroutine_identifier`.
    pub worker: Option<String>,
    /// The step.
    pub step: Option<String>,
    /// The lineage of the run, or of the launch or request.
    pub lineage: Lineage,
    /// The time, by the clock of the database.
    pub at: SystemTime,
    /// The failure or the request.
    pub exception: Option<Failure>,
    /// The context of the run or the message; empty where the table has null.
    pub context: Context,
    /// The position of the next step.
    pub next_step: Option<i32>,
    /// How often the failures of the children had been handled before.
    pub child_failure_handler_iteration: Option<i32>,
    /// Whether the run continues as new after it.
    pub continues_as_new: bool,
    /// The time before which the run does not continue, if the step sleeps.
    pub waits_until: Option<SystemTime>,
    /// The signal that the run awaits after it.
    pub awaits: Option<SignalKey>,
    /// The time at which it goes on without that signal.
    pub awaits_until: Option<SystemTime>,
    /// What the run waits for after it, as it is stored.
    pub wait: Value,
}

/// An unfinished run, as in the working set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkingRun {
    /// The lineage of the run.
    pub lineage: Lineage,
    /// The message that it handles.
    pub message_id: Uuid,
    /// The topic of that message.
    pub topic: String,
    /// The saga.
    pub handler: String,
    /// The state.
    pub state: RowState,
    /// The time from which it can be claimed, if it is ready; the time since when it is stuck.
    pub ready_at: SystemTime,
    /// Raised by each claim and settlement.
    pub epoch: i64,
    /// The process that executes it, if it is running.
    pub owner: Option<Uuid>,
    /// Why it is stuck, or why the last attempt failed.
    pub reason: Option<String>,
    /// The key under which it counts for the limit of its saga, if it is running.
    pub limit_key: Option<String>,
}

impl MemoryStore {
    pub(crate) fn event_log(&self) -> Vec<LoggedEvent> {
        let state = self.lock();
        let records = state.hierarchies.values().map(|hierarchy| &hierarchy.record);
        let mut events: Vec<_> =
            records.flat_map(|record| record.events.iter().map(move |event| (record, event))).collect();
        events.sort_unstable_by_key(|(_, event)| event.ordinal);
        events.into_iter().map(|(record, event)| event.logged_event(record)).collect()
    }

    pub(crate) fn event_log_of(&self, root: Uuid) -> Vec<LoggedEvent> {
        let state = self.lock();
        let record = state.hierarchy(root).map(|hierarchy| &hierarchy.record);
        let events = record
            .into_iter()
            .flat_map(|record| record.events.iter().map(|event| event.logged_event(record)));
        events.collect()
    }

    pub(crate) fn working_set(&self) -> Vec<WorkingRun> {
        let state = self.lock();
        state
            .hierarchies
            .values()
            .flat_map(|hierarchy| hierarchy.rows.values())
            .map(WorkingRow::to_public)
            .collect()
    }

    pub(crate) fn prune_finished(&self) -> usize {
        self.lock().prune_finished()
    }
}

/// Rows of the tables beside the event log.
#[cfg(feature = "simulation")]
mod tables {
    use scoop_core::read_output_name;

    use super::MemoryStore;
    use crate::model::run::RowState;
    use crate::store::memory::contents::{BegunStep, EndedRun, Execution, FailedRun, Output, Tables};

    impl MemoryStore {
        pub(crate) fn tables(&self) -> Tables {
            let state = self.lock();
            let signals = state.signals.iter().map(|(id, row)| row.to_public(*id)).collect();
            let mut tables = Tables { signals, ..Tables::default() };
            for hierarchy in state.hierarchies.values() {
                let begun = hierarchy.begun_steps.iter().map(|begun| BegunStep {
                    run: begun.run,
                    step: begun.step.clone(),
                    number: usize::try_from(begun.instance).unwrap_or(0),
                    at: begun.at.into(),
                });
                tables.begun_steps.extend(begun);
                for (run, values) in &hierarchy.record.values {
                    let outputs = values.iter().filter_map(|(name, value)| {
                        let (step, number) = read_output_name(name)?;
                        let number = number as usize;
                        Some(Output { run: *run, step: step.to_owned(), number, value: value.clone() })
                    });
                    tables.outputs.extend(outputs);
                }
                let executions = hierarchy.record.events.iter().filter_map(|event| {
                    let number = usize::try_from(event.begins?.number).unwrap_or(0);
                    Some(Execution { run: event.lineage.id(), number, began_at: event.at.into() })
                });
                tables.executions.extend(executions);
                let ended = hierarchy.ended.values().map(|ended| EndedRun {
                    lineage: ended.last.lineage.clone(),
                    message_id: ended.last.message_id,
                    handler: ended.last.handler.to_string(),
                    outcome: ended.outcome,
                    failure: ended.last.failure.clone(),
                    rollback_failure: ended.last.rollback_failure.clone(),
                    context: ended.last.context.clone(),
                    ended_at: ended.last.last_event_at.into(),
                });
                tables.ended_runs.extend(ended);
                let failed = hierarchy
                    .rows
                    .values()
                    .filter(|row| row.rollback_failure.is_some() && row.state != RowState::Ended);
                tables.failed_runs.extend(failed.map(|row| FailedRun {
                    run: row.id(),
                    rests: row.state == RowState::Failed,
                    parent: row.parent,
                }));
            }
            tables
        }
    }
}

impl Event {
    fn logged_event(&self, record: &EventLog) -> LoggedEvent {
        LoggedEvent {
            id: self.id,
            message_id: self.message,
            topic: record.topic_of(self.message).to_string(),
            kind: self.kind,
            handler: self.handler.as_deref().map(str::to_owned),
            worker: self.identifier.as_deref().map(str::to_owned),
            step: self.step.clone(),
            lineage: self.lineage.clone(),
            at: self.at.into(),
            exception: self.exception.clone(),
            context: self.context.clone(),
            next_step: self.next_step,
            child_failure_handler_iteration: self.handling,
            continues_as_new: self.begins.is_some(),
            waits_until: self
                .wait
                .as_ref()
                .filter(|wait| wait.signal().is_none())
                .and_then(Wait::limit)
                .map(Into::into),
            awaits: self.wait.as_ref().and_then(Wait::signal).cloned(),
            awaits_until: self
                .wait
                .as_ref()
                .filter(|wait| wait.signal().is_some())
                .and_then(Wait::limit)
                .map(Into::into),
            wait: serde_json::to_value(&self.wait).unwrap_or_default(),
        }
    }
}

impl WorkingRow {
    fn to_public(&self) -> WorkingRun {
        WorkingRun {
            lineage: self.lineage.clone(),
            message_id: self.message_id,
            topic: self.topic.to_string(),
            handler: self.handler.to_string(),
            state: self.state,
            ready_at: self.ready_at.into(),
            epoch: self.epoch,
            owner: self.owner,
            reason: self.reason.clone(),
            limit_key: self.limit_key.clone().filter(|_| self.state == RowState::Running),
        }
    }
}
