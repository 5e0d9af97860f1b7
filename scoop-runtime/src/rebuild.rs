//! The working set, made anew from the protocol's tables: whatever happened to it, nothing is lost.

mod fold;
#[cfg(test)]
mod fuzz;
mod past;
#[cfg(test)]
mod tests;

use futures_util::FutureExt;
use uuid::Uuid;

pub(crate) use self::fold::{Listened, Rebuilt, rebuild};
pub(crate) use self::past::{Recorded, Revival};
use crate::patience::Vain;
use crate::{HierarchyId, RuntimeError, Scoop};

/// The result of a [rebuild](Scoop::rebuild_working_set) of the working set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebuild {
    /// The number of runs before.
    pub before: u64,
    /// The number of runs now.
    pub after: u64,
    /// The hierarchies that cannot be rebuilt, by their ids. Their runs are as they were.
    pub skipped: Vec<SkippedHierarchy>,
}

/// A hierarchy that cannot be [rebuilt](Scoop::rebuild_working_set): a record was damaged, or is not readable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedHierarchy {
    /// Its id.
    pub hierarchy: HierarchyId,
    /// The reason.
    pub reason: String,
}

impl Scoop {
    /// Makes the working set anew (the table `run`) from what is on record: who has to do what next. To be
    /// called by a [client](Scoop::client) while no process runs sagas, after that table was damaged or
    /// lost, or to find out that it was not.
    ///
    /// What each run has done, what it waits for, and who has to give up stays as it was. Forgotten are
    /// the number of attempts, the pauses between them, and the reasons of runs that are
    /// [stuck](Scoop::stuck_runs): those are tried once more.
    ///
    /// It reads what is on record of the hierarchies that are not at rest, in one transaction; of the others only ids and
    /// names, in indexes. Messages can be launched meanwhile, but a launch waits for the end of it.
    ///
    /// A hierarchy whose record cannot be read, or whose runs the database refuses, keeps the runs that it has, and is one of
    /// [`Rebuild::skipped`]; all others are rebuilt. Then it takes twice the time.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::StillAtWork`] if any process runs sagas; or if the database fails. The working set is
    /// then as it was.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, it has changed nothing, or has come to its end.
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

/// The id of the hierarchy.
pub(crate) fn root_of(row: &Recorded) -> Uuid {
    row.lineage.root_id()
}
