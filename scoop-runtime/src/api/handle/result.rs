//! Replies of the handlers of a launched message, for the client that launched it.

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Failure, Message};

use super::waits::{PAUSE_MAX, PAUSE_MIN};
use super::{Handle, Outcome};
use crate::error::ErrorKind;
use crate::model::answers::RollbackFailure;
use crate::model::children::{Child, ChildQuery, Launches, reply_name};
use crate::saga::replies::{Reply, replies_of};
use crate::util::retries::GivenUp;
use crate::{FailedStep, NoResult, RuntimeError};

/// The maximum number of runs that are searched for the step that failed first.
const ORIGIN_RUNS_MAX: usize = 1_000;

impl Handle {
    /// The replies of the handlers of the message that have committed by now. For all replies, call [`Handle::wait`]
    /// first.
    ///
    /// `M` is the message that started the hierarchy. The replies are grouped by handler, each group in the order in
    /// which they were given. Replies to other messages of the hierarchy are read by the sagas that launched those.
    ///
    /// # Errors
    ///
    /// If the hierarchy started with another message type, or if a reply is no `M::Reply`; and those of [`Handle::status`].
    ///
    /// ```no_run
    /// # use scoop_runtime::{Handle, RuntimeError};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct AskPrice { sku: String }
    /// # impl scoop_core::Message for AskPrice { const TOPIC: &'static str = "ask"; type Reply = u64; }
    /// # async fn example(asked: Handle) -> Result<(), RuntimeError> {
    /// asked.wait().await?;
    /// for reply in asked.replies::<AskPrice>().await? {
    ///     println!("{}: {} cents", reply.handler, reply.value);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn replies<M: Message>(&self) -> Result<Vec<Reply<M::Reply>>, RuntimeError> {
        replies_of::<M>(self.replied(M::TOPIC, reply_name::<M::Reply>()).await?)
    }

    /// Waits for the end of the hierarchy, and returns the one reply to the message that started it.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::no_result`] if the hierarchy failed, or committed with no reply or several; the text of the
    /// error names the remedy, and [`RuntimeError::failure`] returns the failure.
    /// Otherwise those of [`Handle::wait`] and [`Handle::replies`]. A failed connection is not an error: the call retries without a limit.
    ///
    /// ```no_run
    /// # use scoop_runtime::{Handle, NoResult, RuntimeError};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct AskPrice { sku: String }
    /// # impl scoop_core::Message for AskPrice { const TOPIC: &'static str = "ask"; type Reply = u64; }
    /// # async fn example(asked: Handle) -> Result<(), RuntimeError> {
    /// match asked.result::<AskPrice>().await {
    ///     Ok(cents) => println!("{cents} cents"),
    ///     Err(error) => match error.no_result() {
    ///         Some(NoResult::RolledBack(failure)) => println!("it failed:\n{}", failure.report()),
    ///         _ => return Err(error),
    ///     },
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn result<M: Message>(&self) -> Result<M::Reply, RuntimeError> {
        let replies = replies_of::<M>(self.settled(M::TOPIC, reply_name::<M::Reply>()).await?)?;
        let handlers: Vec<_> = replies.iter().map(|reply: &Reply<_>| reply.handler.clone()).collect();
        let mut replies = replies.into_iter();
        match (replies.next(), replies.next()) {
            (Some(reply), None) => Ok(reply.value),
            (None, _) => Err(self.no_result(M::TOPIC, NoResult::NoReply, None)),
            (Some(_), Some(_)) => Err(self.no_result(M::TOPIC, NoResult::SeveralReplies { handlers }, None)),
        }
    }

    /// Reads the handlers of the message, with their replies of this name.
    fn replied(
        &self,
        topic: &'static str,
        replies: &'static str,
    ) -> BoxFuture<'_, Result<Vec<Child>, RuntimeError>> {
        async move {
            let messages = [self.message];
            let asked = ChildQuery { of: Launches::Given(&messages), topic: None, replies: Some(replies) };
            let children = self.scoop.retrying(|_| self.scoop.store().children(asked)).await;
            let children = children.map_err(GivenUp::error("the replies to a message were looked up"))?;
            match children.first() {
                None => self.status().await.map(|_| children),
                Some(child) if child.topic != topic => {
                    let topic_found = child.topic.clone();
                    Err(RuntimeError::from(ErrorKind::OtherMessage {
                        id: self.message,
                        topic: topic_found,
                        expected: topic,
                    }))
                }
                Some(_) => Ok(children),
            }
        }
        .boxed()
    }

    /// As [`replied`](Self::replied), after the hierarchy has committed.
    fn settled(
        &self,
        topic: &'static str,
        replies: &'static str,
    ) -> BoxFuture<'_, Result<Vec<Child>, RuntimeError>> {
        async move {
            let outcome = self.wait().await?;
            let children = self.replied_at_last(topic, replies).await?;
            let (why, cause) = match outcome {
                Outcome::Committed => return Ok(children),
                Outcome::RolledBack(failure) => {
                    (NoResult::RolledBack(Box::new(failure.clone())), Some(failure))
                }
                // No step is named: the first failure arose in another step than the one whose compensation failed.
                Outcome::RollbackFailed(RollbackFailure { failure, cause }) => {
                    (NoResult::RollbackFailed(Box::new(failure.caused_by([*cause]))), None)
                }
                Outcome::NoHandlers => (NoResult::NoHandlers, None),
            };
            let failed = match cause {
                Some(cause) => self.origin_of(&cause).await,
                None => None,
            };
            Err(self.no_result(topic, why, failed))
        }
        .boxed()
    }

    /// Looks up the step that failed first. It only completes an error, so a failed look-up is not retried.
    async fn origin_of(&self, failure: &Failure) -> Option<FailedStep> {
        let tree = self.tree().limit(ORIGIN_RUNS_MAX).events(1).await.ok()?;
        tree.origin_of(failure.root_causes().first()?)
    }

    /// As [`replied`](Self::replied), retried while the connection fails.
    pub(super) async fn replied_at_last(
        &self,
        topic: &'static str,
        replies: &'static str,
    ) -> Result<Vec<Child>, RuntimeError> {
        let mut pause = PAUSE_MIN;
        loop {
            match self.replied(topic, replies).await {
                Err(error) if error.is_transient() => tokio::time::sleep(pause).await,
                read => return read,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    pub(super) fn no_result(
        &self,
        topic: &'static str,
        why: NoResult,
        failed: Option<FailedStep>,
    ) -> RuntimeError {
        RuntimeError::from(ErrorKind::NoResult { id: self.message, topic, why, failed })
    }
}
