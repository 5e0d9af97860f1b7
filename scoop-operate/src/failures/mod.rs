//! Runs that need an operator: failed rollbacks and stuck runs, and the requests that repair them.

mod rollbacks;
mod stuck;

use futures_util::future::{FutureExt, TryFutureExt};
use scoop_core::Lineage;
use scoop_runtime::internal::{self, RepairAction, RequestInfo, lineage};
use scoop_runtime::{HierarchyId, IdKind, Intervention, RepairAnswer, Request, RunId};
use sqlx::Row;
use sqlx::postgres::PgRow;

pub use self::rollbacks::FailedRollback;
pub use self::stuck::StuckRun;
use crate::error::ErrorKind;
use crate::list_request::ListRequest;
use crate::{Operate, OperateError};

/// The runs that need an operator. Requests about them work in memory, too.
#[derive(Clone)]
pub struct Failures {
    pub(crate) operate: Operate,
}

impl Failures {
    /// The runs with a failed rollback that no operator has settled, newest failure first. Await it. Runs that failed
    /// only because of descendants are included: see [`FailedRollback::failed_below`].
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for failed in scoop.operate().failures().list().await? {
    ///     println!("{} of {}: {}", failed.step, failed.handler, failed.failure.report());
    ///     if failed.failed_below.is_empty() {
    ///         scoop.operate().failures().retry(failed.id()).source("night shift").await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> ListRequest<FailedRollback> {
        ListRequest::new(self.operate.database())
    }

    /// The runs that do not continue by themselves, longest first, each with the reason. Await it.
    ///
    /// They continue when a program with a fitting saga starts, or at once by [`Failures::retry`]; those whose attempts had too
    /// many unknown results only by the latter: see [`StuckRun::needs_retry`]. Due runs whose saga no living worker has are listed,
    /// too: their [state](StuckRun::phase) is another one, and they continue only when a program with the saga starts.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for stuck in scoop.operate().failures().stuck().limit(10).await? {
    ///     println!("{} after {:?}: {}", stuck.handler, stuck.step, stuck.reason);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn stuck(&self) -> ListRequest<StuckRun> {
        ListRequest::new(self.operate.database())
    }

    /// Retries a failed rollback; `run` is the [id](FailedRollback::id) of its run. Await it for the
    /// response.
    ///
    /// If it succeeds, the rollback continues from there. The rollbacks of the ancestors that failed because of it
    /// continue, too, unless another failed rollback blocks them, which [is listed](Failures::list). If
    /// it fails again, it is listed again, and can be retried, skipped or resolved.
    ///
    /// A compensation that failed because of a message that it launched runs again as a whole. A rollback that was
    /// given up because of a deadline continues; only deadlines in the future apply to it. If it was given up before
    /// others had begun a rollback that it had requested or a message that it had launched, that part is repeated
    /// first.
    ///
    /// A [stuck](Failures::stuck) run is retried at once, with the programs that are alive now.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_not_found`] if nothing has that id, or if it is that of a hierarchy or a message;
    /// [`OperateError::is_damaged`] if the record of the failed rollback is damaged, or that of an ancestor
    /// that would go on, too; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the request may be made even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{Handle, Outcome, RepairAnswer, RunId, Scoop};
    /// # async fn example(scoop: Scoop, order: Handle, run: RunId) -> Result<(), scoop_operate::OperateError> {
    /// if scoop.operate().failures().retry(run).await? == RepairAnswer::Accepted {
    ///     assert!(matches!(order.wait().await?, Outcome::RolledBack(_)));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn retry(&self, run: impl Into<RunId>) -> Request<RepairAnswer, OperateError> {
        self.repair(RepairAction::Retry, run.into(), "")
    }

    /// Skips the compensation that failed: its effects stay, and the rollback continues after it. Await it; as
    /// [`Failures::retry`] in all else.
    ///
    /// If the run failed because of descendants, it no longer waits for them, and their effects stay. They keep their failed
    /// rollbacks, and are listed until an operator settles them.
    ///
    /// # Errors
    ///
    /// As [`Failures::retry`].
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{RepairAnswer, RunId, Scoop};
    /// # async fn example(scoop: Scoop, run: RunId) -> Result<(), scoop_operate::OperateError> {
    /// scoop.operate().failures().skip(run, "the voucher has expired anyway").source("support").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn skip(
        &self,
        run: impl Into<RunId>,
        note: impl Into<String>,
    ) -> Request<RepairAnswer, OperateError> {
        self.repair(RepairAction::Skip, run.into(), note)
    }

    /// Declares that an operator has rolled back a run by hand, together with what it launched. Nothing more of the
    /// run is executed, and it counts as rolled back. Await it; as [`Failures::retry`] in all else.
    ///
    /// The descendants whose failed rollbacks had blocked it count as rolled back, too.
    ///
    /// # Errors
    ///
    /// As [`Failures::retry`].
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{RepairAnswer, RunId, Scoop};
    /// # async fn example(scoop: Scoop, run: RunId) -> Result<(), scoop_operate::OperateError> {
    /// scoop.operate().failures().resolve(run, "paid back by bank transfer, ticket 4711").source("accounting").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn resolve(
        &self,
        run: impl Into<RunId>,
        note: impl Into<String>,
    ) -> Request<RepairAnswer, OperateError> {
        self.repair(RepairAction::Resolve, run.into(), note)
    }

    /// All interventions of operators in the hierarchy of this id, oldest first. Of a run with many of them, a
    /// [tree](scoop_runtime::ReadTree::events) has a part.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_not_found`] if there is no such hierarchy, or if the id is that of a run or a message; or if the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{Handle, Scoop};
    /// # async fn example(scoop: Scoop, order: Handle) -> Result<(), scoop_operate::OperateError> {
    /// for done in scoop.operate().failures().interventions(order.id()).await? {
    ///     println!("{} by {}: {:?}", done.kind, done.source, done.note);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn interventions(
        &self,
        hierarchy: impl Into<HierarchyId>,
    ) -> impl Future<Output = Result<Vec<Intervention>, OperateError>> + Send {
        internal::interventions(&self.operate.scoop, hierarchy).err_into()
    }

    #[track_caller]
    fn repair(
        &self,
        action: RepairAction,
        run: RunId,
        note: impl Into<String>,
    ) -> Request<RepairAnswer, OperateError> {
        let about = RequestInfo::new(&self.operate.scoop, run, IdKind::Run, note);
        Request::new(about, move |about, target| {
            async move {
                let repaired = about.repaired(&target, action).await?;
                repaired.map_err(|damaged| ErrorKind::DamagedRollback(damaged).into())
            }
            .boxed()
        })
    }
}

/// The lineage of a run. The run is found by two ids, also if the rest of its row is damaged.
fn lineage_or_ids(row: &PgRow) -> sqlx::Result<Lineage> {
    let (root, id) = (row.try_get("root")?, row.try_get("id")?);
    let stored = lineage(row).ok().filter(|lineage| lineage.root_id() == root && lineage.id() == id);
    Ok(stored.unwrap_or_else(|| Lineage::root(root).child(id)))
}
