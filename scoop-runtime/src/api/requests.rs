//! Requests about a hierarchy or a part of it: cancellation and rollback, and what all requests have in common.

use std::future::IntoFuture;
use std::panic::Location;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Failure, Frame};
use uuid::Uuid;

use crate::model::answers::{CancelAnswer, RollbackAnswer};
use crate::repair::{DamagedRollback, RepairAction, RepairAnswer};
use crate::store::{RepairRequest, RequestKey, RequestTarget, Requester, RollbackStart};
use crate::util::detached::run_to_completion;
use crate::util::retries::{GivenUp, Retries};
use crate::{IdKind, RuntimeError, Scoop};

/// A request about to be made. Await it.
#[must_use = "nothing is requested before this is awaited"]
pub struct Request<A, E = RuntimeError> {
    about: RequestInfo,
    make: MakeRequest<A, E>,
}

/// Makes a request about a target.
type MakeRequest<A, E> =
    Box<dyn FnOnce(RequestInfo, RequestTarget) -> BoxFuture<'static, Result<A, E>> + Send>;

/// The fields shared by all requests.
pub struct RequestInfo {
    scoop: Scoop,
    id: Uuid,
    wanted: IdKind,
    /// The reason.
    pub reason: String,
    /// The source of the request.
    pub source: String,
    /// The place of the call, unless it is left out.
    asked_at: Option<&'static Location<'static>>,
    /// Whether the request is only checked.
    pub is_dry_run: bool,
}

impl<A, E: From<RuntimeError>> Request<A, E> {
    /// A request that is made in this way.
    #[doc(hidden)]
    pub fn new(
        about: RequestInfo,
        make: impl FnOnce(RequestInfo, RequestTarget) -> BoxFuture<'static, Result<A, E>> + Send + 'static,
    ) -> Self {
        Self { about, make: Box::new(make) }
    }

    /// Names the source of the request, for the record and for the failures of the runs that obey; `scoop` by
    /// default.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.about.source = source.into();
        self
    }

    /// Only checks the request: the answer is the one that the request would get now, and nothing is recorded or changed.
    ///
    /// The checks are those of the request, but they only read: they wait for no lock, hold up no run, and need no right to
    /// write. So a role that may only read gets an answer here, and an error when it makes the request. A signal that is accepted
    /// here may be [`SignalAnswer::Pending`](crate::SignalAnswer::Pending) when it is sent.
    ///
    /// # Cancel safety
    ///
    /// A dry run whose future is dropped ends, and its statement with it within a second.
    ///
    /// ```no_run
    /// # use scoop_operate::{OperateError, OperateExt as _};
    /// # use scoop_runtime::{RepairAnswer, RunId, Scoop};
    /// # async fn example(scoop: Scoop, run: RunId) -> Result<(), OperateError> {
    /// if scoop.operate().failures().retry(run).dry_run().await? == RepairAnswer::FailedBelow {
    ///     println!("a run below it comes first");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn dry_run(mut self) -> Self {
        self.about.is_dry_run = true;
        self
    }

    /// Leaves out the place of the call, for a program that makes the request for a person. Otherwise the failures of the runs
    /// that obey a cancellation or a rollback have it.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RunId, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, run: RunId) -> Result<(), RuntimeError> {
    /// scoop.cancel(run, "the customer left").source("Ada Lovelace").without_call_site().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_call_site(mut self) -> Self {
        self.about.asked_at = None;
        self
    }

    async fn answer(self) -> Result<A, E> {
        let target = self.about.target().await?;
        (self.make)(self.about, target).await
    }
}

impl RequestInfo {
    /// A request about this id, called from the place of the caller.
    #[track_caller]
    pub fn new(scoop: &Scoop, id: impl Into<Uuid>, wanted: IdKind, reason: impl Into<String>) -> Self {
        Self {
            scoop: scoop.clone(),
            id: id.into(),
            wanted,
            reason: reason.into(),
            source: "scoop".into(),
            asked_at: Some(Location::caller()),
            is_dry_run: false,
        }
    }

    /// The identity of the request.
    pub fn key(&self) -> RequestKey {
        RequestKey { is_dry_run: self.is_dry_run, ..RequestKey::new() }
    }

    /// The request as a recorded failure.
    fn failure(&self, kind: &str) -> Failure {
        let mut failure = Failure::new(kind, &self.reason, &self.source);
        failure.stack_trace.extend(self.asked_at.map(Frame::from));
        failure
    }

    /// Begins an operation of the request with retries. A dry run only reads.
    pub fn trial(&self) -> Retries {
        let trial = self.scoop.trial();
        if self.is_dry_run { trial.reading(self.scoop.store().read_permits()) } else { trial }
    }

    async fn target(&self) -> Result<RequestTarget, RuntimeError> {
        let find = |_| self.scoop.store().find_target(self.id);
        let found = self.trial().run(find).await.map_err(GivenUp::error("a request was made"))?;
        let is_hierarchy = |target: &RequestTarget| target.lineage.ids().len() == 1;
        match found {
            Some(target) if self.wanted != IdKind::Run || !is_hierarchy(&target) => Ok(target),
            _ => Err(self.misnamed().await?),
        }
    }

    async fn cancel(self, target: RequestTarget) -> Result<CancelAnswer, RuntimeError> {
        let (request, asked) = (self.failure("CancellationRequestedException"), self.key());
        let store = self.scoop.store();
        let cancel = |attempt| store.cancel(&target, &request, asked.with(attempt));
        let cancelled = self.trial().run(cancel).await;
        let cancelled = cancelled.map_err(GivenUp::error("a cancellation was requested"))?;
        let answer = match (cancelled.any_marked, cancelled.fresh) {
            (true, _) => CancelAnswer::Accepted,
            (false, true) => CancelAnswer::NothingToDo,
            (false, false) => CancelAnswer::AlreadyRequested,
        };
        if !self.is_dry_run {
            self.scoop.on_cancelled(cancelled.giving_up).await?;
        }
        Ok(answer)
    }

    async fn rollback(self, target: RequestTarget) -> Result<RollbackAnswer, RuntimeError> {
        let (request, asked) = (self.failure("RollbackRequestedException"), self.key());
        let store = self.scoop.store();
        let undo = |attempt| store.request_rollback(&target, &request, asked.with(attempt));
        let begun = self.trial().run(undo).await;
        Ok(match begun.map_err(GivenUp::error("a rollback was requested"))? {
            RollbackStart::Begun(handlers) => {
                if !self.is_dry_run {
                    self.scoop.notify_ready(&handlers);
                }
                RollbackAnswer::Accepted
            }
            RollbackStart::Unfinished => RollbackAnswer::StillRunning,
            RollbackStart::NoHandlers => RollbackAnswer::NoHandlers,
            RollbackStart::RolledBack => RollbackAnswer::AlreadyRolledBack,
            RollbackStart::FailedBefore => RollbackAnswer::FailedBefore,
        })
    }

    /// Has an operator's decision carried out.
    ///
    /// # Errors
    ///
    /// If the database fails. The inner error is that of a damaged record.
    pub async fn repaired(
        &self,
        target: &RequestTarget,
        action: RepairAction,
    ) -> Result<Result<RepairAnswer, DamagedRollback>, RuntimeError> {
        let asked = self.key();
        let repair = |attempt| async move {
            let requester = self.requester(asked.with(attempt));
            self.scoop.store().repair(target, &RepairRequest { action, requester }).await
        };
        let repaired = self.trial().run(repair).await;
        let repaired = repaired.map_err(GivenUp::error("a failed compensation was repaired"))?;
        match repaired {
            Err(refusal) => Ok(RepairAnswer::try_from(refusal)),
            Ok(repaired) => {
                if !self.is_dry_run {
                    self.scoop.on_repaired(repaired).await?;
                }
                Ok(Ok(RepairAnswer::Accepted))
            }
        }
    }

    /// The requester, for the record.
    pub fn requester(&self, asked: RequestKey) -> Requester<'_> {
        Requester { note: &self.reason, source: &self.source, asked }
    }

    /// The error if the id does not name what the request is about.
    pub async fn misnamed(&self) -> Result<RuntimeError, RuntimeError> {
        self.scoop.misnamed(self.id, self.wanted).await
    }
}

impl<A, E> IntoFuture for Request<A, E>
where
    A: Send + 'static,
    E: From<RuntimeError> + Send + 'static,
{
    type Output = Result<A, E>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let is_dry_run = self.about.is_dry_run;
            let answer = self.answer();
            if is_dry_run {
                return answer.await;
            }
            // Dropping the future must not interrupt the transaction, nor the wake-up of waiting runs after it.
            let answer = run_to_completion(async move { Ok(answer.await) }).await;
            answer.map_err(RuntimeError::database("a request was made"))?
        }
        .boxed()
    }
}

impl Scoop {
    /// Cancels a hierarchy or a part of it. `id` is that of a [`Handle`](crate::Handle::id), or of a
    /// [run](crate::RunInfo::id) of its [`tree`](crate::Handle::tree). Await it.
    ///
    /// Unfinished runs are rolled back: running steps end first, and pending runs never begin. Rollbacks in progress
    /// continue, and so do messages launched by compensations. A running step can notice the request: see
    /// [`Scope::check`](crate::Scope::check).
    ///
    /// A stuck (`operate().failures().stuck`) run gives up when a program can continue it, and its ancestors wait for that:
    /// only the saga of the run can roll it back.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::is_not_found`] if nothing has that id, [`RuntimeError::wrong_id`] if it is that of a message; or if
    /// the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the request may be made even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_runtime::{CancelAnswer, Handle, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, order: Handle) -> Result<(), RuntimeError> {
    /// let answer = scoop.cancel(order.id(), "the customer left").await?;
    /// assert_eq!(answer, CancelAnswer::Accepted);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn cancel(&self, id: impl Into<Uuid>, reason: impl Into<String>) -> Request<CancelAnswer> {
        let about = RequestInfo::new(self, id, IdKind::RunOrHierarchy, reason);
        Request::new(about, |about, target| about.cancel(target).boxed())
    }

    /// Rolls back a finished hierarchy or a part of it; `id` as in [`Scoop::cancel`]. Await it for the response.
    ///
    /// The request applies to all handlers of the message that the run handled. The ancestors of the part are not
    /// affected: they have gone on because it succeeded, and do not learn that its effects are gone. So a rollback of a
    /// part may leave the whole inconsistent; that of the hierarchy does not.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::is_not_found`] if nothing has that id, [`RuntimeError::wrong_id`] if it is that of a message; or if
    /// the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the request may be made even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_runtime::{Handle, Outcome, RollbackAnswer, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, order: Handle) -> Result<(), RuntimeError> {
    /// if scoop.rollback(order.id(), "the goods came back").await? == RollbackAnswer::Accepted {
    ///     assert!(matches!(order.wait().await?, Outcome::RolledBack(_)));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn rollback(&self, id: impl Into<Uuid>, reason: impl Into<String>) -> Request<RollbackAnswer> {
        let about = RequestInfo::new(self, id, IdKind::RunOrHierarchy, reason);
        Request::new(about, |about, target| about.rollback(target).boxed())
    }
}
