//! Messages without a handler: the error where one is required, and otherwise a warning. Also a warning for signals that
//! no program awaits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use sqlx::PgConnection;

use crate::error::ErrorKind;
use crate::error::is_denied;
use crate::model::handlers::RegisteredHandler;
use crate::store::{self, HandlerList, NewMessage, Store, Unhandled};
use crate::telemetry::{self, metrics};
use crate::util::sync::{Mutex, lock};
use crate::{RuntimeError, Subscribed};

impl Unhandled {
    /// The error for the caller, with topics that have handlers.
    pub(crate) async fn explained(&self, store: &Store) -> RuntimeError {
        let Self { topic, message, .. } = self.clone();
        // If the list cannot be read, the error is still correct.
        let registered = store.list_handlers(&HandlerList::default()).await.unwrap_or_default();
        let subscribed = Subscribed::near(&topic, registered.iter().map(|registered| &*registered.topic));
        RuntimeError::from(ErrorKind::NoHandler { topic, message, subscribed })
    }
}

/// Logs a warning for each topic on which a message was launched without a handler, and for each signal that no program
/// awaits, once.
pub(crate) struct UnhandledWarnings {
    store: Store,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    warned: BTreeSet<String>,
    /// The handlers of each topic, as of the latest look-up.
    handlers: BTreeMap<String, BTreeSet<String>>,
    /// The names of signals that were looked up.
    signals: BTreeSet<String>,
}

impl UnhandledWarnings {
    pub(crate) fn new(store: Store) -> Arc<Self> {
        Arc::new(Self { store, known: Mutex::default() })
    }

    /// Records that messages were launched together on these topics, one for each mention, and that runs were created for these handlers.
    ///
    /// The handlers of a topic matter only if there are several topics. They are looked up once for each topic and
    /// cached.
    pub(crate) fn launched<'a>(
        self: &Arc<Self>,
        topics: impl IntoIterator<Item = &'a str>,
        handlers: &[String],
    ) {
        let topics = topics.into_iter().inspect(|topic| metrics::launches(topic, 1));
        let topics: BTreeSet<_> = topics.collect();
        if topics.len() <= 1 && !handlers.is_empty() {
            return;
        }
        let known = lock(&self.known);
        let unknown = topics.into_iter().filter(|topic| !known.accounts_for(topic, handlers));
        let unknown: Vec<_> = unknown.map(str::to_owned).collect();
        drop(known);
        if !unknown.is_empty() {
            tokio::spawn(self.clone().warn_of_unhandled(unknown, handlers.to_vec()));
        }
    }

    /// Records that the events of a command were launched on these topics. Most events have no handler: their entity has
    /// applied them.
    pub(crate) fn decided(topics: &[String]) {
        topics.iter().for_each(|topic| metrics::launches(topic, 1));
    }

    /// Records that a signal of this name was sent, and has perhaps reached no run. The sagas that await it are looked up
    /// once for each name.
    pub(crate) fn signalled(self: &Arc<Self>, name: &str) {
        if lock(&self.known).signals.insert(name.to_owned()) {
            tokio::spawn(self.clone().warn_of_unawaited(name.to_owned()));
        }
    }

    async fn warn_of_unawaited(self: Arc<Self>, name: String) {
        match self.store.awaited_names(true).await {
            Ok(awaited) if awaited.contains(&name) => {}
            Ok(awaited) => {
                let near = Subscribed::near(&name, awaited.iter().map(String::as_str)).near;
                telemetry::unawaited(&name, &near);
            }
            // A role may lack the right. After another failure the next such signal retries the look-up.
            Err(error) if is_denied(&error) => {}
            Err(_) => _ = lock(&self.known).signals.remove(&name),
        }
    }

    async fn warn_of_unhandled(self: Arc<Self>, topics: Vec<String>, handlers: Vec<String>) {
        // After a failure the next such launch retries the look-up.
        let Ok(registered) = self.store.list_handlers(&HandlerList::default()).await else {
            return;
        };
        let new = lock(&self.known).take_note(&topics, &handlers, &registered);
        for topic in new {
            let subscribed = Subscribed::near(&topic, registered.iter().map(|registered| &*registered.topic));
            telemetry::unhandled(&topic, &subscribed);
        }
    }
}

impl Known {
    /// Whether a warning about the topic has been logged, or one of these handlers is known to belong to it.
    fn accounts_for(&self, topic: &str, handlers: &[String]) -> bool {
        let own = self.handlers.get(topic);
        self.warned.contains(topic) || own.is_some_and(|own| handlers.iter().any(|it| own.contains(it)))
    }

    /// Updates the cache, and returns the topics that need a warning now.
    fn take_note(
        &mut self,
        topics: &[String],
        handlers: &[String],
        registered: &[RegisteredHandler],
    ) -> Vec<String> {
        for topic in topics {
            let own = registered.iter().filter(|registered| registered.topic == *topic);
            self.handlers.insert(topic.clone(), own.map(|registered| registered.handler.clone()).collect());
        }
        let unhandled = topics.iter().filter(|topic| !self.accounts_for(topic, handlers));
        let unhandled: Vec<_> = unhandled.cloned().collect();
        self.warned.extend(unhandled.iter().cloned());
        unhandled
    }
}

/// Launches a message in the transaction of this connection, which the caller commits.
pub(crate) fn insert_in<'a>(
    store: &'a Store,
    unhandled: &'a Arc<UnhandledWarnings>,
    connection: &'a mut PgConnection,
    launched: NewMessage,
) -> BoxFuture<'a, Result<store::LaunchResult, RuntimeError>> {
    async move {
        let topic = launched.topic.clone();
        match store.launch(connection, &[launched]).await {
            Ok(launch) => {
                if launch.launched > 0 {
                    unhandled.launched([&*topic], &launch.handlers);
                }
                Ok(launch)
            }
            Err(error) => Err(match Unhandled::find_in(&error) {
                Some(unhandled) => unhandled.explained(store).await,
                None => RuntimeError::database("a message was launched")(error),
            }),
        }
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::HandlerLimits;

    fn registered(pairs: &[(&str, &str)]) -> Vec<RegisteredHandler> {
        let registered = |(topic, handler): &(&str, &str)| RegisteredHandler {
            topic: (*topic).into(),
            handler: (*handler).into(),
            since: SystemTime::UNIX_EPOCH,
            service: None,
            limits: HandlerLimits::default(),
        };
        pairs.iter().map(registered).collect()
    }

    #[test]
    fn topic_is_warned_about_once() {
        let mut known = Known::default();
        let topics = ["a".to_owned(), "b".to_owned()];
        let handlers = ["of-a".to_owned()];
        let registered = registered(&[("a", "of-a"), ("c", "of-c")]);
        assert_eq!(known.take_note(&topics, &handlers, &registered), ["b"]);
        assert!(known.accounts_for("a", &handlers) && known.accounts_for("b", &handlers));
        assert!(!known.accounts_for("a", &[]), "its handler was retired since");
        assert!(known.take_note(&topics, &handlers, &registered).is_empty());
        assert_eq!(known.take_note(&topics, &[], &registered), ["a"]);
    }
}
