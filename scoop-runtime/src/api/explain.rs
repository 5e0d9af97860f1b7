//! Explains what a run waits for.

use futures_util::future::{BoxFuture, FutureExt};
use uuid::Uuid;

use crate::util::format::system_time;
use crate::util::patience::GivenUp;
use crate::{Explanation, RuntimeError, Scoop, Wanted};

/// How often a run is looked up that is in no place.
const LOOKS: usize = 3;

impl Scoop {
    /// Explains what a run waits for, since when, and what would end that. The id is that of a run, a hierarchy or a
    /// message; of a hierarchy or a message a few runs are explained. Display the explanation for a paragraph on each.
    ///
    /// A run that waits for its children is followed to the runs below it that really block it.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoSuchRun`] if nothing has that id; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{Handle, RuntimeError, Scoop, WaitReason};
    /// # async fn example(scoop: Scoop, order: Handle) -> Result<(), RuntimeError> {
    /// let explanation = scoop.explain(order.id()).await?;
    /// println!("{explanation}");
    /// for run in explanation.runs {
    ///     if let WaitReason::Program { .. } = run.reason {
    ///         println!("start a program with saga {}", run.run.handler);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(
        &self,
        id: impl Into<Uuid>,
    ) -> impl Future<Output = Result<Explanation, RuntimeError>> + Send {
        self.explain_id(id.into())
    }

    fn explain_id(&self, id: Uuid) -> BoxFuture<'_, Result<Explanation, RuntimeError>> {
        async move {
            let doing = "a run was explained";
            let named = self.patiently(|_| self.store().named(id)).await;
            let Some(named) = named.map_err(GivenUp::error(doing))? else {
                return Err(self.misnamed(id, Wanted::RunOrHierarchy).await?);
            };
            let (hierarchy, ids) = named.runs_of(id);
            let mut runs = Vec::with_capacity(ids.len());
            for run in ids {
                // A run may end, or return for its rollback, between the two places at which it is looked up.
                for _ in 0..LOOKS {
                    let facts =
                        self.read_patiently(|_| self.store().run_facts(hierarchy.uuid(), run.uuid())).await;
                    if let Some(mut facts) = facts.map_err(GivenUp::error(doing))? {
                        if let Some(join) = &mut facts.join {
                            let workers = self.read_patiently(|_| self.store().listed_workers()).await;
                            join.complete(&facts.run.handler, &workers.map_err(GivenUp::error(doing))?);
                        }
                        runs.push(facts.explain());
                        break;
                    }
                }
            }
            let now = self.patiently(|_| self.store().now()).await.map_err(GivenUp::error(doing))?;
            Ok(Explanation { id, named, hierarchy, runs, read_at: system_time(now.latest) })
        }
        .boxed()
    }
}
