//! I4: a rollback undoes the steps of the newest execution of a run in exactly the reverse order, the children of each step first.

use scoop_core::{Definition, EventKind};
use uuid::Uuid;

use crate::Invariant;
use crate::history::{Findings, Hierarchy, Row, Run};

/// One part of a rollback, as the history requires it.
struct Part {
    name: String,
    /// The messages whose handlers it requests to roll back; `None` if it undoes the step itself.
    requests: Option<Vec<Uuid>>,
}

pub(crate) fn check(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    for run in &hierarchy.runs {
        let Some(turned) = run.first(EventKind::RollingBack) else {
            continue;
        };
        // The version that named the parts is not recorded; the history must fit one of them.
        let mut wrong = None;
        for definition in hierarchy.versions(run) {
            match is_undone(hierarchy, run, turned, definition) {
                Ok(()) => {
                    wrong = None;
                    break;
                }
                Err(what) => wrong = Some(what),
            }
        }
        if let Some(what) = wrong {
            hierarchy.find(findings, Invariant::Reverse, what);
        }
    }
}

/// The name of a part: `Rollback of step[index,handling]`, with `$` added where a step of the saga has that prefix.
fn name(definition: &Definition, step: &str, index: usize, handling: Option<u32>) -> String {
    let mut prefix = String::from("Rollback of ");
    while definition.steps.iter().any(|step| step.name.starts_with(&*prefix)) {
        prefix += "$";
    }
    let handling = handling.map_or(String::new(), |handling| handling.to_string());
    format!("{prefix}{step}[{index},{handling}]")
}

fn children_name(definition: &Definition, name: &str) -> String {
    let mut suffix = String::from(" (rolling back child scopes)");
    while definition.steps.iter().any(|step| step.name.ends_with(&*suffix)) {
        suffix += "$";
    }
    format!("{name}{suffix}")
}

/// All parts, in the required order.
fn plan(run: &Run<'_>, definition: &Definition) -> Vec<Part> {
    let mut parts = vec![];
    let windows = run.newest_execution();
    for (position, window) in windows.iter().enumerate().rev() {
        let (step, handling) = (window.closed.step(), window.closed.event.handler_iteration);
        let earlier = windows[..position].iter().map(|window| window.closed);
        let same = earlier.filter(|row| row.step() == step && row.event.handler_iteration.is_none()).count();
        // A call of the child failure handler belongs to the execution before it.
        let index = if handling.is_some() { same.saturating_sub(1) } else { same };
        let requests = window.emitted.iter().map(|row| row.event.message).collect();
        let own = name(definition, step, index, handling);
        parts.push(Part { name: children_name(definition, &own), requests: Some(requests) });
        if handling.is_none() {
            parts.push(Part { name: own, requests: None });
        }
    }
    parts
}

fn is_undone(
    hierarchy: &Hierarchy<'_>,
    run: &Run<'_>,
    turned: Row<'_>,
    definition: &Definition,
) -> Result<(), String> {
    let plan = plan(run, definition);
    let nothing = name(definition, definition.steps.first().map_or("", |step| &step.name), 0, None);
    let mut done = 0_usize;
    let mut requests: Vec<Row<'_>> = vec![];
    for row in run.rows.iter().filter(|row| row.at > turned.at) {
        let last = done.checked_sub(1).and_then(|last| plan.get(last)).map(|part| &*part.name);
        let first = plan.first().map(|part| &*part.name);
        let next = plan.get(done);
        let again = hierarchy.repaired && last == Some(row.step());
        match row.kind() {
            EventKind::RollbackEmitted => requests.push(*row),
            EventKind::Suspended if row.event.handler_iteration.is_some() => {
                ensure(Some(row.step()) == last.or(first), || {
                    format!("{} handles a failure out of turn", row.describe())
                })?;
            }
            EventKind::Suspended if again => {}
            EventKind::Suspended if row.is_operators() && plan.is_empty() && row.step() == nothing => {}
            EventKind::Suspended => {
                let part = next.filter(|part| part.name == row.step());
                let part = part.ok_or_else(|| order_violation(*row, next))?;
                let requests = std::mem::take(&mut requests);
                // A part that an operator skips may have requested no rollback.
                if !row.is_operators() {
                    requests_rollback_of_children(hierarchy, part, &requests, *row)?;
                }
                done += 1;
            }
            EventKind::RolledBack => {
                let complete = done == plan.len() || hierarchy.repaired;
                ensure(complete, || order_violation(*row, next))?;
                let named = Some(row.step()) == last.or(Some(&nothing)) || hierarchy.repaired;
                ensure(named, || format!("{} names another part than the last", row.describe()))?;
            }
            EventKind::RollbackFailed => {
                let names = [last, first, next.map(|part| &*part.name), Some(&nothing)];
                ensure(names.contains(&Some(row.step())), || order_violation(*row, next))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn order_violation(row: Row<'_>, next: Option<&Part>) -> String {
    let next = next.map_or("the end of the rollback", |part| &part.name);
    format!("{} where `{next}` is next", row.describe())
}

/// The part requests rollback once for each message of the instance, except those requested before.
fn requests_rollback_of_children(
    hierarchy: &Hierarchy<'_>,
    part: &Part,
    requests: &[Row<'_>],
    row: Row<'_>,
) -> Result<(), String> {
    let requested: Vec<_> = requests.iter().map(|row| row.event.message).collect();
    let began = requests.first().map_or(row.at, |first| first.at);
    let demanded = |message: &Uuid| {
        hierarchy.about(*message, EventKind::RollbackEmitted).any(|earlier| earlier.at < began)
    };
    let expected = part.requests.iter().flatten().copied().filter(|message| !demanded(message));
    let expected: Vec<_> = expected.collect();
    ensure(requested == expected, || {
        let (count, of) = (requested.len(), expected.len());
        format!("{}: rollback was requested for {count} messages instead of {of}", row.describe())
    })
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
