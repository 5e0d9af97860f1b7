//! Requests about a hierarchy or a part of it: cancellation, rollback, repair, a signal to a run.

use std::future::IntoFuture;
use std::panic::Location;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Failure, Frame, SignalKey};
use serde_json::Value;
use uuid::Uuid;

use super::signal::SendSignal;
use crate::model::answers::{CancelAnswer, RelaunchAnswer, RollbackAnswer, SignalAnswer};
use crate::repair::{RepairAction, RepairAnswer};
use crate::store::{Relaunch, RepairRequest, RequestKey, RequestTarget, Requester, RollbackStart};
use crate::util::detached::run_to_completion;
use crate::util::ids;
use crate::util::payload;
use crate::util::retries::{GivenUp, Retries};
use crate::{IdKind, RunId, RuntimeError, Scoop};

/// A request about to be made. Await it.
#[must_use = "nothing is requested before this is awaited"]
pub struct Request<A> {
    about: RequestInfo,
    kind: Kind<A>,
}

/// The fields shared by all requests.
struct RequestInfo {
    scoop: Scoop,
    id: Uuid,
    wanted: IdKind,
    reason: String,
    source: String,
    /// The place of the call, unless it is left out.
    asked_at: Option<&'static Location<'static>>,
    is_dry_run: bool,
}

/// The kind of a request, with the type of its response.
enum Kind<A> {
    Cancel(fn(CancelAnswer) -> A),
    Rollback(fn(RollbackAnswer) -> A),
    Repair(RepairAction, fn(RepairAnswer) -> A),
    Signal(Value, fn(SignalAnswer) -> A),
    Relaunch(Again, fn(RelaunchAnswer) -> A),
}

/// How a message is launched again.
#[derive(Default)]
struct Again {
    payload: Option<Value>,
    even_if_committed: bool,
    /// Also if it was before.
    again: bool,
}

impl Request<RepairAnswer> {
    /// The request to repair this run.
    pub(crate) fn repair(
        scoop: Scoop,
        action: RepairAction,
        run: RunId,
        note: String,
        asked_at: &'static Location<'static>,
    ) -> Self {
        let about = RequestInfo::new(scoop, run.uuid(), IdKind::Run, note, asked_at);
        Self { about, kind: Kind::Repair(action, |answer| answer) }
    }
}

impl Request<RelaunchAnswer> {
    /// Launches the message with this payload in place of its own.
    pub fn payload(self, payload: Value) -> Self {
        self.with(|how| how.payload = Some(payload))
    }

    /// Also accepts a hierarchy that has committed: its effects come a second time.
    pub fn even_if_committed(self) -> Self {
        self.with(|how| how.even_if_committed = true)
    }

    /// Also accepts a hierarchy that was relaunched before.
    pub fn again(self) -> Self {
        self.with(|how| how.again = true)
    }

    fn with(mut self, change: impl FnOnce(&mut Again)) -> Self {
        if let Kind::Relaunch(how, _) = &mut self.kind {
            change(how);
        }
        self
    }
}

impl<A> Request<A> {
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
    /// here may be [`SignalAnswer::Kept`] when it is sent.
    ///
    /// # Cancel safety
    ///
    /// A dry run whose future is dropped ends, and its statement with it within a second.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{RepairAnswer, RunId, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, run: RunId) -> Result<(), RuntimeError> {
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
    /// scoop.cancel(run, "the customer left").source("Ada Lovelace").without_place().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_place(mut self) -> Self {
        self.about.asked_at = None;
        self
    }

    async fn answer(self) -> Result<A, RuntimeError> {
        let Self { about, kind } = self;
        let target = about.target().await?;
        match kind {
            Kind::Cancel(answer) => about.cancel(&target).await.map(answer),
            Kind::Rollback(answer) => about.rollback(&target).await.map(answer),
            Kind::Repair(action, answer) => about.repaired(&target, action).await.map(answer),
            Kind::Signal(payload, answer) => about.signal(&target, payload).await.map(answer),
            Kind::Relaunch(how, answer) => about.relaunch(&target, how).await.map(answer),
        }
    }
}

impl RequestInfo {
    fn new(
        scoop: Scoop,
        id: Uuid,
        wanted: IdKind,
        reason: String,
        asked_at: &'static Location<'static>,
    ) -> Self {
        Self {
            scoop,
            id,
            wanted,
            reason,
            source: "scoop".into(),
            asked_at: Some(asked_at),
            is_dry_run: false,
        }
    }

    /// The identity of the request.
    fn key(&self) -> RequestKey {
        RequestKey { is_dry_run: self.is_dry_run, ..RequestKey::new() }
    }

    /// The request as a recorded failure.
    fn failure(&self, kind: &str) -> Failure {
        let mut failure = Failure::new(kind, &self.reason, &self.source);
        failure.stack_trace.extend(self.asked_at.map(Frame::from));
        failure
    }

    /// Begins an operation of the request with retries. A dry run only reads.
    fn trial(&self) -> Retries {
        let trial = self.scoop.trial();
        if self.is_dry_run { trial.reading(self.scoop.store().read_permits()) } else { trial }
    }

    fn target(&self) -> BoxFuture<'_, Result<RequestTarget, RuntimeError>> {
        async move {
            let find = |_| self.scoop.store().find_target(self.id);
            let found = self.trial().run(find).await.map_err(GivenUp::error("a request was made"))?;
            let is_hierarchy = |target: &RequestTarget| target.lineage.ids().len() == 1;
            match found {
                Some(target) if self.wanted != IdKind::Run || !is_hierarchy(&target) => Ok(target),
                _ => Err(self.scoop.misnamed(self.id, self.wanted).await?),
            }
        }
        .boxed()
    }

    fn cancel<'a>(&'a self, target: &'a RequestTarget) -> BoxFuture<'a, Result<CancelAnswer, RuntimeError>> {
        async move {
            let (request, asked) = (self.failure("CancellationRequestedException"), self.key());
            let store = self.scoop.store();
            let cancel = |attempt| store.cancel(target, &request, asked.with(attempt));
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
        .boxed()
    }

    fn rollback<'a>(
        &'a self,
        target: &'a RequestTarget,
    ) -> BoxFuture<'a, Result<RollbackAnswer, RuntimeError>> {
        async move {
            let (request, asked) = (self.failure("RollbackRequestedException"), self.key());
            let store = self.scoop.store();
            let undo = |attempt| store.request_rollback(target, &request, asked.with(attempt));
            let undone = self.trial().run(undo).await;
            Ok(match undone.map_err(GivenUp::error("a rollback was requested"))? {
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
        .boxed()
    }

    fn repaired<'a>(
        &'a self,
        target: &'a RequestTarget,
        action: RepairAction,
    ) -> BoxFuture<'a, Result<RepairAnswer, RuntimeError>> {
        async move {
            let asked = self.key();
            let repair = |attempt| async move {
                let requester = self.requester(asked.with(attempt));
                self.scoop.store().repair(target, &RepairRequest { action, requester }).await
            };
            let repaired = self.trial().run(repair).await;
            let repaired = repaired.map_err(GivenUp::error("a failed compensation was repaired"))?;
            match repaired {
                Err(refusal) => RepairAnswer::try_from(refusal),
                Ok(repaired) => {
                    if !self.is_dry_run {
                        self.scoop.on_repaired(repaired).await?;
                    }
                    Ok(RepairAnswer::Accepted)
                }
            }
        }
        .boxed()
    }

    fn relaunch<'a>(
        &'a self,
        target: &'a RequestTarget,
        Again { payload, even_if_committed, again }: Again,
    ) -> BoxFuture<'a, Result<RelaunchAnswer, RuntimeError>> {
        async move {
            let (root, new) = (target.lineage.root_id(), ids::now_v7());
            let limit = self.scoop.limits().payload_bytes_max;
            let name = || format!("the payload for hierarchy {root}");
            let payload = payload.map(|payload| payload::storable(payload, limit, name)).transpose()?;
            let (payload, asked) = (payload.as_ref(), self.key());
            let tables = self.scoop.tables("a relaunch")?;
            let relaunch = |attempt| async move {
                let requester = self.requester(asked.with(attempt));
                let relaunch = Relaunch { root: new, payload, even_if_committed, again, requester };
                tables.relaunch(root, &relaunch).await
            };
            let relaunched = self.trial().run(relaunch).await;
            match relaunched.map_err(GivenUp::error("a relaunch was requested"))? {
                Some((answer, handlers)) => {
                    self.scoop.notify_ready(&handlers);
                    Ok(answer)
                }
                None => Err(self.scoop.misnamed(self.id, self.wanted).await?),
            }
        }
        .boxed()
    }

    fn requester(&self, asked: RequestKey) -> Requester<'_> {
        Requester { note: &self.reason, source: &self.source, asked }
    }

    /// The signal that the run awaits. Records the request for it.
    async fn awaited(
        &self,
        target: &RequestTarget,
        asked: RequestKey,
    ) -> Result<Option<SignalKey>, RuntimeError> {
        let tables = self.scoop.tables("a signal to a run")?;
        let record =
            |attempt| async move { tables.record_signal(target, self.requester(asked.with(attempt))).await };
        let awaited = self.trial().run(record).await;
        awaited.map_err(GivenUp::error("a signal was sent to a run"))
    }

    /// Records the request first: a signal without a record would have no sender.
    fn signal<'a>(
        &'a self,
        target: &'a RequestTarget,
        payload: Value,
    ) -> BoxFuture<'a, Result<SignalAnswer, RuntimeError>> {
        async move {
            let limit = self.scoop.limits().payload_bytes_max;
            let payload = payload::storable(payload, limit, || format!("the signal for run {}", self.id))?;
            let Some(to) = self.awaited(target, RequestKey { is_dry_run: true, ..self.key() }).await? else {
                return Ok(SignalAnswer::NotAwaiting);
            };
            self.scoop.check_signal(&to.name, &payload).await?;
            if self.is_dry_run {
                return Ok(SignalAnswer::Accepted);
            }
            let Some(to) = self.awaited(target, self.key()).await? else {
                return Ok(SignalAnswer::NotAwaiting);
            };
            let reached = SendSignal::by_operator(self.scoop.clone(), to, payload).await?;
            Ok(if reached > 0 { SignalAnswer::Accepted } else { SignalAnswer::Kept })
        }
        .boxed()
    }
}

impl<A: Send + 'static> IntoFuture for Request<A> {
    type Output = Result<A, RuntimeError>;
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
    /// [`RuntimeError::NoSuchRun`] if nothing has that id, [`RuntimeError::WrongId`] if it is that of a message; or if
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
        let (scoop, asked_at) = (self.clone(), Location::caller());
        let about = RequestInfo::new(scoop, id.into(), IdKind::RunOrHierarchy, reason.into(), asked_at);
        Request { about, kind: Kind::Cancel(|answer| answer) }
    }

    /// Rolls back a finished hierarchy or a part of it; `id` as in [`Scoop::cancel`]. Await it for the response.
    ///
    /// The request applies to all handlers of the message that the run handled. The ancestors of the part are not
    /// affected: they have gone on because it succeeded, and do not learn that its effects are gone. So a rollback of a
    /// part may leave the whole inconsistent; that of the hierarchy does not.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoSuchRun`] if nothing has that id, [`RuntimeError::WrongId`] if it is that of a message; or if
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
        let (scoop, asked_at) = (self.clone(), Location::caller());
        let about = RequestInfo::new(scoop, id.into(), IdKind::RunOrHierarchy, reason.into(), asked_at);
        Request { about, kind: Kind::Rollback(|answer| answer) }
    }
}

/// `scoop_operate::Runs::relaunch`.
#[track_caller]
pub fn relaunch(scoop: &Scoop, id: impl Into<Uuid>, reason: impl Into<String>) -> Request<RelaunchAnswer> {
    let (scoop, asked_at) = (scoop.clone(), Location::caller());
    let about = RequestInfo::new(scoop, id.into(), IdKind::RunOrHierarchy, reason.into(), asked_at);
    Request { about, kind: Kind::Relaunch(Again::default(), |answer| answer) }
}

/// `scoop_operate::Runs::signal_run`.
#[track_caller]
pub fn signal_run(
    scoop: &Scoop,
    run: impl Into<RunId>,
    payload: Value,
    note: impl Into<String>,
) -> Request<SignalAnswer> {
    let (scoop, asked_at) = (scoop.clone(), Location::caller());
    let about = RequestInfo::new(scoop, run.into().uuid(), IdKind::Run, note.into(), asked_at);
    Request { about, kind: Kind::Signal(payload, |answer| answer) }
}
