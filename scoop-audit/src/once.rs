//! Steps that run at most once.

use scoop_core::{Delivery, EventKind, FailureCode, Interrupted};

use crate::history::{Findings, Hierarchy, Row, Run, is_same_step, kind_of, steps};
use crate::{BegunStep, Invariant, Tables};

pub(crate) fn check(hierarchies: &[Hierarchy<'_>], tables: &Tables, findings: &mut Findings) {
    for hierarchy in hierarchies {
        for run in &hierarchy.runs {
            let begun: Vec<_> = tables.begun_steps.iter().filter(|begun| begun.run == run.id()).collect();
            outcomes_have_begun(hierarchy, run, &begun, findings);
            for begun in begun {
                ends(hierarchy, run, begun, findings);
            }
        }
    }
}

/// The beginning of every outcome is recorded, and so is that of every interrupted step.
fn outcomes_have_begun(
    hierarchy: &Hierarchy<'_>,
    run: &Run<'_>,
    begun: &[&BegunStep],
    findings: &mut Findings,
) {
    let versions = hierarchy.versions(run);
    let forward = run.forward();
    let has_begun = |number: usize, name: &str| {
        begun.iter().any(|begun| begun.number == number && is_same_step(&versions, &begun.step, name))
    };
    for (number, window) in forward.iter().enumerate() {
        let row = window.closed;
        let mut found = steps(&versions, row.step()).peekable();
        let runs_once = found.peek().is_some() && found.all(|step| step.delivery == Delivery::AtMostOnce);
        if runs_once && row.event.handler_iteration.is_none() && !has_begun(number, row.step()) {
            let what = format!("{} has an outcome, but has not begun", row.describe());
            hierarchy.find(findings, Invariant::AtMostOnce, what);
        }
    }
    let turned = run.first(EventKind::RollingBack).filter(is_interrupted);
    if let Some(turned) = turned.filter(|_| !begun.iter().any(|begun| begun.number == forward.len())) {
        let what = format!("{} is interrupted, but has not begun", turned.describe());
        hierarchy.find(findings, Invariant::AtMostOnce, what);
    }
}

/// Whether the run fails by an interruption of its own.
fn is_interrupted(row: &Row<'_>) -> bool {
    let interrupted = |failure| kind_of(failure) == kind_of_code();
    row.failure().is_some_and(|failure| !failure.is_wrapper() && interrupted(failure))
}

/// The last part of the code of an interruption.
fn kind_of_code() -> &'static str {
    Interrupted::CODE.rsplit('.').next().unwrap_or_default()
}

/// A begun step ends with its outcome, or by the failure of its run.
fn ends(hierarchy: &Hierarchy<'_>, run: &Run<'_>, begun: &BegunStep, findings: &mut Findings) {
    let versions = hierarchy.versions(run);
    let forward = run.forward();
    if let Some(window) = forward.get(begun.number) {
        if !is_same_step(&versions, &begun.step, window.closed.step()) {
            let what = format!("`{}` began, but is followed by {}", begun.step, window.closed.describe());
            hierarchy.find(findings, Invariant::AtMostOnce, what);
        }
        return;
    }
    // A changed program may have another step there when the run fails.
    let failed = run.first(EventKind::RollingBack).is_some_and(|turned| {
        turned.gave_up() || is_interrupted(&turned) || is_same_step(&versions, &begun.step, turned.step())
    });
    let lost = begun.number > forward.len() || run.end().is_some() || hierarchy.is_at_rest();
    if lost && !failed && !hierarchy.set_aside && !hierarchy.repaired {
        let what = format!("`{}` of `{}` began, but neither ended nor failed", begun.step, run.handler);
        hierarchy.find(findings, Invariant::AtMostOnce, what);
    }
}
