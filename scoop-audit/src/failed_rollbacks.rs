//! Failed rollbacks: the row of a run rests as failed from its ROLLBACK_FAILED until an operator decides about it. The run above waits for
//! it, or has failed because of it, unless it has gone on since.

use std::collections::BTreeMap;

use scoop_core::EventKind;

use crate::history::{Findings, Hierarchy, Row, Run};
use crate::{FailedRun, Invariant, Tables};

pub(crate) fn check(hierarchies: &[Hierarchy<'_>], tables: &Tables, findings: &mut Findings) {
    let rows: BTreeMap<_, _> = tables.failed_runs.iter().map(|row| (row.run, row)).collect();
    for hierarchy in hierarchies {
        for run in &hierarchy.runs {
            if let Some(what) = difference(hierarchy, run, rows.get(&run.id()).copied()) {
                hierarchy.find(findings, Invariant::FailedRollbacks, what);
            }
        }
    }
}

/// What is wrong with the row of a run whose rollback may have failed.
fn difference(hierarchy: &Hierarchy<'_>, run: &Run<'_>, row: Option<&FailedRun>) -> Option<String> {
    let failed = run.of_kind(EventKind::RollbackFailed).last();
    let settled = run.first(EventKind::RolledBack);
    let end = run.end().filter(|end| end.kind() == EventKind::RollbackFailed);
    match (failed, settled, row) {
        (None, _, Some(_)) => {
            Some(format!("`{}` has the row of a failed run, and has not failed", run.handler))
        }
        (Some(failed), Some(_), Some(_)) => {
            Some(format!("{} is settled, and has the row of a failed run", failed.describe()))
        }
        (Some(failed), None, None) => Some(format!("{} has no row", failed.describe())),
        (Some(failed), None, Some(row)) if row.rests && end.is_none() => {
            Some(format!("the run of {} has gone on, and its row rests as failed", failed.describe()))
        }
        (Some(failed), None, Some(row)) if !row.rests && end.is_some() && !hierarchy.repaired => {
            Some(format!("{} is the end, and its row does not rest as failed", failed.describe()))
        }
        (Some(failed), None, Some(row)) if row.rests => is_awaited_wrongly(hierarchy, run, failed, row),
        _ => None,
    }
}

/// Whether the run above waits for a failed one that it has accepted, or does not wait for one that it has not.
fn is_awaited_wrongly(
    hierarchy: &Hierarchy<'_>,
    run: &Run<'_>,
    failed: Row<'_>,
    row: &FailedRun,
) -> Option<String> {
    let above = hierarchy.above(run)?;
    // Also after an earlier failure: no run waits for an accepted one any more.
    let first = run.first(EventKind::RollbackFailed).unwrap_or(failed);
    let went_on = above.of_kind(EventKind::Suspended).any(|suspended| suspended.at > first.at);
    match row.parent {
        Some(_) if went_on => {
            Some(format!("`{}` has gone on after {}, and waits", above.handler, failed.describe()))
        }
        // A rollback that a client has requested has no run that waits for it, and perhaps none a message with a strategy.
        None if !went_on && !is_requested_by_client(hierarchy, run) && !has_strategy(above, run) => {
            Some(format!("`{}` does not wait for {}", above.handler, failed.describe()))
        }
        _ => None,
    }
}

/// Whether the run above waits for the handlers of its message by a strategy.
fn has_strategy(above: &Run<'_>, run: &Run<'_>) -> bool {
    let mut strategies = above.rows.iter().flat_map(|row| &row.event.strategies);
    strategies.any(|strategy| strategy.message == run.message())
}

fn is_requested_by_client(hierarchy: &Hierarchy<'_>, run: &Run<'_>) -> bool {
    hierarchy.about(run.message(), EventKind::RollbackEmitted).any(|request| request.event.handler.is_none())
}
