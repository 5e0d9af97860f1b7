//! Runs that have ended: each has a row from its end on, which says what its events say.

use std::collections::{BTreeMap, BTreeSet};

use scoop_core::EventKind;
use uuid::Uuid;

use crate::history::{Findings, Hierarchy, Row, Run};
use crate::{EndedRun, Invariant, RunOutcome, Tables};

pub(crate) fn check(hierarchies: &[Hierarchy<'_>], tables: &Tables, findings: &mut Findings) {
    let rows: BTreeMap<_, _> = tables.ended_runs.iter().map(|row| (row.lineage.id(), row)).collect();
    let mut by_root: BTreeMap<Uuid, Vec<&EndedRun>> = BTreeMap::new();
    for row in &tables.ended_runs {
        by_root.entry(row.lineage.root_id()).or_default().push(row);
    }
    for hierarchy in hierarchies {
        for run in &hierarchy.runs {
            if let Some(what) = difference(hierarchy, run, rows.get(&run.id()).copied()) {
                hierarchy.find(findings, Invariant::Ended, what);
            }
        }
        let rows = by_root.get(&hierarchy.root).into_iter().flatten();
        let begun: BTreeSet<_> = hierarchy.runs.iter().map(Run::id).collect();
        let is_unknown =
            |row: &&&EndedRun| row.outcome != RunOutcome::Dropped && !begun.contains(&row.lineage.id());
        for row in rows.filter(is_unknown) {
            let what = format!("`{}` has not begun, and is {:?}", row.handler, row.outcome);
            hierarchy.find(findings, Invariant::Ended, what);
        }
    }
}

/// What is wrong with the row of a run, or that it has none.
fn difference(hierarchy: &Hierarchy<'_>, run: &Run<'_>, row: Option<&EndedRun>) -> Option<String> {
    let of = &run.handler;
    let Some((end, row)) = run.end().zip(row) else {
        return match (run.end(), row) {
            // An operator has let an unfinished run go with the one above it, perhaps one whose rollback had failed.
            (None, Some(row)) if hierarchy.repaired && is_let_go(run, row) => None,
            (None, Some(row)) => Some(format!("`{of}` has not ended, and is {:?}", row.outcome)),
            // An operator may have had it continue, or a requested rollback has not begun.
            (Some(end), None) if !hierarchy.repaired && !is_to_be_undone(hierarchy, run, end) => {
                Some(format!("`{of}` has ended with {}, and is not among the ended runs", end.describe()))
            }
            _ => None,
        };
    };
    let (outcome, rollback_failure) = match end.kind() {
        EventKind::Committed => (RunOutcome::Committed, None),
        EventKind::RolledBack => (RunOutcome::RolledBack, None),
        _ => (RunOutcome::RollbackFailed, end.event.exception.as_ref()),
    };
    let failure = run.first(EventKind::RollingBack).and_then(|turned| turned.event.exception.as_ref());
    let event = end.event;
    let differs = [
        ("outcome", row.outcome != outcome),
        ("failure", row.failure.as_ref() != failure),
        // A rollback that has failed again has no event.
        ("failure of its rollback", row.rollback_failure.as_ref() != rollback_failure && !hierarchy.repaired),
        ("time", row.ended_at != event.at && !hierarchy.repaired),
        ("lineage", row.lineage != event.lineage),
        ("message", row.message != event.message),
        ("handler", row.handler != run.handler),
        ("context", row.context != event.context && !hierarchy.repaired),
    ];
    let differs: Vec<_> = differs.into_iter().filter(|(_, differs)| *differs).map(|(what, _)| what).collect();
    (!differs.is_empty()).then(|| {
        let differs = differs.join(", ");
        format!(
            "`{of}` is {:?} among the ended runs, with another {differs} than {}",
            row.outcome,
            end.describe()
        )
    })
}

/// Whether the row is that of a run which an operator has let go.
fn is_let_go(run: &Run<'_>, row: &EndedRun) -> bool {
    match run.first(EventKind::RollbackFailed) {
        None => row.outcome == RunOutcome::Dropped,
        Some(_) => row.outcome == RunOutcome::RollbackFailed,
    }
}

/// Whether the rollback of a run with this end was requested, and has not begun.
fn is_to_be_undone(hierarchy: &Hierarchy<'_>, run: &Run<'_>, end: Row<'_>) -> bool {
    let mut requests = hierarchy.about(run.message(), EventKind::RollbackEmitted);
    end.kind() == EventKind::Committed && requests.next().is_some()
}
