//! Rebuilds the working set from the protocol's tables, after it was damaged or lost.

mod fold;
#[cfg(test)]
mod fuzz;
mod past;
#[cfg(test)]
mod tests;

use futures_util::FutureExt;
use uuid::Uuid;

pub(crate) use self::fold::{Listened, Rebuilt, newest_outputs, rebuild};
pub(crate) use self::past::{Recorded, Revival};
use crate::patience::Vain;
use crate::{HierarchyId, RuntimeError, Scoop};

/// The result of a [rebuild](Scoop::rebuild_working_set) of the working set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebuild {
    /// The number of runs before the rebuild.
    pub before: u64,
    /// The number of runs after the rebuild.
    pub after: u64,
    /// The hierarchies that cannot be rebuilt. Their runs are unchanged.
    pub skipped: Vec<SkippedHierarchy>,
}

/// A hierarchy that cannot be [rebuilt](Scoop::rebuild_working_set): a record is damaged or unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedHierarchy {
    /// Its id.
    pub hierarchy: HierarchyId,
    /// The reason.
    pub reason: String,
}

impl Scoop {
    /// Rebuilds the working set (the table `run`, the next work of each run) from the recorded events. A
    /// [client](Scoop::client) calls it while no process runs sagas, after the table was damaged or lost, or to
    /// verify it.
    ///
    /// The progress of each run, its waits and its cancellation are preserved. The number of attempts, the pauses
    /// between them, and the reasons of [stuck](Scoop::stuck_runs) runs are lost: stuck runs are retried once.
    ///
    /// The call reads the events of the unfinished hierarchies, in one transaction; of the others only ids and names,
    /// in indexes. A launch meanwhile waits for its end.
    ///
    /// A hierarchy whose events cannot be read, or whose runs the database refuses, keeps its runs and is one of
    /// [`Rebuild::skipped`]; all others are rebuilt. The rebuild then takes twice the time.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::StillAtWork`] if any process runs sagas; or if the database fails. The working set is then
    /// unchanged.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the rebuild has completed or has changed nothing.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), RuntimeError> {
    /// let rebuild = Scoop::client(pool).rebuild_working_set().await?;
    /// println!("{} runs were unfinished, {} are", rebuild.before, rebuild.after);
    /// for skipped in rebuild.skipped {
    ///     println!("not rebuilt: {}, {}", skipped.hierarchy, skipped.reason);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn rebuild_working_set(&self) -> impl Future<Output = Result<Rebuild, RuntimeError>> + Send {
        async move {
            let rebuilt = self.trial().once().endure(|_| self.store().rebuild()).await;
            rebuilt
                .map_err(Vain::error("the working set was rebuilt"))?
                .map_err(|workers| RuntimeError::StillAtWork { workers })
        }
        .boxed()
    }
}

pub(crate) fn root_of(row: &Recorded) -> Uuid {
    row.lineage.root_id()
}
