//! Redelivery of messages without a handler to handlers that are registered later.

use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::store::{HandlerList, Redelivery};
use crate::util::detached::run_to_completion;
use crate::util::retries::GivenUp;
use crate::{HierarchyId, RuntimeError, Scoop, Subscribed, When};

/// The default age limit of redelivered messages.
const LOOKS_BACK: Duration = Duration::from_secs(24 * 60 * 60);

/// The default limit of redelivered messages.
const LIMIT_DEFAULT: usize = 1_000;

/// The maximum number of messages redelivered in one transaction.
const PAGE_MAX: usize = 200;

/// The result of a redelivery (`operate().handlers().redeliver`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Redelivered {
    /// The hierarchies that handle the messages, one for each. [`Scoop::find`] takes their ids.
    pub hierarchies: Vec<HierarchyId>,
    /// Whether the limit was reached, so that there may be more messages.
    pub more: bool,
}

/// A redelivery of messages without a handler. Await it.
#[must_use = "nothing is redelivered before this is awaited"]
pub struct Redeliver {
    scoop: Scoop,
    topic: String,
    since: Option<SystemTime>,
    limit: usize,
}

impl Redeliver {
    /// Restricts the redelivery to messages launched since this time, by the clock of the server; by default in the
    /// last day. The cost depends on the number of events since then.
    pub fn since(mut self, since: SystemTime) -> Self {
        self.since = Some(since);
        self
    }

    /// Sets the maximum number of messages; 1,000 by default.
    pub fn limit(mut self, messages: usize) -> Self {
        self.limit = messages;
        self
    }

    async fn carry_out(self) -> Result<Redelivered, RuntimeError> {
        self.scoop.tables("a redelivery")?;
        let all = HandlerList::default();
        let listed = self.scoop.retrying(|_| self.scoop.store().listed_handlers(&all)).await;
        let listed = listed.map_err(GivenUp::error("the handlers were looked up"))?;
        if !listed.iter().any(|listed| listed.topic == self.topic) {
            let subscribed = Subscribed::near(&self.topic, listed.iter().map(|listed| &*listed.topic));
            let message = "operate().handlers().redeliver".to_owned();
            return Err(RuntimeError::NoHandler { topic: self.topic, message, subscribed });
        }
        let since = self.begin().await?;
        let mut redelivered = Redelivered { hierarchies: vec![], more: self.limit == 0 };
        let mut after = None;
        while !redelivered.more {
            let room = (self.limit - redelivered.hierarchies.len()).min(PAGE_MAX);
            // After a lost answer, another attempt could not return the redelivered messages.
            let page =
                self.scoop.trial().once().run(|_| {
                    run_to_completion(page(self.scoop.clone(), self.topic.clone(), since, after, room))
                });
            let page = page.await.map_err(GivenUp::error("messages were redelivered"))?;
            redelivered.hierarchies.extend(page.roots.into_iter().map(HierarchyId::from));
            after = page.next;
            if after.is_none() {
                break;
            }
            redelivered.more = redelivered.hierarchies.len() >= self.limit;
        }
        Ok(redelivered)
    }

    /// The earliest launch time of redelivered messages.
    async fn begin(&self) -> Result<OffsetDateTime, RuntimeError> {
        let now = self.scoop.retrying(|_| self.scoop.store().now()).await;
        let now = now.map_err(GivenUp::error("the clock was read"))?;
        match self.since {
            Some(since) => When::At(since).instant(now.earliest),
            None => Ok(now.earliest - LOOKS_BACK),
        }
    }
}

/// Redelivers a page, and notifies the workers.
async fn page(
    scoop: Scoop,
    topic: String,
    since: OffsetDateTime,
    after: Option<Uuid>,
    limit: usize,
) -> sqlx::Result<Redelivery> {
    let page = scoop.store().tables()?.redeliver(&topic, since, after, limit).await?;
    scoop.notify_ready(&page.handlers.iter().cloned().collect::<Vec<_>>());
    if let Some(engine) = scoop.engine().filter(|_| page.has_timer) {
        engine.reschedule_timer();
    }
    Ok(page)
}

impl IntoFuture for Redeliver {
    type Output = Result<Redelivered, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}

/// `scoop_operate::Handlers::redeliver`.
pub fn redeliver(scoop: &Scoop, topic: impl Into<String>) -> Redeliver {
    Redeliver { scoop: scoop.clone(), topic: topic.into(), since: None, limit: LIMIT_DEFAULT }
}
