//! Who listens where; see `handler_*.sql`.

use std::sync::Arc;

use super::super::topology::Struck;
use super::super::{Pairs, Parent};
use super::Memory;
use super::claim::named;
use super::row::{Row, RunState};
use super::state::{Listed, Pair, RunId, State};
use crate::bug::{Bug, made};
use crate::clock::since_1970;
use crate::topology::ListedHandler;

impl Memory {
    /// Lists who listens where.
    pub(crate) async fn publish(&self, pairs: Pairs<'_>) -> sqlx::Result<()> {
        self.run("publish", |state| {
            for (handler, topic) in named(pairs) {
                if !state.topology.iter().any(|listed| listed.is(&topic, &handler)) {
                    let since = state.now();
                    if made(Bug::LateListeners) {
                        state.deliver_late(&(handler.clone(), topic.clone()));
                    }
                    state.topology.push(Listed { topic, handler, since, until: None, dropped: false });
                }
            }
            Ok(())
        })
        .await
    }

    /// Who is listed.
    pub(crate) async fn listed_handlers(&self) -> sqlx::Result<Vec<ListedHandler>> {
        self.run("listed_handlers", |state| {
            let mut listed: Vec<_> = state.topology.iter().filter(|listed| listed.until.is_none()).collect();
            listed.sort_by(|one, other| (&one.topic, &one.handler).cmp(&(&other.topic, &other.handler)));
            let told = |listed: &Listed| ListedHandler {
                topic: listed.topic.to_string(),
                handler: listed.handler.to_string(),
                since: since_1970(listed.since),
            };
            Ok(listed.into_iter().map(told).collect())
        })
        .await
    }

    /// Who has listened where, from the beginning on.
    #[cfg(feature = "simulation")]
    pub(crate) fn listings(&self) -> Vec<crate::simulation::Listing> {
        let told = |listed: &Listed| crate::simulation::Listing {
            topic: listed.topic.to_string(),
            handler: listed.handler.to_string(),
            since: since_1970(listed.since),
            until: listed.until.map(since_1970),
            dropped: listed.dropped,
        };
        self.lock().topology.iter().map(told).collect()
    }

    /// Strikes a handler out, and, if wanted, what waits for it.
    pub(crate) async fn strike_out(&self, topic: &str, handler: &str, drops: bool) -> sqlx::Result<Struck> {
        self.run("strike_out", |state| {
            let now = state.now();
            let mut own = state.topology.iter_mut().filter(|listed| listed.is(topic, handler));
            let was_listed = own.next().map(|listed| listed.until = Some(now)).is_some();
            let mut waiting = state.not_begun(topic, handler);
            let (mut dropped, mut parents) = (0, vec![]);
            if drops {
                state.mark_dropped(topic, handler);
                let gone = std::mem::take(&mut waiting).into_iter().filter_map(|run| state.remove(run));
                let gone: Vec<_> = gone.collect();
                dropped = gone.len();
                let parent =
                    |row: &Row| row.parent.map(|id| Parent { root: row.root(), id, at: row.last_event_at });
                parents = gone.iter().filter_map(parent).collect();
            }
            let waiting = i64::try_from(waiting.len()).unwrap_or(i64::MAX);
            Ok(Struck { was_listed, waiting, dropped, parents })
        })
        .await
    }
}

impl Listed {
    /// Whether this says that the handler listens there now.
    fn is(&self, topic: &str, handler: &str) -> bool {
        *self.topic == *topic && *self.handler == *handler && self.until.is_none()
    }
}

impl State {
    /// What was emitted before a handler listened, and is still waited for, is delivered to it.
    fn deliver_late(&mut self, (handler, topic): &Pair) {
        let now = self.now();
        let waiting = self.waiting().collect::<Vec<_>>();
        let mut rows = vec![];
        for (root, id) in waiting {
            let Some(hierarchy) = self.hierarchy(root) else {
                continue;
            };
            let emitted = hierarchy.record.events.iter().filter(|event| {
                let kind = event.kind == scoop_core::EventKind::Emitted;
                kind && event.lineage.id() == id && hierarchy.record.topic_of(event.message) == *topic
            });
            for event in emitted {
                let pair = (topic.clone(), handler.clone());
                let mut row = Row::new(super::state::child_of(&event.lineage), event.message, pair, now);
                row.parent = Some(id);
                rows.push(row);
            }
        }
        rows.into_iter().for_each(|row| self.insert(row));
    }

    /// The deliveries that wait for a handler, and that nobody has begun.
    fn not_begun(&self, topic: &str, handler: &str) -> Vec<RunId> {
        let pair: (Arc<str>, Arc<str>) = (handler.into(), topic.into());
        let ready = self.ready.get(&pair).into_iter().flatten().map(|(.., run)| *run);
        let untouched = |row: &Row| row.state == RunState::Ready && row.epoch == 0 && !row.told;
        ready.filter(|run| self.row(*run).is_some_and(untouched)).collect()
    }

    fn mark_dropped(&mut self, topic: &str, handler: &str) {
        for listed in &mut self.topology {
            if *listed.topic == *topic && *listed.handler == *handler && listed.until.is_some() {
                listed.dropped = true;
            }
        }
    }
}
