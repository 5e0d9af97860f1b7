//! Explains what a run waits for.

use futures_util::future::{BoxFuture, FutureExt};
use scoop_runtime::RuntimeError;
use scoop_runtime::internal::ErrorKind;
use scoop_runtime::internal::system_time;
use uuid::Uuid;

use super::{Explanation, Runs};
use crate::OperateError;

/// How often a run is looked up that is in no place.
const READS_MAX: usize = 3;

impl Runs {
    /// Explains what a run waits for, since when, and what would end that. The id is that of a run, a hierarchy or a
    /// message; of a hierarchy or a message a few runs are explained. Display the explanation for a paragraph on each.
    ///
    /// A run that waits for its children is followed to the runs below it that really block it.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_not_found`] if nothing has that id; or if the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{Handle, Scoop};
    /// # use scoop_operate::WaitReason;
    /// # async fn example(scoop: Scoop, order: Handle) -> Result<(), scoop_operate::OperateError> {
    /// let explanation = scoop.operate().runs().explain(order.id()).await?;
    /// println!("{explanation}");
    /// for run in explanation.runs {
    ///     if let WaitReason::Program { .. } = run.reason {
    ///         println!("start a program with saga {}", run.run.handler);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self, id: impl Into<Uuid>) -> BoxFuture<'static, Result<Explanation, OperateError>> {
        let (database, id) = (self.operate.database(), id.into());
        async move {
            let doing = "a run was explained";
            let Some(named) = database.retrying(doing, |_| database.named(id)).await? else {
                return Err(RuntimeError::from(ErrorKind::NoSuchRun { id }).into());
            };
            let (hierarchy, ids) = named.runs_of(id);
            let mut runs = Vec::with_capacity(ids.len());
            for run in ids {
                // A run may end, or return for its rollback, between the two places at which it is looked up.
                for _ in 0..READS_MAX {
                    let read = |_| database.run_facts(hierarchy.uuid(), run.uuid());
                    if let Some(mut facts) = database.read_retrying(doing, read).await? {
                        if let Some(join) = &mut facts.join {
                            let workers = database.read_retrying(doing, |_| database.list_workers()).await?;
                            join.complete(&facts.run.handler, &workers);
                        }
                        runs.push(facts.explain());
                        break;
                    }
                }
            }
            let now = database.retrying(doing, |_| database.now()).await?;
            Ok(Explanation { id, named, hierarchy, runs, read_at: system_time(now.latest) })
        }
        .boxed()
    }
}
