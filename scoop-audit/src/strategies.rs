//! I1 with a strategy: a run goes on after a launch exactly when its strategy allows that.

use scoop_core::{EventKind, Failure};
use serde_json::Value;

use crate::history::{Findings, Hierarchy, Row, Run, Window};
use crate::{Invariant, LoggedStrategy};

pub(crate) fn check(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    for window in hierarchy.runs.iter().flat_map(|run| run.windows()) {
        let Some(left) = window.left else { continue };
        // A run that gives up waits for nothing else, and an operator may decide otherwise.
        if left.gave_up()
            || left.is_operators()
            || left.kind() == EventKind::RollingBack && left.event.step.is_none()
        {
            continue;
        }
        for emitted in &window.emitted {
            if let Some(strategy) = window.strategy(*emitted) {
                goes_on_rightly(hierarchy, &window, *emitted, strategy, left, findings);
            }
        }
    }
}

/// What became of the handlers of a message before a row.
struct Children<'a> {
    handlers: Vec<&'a str>,
    committed: Vec<&'a str>,
}

fn goes_on_rightly(
    hierarchy: &Hierarchy<'_>,
    window: &Window<'_>,
    emitted: Row<'_>,
    strategy: &LoggedStrategy,
    left: Row<'_>,
    findings: &mut Findings,
) {
    let runs = || hierarchy.handling(emitted.event.message);
    let committed =
        runs().filter(|run| run.ends().any(|end| end.kind() == EventKind::Committed && end.at < left.at));
    let children = Children {
        handlers: runs().map(|run| run.handler).collect(),
        committed: committed.map(|run| run.handler).collect(),
    };
    others_are_cancelled(hierarchy, emitted, strategy, left, findings);
    if strategy.late_until.is_some() {
        return window_is_over(hierarchy, emitted, strategy, left, findings);
    }
    let Some(is_enough) = is_enough(strategy, &children) else { return };
    let is_over = strategy.until.is_some_and(|until| until <= left.event.at + hierarchy.log.tolerance);
    match has_failed(window, strategy, left) {
        // Those that were cancelled may have committed before they got to know.
        Some(true) if is_enough && !is_over => {
            let what = format!("{} has failed, and its strategy `{}` holds", left.describe(), strategy.name);
            hierarchy.find(findings, Invariant::Waits, what);
        }
        Some(false) if !is_enough => {
            let what = format!(
                "{} goes on, and its strategy `{}` does not hold: {:?} of {:?} had committed",
                left.describe(),
                strategy.name,
                children.committed,
                children.handlers
            );
            hierarchy.find(findings, Invariant::Waits, what);
        }
        _ => {}
    }
}

/// A run goes on after a window when that is over, and all have ended that have begun.
fn window_is_over(
    hierarchy: &Hierarchy<'_>,
    emitted: Row<'_>,
    strategy: &LoggedStrategy,
    left: Row<'_>,
    findings: &mut Findings,
) {
    let is_early = strategy.late_until.is_some_and(|end| left.event.at + hierarchy.log.tolerance < end);
    let mut runs = hierarchy.handling(emitted.event.message);
    let under_way = runs.find(|run| !run.ends().any(|end| end.at < left.at));
    if is_early || under_way.is_some() {
        let of = under_way.map_or_else(String::new, |run| format!(", nor for {}", run.seen.describe()));
        let what = format!("{} did not wait for the end of the window{of}", left.describe());
        hierarchy.find(findings, Invariant::Waits, what);
    }
}

/// The handlers without which a run goes on were cancelled before, unless they are left to run.
fn others_are_cancelled(
    hierarchy: &Hierarchy<'_>,
    emitted: Row<'_>,
    strategy: &LoggedStrategy,
    left: Row<'_>,
    findings: &mut Findings,
) {
    if strategy.leaves_others {
        return;
    }
    let is_under_way = |run: &&Run<'_>| run.seen.at < left.at && !run.ends().any(|end| end.at < left.at);
    for run in hierarchy.handling(emitted.event.message).filter(is_under_way) {
        let mut requests = hierarchy.rows.iter().filter(|row| row.kind() == EventKind::CancellationRequested);
        let lineage = run.seen.event.lineage.ids();
        if !requests.any(|request| request.at < left.at && lineage.starts_with(request.event.lineage.ids())) {
            let what = format!("{} goes on, and has not cancelled {}", left.describe(), run.seen.describe());
            hierarchy.find(findings, Invariant::Waits, what);
        }
    }
}

/// Whether the strategy allows the run to go on; `None` for one that this model does not know.
fn is_enough(strategy: &LoggedStrategy, children: &Children<'_>) -> Option<bool> {
    let names: Vec<_> = strategy.with.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let committed = |name: &&str| children.committed.contains(name);
    match &*strategy.name {
        "at_least" => Some(children.committed.len() as u64 >= strategy.with.as_u64()?),
        "only" => Some(names.iter().all(committed)),
        "without" => {
            let mut awaited = children.handlers.iter().filter(|name| !names.contains(name));
            Some(awaited.all(committed))
        }
        _ => None,
    }
}

/// Whether the row after a wait says that the launch has failed; `None` if that is unknown.
fn has_failed(window: &Window<'_>, strategy: &LoggedStrategy, left: Row<'_>) -> Option<bool> {
    let is_failure = left.kind() != EventKind::Suspended && left.event.handler_iteration.is_some();
    if let Some(failure) = left.failure().filter(|_| is_failure) {
        return Some(is_in(failure, &strategy.message.to_string()));
    }
    // The failure that a handler of failures got is not in the log.
    let is_handled = left.event.handler_iteration != window.closed.event.handler_iteration;
    (!is_handled || left.event.handler_iteration.is_none()).then_some(false)
}

/// Whether the failure of a launch of this message is in it.
fn is_in(failure: &Failure, message: &str) -> bool {
    failure.kind == "WaitGaveUp" && failure.message.contains(message)
        || failure.causes.iter().any(|cause| is_in(cause, message))
}
