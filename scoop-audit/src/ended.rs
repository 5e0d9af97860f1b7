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
    let end = run.end().filter(|end| end.kind() != EventKind::RollbackFailed);
    let Some((end, row)) = end.zip(row) else {
        return match (end, row) {
            (None, Some(row)) => Some(format!("`{of}` has not ended, and is {:?}", row.outcome)),
            // A requested rollback may not have begun.
            (Some(end), None) if !is_to_be_undone(hierarchy, run, end) => {
                Some(format!("`{of}` has ended with {}, and is not among the ended runs", end.describe()))
            }
            _ => None,
        };
    };
    let outcome = match end.kind() {
        EventKind::Committed => RunOutcome::Committed,
        _ => RunOutcome::RolledBack,
    };
    let failure_of = |row: Option<Row<'_>>| row.and_then(|row| row.event.exception.clone());
    let event = end.event;
    let differs = [
        ("outcome", row.outcome != outcome),
        ("failure", row.failure != failure_of(run.first(EventKind::RollingBack))),
        (
            "failure of its rollback",
            row.rollback_failure != failure_of(run.of_kind(EventKind::RollbackFailed).last()),
        ),
        ("time", row.ended_at != event.at),
        ("lineage", row.lineage != event.lineage),
        ("message", row.message != event.message),
        ("handler", row.handler != run.handler),
        ("context", row.context != event.context),
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

/// Whether the rollback of a run with this end was requested, and has not begun.
fn is_to_be_undone(hierarchy: &Hierarchy<'_>, run: &Run<'_>, end: Row<'_>) -> bool {
    let mut requests = hierarchy.about(run.message(), EventKind::RollbackEmitted);
    end.kind() == EventKind::Committed && requests.next().is_some()
}
