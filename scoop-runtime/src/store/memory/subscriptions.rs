//! The subscriptions of handlers; see `handler_*.sql`.

use std::collections::{BTreeMap, BTreeSet};

use super::MemoryStore;
use super::row::{ClaimQueue, WorkingRow};
use super::state::{HandlerOwner, Pair, Registration, State, Worker};
use crate::model::format::system_time;
use crate::model::handlers::{GoneHandler, RegisteredHandler};
use crate::model::limits::HandlerLimits;
use crate::model::program::Program;
use crate::model::retention::Retention;
use crate::model::subscribed_saga::{Renamed, SubscribedSaga};
use crate::store::{HandlerList, Registered, SubscriptionStorage};

impl SubscriptionStorage for MemoryStore {
    async fn register(&self, subscriptions: &[SubscribedSaga], _: Retention) -> sqlx::Result<()> {
        self.run("publish", |state| {
            let redacted = subscriptions.iter().flat_map(|saga| &saga.settings.redacted);
            state.redacted_fields.extend(redacted.map(|field| (*field).to_owned()));
            let own = |name: &str| subscriptions.iter().any(|it| it.handler == name);
            let now = state.now();
            for entry in state.topology.iter_mut().filter(|entry| entry.until.is_none()) {
                let same_topic = || subscriptions.iter().filter(|it| *it.topic == *entry.topic);
                let is_former = same_topic().any(|it| it.was.iter().any(|was| **was == *entry.handler));
                let is_newer = same_topic().any(|it| entry.was.contains(&it.handler));
                if is_former || !own(&entry.handler) && is_newer {
                    entry.until = Some(now);
                }
            }
            for subscription in subscriptions {
                let (handler, topic): Pair =
                    (subscription.handler.as_str().into(), subscription.topic.as_str().into());
                let was = subscription.was.clone();
                let mut entries = state.topology.iter_mut();
                if let Some(entry) = entries.find(|entry| entry.is(&topic, &handler)) {
                    entry.was = was;
                } else {
                    let since = state.now();
                    state.topology.push(Registration {
                        topic,
                        handler,
                        since,
                        until: None,
                        dropped: false,
                        was,
                        owner: None,
                    });
                }
            }
            Ok(())
        })
        .await
    }

    async fn renamed_sagas(&self, subscriptions: &[SubscribedSaga]) -> sqlx::Result<Vec<Renamed>> {
        self.run("renamed_sagas", |state| {
            let own = |name: &str| subscriptions.iter().any(|it| it.handler == name);
            let mut renamed = BTreeSet::new();
            // Of the rows of a name only the newest one counts.
            let newest: BTreeMap<_, _> =
                state.topology.iter().map(|entry| ((&entry.topic, &entry.handler), entry)).collect();
            for entry in newest.into_values().filter(|entry| !own(&entry.handler)) {
                let former = subscriptions
                    .iter()
                    .filter(|it| *it.topic == *entry.topic && entry.was.contains(&it.handler));
                renamed.extend(former.map(|it| Renamed {
                    topic: it.topic.clone(),
                    name: entry.handler.to_string(),
                    own_name: it.handler.clone(),
                }));
            }
            Ok(renamed.into_iter().collect())
        })
        .await
    }

    async fn list_handlers(&self, part: &HandlerList) -> sqlx::Result<Vec<RegisteredHandler>> {
        self.run("list_handlers", |state| {
            let after = (&*part.after.0, &*part.after.1);
            let is_asked = |entry: &&Registration| {
                let (topic, handler) = (&*entry.topic, &*entry.handler);
                let is_named = topic.contains(&part.named) || handler.contains(&part.named);
                let is_exact = part.topic.as_deref().is_none_or(|name| name == topic)
                    && part.saga.as_deref().is_none_or(|name| name == handler);
                entry.until.is_none() && (topic, handler) > after && is_named && is_exact
            };
            let mut entries: Vec<_> = state.topology.iter().filter(is_asked).collect();
            entries.sort_by(|one, other| (&one.topic, &one.handler).cmp(&(&other.topic, &other.handler)));
            let subscription = |entry: &Registration| RegisteredHandler {
                topic: entry.topic.to_string(),
                handler: entry.handler.to_string(),
                since: system_time(entry.since),
                service: entry.owner.as_ref().map(|owner| owner.service.clone()),
                limits: state.limit_of(&entry.handler).map(HandlerLimits::from).unwrap_or_default(),
            };
            let limit = part.limit.map_or(usize::MAX, |limit| limit as usize);
            Ok(entries.into_iter().take(limit).map(subscription).collect())
        })
        .await
    }
}

impl MemoryStore {
    #[cfg(feature = "simulation")]
    pub(crate) fn subscriptions(&self) -> Vec<super::contents::Subscription> {
        let subscription = |entry: &Registration| super::contents::Subscription {
            topic: entry.topic.to_string(),
            handler: entry.handler.to_string(),
            since: system_time(entry.since),
            until: entry.until.map(system_time),
            dropped: entry.dropped,
        };
        self.lock().topology.iter().map(subscription).collect()
    }
}

impl Registration {
    pub(super) fn is(&self, topic: &str, handler: &str) -> bool {
        *self.topic == *topic && *self.handler == *handler && self.until.is_none()
    }
}

impl State {
    /// Records that the handlers of a worker belong to its service, and retires those that the service does not have any more.
    pub(super) fn own_handlers(&mut self, registered: Registered<'_>) -> Vec<GoneHandler> {
        let since = self.now();
        let Program { service, build, .. } = registered.program;
        for (topic, handler) in registered.topics.iter().zip(registered.handlers) {
            let entry = self.topology.iter_mut().find(|entry| entry.is(topic, handler));
            let is_known = |owner: &HandlerOwner| owner.service == *service && owner.build == *build;
            if let Some(entry) = entry.filter(|entry| !entry.owner.as_ref().is_some_and(is_known)) {
                entry.owner = Some(HandlerOwner { service: service.clone(), build: build.clone(), since });
            }
        }
        self.retire_gone(service)
    }

    /// Retires the handlers of this service that no living process has any more; see `handler_retire_gone.sql`.
    pub(super) fn retire_gone(&mut self, service: &str) -> Vec<GoneHandler> {
        let now = self.now();
        let (workers, sessions) = (&self.workers, &self.sessions);
        let living: Vec<_> = workers.values().filter(|it| sessions.contains_key(&it.session)).collect();
        let mut gone = vec![];
        for entry in self.topology.iter_mut().filter(|entry| entry.until.is_none()) {
            let Some(owner) = entry.owner.as_ref().filter(|owner| owner.service == service) else {
                continue;
            };
            let of_service = || living.iter().filter(|it| it.program.service == service);
            let is_newer = |it: &&&Worker| it.program.build != owner.build && it.started_at > owner.since;
            let keeps = |it: &&Worker| {
                it.program.retained.as_ref().is_none_or(|all| all.iter().any(|name| **name == *entry.handler))
            };
            let has = |it: &&Worker| it.position(&entry.topic, &entry.handler).is_some();
            if of_service().any(|it| is_newer(&it)) && !of_service().any(keeps) && !living.iter().any(has) {
                entry.until = Some(now);
                let (topic, handler) = (entry.topic.to_string(), entry.handler.to_string());
                gone.push(GoneHandler { topic, handler, service: service.to_owned() });
            }
        }
        gone
    }

    /// The queues of ready runs without a living worker of their saga.
    fn abandoned_queues(&self) -> impl Iterator<Item = &ClaimQueue> {
        self.ready.keys().filter(|queue| self.is_abandoned(queue))
    }

    pub(super) fn is_abandoned(&self, (handler, topic, _): &ClaimQueue) -> bool {
        !self.workers.values().any(|worker| worker.position(topic, handler).is_some())
    }

    /// The due runs without a living worker of their saga.
    pub(super) fn abandoned(&self) -> impl Iterator<Item = &WorkingRow> {
        let runs = self.abandoned_queues().flat_map(|queue| self.ready[queue].all()).map(|(_, run)| run);
        runs.filter(|(at, ..)| *at <= self.now()).filter_map(|(.., run)| self.row(*run))
    }
}
