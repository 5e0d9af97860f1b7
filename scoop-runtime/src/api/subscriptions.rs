//! Handlers, for operators: the retirement of one without a program; their workers, definitions and queues; the rights of a role.

use std::future::IntoFuture;

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;

use crate::model::retention::Retention;
use crate::saga::MessageSettings;
use crate::saga::registry::SubscribedSaga;
use crate::store::{HandlerList, PendingRuns, Store};
use crate::util::detached::run_to_completion;
use crate::util::payload::check_topic;
use crate::util::retries::GivenUp;
use crate::{RuntimeError, Scoop};

/// The result of retiring (`operate().handlers().retire`) a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Retired {
    /// Whether it was registered until now.
    pub was_registered: bool,
    /// The number of its pending deliveries: their runs have not begun.
    pub pending: u64,
    /// The number of such deliveries that were dropped.
    pub dropped: u64,
}

/// A handler about to be retired. Await it.
#[must_use = "nothing happens before this is awaited"]
pub struct Retire {
    scoop: Scoop,
    topic: String,
    handler: String,
    pending: PendingRuns,
}

impl Retire {
    /// Also drops its pending deliveries. Their runs never begin and leave no record, and the runs that launched the
    /// messages stop waiting for them.
    pub fn drop_pending(mut self) -> Self {
        self.pending = PendingRuns::Drop;
        self
    }

    async fn carry_out(self) -> Result<Retired, GivenUp> {
        let Self { scoop, topic, handler, pending } = &self;
        // A retry would not count the runs dropped by the first attempt.
        let retire_once = |_| async { scoop.store().tables()?.retire(topic, handler, *pending).await };
        let retired = scoop.trial().once().run(retire_once).await?;
        let wake = |_| scoop.store().wake(&retired.parents);
        scoop.notify_ready(&scoop.retrying(wake).await?);
        Ok(Retired {
            was_registered: retired.was_registered,
            pending: u64::try_from(retired.pending).unwrap_or(0),
            dropped: u64::try_from(retired.dropped).unwrap_or(u64::MAX),
        })
    }
}

impl IntoFuture for Retire {
    type Output = Result<Retired, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        // Dropping the future must not prevent the wake-up of waiting runs after the transaction.
        async move {
            self.scoop.tables("the retirement of a handler")?;
            let retiring = run_to_completion(async move { Ok(self.carry_out().await) });
            let retired = retiring.await.unwrap_or_else(|error| Err(error.into()));
            retired.map_err(GivenUp::error("a handler was retired"))
        }
        .boxed()
    }
}

/// `scoop_operate::Operate::lacking_rights`.
pub fn lacking_rights(scoop: &Scoop) -> impl Future<Output = Result<Vec<String>, RuntimeError>> + Send {
    async move {
        let lacking = match scoop.store() {
            Store::Postgres(store) => scoop.read_retrying(|_| store.lacking_rights()).await,
            #[cfg(feature = "in-memory")]
            Store::Memory(_) => Ok(vec![]),
        };
        lacking.map_err(GivenUp::error("the rights of the role were checked"))
    }
    .boxed()
}

/// `scoop_operate::Handlers::register`.
pub fn register_handler(
    scoop: &Scoop,
    topic: impl Into<String>,
    handler: impl Into<String>,
) -> impl Future<Output = Result<(), RuntimeError>> + Send {
    let (topic, handler) = (topic.into(), handler.into());
    async move {
        check_topic(&topic, "operate().handlers().register")?;
        let of_topic = HandlerList { topic: Some(topic.clone()), ..HandlerList::default() };
        let listed = scoop.retrying(|_| scoop.store().listed_handlers(&of_topic)).await;
        let listed = listed.map_err(GivenUp::error("the handlers were listed"))?;
        if listed.iter().any(|it| it.handler == handler) {
            return Ok(());
        }
        let handler = SubscribedSaga { topic, handler, was: vec![], settings: MessageSettings::default() };
        let register = |_| scoop.store().register(std::slice::from_ref(&handler), Retention::forever());
        scoop.retrying(register).await.map_err(GivenUp::error("a handler was registered"))
    }
    .boxed()
}

/// `scoop_operate::Handlers::retire`.
pub fn retire_handler(scoop: &Scoop, topic: impl Into<String>, handler: impl Into<String>) -> Retire {
    Retire { scoop: scoop.clone(), topic: topic.into(), handler: handler.into(), pending: PendingRuns::Keep }
}
