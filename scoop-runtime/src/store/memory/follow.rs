//! The record, for followers. An operation is a transaction, which ends with it; the place of an event counts
//! as the number of its transaction.

use time::OffsetDateTime;

use super::MemoryStore;
use super::event_log::Event;
use crate::RecordedEvent;
use crate::find::{EventFilter, EventWindow, FailureSummary, FollowedEvent, FollowedPage, Horizon};
use crate::store::FollowStorage;
use crate::util::format::system_time;

impl FollowStorage for MemoryStore {
    async fn event_horizon(&self) -> sqlx::Result<Horizon> {
        self.run("event_horizon", |state| {
            let next = stored(state.written() + 1);
            Ok(Horizon { snapshot: String::new(), open: next, next, at: state.now() })
        })
        .await
    }

    async fn oldest_transaction(&self) -> sqlx::Result<OffsetDateTime> {
        self.run("oldest_transaction", |state| Ok(state.now())).await
    }

    async fn events(&self, window: &EventWindow, filter: &EventFilter) -> sqlx::Result<FollowedPage> {
        self.run("events", |state| {
            let from = u64::try_from(window.from).unwrap_or(0);
            let until = u64::try_from(window.until).unwrap_or(0);
            let events = state.events_from(from).take_while(|event| event.place < until);
            let wanted = events.filter(|event| {
                let handler = filter.handler.as_deref();
                event.id > window.after
                    && handler.is_none_or(|handler| event.handler.as_deref() == Some(handler))
                    && filter.hierarchy.is_none_or(|root| event.lineage.root_id() == root)
            });
            let mut wanted: Vec<_> = wanted.collect();
            wanted.sort_by_key(|event| event.id);
            let is_last = wanted.len() < window.limit;
            wanted.truncate(window.limit);
            let events = wanted.into_iter().map(|event| followed(event, filter)).collect();
            Ok(FollowedPage { events, is_last })
        })
        .await
    }
}

fn followed(event: &Event, filter: &EventFilter) -> FollowedEvent {
    let failure = event.exception.as_ref().filter(|_| !filter.without_failures);
    let lineage = &event.lineage;
    let run = (lineage.ids().len() > 1).then(|| lineage.id());
    let recorded = RecordedEvent {
        id: event.id,
        handler: event.handler.as_deref().map(str::to_owned),
        message_id: event.message,
        step: event.step.clone(),
        at: system_time(event.at),
        worker: event.identifier.as_deref().map(str::to_owned),
        failure: failure.map(|failure| FailureSummary::of_event(event.kind, failure)),
        ..RecordedEvent::of(event.kind, lineage.root_id(), run)
    };
    FollowedEvent { transaction: stored(event.place), at: event.at.into(), event: recorded }
}

fn stored(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}
