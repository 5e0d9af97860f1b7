//! Launches messages that start hierarchies of their own; see `message_insert_claiming.sql`,
//! `message_insert_one_claiming.sql` and `message_insert_many.sql`.

use std::collections::BTreeMap;
use std::sync::Arc;

use scoop_core::{Context, EventKind, Lineage};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::{Event, Message};
use super::row::WorkingRow;
use super::state::{Pair, State, after, child_of};
use crate::model::run::RowState;
use crate::store::{Claimer, LaunchResult, LaunchStorage, NewMessage, TickMessage, Unhandled};

/// A message as it is launched.
pub(super) struct RootMessage<'a> {
    pub(super) id: Uuid,
    pub(super) root: Uuid,
    pub(super) topic: &'a str,
    pub(super) payload: Value,
    pub(super) context: &'a Context,
    pub(super) due: Option<OffsetDateTime>,
    pub(super) give_up_at: Option<OffsetDateTime>,
    pub(super) local_runs: Option<&'a BTreeMap<String, Uuid>>,
}

impl<'a> From<&'a NewMessage> for RootMessage<'a> {
    fn from(launched: &'a NewMessage) -> Self {
        Self {
            id: launched.id,
            root: launched.root,
            topic: &launched.topic,
            payload: launched.payload.clone(),
            context: &launched.context,
            due: launched.due,
            give_up_at: launched.give_up_at(),
            local_runs: Some(&launched.local_runs),
        }
    }
}

impl<'a> RootMessage<'a> {
    pub(super) fn tick(tick: &'a TickMessage<'_>) -> sqlx::Result<Self> {
        let payload =
            serde_json::to_value(&tick.payload).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let (id, root, topic, context) = (tick.id, tick.root, tick.topic, &tick.context);
        Ok(Self { id, root, topic, payload, context, due: None, give_up_at: None, local_runs: None })
    }
}

impl LaunchStorage for MemoryStore {
    async fn launch_in_own_transaction(&self, messages: &[NewMessage]) -> sqlx::Result<LaunchResult> {
        self.run("launch", |state| {
            state.refuses_launch(messages).map_or(Ok(()), Err)?;
            Ok(state.launch(messages.iter().map(RootMessage::from), None))
        })
        .await
    }

    async fn launch_and_claim(
        &self,
        Claimer { worker, identifier }: Claimer<'_>,
        topology: i64,
        messages: &[NewMessage],
    ) -> sqlx::Result<LaunchResult> {
        self.run("launch_here", |state| {
            state.refuses_launch(messages).map_or(Ok(()), Err)?;
            let worker = state.may_claim(worker, topology).then(|| (worker, identifier.into()));
            Ok(state.launch(messages.iter().map(RootMessage::from), worker))
        })
        .await
    }
}

impl State {
    /// Launches the messages that do not exist yet. The worker, if any, claims the runs in `local_runs`.
    pub(super) fn launch<'a>(
        &mut self,
        messages: impl Iterator<Item = RootMessage<'a>>,
        worker: Option<(Uuid, Arc<str>)>,
    ) -> LaunchResult {
        let mut launch = LaunchResult { launched: 0, handlers: vec![], claimed: vec![] };
        for message in messages {
            if self.hierarchy_by_id.contains_key(&message.id) {
                continue;
            }
            launch.launched += 1;
            self.publish(message.root, message.id, message.topic, message.payload.clone());
            let emitted = Event::new(EventKind::Emitted, message.id, Lineage::root(message.root), self.now());
            self.append(Event { context: message.context.clone(), ..emitted });
            for pair in self.listening(message.topic) {
                self.deliver(&message, &pair, worker.as_ref(), &mut launch);
            }
        }
        launch.handlers.sort();
        launch.handlers.dedup();
        launch
    }

    /// The refusal of all: a message that does not exist yet requires a handler, and has none.
    fn refuses_launch(&self, messages: &[NewMessage]) -> Option<sqlx::Error> {
        let mut required = messages.iter().filter_map(|message| Some((message, message.required?)));
        let refused = required.find(|(message, _)| {
            !self.hierarchy_by_id.contains_key(&message.id) && self.listening(&message.topic).is_empty()
        });
        let (NewMessage { topic, .. }, message) = refused?;
        Some(Unhandled { topic: topic.clone().into_owned(), message: message.to_owned(), at: None }.into())
    }

    fn deliver(
        &mut self,
        message: &RootMessage<'_>,
        (handler, topic): &Pair,
        worker: Option<&(Uuid, Arc<str>)>,
        launch: &mut LaunchResult,
    ) {
        let now = self.now();
        let wanted = message.local_runs.and_then(|local_runs| local_runs.get(&**handler)).copied();
        let lineage = Lineage::root(message.root);
        let lineage = wanted.map_or_else(|| child_of(&lineage), |run| lineage.child(run));
        let mut row = WorkingRow::new(lineage, message.id, topic.clone(), handler.clone(), now);
        row.context = message.context.clone();
        row.give_up_at = message.give_up_at;
        row.ready_at = min_deadline(message.due.unwrap_or(now), message.give_up_at).max(now);
        let Some((worker, identifier)) = worker.filter(|_| wanted.is_some()) else {
            launch.handlers.push(handler.to_string());
            return self.insert(row);
        };
        (row.state, row.owner, row.epoch, row.last_event_at) =
            (RowState::Running, Some(*worker), 1, after(now));
        (row.queued_at, row.began_at) = (Some(now), Some(now));
        launch.claimed.push(row.id());
        self.append(Event::of(&row, EventKind::Seen, identifier));
        self.insert(row);
    }

    pub(super) fn publish(&mut self, root: Uuid, id: Uuid, topic: &str, payload: Value) {
        self.hierarchy_by_id.insert(id, root);
        let message = Message { topic: topic.into(), payload };
        self.hierarchies.entry(root).or_default().record.messages.insert(id, message);
    }
}

impl Event {
    /// An event of this run about its own message, with its context, at the time of its last.
    pub(super) fn of(row: &WorkingRow, kind: EventKind, identifier: &Arc<str>) -> Self {
        Self {
            handler: Some(row.handler.clone()),
            identifier: Some(identifier.clone()),
            context: row.context.clone(),
            ..Self::new(kind, row.message_id, row.lineage.clone(), row.last_event_at)
        }
    }
}

/// A deadline before the due time wins.
pub(super) fn min_deadline(due: OffsetDateTime, give_up_at: Option<OffsetDateTime>) -> OffsetDateTime {
    give_up_at.map_or(due, |at| due.min(at))
}
