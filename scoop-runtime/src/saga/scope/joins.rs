//! The members of joined sets, as recorded and withdrawn by collectors.
//!
//! A row of `join_member` is written once for each run of a collector, under its claim, and gets the root of the hierarchy
//! when it is joined. A set has no row and no waiting run: its hierarchy is launched when it is complete, like a tick.

use std::panic::Location;

use scoop_core::{Error, Failure, Frame, Result};
use uuid::Uuid;

use super::Scope;
use super::services::StepEffect;
use crate::error::is_of_contents;
use crate::store::{CancelResult, JoinResult, JoinSpec, NewMember, RequestKey, RollbackStart, Withdrawal};

impl Scope<'_> {
    /// Records the message of this run as a member, once however often this is called. If its set is complete, the
    /// hierarchy of that is launched.
    pub(crate) async fn join(&mut self, spec: &JoinSpec, key: &str) -> Result<()> {
        let (run, topic) = (self.site.run, &*self.site.definition.topic);
        let traceparent = self.trace_context().map(|trace| trace.traceparent());
        let member = NewMember { claim: self.site.key, topic, message: run.message, key, traceparent };
        let joined = self.services.store.join(spec, &member).await;
        match joined.map_err(|error| failed("a message could not be joined", &error))? {
            JoinResult::Recorded(launched) => self.services.engine.apply(StepEffect::Joined(launched)),
            // The settlement of the step will find that, too.
            JoinResult::NotClaimed => return Ok(()),
            JoinResult::Unfit { bytes } => return Err(unfit(spec, &member, bytes).into_permanent()),
            JoinResult::Locked => return Err(locked(spec, key)),
        }
        if spec.within.is_some() {
            self.services.engine.apply(StepEffect::JoinLimit);
        }
        Ok(())
    }

    /// Withdraws the member of this run. If its set is complete, requests the rollback of the joined hierarchy.
    pub(crate) async fn withdraw(&mut self, spec: &JoinSpec, key: &str, why: &Failure) -> Result<()> {
        let withdrawn = self.services.store.withdraw(spec, key, self.site.key.id).await;
        match withdrawn.map_err(|error| failed("a message could not be withdrawn", &error))? {
            Withdrawal::Withdrawn { joined: Some(root) } => self.undo_joined(root, why).await,
            Withdrawal::Withdrawn { joined: None } => Ok(()),
            Withdrawal::Locked => Err(locked(spec, key)),
        }
    }

    /// Rolls back the hierarchy, or cancels what of it has not ended.
    async fn undo_joined(&mut self, root: Uuid, why: &Failure) -> Result<()> {
        let (store, source) = (self.services.store, &self.site.run.source);
        let error =
            |error: sqlx::Error| failed("the rollback of a joined hierarchy could not be requested", &error);
        let Some(target) = store.find_target(root).await.map_err(error)? else { return Ok(()) };
        let reason = format!("a message that it joined is undone: {}", why.message);
        let request = |kind| {
            let mut request = Failure::new(kind, &reason, source);
            request.stack_trace.push(frame(Location::caller()));
            request
        };
        // In between the last run of the hierarchy may have ended.
        for _ in 0..2 {
            let asked = request("RollbackRequestedException");
            match store.request_rollback(&target, &asked, RequestKey::new()).await.map_err(error)? {
                RollbackStart::Begun(handlers) => {
                    self.services.engine.apply(StepEffect::Ready(handlers));
                    return Ok(());
                }
                RollbackStart::Unfinished => {}
                RollbackStart::NoHandlers | RollbackStart::RolledBack | RollbackStart::FailedBefore => {
                    return Ok(());
                }
            }
            let asked = request("CancellationRequestedException");
            let cancelled = store.cancel(&target, &asked, RequestKey::new()).await.map_err(error)?;
            let CancelResult { any_marked, giving_up, .. } = cancelled;
            self.services.engine.apply(StepEffect::Cancelled(giving_up));
            if any_marked {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The failure of a message that no set can hold.
fn unfit(spec: &JoinSpec, member: &NewMember<'_>, bytes: usize) -> Error {
    let (JoinSpec { saga, .. }, NewMember { topic, message, .. }) = (spec, member);
    let limit = spec.member_bytes_max();
    Error::msg(format!(
        "message {message} on topic `{topic}` cannot be joined by saga `{saga}`: it has {bytes} bytes in the database, which \
         writes numbers in full, and a set can hold {limit} of it; or it has a number beyond 1.7e308 or is nested too deep"
    ))
}

/// An error of a key that another session keeps locked: the step is tried again.
fn locked(spec: &JoinSpec, key: &str) -> Error {
    let saga = &spec.saga;
    Error::infrastructure(format!(
        "the key `{key}` of the join of saga `{saga}` is locked by another session"
    ))
}

/// An error of the database. The step is tried again, unless the database refuses the contents of the message.
fn failed(what: &str, error: &sqlx::Error) -> Error {
    match is_of_contents(error) {
        true => Error::msg(format!("{what}: {error}")).into_permanent(),
        false => Error::infrastructure(format!("{what}: {error}")),
    }
}

fn frame(at: &Location<'_>) -> Frame {
    Frame {
        file_name: at.file().to_owned(),
        line_number: at.line().into(),
        class_name: None,
        function_name: None,
    }
}
