//! Replies of a step, and its view of the children of the step before it.

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Error, Escaped, Failure, HasReply, Json, Message, Path, Result, StepDefinition};

use super::{CallSite, Scope, UnfitValue};
use crate::error::ErrorKind;
use crate::error::is_of_contents;
use crate::model::children::{Child, ChildQuery, Launches, numbered_reply, reply_name};
use crate::saga::replies::{Reply, replies_of};
use crate::saga::shape;
use crate::util::payload::{self, StepName, Unstorable};

impl Scope<'_> {
    /// Replies to the run or client that launched the message, which reads the reply with [`Scope::replies`] or
    /// [`Handle::replies`](crate::Handle::replies). The reply counts once the saga has committed; a reply of a failed
    /// attempt is discarded.
    ///
    /// A run replies once, unless its message has `#[message(replies = ..)]`: then any number of times, in any of
    /// its steps and in each iteration of a step that repeats itself.
    ///
    /// In the `finally` of a step that failed or is rolled back, the reply is dropped, as all replies of the run are.
    ///
    /// # Errors
    ///
    /// If the saga does not handle messages of the type of `to`, if the run has replied before and its message allows
    /// one reply, if this is a compensation, or if the reply cannot be stored.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct Quote { cents: u64 }
    /// # #[derive(Serialize, Deserialize)]
    /// # struct AskPrice { sku: String }
    /// # impl scoop_core::Message for AskPrice { const TOPIC: &'static str = "ask"; type Reply = Quote; }
    /// # impl scoop_core::HasReply for AskPrice { type Declared = Quote; }
    ///
    /// # async fn example(scope: &mut Scope<'_>, ask: &AskPrice) -> scoop_core::Result<()> {
    /// scope.reply(ask, Quote { cents: 4_200 })?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn reply<M: HasReply>(&mut self, to: &M, answer: M::Declared) -> Result<()> {
        let _ = to;
        let CallSite { run, definition, step, cleanup, .. } = self.site;
        let handler = &definition.saga;
        if cleanup {
            return Ok(());
        }
        if run.is_backward() {
            return Err(Error::msg(format!(
                "`{step}` of saga `{handler}` is a compensation, so it cannot reply"
            )));
        }
        if definition.topic != M::TOPIC {
            return Err(self.other_message::<M>());
        }
        let replied = run.replied || !self.replies.is_empty();
        if replied && !M::MANY_REPLIES {
            let (message, reply) = (reply_name::<M>(), reply_name::<M::Reply>());
            return Err(Error::failure(Failure::new(
                "AlreadyReplied",
                format!(
                    "step `{step}` of saga `{handler}` replies to message {} on topic `{}`, to which the saga has \
                     replied before; reply once, or write `#[message(replies = {reply})]` on `{message}`, so that \
                     its handlers may reply several times",
                    run.message,
                    M::TOPIC,
                ),
                &run.source,
            )));
        }
        self.store_reply::<M>(answer)
    }

    #[track_caller]
    fn store_reply<M: Message>(&mut self, answer: M::Reply) -> Result<()> {
        let CallSite { run, definition, step, .. } = self.site;
        let handler = &definition.saga;
        let limit = self.services.settings.limits.payload_bytes_max;
        let what = || format!("the reply of saga `{handler}`");
        let answer = Json::to_value(&answer);
        let answer = answer.map_err(|why| Unstorable::reply(StepName { saga: handler, step }, why))?;
        let answer = payload::storable(answer, limit, what)?;
        let name = match M::MANY_REPLIES {
            true => numbered_reply::<M::Reply>(run.suspensions, self.replies.len()),
            false => reply_name::<M::Reply>().to_owned(),
        };
        self.replies.push((name, answer));
        Ok(())
    }

    /// The error of a reply to a message that the saga does not handle. It is permanent: a retry would make the same
    /// mistake.
    #[track_caller]
    fn other_message<M: HasReply>(&self) -> Error {
        let CallSite { run, definition, step, .. } = self.site;
        let message = reply_name::<M>();
        let text = format!(
            "step `{step}` of saga `{}` replies to a message `{message}` on topic `{}`, but the saga handles topic `{}`, so \
             the reply would be lost; write `scope.reply(message, ..)` with the message that the step is given, or reply \
             in a saga with `#[subscribes({message})]`",
            definition.saga,
            M::TOPIC,
            definition.topic,
        );
        Error::failure(Failure::new("ReplyToOtherMessage", text, &run.source)).into_permanent()
    }

    /// The replies of the handlers of the messages of type `M` that the last step launched, in the order of the
    /// messages, each handler's replies in the order in which it gave them.
    ///
    /// The last step is defined as in [`Scope::children`]: if `on_child_failure` launched a message again, the
    /// replies of the other children are still included. Only handlers that have committed count: the replies of a
    /// rolled back handler are dropped, and a handler need not reply at all.
    ///
    /// # Errors
    ///
    /// If a reply is no `M::Reply`, or the database fails. Pass the error on: if this program cannot decode a reply,
    /// the run is left to a program that can, and is stuck if there is none.
    pub async fn replies<M: Message>(&mut self) -> Result<Vec<Reply<M::Reply>>> {
        typed::<M>(self.read_children(true, Some((M::TOPIC, reply_name::<M::Reply>()))).await?)
    }

    /// As [`Scope::replies`], but to all messages of the type that this run has launched so far.
    ///
    /// # Errors
    ///
    /// As [`Scope::replies`].
    pub async fn all_replies<M: Message>(&mut self) -> Result<Vec<Reply<M::Reply>>> {
        typed::<M>(self.read_children(false, Some((M::TOPIC, reply_name::<M::Reply>()))).await?)
    }

    /// The outcome of each handler of each message that the last step launched, in the order of the messages.
    ///
    /// This covers all messages launched since that step began: by the step itself, by its `on_child_failure` each
    /// time that was called, by its `finally`, and by the `at` of the step after it:
    ///
    /// | where | the last step |
    /// | --- | --- |
    /// | a step | the one that ran before it; in a loop the iteration before this one |
    /// | `at` | as in its step |
    /// | `on_child_failure` | the step that is handled, with the messages of earlier calls; [`Child::handled`] marks failures that these handled |
    /// | `finally` | the step after which it cleans up; a failed step has launched nothing |
    /// | a compensation | the step execution that it compensates, whose children are rolled back by then |
    /// | `on_child_failure` during a rollback | the part of the rollback that is handled: the messages that it launched, and the children that it rolled back |
    ///
    /// [Detached](Scope::detach) messages are not included.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```
    /// # use scoop_runtime::{ChildOutcome, Scope};
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// let children = scope.children().await?;
    /// let done = children.iter().filter(|child| child.outcome == ChildOutcome::Committed);
    /// println!("{} of {} have done it", done.count(), children.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn children(&mut self) -> Result<Vec<Child>> {
        self.read_children(true, None).await
    }

    /// As [`Scope::children`], but of all messages that this run has launched so far.
    ///
    /// # Errors
    ///
    /// As [`Scope::children`].
    pub async fn all_children(&mut self) -> Result<Vec<Child>> {
        self.read_children(false, None).await
    }

    /// Reads the children of the last step, or of the run. `replies` is a topic and the name of the replies to read;
    /// without it the payloads are read.
    fn read_children(
        &self,
        last_step: bool,
        replies: Option<(&'static str, &'static str)>,
    ) -> BoxFuture<'_, Result<Vec<Child>>> {
        async move {
            let CallSite { run, definition, step, handler_iteration, cleanup, .. } = self.site;
            let (id, handler) = (run.lineage.id(), &*definition.saga);
            let unseen = definition.steps.iter().filter(|step| !step.kind.is_visible());
            let unseen: Vec<_> = unseen.flat_map(StepDefinition::all_names).collect();
            let of_step;
            let of = match &run.path {
                _ if !last_step => Launches::OfRun { run: id, handler, after: run.execution.after },
                // This is the `finally` of a failed step, which has launched nothing.
                Path::Forward if cleanup => return Ok(vec![]),
                Path::Backward { plan: Some(plan), .. } if handler_iteration.is_none() => {
                    of_step = plan.launched(definition, step).unwrap_or_default();
                    Launches::Given(&of_step)
                }
                _ => Launches::OfLastStep { run: id, handler, unseen: &unseen },
            };
            if matches!(of, Launches::Given([])) {
                return Ok(vec![]);
            }
            let (topic, name) = replies.unzip();
            let children = self.services.store.children(ChildQuery { of, topic, replies: name }).await;
            children.map_err(|error| {
                let what =
                    format!("the children of saga `{handler}`, run {id}, could not be read in step `{step}`");
                match is_of_contents(&error) {
                    true => {
                        UnfitValue { what, why: error.to_string(), reply_type: None, signal: None }.into()
                    }
                    false => Error::infrastructure(format!("{what}: {error}")),
                }
            })
        }
        .boxed()
    }
}

/// Decodes the replies of these children. If this program cannot decode one, the run is left to a program that can.
fn typed<M: Message>(children: Vec<Child>) -> Result<Vec<Reply<M::Reply>>> {
    replies_of::<M>(children).map_err(|error| match error.kind() {
        ErrorKind::ReplyMismatch { saga, message, expected, stored, shape, source } => {
            let what = format!(
                "the reply of saga `{}` to message {message} on topic `{}` is no `{expected}` of this program",
                Escaped(saga),
                M::TOPIC
            );
            let why = format!(
                "it is stored as {}, and the type reads {shape}: {source}; start a program whose `{expected}` reads it, \
                 or let the type read both",
                Escaped(stored)
            );
            let reply = Some(format!("{}\n{}", M::TOPIC, shape::of::<M::Reply>()));
            Error::from(UnfitValue { what, why, reply_type: reply, signal: None })
        }
        _ => error.into(),
    })
}
