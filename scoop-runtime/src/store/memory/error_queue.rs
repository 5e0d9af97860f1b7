//! Sends the message [`Failed`](crate::Failed); see `scoop.send_failed` in `0006_failures.sql`.

use std::sync::Arc;

use scoop_core::{Context, EventKind, Failure};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::launch::RootMessage;
use super::row::WorkingRow;
use super::state::State;
use crate::model::failed::{Failed, FailedOutcome, TOPIC};
use crate::store::memory::row::RowKey;
use crate::util::payload;

/// The name space of the ids of these messages.
const MESSAGES: Uuid = Uuid::from_u128(0x5c1d_93f0_7c11_4f0e_9a4b_2f64_7d0b_63a8);

/// A run that ended or is stuck.
pub(super) struct FailedRun {
    pub(super) outcome: FailedOutcome,
    pub(super) root: Uuid,
    pub(super) run: Uuid,
    pub(super) saga: Arc<str>,
    pub(super) message: Uuid,
    pub(super) at: OffsetDateTime,
    /// The step; none for that of the recorded failure.
    pub(super) step: Option<String>,
    pub(super) failure: Failure,
    pub(super) rollback_failure: Option<Failure>,
}

impl FailedRun {
    pub(super) fn new(outcome: FailedOutcome, row: &WorkingRow) -> Self {
        Self {
            outcome,
            root: row.root(),
            run: row.id(),
            saga: row.handler.clone(),
            message: row.message_id,
            at: row.last_event_at,
            step: None,
            failure: row.failure.clone().unwrap_or_else(|| stuck(row)),
            rollback_failure: None,
        }
    }

    /// The topics of the message about it.
    fn topics(&self) -> [String; 4] {
        let (outcome, saga) = (self.outcome.name(), &self.saga);
        [
            TOPIC.to_owned(),
            format!("{TOPIC}.{outcome}"),
            format!("{TOPIC}:{saga}"),
            format!("{TOPIC}.{outcome}:{saga}"),
        ]
    }
}

impl State {
    pub(super) fn send_stuck(&mut self, run: RowKey) {
        let Some(row) = self.row(run) else { return };
        let failed = FailedRun {
            step: row.step.clone(),
            failure: stuck(row),
            ..FailedRun::new(FailedOutcome::Stuck, row)
        };
        self.send_failed(&failed);
    }

    /// Sends the message about a failed run, to each topic of it that has a handler. Returns the handlers.
    pub(super) fn send_failed(&mut self, failed: &FailedRun) -> Vec<String> {
        let topics: Vec<_> =
            failed.topics().into_iter().filter(|topic| !self.listening(topic).is_empty()).collect();
        if topics.is_empty() || self.is_about_failure(failed.root) {
            return vec![];
        }
        let payload = self.failed_payload(failed);
        // Claims of a stuck run raise the time of its last event.
        let record = self.hierarchy(failed.root).map(|hierarchy| &hierarchy.record);
        let newest = record.and_then(|record| record.of_run(failed.run).next_back()).map(|event| event.at);
        let event = newest.filter(|_| failed.outcome == FailedOutcome::Stuck).unwrap_or(failed.at);
        let launched = topics.iter().map(|topic| {
            let text =
                format!("{topic} {:?} {} {}", failed.outcome, failed.run, event.unix_timestamp_nanos());
            (topic, Uuid::new_v5(&MESSAGES, text.as_bytes()))
        });
        let context = Context::default();
        let messages = launched.map(|(topic, id)| RootMessage {
            id,
            root: crate::util::ids::now_v7(),
            topic,
            payload: payload.clone(),
            context: &context,
            due: None,
            give_up_at: None,
            local_runs: None,
        });
        self.launch(messages, None).handlers
    }

    /// Whether a message about a failure has started the hierarchy.
    fn is_about_failure(&self, root: Uuid) -> bool {
        let Some(hierarchy) = self.hierarchy(root) else { return false };
        let emitted = hierarchy.record.of_run(root).find(|event| event.kind == EventKind::Emitted);
        emitted.is_some_and(|event| hierarchy.record.topic_of(event.message).starts_with(TOPIC))
    }

    fn failed_payload(&self, failed: &FailedRun) -> Value {
        let record = self.hierarchy(failed.root).map(|hierarchy| &hierarchy.record);
        let began_rollback =
            record.and_then(|it| it.of_handler(failed.message, EventKind::RollingBack, &failed.saga));
        let message = record.and_then(|record| record.messages.get(&failed.message));
        let execution = record.and_then(|record| record.start_of(failed.run)?.begins.as_ref());
        let newest = record.zip(execution).and_then(|(record, it)| record.messages.get(&it.message));
        let mut document = Failed {
            outcome: failed.outcome,
            saga: failed.saga.to_string(),
            step: failed.step.clone().or_else(|| began_rollback?.step.clone()),
            hierarchy: failed.root.into(),
            run: failed.run.into(),
            topic: message.map(|message| message.topic.to_string()).unwrap_or_default(),
            payload: newest.or(message).map(|message| message.payload.clone()),
            failure: failed.failure.clone(),
            rollback_failure: failed.rollback_failure.clone(),
            at: failed.at,
        };
        if let Some(fitting) = storable(&document) {
            return fitting;
        }
        document.payload = None;
        if let Some(fitting) = storable(&document) {
            return fitting;
        }
        // A value of an error may be too deep.
        document.failure.causes = Arc::default();
        if let Some(failure) = &mut document.rollback_failure {
            failure.causes = Arc::default();
        }
        storable(&document).unwrap_or_default()
    }
}

/// Why the run of this row is stuck.
fn stuck(row: &WorkingRow) -> Failure {
    Failure::new("Stuck", row.reason.as_deref().unwrap_or("stuck"), &row.handler)
}

fn storable(failed: &Failed) -> Option<Value> {
    let value = serde_json::to_value(failed).ok()?;
    payload::storable(value, payload::BYTES_MAX_DEFAULT, String::new).ok()
}
