//! The decision of a command, for the client that sent it.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Stored as _, Unauthorized};
use serde_json::Value;

use super::waits::{PAUSE_MAX, PAUSE_MIN};
use super::{Handle, Outcome, Status, notified};
use crate::error::ErrorKind;
use crate::saga::command::decision_name;
use crate::saga::shape;
use crate::store::HandlerOutcome;
use crate::util::retries::{GivenUp, Retries};
use crate::{Command, CommandState, NoResult, RuntimeError};

impl Handle {
    /// Whether the command that started this hierarchy was accepted, rejected or refused; `None` if it is not decided yet, or has
    /// failed.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_runtime::{CommandState, HierarchyId, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, id: HierarchyId) -> Result<(), RuntimeError> {
    /// match scoop.find(id).await?.command_state().await? {
    ///     Some(CommandState::Accepted) => println!("it was accepted"),
    ///     Some(CommandState::Rejected) => println!("it was rejected"),
    ///     Some(other) => println!("it was {other}"),
    ///     None => println!("it is not decided yet"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn command_state(&self) -> BoxFuture<'_, Result<Option<CommandState>, RuntimeError>> {
        async move {
            let store = self.scoop.store();
            let read = |_| store.command_decision(self.message, decision_name(), None);
            let decision = self.scoop.retrying(read).await;
            let decision = decision.map_err(GivenUp::error("the decision of a command was looked up"))?;
            // Another message may have a reply of this name.
            if let Some(decided) = decision.and_then(|decision| CommandState::of(decision).ok()) {
                return Ok(Some(decided));
            }
            let status = self.scoop.retrying(|_| store.status(self.root, self.message)).await;
            let status = status.map_err(GivenUp::error("the state of a command was looked up"))?;
            let is_refused = status.handlers.iter().any(|handler| match handler {
                HandlerOutcome::RolledBack(failure) => Unauthorized::of(failure).is_some(),
                _ => false,
            });
            Ok(is_refused.then_some(CommandState::Refused))
        }
        .boxed()
    }

    /// Waits for the decision of the command that started the hierarchy. See
    /// [`CommandHandle::decision`](crate::CommandHandle::decision).
    ///
    /// # Errors
    ///
    /// As [`CommandHandle::decision`](crate::CommandHandle::decision).
    pub async fn decision<C: Command>(&self) -> Result<C::Reply, RuntimeError> {
        let decision = self.unless_lost(self.decided(C::TOPIC)).await?;
        C::Reply::read_stored(&decision).map_err(|source| {
            RuntimeError::from(ErrorKind::ReplyMismatch {
                saga: C::DEFINITION.saga.into_owned(),
                message: self.message,
                expected: std::any::type_name::<C::Reply>(),
                stored: shape::of_stored(&decision),
                shape: shape::outermost::<C::Reply>(),
                source,
            })
        })
    }

    fn decided(&self, topic: &'static str) -> BoxFuture<'_, Result<Value, RuntimeError>> {
        async move {
            let mut listener = self.listener();
            let (mut pause, mut ended) = (self.first_pause(listener.as_ref()), None);
            loop {
                if ended.is_none() {
                    tokio::select! {
                        biased;
                        _ = notified(&mut listener, |_| true) => {}
                        () = self.looked_at(Some(decision_name()), pause) => {}
                    }
                    pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                }
                let read = |_| self.scoop.store().command_decision(self.message, decision_name(), None);
                match Retries::new(Duration::ZERO).run(read).await {
                    Ok(Some(decision)) => return Ok(decision),
                    Ok(None) => {
                        if let Some(outcome) = ended.take() {
                            self.replied_at_last(topic, decision_name()).await?;
                            return Err(self.no_result(topic, undecided(outcome), None));
                        }
                    }
                    Err(given_up) => {
                        let error = GivenUp::error("the decision of a command was looked up")(given_up);
                        if !error.is_transient() {
                            return Err(error);
                        }
                        ended = None;
                        continue;
                    }
                }
                // A command that has ended without a decision never gets one: that is read once more.
                match self.read_status(Duration::ZERO).await {
                    Ok(Status::Ended(outcome)) => ended = Some(outcome),
                    Ok(Status::Unfinished) => {}
                    Err(error) if error.is_transient() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        .boxed()
    }
}

/// Why a command that has ended has no decision.
fn undecided(outcome: Outcome) -> NoResult {
    match outcome {
        Outcome::Committed => NoResult::NoReply,
        Outcome::NoHandlers => NoResult::NoHandlers,
        Outcome::RolledBack(failure) if Unauthorized::of(&failure).is_some() => {
            NoResult::Refused(Box::new(failure))
        }
        Outcome::RolledBack(failure) => NoResult::RolledBack(Box::new(failure)),
        Outcome::RollbackFailed(failed) => NoResult::RollbackFailed(failed.cause),
    }
}
