//! The messages that wait to be joined with others, for operators.

use futures_util::future::FutureExt;
use uuid::Uuid;

use crate::util::retries::GivenUp;
use crate::{HierarchyId, RuntimeError, Scoop};

/// `scoop_operate::Runs::joined`.
pub fn joined(
    scoop: &Scoop,
    message: Uuid,
) -> impl Future<Output = Result<Vec<HierarchyId>, RuntimeError>> + Send {
    async move {
        let roots = scoop.read_retrying(|_| scoop.store().joined(message)).await;
        let roots = roots.map_err(GivenUp::error("a joined hierarchy was looked up"))?;
        Ok(roots.into_iter().map(HierarchyId::from).collect())
    }
    .boxed()
}
