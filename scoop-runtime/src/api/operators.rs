//! The operator's view of runs whose rollback failed or that are stuck, and the requests to repair them. Each
//! intervention is recorded.

use std::future::IntoFuture;
use std::panic::Location;

use futures_util::future::{BoxFuture, FutureExt};
use uuid::Uuid;

use crate::repair::RepairAction;
use crate::store::{Page, Store};
use crate::util::retries::GivenUp;
use crate::{
    FailedRollback, HierarchyId, Intervention, ListCursor, RepairAnswer, Request, RunId, RuntimeError, Scoop,
    StuckRun,
};

/// The default limit of a list.
const PAGE_SIZE: u32 = 100;

/// The maximum number of entries of a page.
const PAGE_SIZE_MAX: u32 = 1_000;

/// An entry of a [`ListRequest`].
#[doc(hidden)]
pub trait ListItem: Sized + Send + 'static {
    /// Reads a page of the list.
    #[doc(hidden)]
    fn read(
        scoop: &Scoop,
        after: Option<ListCursor>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Self>, RuntimeError>>;
}

/// An entry of a [`ListRequest`] that can be read page by page.
#[doc(hidden)]
pub trait PagedListItem: ListItem {
    /// The place of the entry in the list: its time as stored, and its run. The fields of an entry may have another time,
    /// since Rust does not have all times of the server.
    fn place(&self) -> ListCursor;
}

/// A list about to be read. Await it.
#[must_use = "nothing is read before this is awaited"]
pub struct ListRequest<T> {
    scoop: Scoop,
    after: Option<ListCursor>,
    limit: u32,
    of: std::marker::PhantomData<fn() -> T>,
}

impl<T: ListItem> ListRequest<T> {
    pub(super) fn new(scoop: Scoop) -> Self {
        Self { scoop, after: None, limit: PAGE_SIZE, of: std::marker::PhantomData }
    }

    /// Sets the maximum number of entries, by default 100. Of failed rollbacks and of stuck runs, a page has 1,000 at most.
    pub fn limit(mut self, entries: u32) -> Self {
        self.limit = entries;
        self
    }
}

impl<T: PagedListItem> ListRequest<T> {
    /// Reads only the entries after this one. With the last entry of a list, this is the next page.
    pub fn after(mut self, entry: &T) -> Self {
        self.after = Some(entry.place());
        self
    }

    /// As [`after`](Self::after), by the [place](FailedRollback::cursor) of the entry.
    pub fn after_cursor(mut self, place: impl Into<Option<ListCursor>>) -> Self {
        self.after = place.into();
        self
    }
}

impl<T: ListItem> IntoFuture for ListRequest<T> {
    type Output = Result<Vec<T>, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { T::read(&self.scoop, self.after, self.limit).await }.boxed()
    }
}

/// A page as the store takes it.
fn page(after: Option<ListCursor>, limit: u32) -> Page {
    Page { after: after.map(|ListCursor(place)| place), limit: limit.min(PAGE_SIZE_MAX) }
}

async fn read<'a, T: Send, F>(scoop: &'a Scoop, read: impl Fn(&'a Store) -> F) -> Result<T, RuntimeError>
where
    F: Future<Output = sqlx::Result<T>> + Send + 'a,
{
    let listed = scoop.read_retrying(|_| read(scoop.store())).await;
    listed.map_err(GivenUp::error("runs were listed"))
}

impl PagedListItem for FailedRollback {
    fn place(&self) -> ListCursor {
        self.cursor()
    }
}

impl ListItem for FailedRollback {
    fn read(
        scoop: &Scoop,
        after: Option<ListCursor>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Self>, RuntimeError>> {
        read(scoop, move |store| store.failed_rollbacks(page(after, limit))).boxed()
    }
}

impl PagedListItem for StuckRun {
    fn place(&self) -> ListCursor {
        self.cursor()
    }
}

impl ListItem for StuckRun {
    fn read(
        scoop: &Scoop,
        after: Option<ListCursor>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Self>, RuntimeError>> {
        read(scoop, move |store| store.stuck_runs(page(after, limit))).boxed()
    }
}

impl Scoop {
    /// The runs with a failed rollback that no operator has settled, newest failure first. Await it. Runs that failed
    /// only because of descendants are included: see [`FailedRollback::failed_below`].
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// for failed in scoop.failed_rollbacks().await? {
    ///     println!("{} of {}: {}", failed.step, failed.handler, failed.failure.report());
    ///     if failed.failed_below.is_empty() {
    ///         scoop.retry(failed.id()).source("night shift").await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn failed_rollbacks(&self) -> ListRequest<FailedRollback> {
        ListRequest::new(self.clone())
    }

    /// The runs that do not continue by themselves, longest first, each with the reason. Await it.
    ///
    /// They continue when a program with a fitting saga starts, or at once by [`Scoop::retry`]; those whose attempts had too
    /// many unknown results only by the latter: see [`StuckRun::needs_retry`]. Due runs whose saga no living worker has are listed,
    /// too: their [state](StuckRun::phase) is another one, and they continue only when a program with the saga starts.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
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
    pub fn stuck_runs(&self) -> ListRequest<StuckRun> {
        ListRequest::new(self.clone())
    }

    /// Retries a failed compensation; `run` is the [id](FailedRollback::id) of its run. Await it for the
    /// response.
    ///
    /// If it succeeds, the rollback continues from there. The rollbacks of the ancestors that failed because of it
    /// continue, too, unless another failed rollback blocks them, which [is listed](Scoop::failed_rollbacks). If
    /// it fails again, it is listed again, and can be retried, skipped or resolved.
    ///
    /// A compensation that failed because of a message that it launched runs again as a whole. A rollback that was
    /// given up because of a deadline continues; only deadlines in the future apply to it. If it was given up before
    /// others had begun a rollback that it had requested or a message that it had launched, that part is repeated
    /// first.
    ///
    /// A [stuck](Scoop::stuck_runs) run is retried at once, with the programs that are alive now.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoSuchRun`] if nothing has that id, [`RuntimeError::WrongId`] if it is that of a hierarchy or a
    /// message; [`RuntimeError::DamagedRollback`] if the record of the failed rollback is damaged, or that of an ancestor
    /// that would go on, too; or if the database fails.
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
        Request::repair(self.clone(), RepairAction::Retry, run.into(), String::new(), Location::caller())
    }

    /// Skips a failed compensation: its effects stay, and the rollback continues after it. Await it; as
    /// [`Scoop::retry`] in all else.
    ///
    /// If the run failed because of descendants, it no longer waits for them, and their effects stay. They keep their failed
    /// rollbacks, and are listed until an operator settles them.
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
        Request::repair(self.clone(), RepairAction::Skip, run.into(), note.into(), Location::caller())
    }

    /// Declares that an operator has rolled back a run by hand, together with what it launched. Nothing more of the
    /// run is executed, and it counts as rolled back. Await it; as [`Scoop::retry`] in all else.
    ///
    /// The descendants whose failed rollbacks had blocked it count as rolled back, too.
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
        Request::repair(self.clone(), RepairAction::Resolve, run.into(), note.into(), Location::caller())
    }

    /// All interventions of operators in the hierarchy of this id, oldest first. Of a run with many of them, a
    /// [tree](crate::ReadTree::events) has a part.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoSuchMessage`] if there is no such hierarchy, [`RuntimeError::WrongId`] if the id is that of a
    /// run or a message; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
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
            let done = self.read_retrying(|_| self.store().interventions(root)).await;
            let done = done.map_err(GivenUp::error("interventions were looked up"))?;
            if done.is_empty() {
                // There was no intervention, or there is no such hierarchy.
                self.root_message(root).await?;
            }
            Ok(done)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn page_has_a_thousand_entries_at_most() {
        assert_eq!(
            [0, 1, 1_000, 1_001, u32::MAX].map(|limit| page(None, limit).limit),
            [0, 1, 1_000, 1_000, 1_000]
        );
    }
}
