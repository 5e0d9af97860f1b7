//! Redelivery of messages without a handler to handlers that are registered later.

use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use scoop_runtime::internal::{ErrorKind, HandlerList, notify_ready, reschedule_timer, run_to_completion};
use scoop_runtime::{HierarchyId, RuntimeError, Subscribed, When};
use serde::Serialize;

use crate::error::failed;
use crate::{Operate, OperateError};

/// The default age limit of redelivered messages.
const LOOKBACK: Duration = Duration::from_secs(24 * 60 * 60);

/// The default limit of redelivered messages.
const LIMIT_DEFAULT: usize = 1_000;

/// The maximum number of messages redelivered in one transaction.
const PAGE_MAX: usize = 200;

/// The result of a redelivery (`operate().handlers().redeliver`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Redelivered {
    /// The hierarchies that handle the messages, one for each. [`Scoop::find`](scoop_runtime::Scoop::find) takes their ids.
    pub hierarchies: Vec<HierarchyId>,
    /// Whether the limit was reached, so that there may be more messages.
    pub more: bool,
}

/// A redelivery of messages without a handler. Await it.
#[must_use = "nothing is redelivered before this is awaited"]
pub struct Redeliver {
    operate: Operate,
    topic: String,
    since: Option<SystemTime>,
    limit: usize,
}

impl Redeliver {
    pub(super) fn new(operate: Operate, topic: String) -> Self {
        Self { operate, topic, since: None, limit: LIMIT_DEFAULT }
    }

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

    async fn carry_out(self) -> Result<Redelivered, OperateError> {
        let database = self.operate.required("a redelivery")?;
        let all = HandlerList::default();
        let registered =
            database.retrying("the handlers were looked up", |_| database.list_handlers(&all)).await?;
        if !registered.iter().any(|it| it.topic == self.topic) {
            let subscribed = Subscribed::near(&self.topic, registered.iter().map(|it| &*it.topic));
            let message = "operate().handlers().redeliver".to_owned();
            return Err(
                RuntimeError::from(ErrorKind::NoHandler { topic: self.topic, message, subscribed }).into()
            );
        }
        let now = database.retrying("the clock was read", |_| database.now()).await?.earliest;
        let since = self.since.map_or(Ok(now - LOOKBACK), |since| When::At(since).instant(now))?;
        let mut redelivered = Redelivered { hierarchies: vec![], more: self.limit == 0 };
        let mut after = None;
        while !redelivered.more {
            let size = (self.limit - redelivered.hierarchies.len()).min(PAGE_MAX);
            // After a lost answer, another attempt could not return the redelivered messages.
            let page = database.trial().once().run(|_| {
                let (operate, database) = (self.operate.clone(), database.clone());
                let topic = self.topic.clone();
                run_to_completion(async move {
                    let page = database.redeliver(&topic, since, after, size).await?;
                    notify_ready(&operate.scoop, &page.handlers.iter().cloned().collect::<Vec<_>>());
                    if page.has_timer {
                        reschedule_timer(&operate.scoop);
                    }
                    Ok(page)
                })
            });
            let page = page.await.map_err(failed("messages were redelivered"))?;
            redelivered.hierarchies.extend(page.roots.into_iter().map(HierarchyId::from));
            after = page.next;
            if after.is_none() {
                break;
            }
            redelivered.more = redelivered.hierarchies.len() >= self.limit;
        }
        Ok(redelivered)
    }
}

impl IntoFuture for Redeliver {
    type Output = Result<Redelivered, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}
