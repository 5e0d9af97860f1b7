//! Who listens where, for operators: a handler that will not come back can be struck out.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::clock::since_1970;
use crate::patience::Vain;
use crate::store::time;
use crate::uninterrupted::uninterrupted;
use crate::{RuntimeError, Scoop};

/// A handler to which messages are delivered, whether or not any process of it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedHandler {
    /// Where it listens.
    pub topic: String,
    /// The saga.
    pub handler: String,
    /// When it was first listed, or again after it had been retired, since 1970.
    pub since: Duration,
}

/// What became of a handler that was [retired](Scoop::retire_handler).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retired {
    /// Whether it was listed until now.
    pub was_listed: bool,
    /// How many deliveries still wait for it that nobody has begun.
    pub waiting: u64,
    /// How many such deliveries were dropped.
    pub dropped: u64,
}

impl ListedHandler {
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let since = since_1970(time(row, "since")?);
        Ok(Self { topic: row.try_get("topic")?, handler: row.try_get("handler")?, since })
    }
}

/// A handler that is about to be struck out. Await it.
#[must_use = "nothing happens before this is awaited"]
pub struct Retire {
    scoop: Scoop,
    topic: String,
    handler: String,
    drops: bool,
}

impl Retire {
    /// Also drops what waits for it and nobody has begun: that is never begun, leaves nothing on
    /// record, and whoever launched it does not wait for it any more.
    pub fn dropping_what_waits(mut self) -> Self {
        self.drops = true;
        self
    }

    async fn carry_out(self) -> Result<Retired, Vain> {
        let Self { scoop, topic, handler, drops } = &self;
        // A second attempt would not count the runs dropped by the first.
        let strike = |_| scoop.store().strike_out(topic, handler, *drops);
        let struck = scoop.trial().once().endure(strike).await?;
        let wake = |_| scoop.store().wake(&struck.parents);
        scoop.announce(&scoop.patiently(wake).await?);
        Ok(Retired {
            was_listed: struck.was_listed,
            waiting: u64::try_from(struck.waiting).unwrap_or(0),
            dropped: u64::try_from(struck.dropped).unwrap_or(u64::MAX),
        })
    }
}

impl IntoFuture for Retire {
    type Output = Result<Retired, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        // Nothing may come between its transaction and waking who waits.
        async move {
            let retiring = uninterrupted(async move { Ok(self.carry_out().await) });
            let retired = retiring.await.unwrap_or_else(|error| Err(error.into()));
            retired.map_err(Vain::error("a handler was retired"))
        }
        .boxed()
    }
}

impl Scoop {
    /// The handlers to which messages are delivered: those of all programs that ever started on this
    /// schema, unless they were [retired](Scoop::retire_handler).
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// for listed in scoop.handlers().await? {
    ///     println!("{} listens on {}", listed.handler, listed.topic);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn handlers(&self) -> impl Future<Output = Result<Vec<ListedHandler>, RuntimeError>> + Send {
        async move {
            let listed = self.patiently(|_| self.store().listed_handlers()).await;
            listed.map_err(Vain::error("the handlers were listed"))
        }
        .boxed()
    }

    /// Strikes out a handler that will not come back: messages that are launched from now on are not
    /// delivered to it. Await it for how many deliveries still wait, and see
    /// [`Retire::dropping_what_waits`].
    ///
    /// Its unfinished runs stay, and wait for a program that has the saga. A process that runs the saga
    /// goes on with them; the next start of one lists the handler again. What is being launched at this
    /// very moment may still be delivered to it; ask once more to see.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the handler may be struck out even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let retired = scoop.retire_handler("orders.placed", "newsletter").await?;
    /// if retired.waiting > 0 {
    ///     scoop.retire_handler("orders.placed", "newsletter").dropping_what_waits().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn retire_handler(&self, topic: impl Into<String>, handler: impl Into<String>) -> Retire {
        Retire { scoop: self.clone(), topic: topic.into(), handler: handler.into(), drops: false }
    }
}
