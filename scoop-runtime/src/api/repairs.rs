//! Requests to repair runs whose rollback failed or that are stuck. Each intervention is recorded.

use std::panic::Location;

use futures_util::future::FutureExt;

use super::requests::Request;
use crate::repair::RepairAction;
use crate::tree::TreeBounds;
use crate::util::retries::GivenUp;
use crate::{HierarchyId, Intervention, RepairAnswer, RunId, RuntimeError, Scoop};

/// `scoop_operate::Failures::retry`.
#[track_caller]
pub fn retry(scoop: &Scoop, run: impl Into<RunId>) -> Request<RepairAnswer> {
    Request::repair(scoop.clone(), RepairAction::Retry, run.into(), String::new(), Location::caller())
}

/// `scoop_operate::Failures::skip`.
#[track_caller]
pub fn skip(scoop: &Scoop, run: impl Into<RunId>, note: impl Into<String>) -> Request<RepairAnswer> {
    Request::repair(scoop.clone(), RepairAction::Skip, run.into(), note.into(), Location::caller())
}

/// `scoop_operate::Failures::resolve`.
#[track_caller]
pub fn resolve(scoop: &Scoop, run: impl Into<RunId>, note: impl Into<String>) -> Request<RepairAnswer> {
    Request::repair(scoop.clone(), RepairAction::Resolve, run.into(), note.into(), Location::caller())
}

/// `scoop_operate::Failures::interventions`.
pub fn interventions(
    scoop: &Scoop,
    hierarchy: impl Into<HierarchyId>,
) -> impl Future<Output = Result<Vec<Intervention>, RuntimeError>> + Send {
    let root = hierarchy.into().uuid();
    async move {
        let read = |_| scoop.store().interventions_of(root, None, TreeBounds::default());
        let done = scoop.read_retrying(read).await;
        let done = done.map_err(GivenUp::error("interventions were looked up"))?;
        if done.is_empty() {
            // There was no intervention, or there is no such hierarchy.
            scoop.root_message(root).await?;
        }
        Ok(done.into_iter().map(|(done, _)| done).collect())
    }
    .boxed()
}
