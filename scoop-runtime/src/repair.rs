//! What an operator sees of runs that could not be undone or cannot be continued, and what can be done
//! about them. Whatever is done is on record.

mod decision;

use std::fmt;
use std::future::IntoFuture;
use std::panic::Location;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Escaped, Failure, Lineage};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

pub(crate) use self::decision::{
    Decision, HELD, Presence, Refusal, Remedy, Revived, Unrolled, Unrolleds, Written, held_again,
};
use crate::clock::since_1970;
use crate::patience::Vain;
use crate::store::{Page, Store, lineage, no_failure, readable, time};
use crate::{HierarchyId, Request, RunId, RuntimeError, Scoop};

/// How many entries a list has unless its reader wants more or less.
const LISTED: u32 = 100;

/// What became of a request to see to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairAnswer {
    /// It is on record, and the run goes on, or those above it do.
    Accepted,
    /// The run is none of those that could not be undone, or somebody has settled that before. Nothing
    /// happens.
    NotFailed,
    /// Somebody has seen to the run already and it is at work, or something below it is; or what is
    /// above it does not know of its failure yet. Nothing happens; ask again later.
    StillRunning,
    /// The run failed because runs below it could not be undone. To retry those comes first; the run
    /// then goes on by itself. Nothing happens.
    FailedBelow,
    /// The run did not fail, but is [stuck](Scoop::stuck_runs): it can only be retried. Nothing happens.
    Stuck,
}

impl From<Refusal> for RepairAnswer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFailed => Self::NotFailed,
            Refusal::Busy => Self::StillRunning,
            Refusal::FailedBelow => Self::FailedBelow,
            Refusal::Stuck => Self::Stuck,
        }
    }
}

/// A run that could not be undone, as long as nobody has settled that.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedCompensation {
    /// Its place in the hierarchy.
    pub lineage: Lineage,
    /// The saga.
    pub handler: String,
    /// Where it heard of the message.
    pub topic: String,
    /// The message.
    pub message_id: Uuid,
    /// The part of its rollback that failed.
    pub step: String,
    /// Why; the last time, if it was tried again.
    pub failure: Failure,
    /// When it first did, since 1970.
    pub at: Duration,
    /// What is being done about it.
    pub mending: Mending,
}

/// What is being done about a run that could not be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mending {
    /// Nothing. It is for an operator to retry, skip or resolve it.
    Awaited,
    /// Nothing, but there is no need: it failed because runs below it did, and goes on by itself when
    /// those are settled. To skip or resolve it settles them, too.
    FailedBelow,
    /// It goes on, or waits for those below it that do.
    UnderWay,
}

/// A run that no program at hand can continue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckRun {
    /// Its place in the hierarchy.
    pub lineage: Lineage,
    /// The saga.
    pub handler: String,
    /// Where it heard of the message.
    pub topic: String,
    /// The message.
    pub message_id: Uuid,
    /// The newest step that came to its end, if any did.
    pub step: Option<String>,
    /// Whether it is on its way back.
    pub backward: bool,
    /// Why it is stuck.
    pub reason: String,
    /// Since when, since 1970.
    pub since: Duration,
    /// Whether it was asked to give up, or missed a deadline. It does so when it can go on; until then
    /// all that is above it waits.
    pub gives_up: bool,
}

/// Something that an operator did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Intervention {
    /// About which run.
    pub run: RunId,
    /// Its saga.
    pub handler: String,
    /// The part of its rollback, unless it was merely stuck.
    pub step: Option<String>,
    /// What was done: `retry`, `skip` or `resolve`.
    pub kind: String,
    /// Why.
    pub note: Option<String>,
    /// Who asked for it.
    pub source: String,
    /// When, since 1970.
    pub at: Duration,
}

impl fmt::Display for Intervention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", Escaped(&self.kind), Escaped(&self.source))?;
        self.note.as_ref().map_or(Ok(()), |note| write!(f, ": {}", Escaped(note)))
    }
}

impl FailedCompensation {
    /// The id of the run, for [`Scoop::retry`], [`Scoop::skip`] and [`Scoop::resolve`].
    pub fn id(&self) -> RunId {
        self.lineage.id().into()
    }

    /// The hierarchy that it belongs to.
    pub fn hierarchy(&self) -> HierarchyId {
        self.lineage.root_id().into()
    }

    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let state: Option<String> = row.try_get("state")?;
        let mending = match state {
            Some(_) if !row.try_get::<bool, _>("held")? => Mending::UnderWay,
            _ if row.try_get("below")? => Mending::FailedBelow,
            _ => Mending::Awaited,
        };
        let handler: Option<String> = row.try_get("handler")?;
        let failure: Option<Json<Value>> = row.try_get("failure")?;
        let failure = failure.and_then(|Json(failure)| readable(failure).0);
        Ok(Self {
            lineage: lineage(row)?,
            handler: handler.unwrap_or_else(|| "unknown".into()),
            topic: row.try_get("topic")?,
            message_id: row.try_get("message_id")?,
            step: row.try_get::<Option<_>, _>("step")?.unwrap_or_else(|| "unknown".into()),
            failure: failure.unwrap_or_else(no_failure),
            at: since_1970(time(row, "failed_at")?),
            mending,
        })
    }
}

/// The reason for which a run is stuck if no living program has its saga.
pub(crate) fn no_program(saga: &str) -> String {
    format!(
        "no living program has saga `{saga}`; start one that has it, or if the saga was renamed, write \
         `#[saga(was = \"{saga}\")]`"
    )
}

impl StuckRun {
    /// The id of the run, for [`Scoop::retry`].
    pub fn id(&self) -> RunId {
        self.lineage.id().into()
    }

    /// The hierarchy that it belongs to.
    pub fn hierarchy(&self) -> HierarchyId {
        self.lineage.root_id().into()
    }

    /// From a row of `run_stuck.sql`.
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let (handler, reason): (String, Option<String>) = (row.try_get("handler")?, row.try_get("reason")?);
        let (root, id) = (row.try_get("root")?, row.try_get("id")?);
        let lineage = lineage(row).ok().filter(|lineage| lineage.root_id() == root && lineage.id() == id);
        Ok(Self {
            // By these two the run is found, whatever else its row says.
            lineage: lineage.unwrap_or_else(|| Lineage::root(root).child(id)),
            topic: row.try_get("topic")?,
            message_id: row.try_get("message_id")?,
            step: row.try_get("step")?,
            backward: row.try_get("backward")?,
            reason: reason.unwrap_or_else(|| no_program(&handler)),
            handler,
            since: since_1970(time(row, "stuck_since")?),
            gives_up: row.try_get("gives_up")?,
        })
    }
}

impl Intervention {
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            run: row.try_get("run")?,
            handler: row.try_get("handler")?,
            step: row.try_get("step")?,
            kind: row.try_get("kind")?,
            note: row.try_get("note")?,
            source: row.try_get("source")?,
            at: since_1970(time(row, "requested_at")?),
        })
    }
}

/// An entry of a [`Listing`].
#[doc(hidden)]
pub trait Listed: Sized + Send + 'static {
    /// By what it is ordered.
    fn place(&self) -> (Duration, Uuid);

    /// A page of the list.
    #[doc(hidden)]
    fn read(
        scoop: &Scoop,
        after: Option<(Duration, Uuid)>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Self>, RuntimeError>>;
}

/// A list that is about to be read. Await it.
#[must_use = "nothing is read before this is awaited"]
pub struct Listing<T> {
    scoop: Scoop,
    after: Option<(Duration, Uuid)>,
    limit: u32,
    of: std::marker::PhantomData<fn() -> T>,
}

impl<T: Listed> Listing<T> {
    fn new(scoop: Scoop) -> Self {
        Self { scoop, after: None, limit: LISTED, of: std::marker::PhantomData }
    }

    /// How many entries to read at most, by default 100.
    pub fn limit(mut self, entries: u32) -> Self {
        self.limit = entries;
        self
    }

    /// Only what follows this entry: with the last one of a list, the next page.
    pub fn after(mut self, entry: &T) -> Self {
        self.after = Some(entry.place());
        self
    }
}

impl<T: Listed> IntoFuture for Listing<T> {
    type Output = Result<Vec<T>, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { T::read(&self.scoop, self.after, self.limit).await }.boxed()
    }
}

/// A page as the store takes it.
fn page(after: Option<(Duration, Uuid)>, limit: u32) -> Page {
    let after = after.map(|(since, id)| (OffsetDateTime::UNIX_EPOCH + since, id));
    Page { after, limit }
}

async fn read<'a, T, F>(scoop: &'a Scoop, read: impl Fn(&'a Store) -> F) -> Result<T, RuntimeError>
where
    F: Future<Output = sqlx::Result<T>> + 'a,
{
    let listed = scoop.patiently(|_| read(scoop.store())).await;
    listed.map_err(Vain::error("runs were listed"))
}

impl Listed for FailedCompensation {
    fn place(&self) -> (Duration, Uuid) {
        (self.at, self.lineage.id())
    }

    fn read(
        scoop: &Scoop,
        after: Option<(Duration, Uuid)>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Self>, RuntimeError>> {
        read(scoop, move |store| store.failed_compensations(page(after, limit))).boxed()
    }
}

impl Listed for StuckRun {
    fn place(&self) -> (Duration, Uuid) {
        (self.since, self.lineage.id())
    }

    fn read(
        scoop: &Scoop,
        after: Option<(Duration, Uuid)>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Self>, RuntimeError>> {
        read(scoop, move |store| store.stuck_runs(page(after, limit))).boxed()
    }
}

impl Scoop {
    /// The runs that could not be undone, newest failure first, as long as nobody has settled that.
    /// Await it. Those that failed only because of others are among them: see [`Mending`].
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_runtime::{Mending, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// for failed in scoop.failed_compensations().await? {
    ///     println!("{} of {}: {}", failed.step, failed.handler, failed.failure.report());
    ///     if failed.mending == Mending::Awaited {
    ///         scoop.retry(failed.id()).source("night shift").await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn failed_compensations(&self) -> Listing<FailedCompensation> {
        Listing::new(self.clone())
    }

    /// The runs that no program at hand can continue, longest first, each with the reason. Await it.
    ///
    /// They go on when a program starts that has a fitting saga, or at once by [`Scoop::retry`].
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// for stuck in scoop.stuck_runs().limit(10).await? {
    ///     println!("{} after {:?}: {}", stuck.handler, stuck.step, stuck.reason);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn stuck_runs(&self) -> Listing<StuckRun> {
        Listing::new(self.clone())
    }

    /// Lets a failed compensation run again; `run` is its [id](FailedCompensation::id). Await it for an
    /// answer that says what became of the request.
    ///
    /// If it succeeds, the rollback goes on from there, and that of the runs above which had failed
    /// because of it goes on, too, when nothing else is in its way: what is, [is listed](Scoop::failed_compensations).
    /// If it fails again, that is seen there as well, and it can be retried, skipped or resolved again.
    ///
    /// A compensation that failed since a message that it launched did runs again as a whole. A
    /// rollback that gave up because of a deadline goes on; only deadlines that are still to come count. If
    /// it gave up while others had yet to begin with what it had told or asked them to do, that is repeated first.
    ///
    /// A [stuck](Scoop::stuck_runs) run is tried again at once, with the programs that run now.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoSuchRun`] if nothing has that id, [`RuntimeError::WrongId`] if it is that of a hierarchy or a
    /// message; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the request may be made even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_runtime::{Handle, Outcome, RepairAnswer, RunId, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, order: Handle, run: RunId) -> Result<(), RuntimeError> {
    /// if scoop.retry(run).await? == RepairAnswer::Accepted {
    ///     assert!(matches!(order.wait().await?, Outcome::RolledBack(_)));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn retry(&self, run: impl Into<RunId>) -> Request<RepairAnswer> {
        Request::repair(self.clone(), Remedy::Retry, run.into(), String::new(), Location::caller())
    }

    /// Leaves a failed compensation undone, and lets the rollback go on after it. Await it; as
    /// [`Scoop::retry`] in all else.
    ///
    /// What failed because runs below it could not be undone accepts that: those are left as they are.
    ///
    /// # Errors
    ///
    /// As [`Scoop::retry`].
    ///
    /// ```no_run
    /// # use scoop_runtime::{RepairAnswer, RunId, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, run: RunId) -> Result<(), RuntimeError> {
    /// scoop.skip(run, "the voucher has expired anyway").source("support").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn skip(&self, run: impl Into<RunId>, note: impl Into<String>) -> Request<RepairAnswer> {
        Request::repair(self.clone(), Remedy::Skip, run.into(), note.into(), Location::caller())
    }

    /// Says that somebody has put all of a run right by hand, with what it launched: nothing more of it
    /// is executed, and it counts as rolled back. Await it; as [`Scoop::retry`] in all else.
    ///
    /// What failed below it, and so kept it from being undone, counts as rolled back, too.
    ///
    /// # Errors
    ///
    /// As [`Scoop::retry`].
    ///
    /// ```no_run
    /// # use scoop_runtime::{RepairAnswer, RunId, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, run: RunId) -> Result<(), RuntimeError> {
    /// scoop.resolve(run, "paid back by bank transfer, ticket 4711").source("accounting").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn resolve(&self, run: impl Into<RunId>, note: impl Into<String>) -> Request<RepairAnswer> {
        Request::repair(self.clone(), Remedy::Resolve, run.into(), note.into(), Location::caller())
    }

    /// What operators did in the hierarchy of this id, oldest first.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoSuchMessage`] if there is no such hierarchy, [`RuntimeError::WrongId`] if the id is that of a
    /// run or a message; or if the database fails.
    ///
    /// ```no_run
    /// # use scoop_runtime::{Handle, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, order: Handle) -> Result<(), RuntimeError> {
    /// for done in scoop.interventions(order.id()).await? {
    ///     println!("{} by {}: {:?}", done.kind, done.source, done.note);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn interventions(
        &self,
        hierarchy: impl Into<HierarchyId>,
    ) -> impl Future<Output = Result<Vec<Intervention>, RuntimeError>> + Send {
        self.interventions_of(hierarchy.into().uuid())
    }

    fn interventions_of(&self, root: Uuid) -> BoxFuture<'_, Result<Vec<Intervention>, RuntimeError>> {
        async move {
            let done = self.patiently(|_| self.store().interventions(root)).await;
            let done = done.map_err(Vain::error("interventions were looked up"))?;
            if done.is_empty() {
                // Nothing was done, or there is no such hierarchy.
                self.root_message(root).await?;
            }
            Ok(done)
        }
        .boxed()
    }
}
