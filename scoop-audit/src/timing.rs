//! Times: they rise strictly within a run, no run begins or continues too early, and a run that must give up does.

use scoop_core::{Context, EventKind};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Invariant;
use crate::history::{Findings, Hierarchy, Row, Run};

pub(crate) fn check(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    for run in &hierarchy.runs {
        for pair in run.rows.windows(2) {
            if pair[0].event.at >= pair[1].event.at {
                let what = format!("{} is not later than {}", pair[1].describe(), pair[0].describe());
                hierarchy.find(findings, Invariant::Time, what);
            }
        }
        begins_in_time(hierarchy, run, findings);
        continues_in_time(hierarchy, run, findings);
        if !hierarchy.is_compensating(run) {
            gives_up_when_asked(hierarchy, run, findings);
            keeps_its_deadlines(hierarchy, run, findings);
        }
    }
}

/// The instant in an element of the context.
fn instant(context: &Context, key: &str, field: &str) -> Option<OffsetDateTime> {
    let element: serde_json::Value = serde_json::from_str(context.raw(key)?).ok()?;
    OffsetDateTime::parse(element.get(field)?.as_str()?, &Rfc3339).ok()
}

/// The deadlines of the forward path.
pub(crate) fn deadlines(context: &Context) -> impl Iterator<Item = OffsetDateTime> {
    let keys = ["HappyPathDeadlineKey", "AbsoluteDeadlineKey"];
    keys.into_iter().filter_map(|key| instant(context, key, "deadline"))
}

/// A run begins no earlier than the time that its message names, except to give up.
fn begins_in_time(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    let Some(due) = instant(&run.seen.event.context, "SleepUntilKey", "wakeAfter") else {
        return;
    };
    let giving_up = run.after(run.seen).is_none_or(|next| next.gave_up());
    if run.seen.event.at + hierarchy.log.tolerance < due && !giving_up {
        let what = format!("{} before {due}, its time", run.seen.describe());
        hierarchy.find(findings, Invariant::NotBefore, what);
    }
}

/// A run that waits for a time continues no earlier, except to give up, or if an operator or a request has it go on.
fn continues_in_time(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    for window in run.windows() {
        let Some((until, left)) = window.closed.event.waits_until.zip(window.left) else {
            continue;
        };
        let requested = left.kind() == EventKind::RollingBack && left.event.step.is_none();
        let early = left.event.at.saturating_add(hierarchy.log.tolerance) < until;
        if early && !left.gave_up() && !requested && !left.is_operators() {
            let what = format!("{} before {until}, the end of the wait", left.describe());
            hierarchy.find(findings, Invariant::NotBefore, what);
        }
    }
}

/// The moves of a run: completed steps and its end. The last step and the end may be one move.
fn moves<'a>(run: &Run<'a>) -> Vec<Row<'a>> {
    let mut moves = vec![];
    for window in run.forward() {
        moves.push(window.closed);
        let waited = !window.emitted.is_empty() || window.closed.event.waits_until.is_some();
        moves.extend(window.left.filter(|left| waited && left.kind() == EventKind::Committed));
    }
    moves
}

/// After a cancellation request a run makes at most one more move, which was under way.
fn gives_up_when_asked(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    let requests = hierarchy.rows.iter().filter(|row| row.kind() == EventKind::CancellationRequested);
    for request in requests {
        let scope = request.event.lineage.ids();
        if !run.seen.event.lineage.ids().starts_with(scope) {
            continue;
        }
        let mut later = moves(run)
            .into_iter()
            .filter(|row| row.at > request.at && row.event.at > request.event.at + hierarchy.log.tolerance);
        if let Some(row) = later.nth(1) {
            let what = format!("{} continues after {}", row.describe(), request.describe());
            hierarchy.find(findings, Invariant::GivesUp, what);
        }
    }
}

/// No recorded move ended after a deadline that the run knew when the move began.
fn keeps_its_deadlines(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    for row in moves(run) {
        let before = run.rows.iter().rfind(|before| {
            before.at < row.at && matches!(before.kind(), EventKind::Seen | EventKind::Suspended)
        });
        let Some(before) = before else {
            continue;
        };
        let missed =
            |deadline: &OffsetDateTime| deadline.saturating_add(hierarchy.log.tolerance) < row.event.at;
        for deadline in deadlines(&before.event.context).filter(missed) {
            let what = format!("{} after {deadline}, its deadline", row.describe());
            hierarchy.find(findings, Invariant::GivesUp, what);
        }
    }
}
