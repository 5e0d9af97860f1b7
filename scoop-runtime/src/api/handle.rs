//! Handles of launched messages: wait for the end, ask for the status, read the runs.

mod decision;
mod result;
pub(crate) mod waits;

use std::fmt;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::Failure;
use tokio::time::Instant;
use uuid::Uuid;

use self::waits::{PAUSE_MAX, PAUSE_MIN};
use super::read_tree::ReadTree;
use crate::completion::{CompletionListener, RunEnd, StartedAs};
use crate::engine::current_step;
use crate::error::ErrorKind;
use crate::model::answers::RollbackFailure;
use crate::store::{HandlerOutcome, MessageStatus, RequestKey, Store, Waited};
use crate::tree::TreeBounds;
use crate::util::detached::run_to_completion;
use crate::util::ids;
use crate::util::retries::{GivenUp, Retries};
use crate::{HierarchyId, RuntimeError, Saga, Scoop, Tree};

/// Grace period before polling a hierarchy that this process launched and executes. It has hardly ended before; an
/// earlier end arrives as a notification.
const LOCAL_GRACE: Duration = Duration::from_millis(4);

/// A hierarchy: a message launched from outside, its runs, and their descendants. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    scoop: Scoop,
    root: Uuid,
    message: Uuid,
    /// Set if this process launched the message and has handlers of it.
    local_start: Option<Begun>,
    /// Whether the launch found this message; none if it may have launched it.
    is_earlier: Option<bool>,
}

/// The launch of a hierarchy in this process.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) at: Instant,
    pub(super) start: StartedAs,
}

/// The end of a hierarchy. Display it for one line, `{outcome:#}` for that and the whole report of what failed.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use scoop::Outcome;
///
/// assert_eq!(Outcome::Committed.to_string(), "committed");
/// // rolled back: no chairs left
/// // rollback failed: the bank is closed (because no chairs left)
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// All runs committed.
    Committed,
    /// The hierarchy failed, and was rolled back.
    RolledBack(Failure),
    /// The hierarchy failed, and a part of its rollback failed, too. An operator has to
    /// repair (`operate().failures().list`) it: no handler of the message goes on otherwise, while other runs below it may.
    /// The failure is the latest one of each handler of the message.
    RollbackFailed(RollbackFailure),
    /// No saga was subscribed when the message was launched, so nothing happened.
    NoHandlers,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Committed => f.write_str("committed")?,
            Self::RolledBack(failure) => write!(f, "rolled back: {}", failure.summary())?,
            Self::RollbackFailed(failed) => write!(f, "rollback failed: {failed}")?,
            Self::NoHandlers => f.write_str("no handlers: no saga was subscribed")?,
        }
        match self {
            _ if !f.alternate() => Ok(()),
            Self::RolledBack(failure) => write!(f, "\n{}", failure.report().trim_end()),
            Self::RollbackFailed(RollbackFailure { failure, cause }) => {
                let (failure, cause) = (failure.report(), cause.report());
                write!(f, "\n{}\nit was rolled back because of\n{}", failure.trim_end(), cause.trim_end())
            }
            Self::Committed | Self::NoHandlers => Ok(()),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => f.write_str("unfinished"),
            Self::Ended(outcome) => outcome.fmt(f),
        }
    }
}

/// The status of a hierarchy.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Status {
    /// At least one handler of the message has not ended, and does not wait for an operator.
    Unfinished,
    /// Each handler of the message has ended, or waits for an operator after a failed rollback, as in [`Handle::wait`].
    Ended(Outcome),
}

impl Handle {
    pub(crate) fn new(scoop: Scoop, root: Uuid, message: Uuid) -> Self {
        Self { scoop, root, message, local_start: None, is_earlier: Some(false) }
    }

    /// The part of a hierarchy that begins with this message. Unlike [`Scoop::find`], it needs no record of a launch.
    #[doc(hidden)]
    pub fn of_message(scoop: &Scoop, hierarchy: HierarchyId, message: Uuid) -> Self {
        Self::new(scoop.clone(), hierarchy.uuid(), message)
    }

    /// The same, with the launch of the hierarchy in this process.
    pub(super) fn started_locally(self, local_start: Option<Begun>) -> Self {
        Self { local_start, ..self }
    }

    /// The same, of a launch that has found the message of an earlier one, or has not; none if that is not known.
    pub(super) fn found_earlier(self, is_earlier: Option<bool>) -> Self {
        Self { is_earlier, ..self }
    }

    /// The id of the hierarchy, for [`Scoop::find`].
    pub fn id(&self) -> HierarchyId {
        self.root.into()
    }

    /// The id of the message that started the hierarchy. It is neither the id of the hierarchy nor of a run.
    pub fn message_id(&self) -> Uuid {
        self.message
    }

    /// Whether the [launch](crate::Launch::unique) that returned this handle has launched nothing, since there was a message
    /// with its unique key. In a transaction of the caller that is known before its commit.
    ///
    /// Also false if it is [not known](Self::may_be_of_earlier_launch).
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let order = scoop.launch(OrderPlaced { order: 7 }).unique("order 7").await?;
    /// if order.is_of_earlier_launch() {
    ///     println!("order 7 was placed before, in hierarchy {}", order.id());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_of_earlier_launch(&self) -> bool {
        self.is_earlier == Some(true)
    }

    /// Whether [`is_of_earlier_launch`](Self::is_of_earlier_launch), or that is not known: after a lost answer of the database the
    /// launch finds the message that it has launched itself, or that of an earlier launch.
    pub fn may_be_of_earlier_launch(&self) -> bool {
        self.is_earlier != Some(false)
    }

    /// Waits for the end of the hierarchy.
    ///
    /// The call ends as soon as the run of each handler of the message has ended, or its rollback has failed. Then it returns
    /// [`Outcome::RollbackFailed`]: after the first failure, and after each repair that failed. Other runs below may still go on.
    /// While a repair is under way, the call waits for its end.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::is_not_found`] if the transaction that launched the message was not committed (yet).
    /// Another in a step of a program on this database.
    /// [`RuntimeError::is_unavailable`] if the tokio runtime that this program was started on is gone, or if its private
    /// PostgreSQL was stopped by a shutdown. A failed connection is not an
    /// error: the call retries without a limit.
    ///
    /// ```no_run
    /// # use scoop_runtime::{Handle, Outcome, RuntimeError};
    /// # async fn example(order: Handle) -> Result<(), RuntimeError> {
    /// match order.wait().await? {
    ///     Outcome::Committed => println!("done"),
    ///     Outcome::RolledBack(failure) => println!("rolled back:\n{}", failure.report()),
    ///     other => println!("an operator has to look at this: {other}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(&self) -> impl Future<Output = Result<Outcome, RuntimeError>> + Send {
        self.unless_lost(self.ends()).boxed()
    }

    /// The result of this, unless the engine of the program is gone before. An error in a step.
    async fn unless_lost<T>(
        &self,
        wait: impl Future<Output = Result<T, RuntimeError>>,
    ) -> Result<T, RuntimeError> {
        if let Some(step) = current_step(self.scoop.store()) {
            return Err(RuntimeError::from(ErrorKind::WaitInStep {
                saga: step.saga.clone(),
                step: step.step.clone(),
            }));
        }
        match self.scoop.engine() {
            None => wait.await,
            Some(engine) => tokio::select! {
                biased;
                () = engine.lost() => Err(RuntimeError::from(ErrorKind::EngineGone)),
                result = wait => result,
            },
        }
    }

    /// The listener for ends of runs, if there are such notifications.
    fn listener(&self) -> Option<CompletionListener<'_>> {
        let completions = match self.scoop.store() {
            // The process that ends the hierarchy notifies these waiters.
            #[cfg(feature = "in-memory")]
            Store::Memory(memory) => Some(memory.completions()),
            Store::Postgres(_) => self.scoop.engine().map(|engine| &engine.completions),
        };
        completions.map(|completions| completions.listener(self.root))
    }

    /// The pause before the first look. A look competes with the engine, so it is delayed where the end will be notified.
    fn first_pause(&self, listener: Option<&CompletionListener<'_>>) -> Duration {
        let begun = self.local_start.filter(|_| listener.is_some());
        begun.map_or(Duration::ZERO, |begun| LOCAL_GRACE.saturating_sub(begun.at.elapsed()))
    }

    /// Waits until there is something to read, as the look for all handles says, which begins after this pause.
    async fn looked_at(&self, decision: Option<&'static str>, pause: Duration) {
        let waited = Waited { root: self.root, message: self.message, decision };
        self.scoop.waits().wait(waited, self.single_local_run(), pause).ended().await;
    }

    fn ends(&self) -> BoxFuture<'_, Result<Outcome, RuntimeError>> {
        async move {
            let mut listener = self.listener();
            let mut pause = self.first_pause(listener.as_ref());
            loop {
                let end = tokio::select! {
                    biased;
                    end = notified(&mut listener, |end| end != RunEnd::Decided) => end,
                    () = self.looked_at(None, pause) => RunEnd::Unknown,
                };
                if end == RunEnd::Committed && self.single_local_run().is_some() {
                    return Ok(Outcome::Committed);
                }
                // Without a retry: a notification may arrive during the pause.
                match self.read_status(Duration::ZERO).await {
                    Ok(Status::Ended(outcome)) => return Ok(outcome),
                    Ok(Status::Unfinished) => {}
                    Err(error) if error.is_transient() => {}
                    Err(error) => return Err(error),
                }
                pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            }
        }
        .boxed()
    }

    /// The only run of the message, if it has started in this process.
    fn single_local_run(&self) -> Option<Uuid> {
        match self.local_start?.start {
            StartedAs::SingleLocalRun(run) => Some(run),
            StartedAs::Earlier | StartedAs::Found | StartedAs::Other => None,
        }
    }

    /// The status of the hierarchy now.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::is_not_found`] if the transaction that launched the message was not committed (yet),
    /// [`RuntimeError::is_unavailable`] if the database is away for longer than the [retry time](crate::Builder::retry_for)
    /// lasts; others if the database refuses.
    pub fn status(&self) -> impl Future<Output = Result<Status, RuntimeError>> + Send {
        async move { self.read_status(self.scoop.retry_for()).await }.boxed()
    }

    async fn read_status(&self, retry_for: Duration) -> Result<Status, RuntimeError> {
        let read_status = |_| self.scoop.store().status(self.root, self.message);
        let status = Retries::new(retry_for).run(read_status).await;
        let status = status.map_err(GivenUp::error("a hierarchy was looked up"))?;
        if !status.emitted {
            return Err(RuntimeError::from(ErrorKind::NoSuchMessage { id: self.message }));
        }
        Ok(status_of(status))
    }

    /// The runs of the hierarchy, finished or not, with times, failures and the reasons of those that are stuck.
    /// Await it for a [`Tree`], which can be displayed.
    ///
    /// An unreadable record is not an error: it is [marked](crate::RunEvent::unreadable).
    ///
    /// The tree is complete, so its cost grows with the runs, the events and the launched messages of the hierarchy, in the
    /// memory of the server and here. PostgreSQL returns the events of a run as one value, which has 256 MiB at most.
    /// [`ReadTree::depth`], [`ReadTree::limit`] and [`ReadTree::events`] restrict the reading to a part.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::is_unavailable`] if the database is away for longer than the [retry time](crate::Builder::retry_for)
    /// lasts; others if the database refuses.
    ///
    /// ```no_run
    /// # use scoop_runtime::{Handle, RunState, RuntimeError};
    /// # async fn example(order: Handle) -> Result<(), RuntimeError> {
    /// let tree = order.tree().await?;
    /// println!("{tree}");
    /// let stuck = tree.runs().into_iter().filter(|run| matches!(run.state, RunState::Stuck { .. }));
    /// assert_eq!(stuck.count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tree(&self) -> ReadTree<'_> {
        ReadTree::new(self)
    }

    /// Whether a chain of launches leads from the root of the hierarchy to this message. A gap in the record ends it.
    #[doc(hidden)]
    pub fn leads_to(&self, message: Uuid) -> BoxFuture<'_, Result<bool, RuntimeError>> {
        async move {
            let store = self.scoop.store();
            let read = self.scoop.read_retrying(|_| store.is_reachable(self.root, message)).await;
            read.map_err(GivenUp::error("a message was looked up"))
        }
        .boxed()
    }

    pub(crate) fn read_tree(&self, extent: TreeBounds) -> BoxFuture<'_, Result<Tree, RuntimeError>> {
        async move {
            let store = self.scoop.store();
            let rows = self.scoop.read_retrying(|_| store.tree(self.message, extent)).await;
            let rows = rows.map_err(GivenUp::error("the runs of a hierarchy were looked up"))?;
            let part = (!rows.is_whole(extent)).then(|| (rows.runs(), rows.with_ancestors(self.root)));
            let (runs, with_ancestors) =
                part.as_ref().map(|(runs, with_ancestors)| (&runs[..], &with_ancestors[..])).unzip();
            let asked = self.scoop.read_retrying(|_| store.cancellations(self.root, with_ancestors)).await;
            let asked = asked.map_err(GivenUp::error("the requests of a hierarchy were looked up"))?;
            let found = self.scoop.read_retrying(|_| store.interventions_of(self.root, runs, extent)).await;
            let found = found.map_err(GivenUp::error("interventions were looked up"))?;
            let relaunches = self.scoop.read_retrying(|_| store.relaunches(self.root)).await;
            let relaunches = relaunches.map_err(GivenUp::error("relaunches were looked up"))?;
            Ok(Tree::of(rows, found, asked).beside(relaunches))
        }
        .boxed()
    }
}

/// The next of these ends that is notified, if there are such notifications.
async fn notified(listener: &mut Option<CompletionListener<'_>>, counts: impl Fn(RunEnd) -> bool) -> RunEnd {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        let end = listener.notified().await;
        if counts(end) {
            return end;
        }
    }
}

/// The status of the message: the worst outcome of its handlers counts.
fn status_of(status: MessageStatus) -> Status {
    if status.in_progress {
        return Status::Unfinished;
    }
    if status.handlers.is_empty() {
        return Status::Ended(Outcome::NoHandlers);
    }
    let (mut rolled_back, mut failed, mut causes) = (vec![], vec![], vec![]);
    for outcome in status.handlers {
        match outcome {
            HandlerOutcome::Unfinished => return Status::Unfinished,
            HandlerOutcome::Committed => {}
            HandlerOutcome::RolledBack(failure) => rolled_back.push(failure),
            HandlerOutcome::RollbackFailed { failure, cause } => {
                failed.push(failure);
                causes.push(cause);
            }
        }
    }
    Status::Ended(if !failed.is_empty() {
        failed.extend(rolled_back);
        Outcome::RollbackFailed(RollbackFailure::new(combined(failed), combined(causes)))
    } else if !rolled_back.is_empty() {
        Outcome::RolledBack(combined(rolled_back))
    } else {
        Outcome::Committed
    })
}

/// Combines the failures of several handlers into one.
fn combined(mut failures: Vec<Failure>) -> Failure {
    if failures.len() == 1 {
        return failures.remove(0);
    }
    let message = format!("{} handlers failed", failures.len());
    Failure::new("HandlersFailed", message, "scoop").caused_by(failures)
}

impl Scoop {
    /// Runs a saga with a schedule once, now. Its [`Tick`](crate::Tick) is due at this moment and counts as a run;
    /// the schedule does not change.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::is_not_found`] if no program that gives the saga a schedule has ever started on this database;
    /// or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the saga may run even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example<NightlyReport: scoop_runtime::Saga>(
    /// #     scoop: scoop_runtime::Scoop,
    /// # ) -> Result<(), scoop_runtime::RuntimeError> {
    /// let outcome = scoop.trigger::<NightlyReport>().await?.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn trigger<S: Saga>(&self) -> Result<Handle, RuntimeError> {
        trigger_named(self, S::DEFINITION.saga).await
    }

    /// The hierarchy of this id, which [`Handle::id`] returned here or in another process.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::is_not_found`] if there is none, [`RuntimeError::wrong_id`] if the id is that of a run or a
    /// message; or if the database fails.
    ///
    /// ```no_run
    /// # use scoop_runtime::{HierarchyId, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, stored: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let id: HierarchyId = stored.parse()?; // what another process stored of `handle.id()`
    /// let order = scoop.find(id).await?;
    /// println!("{}", order.tree().await?);
    /// println!("{}", order.wait().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn find(
        &self,
        id: impl Into<HierarchyId>,
    ) -> impl Future<Output = Result<Handle, RuntimeError>> + Send {
        self.find_root(id.into().uuid())
    }

    fn find_root(&self, id: Uuid) -> BoxFuture<'_, Result<Handle, RuntimeError>> {
        async move {
            let message = self.root_message(id).await?;
            Ok(Handle::new(self.clone(), id, message))
        }
        .boxed()
    }
}

/// `scoop_operate::Schedules::trigger`.
pub fn trigger_named(
    scoop: &Scoop,
    saga: impl Into<String>,
) -> BoxFuture<'static, Result<Handle, RuntimeError>> {
    let (scoop, saga) = (scoop.clone(), saga.into());
    async move {
        let (root, asked) = (ids::now_v7(), RequestKey::new());
        let triggering = {
            let (scoop, name) = (scoop.clone(), saga.clone());
            run_to_completion(async move {
                let trigger = |attempt| scoop.store().trigger(&name, root, asked.with(attempt));
                scoop.retrying(trigger).await
            })
        };
        let triggered = triggering.await.map_err(GivenUp::error("a saga was run by hand"))?;
        scoop.notify_ready(&triggered.ok_or(RuntimeError::from(ErrorKind::NoSchedule { saga }))?);
        Ok(Handle::new(scoop, root, asked.id))
    }
    .boxed()
}
