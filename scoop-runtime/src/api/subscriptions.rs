//! Handlers, for operators: the retirement of one without a program; their workers, definitions and queues; the rights of a role.

use std::future::IntoFuture;

use futures_util::future::{BoxFuture, FutureExt};

use crate::api::Retention;
use crate::saga::MessageSettings;
use crate::saga::registry::SubscribedSaga;
use crate::store::{HandlerList, PendingRuns, Store};
use crate::util::detached::run_to_completion;
use crate::util::payload::check_topic;
use crate::util::retries::GivenUp;
use crate::{RuntimeError, Scoop};

/// The result of [retiring](Scoop::retire_handler) a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        let retire_once = |_| scoop.store().retire(topic, handler, *pending);
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
            let retiring = run_to_completion(async move { Ok(self.carry_out().await) });
            let retired = retiring.await.unwrap_or_else(|error| Err(error.into()));
            retired.map_err(GivenUp::error("a handler was retired"))
        }
        .boxed()
    }
}

impl Scoop {
    /// The rights on tables and functions that a program with sagas needs, and the role of this program lacks, such as
    /// `INSERT on scoop.message`. Empty in memory. A client needs fewer: see the page about security of the guide.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// for right in scoop.lacking_rights().await? {
    ///     println!("missing: {right}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lacking_rights(&self) -> impl Future<Output = Result<Vec<String>, RuntimeError>> + Send {
        async move {
            let lacking = match self.store() {
                Store::Postgres(store) => self.read_retrying(|_| store.lacking_rights()).await,
                #[cfg(feature = "in-memory")]
                Store::Memory(_) => Ok(vec![]),
            };
            lacking.map_err(GivenUp::error("the rights of the role were checked"))
        }
        .boxed()
    }

    /// Registers a handler of a program that has not started yet: messages launched from now on wait for it. A handler that is
    /// registered stays as it is. Do not register a saga under a new name while it is registered under a former one: its program
    /// renames it when it starts.
    ///
    /// A program registers its handlers when it starts. Then it also records for how long their hierarchies are kept, which is
    /// for ever until then, and the fields that operators must not see.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Topic`] if the topic is empty, has more than 63 bytes or a NUL character; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the handler may be registered even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// scoop.register_handler("orders.placed", "newsletter").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_handler(
        &self,
        topic: impl Into<String>,
        handler: impl Into<String>,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send {
        let (topic, handler) = (topic.into(), handler.into());
        async move {
            check_topic(&topic, "Scoop::register_handler")?;
            let of_topic = HandlerList { topic: Some(topic.clone()), ..HandlerList::default() };
            let listed = self.retrying(|_| self.store().listed_handlers(&of_topic)).await;
            let listed = listed.map_err(GivenUp::error("the handlers were listed"))?;
            if listed.iter().any(|it| it.handler == handler) {
                return Ok(());
            }
            let handler =
                SubscribedSaga { topic, handler, was: vec![], settings: MessageSettings::default() };
            let register = |_| self.store().register(std::slice::from_ref(&handler), Retention::forever());
            self.retrying(register).await.map_err(GivenUp::error("a handler was registered"))
        }
        .boxed()
    }

    /// Retires a handler whose programs are gone: messages launched from now on are not delivered to it. Await it for
    /// the number of pending deliveries, and see [`Retire::drop_pending`].
    ///
    /// Its unfinished runs stay, and wait for a program that has the saga. A running process with the saga continues
    /// them; the next start of one registers the handler again. A launch in progress may still be delivered to it;
    /// repeat the call to see.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the handler may be retired even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let retired = scoop.retire_handler("orders.placed", "newsletter").await?;
    /// if retired.pending > 0 {
    ///     scoop.retire_handler("orders.placed", "newsletter").drop_pending().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn retire_handler(&self, topic: impl Into<String>, handler: impl Into<String>) -> Retire {
        Retire {
            scoop: self.clone(),
            topic: topic.into(),
            handler: handler.into(),
            pending: PendingRuns::Keep,
        }
    }
}
