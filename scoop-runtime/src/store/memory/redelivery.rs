//! Delivers messages to handlers that were registered after their launch; see `redeliver*.sql`.

use scoop_core::{Direction, EventKind, Lineage};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::Event;
use super::launch::min_deadline;
use super::row::WorkingRow;
use super::state::{Hierarchy, State, after, child_of, later};
use crate::store::{Redelivery, RedeliveryStorage};
use crate::util::ids;

impl RedeliveryStorage for MemoryStore {
    async fn redeliver(
        &self,
        topic: &str,
        since: OffsetDateTime,
        _after: Option<Uuid>,
        limit: usize,
    ) -> sqlx::Result<Redelivery> {
        // Delivered messages are not found again, so none has to be skipped.
        self.run("redeliver", |state| {
            let mut unhandled = state.unhandled(topic, since);
            let mut redelivery = Redelivery::default();
            if unhandled.len() > limit {
                redelivery.next = unhandled.get(limit - 1).map(|event| event.id);
                unhandled.truncate(limit);
            }
            unhandled.into_iter().for_each(|event| state.redeliver(&event, topic, &mut redelivery));
            Ok(redelivery)
        })
        .await
    }
}

impl State {
    /// The launches without a handler that may still be handled, oldest first.
    fn unhandled(&self, topic: &str, since: OffsetDateTime) -> Vec<Event> {
        if self.listening(topic).is_empty() {
            return vec![];
        }
        let mut unhandled: Vec<_> = self
            .hierarchies
            .values()
            .flat_map(|it| it.unhandled().filter(move |event| it.is_open(event)))
            .filter(|event| event.handler.is_some() || !self.is_relaunched(event.lineage.root_id()))
            .collect();
        let dropped = |event: &Event| {
            self.topology.iter().any(|listed| {
                let until = listed.until.is_some_and(|until| until > event.at);
                listed.dropped && *listed.topic == *topic && listed.since <= event.at && until
            })
        };
        unhandled.retain(|event| {
            let own =
                self.hierarchy_of(event.message).map(|hierarchy| hierarchy.record.topic_of(event.message));
            event.at >= since && own.as_deref() == Some(topic) && !dropped(event)
        });
        unhandled.sort_by_key(|event| event.ordinal);
        unhandled.into_iter().cloned().collect()
    }

    fn is_relaunched(&self, root: Uuid) -> bool {
        self.relaunches.iter().any(|row| row.of == root)
    }

    fn redeliver(&mut self, emitted: &Event, topic: &str, redelivery: &mut Redelivery) {
        let at = later(self.now(), emitted.at);
        let copied = emitted.handler.is_some();
        let origin = emitted.lineage.root_id();
        let root = if copied { ids::now_v7() } else { origin };
        let message = if copied { ids::now_v7() } else { emitted.message };
        let Some(record) = self.hierarchies.get_mut(&origin).map(|hierarchy| &mut hierarchy.record) else {
            return;
        };
        let payload = record.messages.get(&emitted.message).map(|message| message.payload.clone());
        record.redeliveries.insert(emitted.message, root);
        if copied {
            self.publish(root, message, topic, payload.unwrap_or_default());
            let launched = Event::new(EventKind::Emitted, message, Lineage::root(root), at);
            self.append(Event { context: emitted.context.clone(), ..launched });
        }
        redelivery.roots.insert(root);
        let (due, deadlines) = (emitted.context.not_before(), emitted.context.give_up_at(Direction::Forward));
        redelivery.has_timer |= due.is_some() || !deadlines.is_empty();
        for (handler, topic) in self.listening(topic) {
            redelivery.handlers.insert(handler.to_string());
            let mut row = WorkingRow::new(child_of(&Lineage::root(root)), message, topic, handler, at);
            row.context = emitted.context.clone();
            row.give_up_at = deadlines.iter().min().copied();
            row.ready_at = min_deadline(due.unwrap_or(at), row.give_up_at).max(at);
            self.insert(row);
        }
        self.newest = self.newest.max(Some(after(at)));
    }
}

impl Hierarchy {
    /// The launches without a run, in the working set or in the record, that were not redelivered.
    fn unhandled(&self) -> impl Iterator<Item = &Event> {
        let emitted = self.record.events.iter().filter(|event| event.kind == EventKind::Emitted);
        emitted.filter(|event| {
            let seen = self.record.of_message(event.message, EventKind::Seen).next().is_some();
            let redelivered = self.record.redeliveries.contains_key(&event.message);
            !seen && !redelivered && !self.rows.values().any(|row| row.message_id == event.message)
        })
    }

    /// Whether the launch is neither cancelled nor being rolled back.
    fn is_open(&self, emitted: &Event) -> bool {
        let rollback_requested =
            self.record.of_message(emitted.message, EventKind::RollbackEmitted).next().is_some();
        if emitted.handler.is_none() {
            let mut asked = self.record.of_run(emitted.lineage.id());
            return !rollback_requested && !asked.any(|event| event.kind == EventKind::CancellationRequested);
        }
        let above = emitted.lineage.ids().get(1..).unwrap_or_default();
        !rollback_requested && !above.iter().any(|run| self.is_rolled_back_since(*run, emitted.at))
    }

    /// Whether a run has begun to roll back since then, or is about to.
    fn is_rolled_back_since(&self, run: Uuid, since: OffsetDateTime) -> bool {
        let began_rollback = |event: &Event| event.kind == EventKind::RollingBack && event.at > since;
        let about_to = |row: &WorkingRow| row.giving_up || row.rollback_since.is_some_and(|at| at > since);
        self.record.of_run(run).any(began_rollback) || self.rows.get(&run).is_some_and(about_to)
    }
}
