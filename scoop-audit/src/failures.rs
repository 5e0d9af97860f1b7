//! I8: the failures of all children reach the parent, each once, and none is made up. I9: a rollback covers the
//! descendants of the run, too.

use scoop_core::{EventKind, Failure};
use time::Duration;

use crate::Invariant;
use crate::history::{Findings, Hierarchy, Row, Run, Window, kind_of, steps};

pub(crate) fn check(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    for run in &hierarchy.runs {
        for window in run.windows() {
            reaches_parent(hierarchy, run, &window, findings);
        }
        tells_why(hierarchy, run, findings);
        is_undone_as_a_whole(hierarchy, run, findings);
    }
}

/// A child that failed while the run waited for it.
struct Failed<'a> {
    turned: Row<'a>,
    /// Whether the parent run requested the rollback, and so knew of it.
    rollback_requested: bool,
    /// The ROLLBACK_FAILED of the child, if its rollback failed.
    rollback_failed: Option<Row<'a>>,
}

/// The children that failed in a window, in the order in which they began to roll back.
fn failed_in<'a>(hierarchy: &Hierarchy<'a>, window: &Window<'a>) -> Vec<Failed<'a>> {
    let mut failed = vec![];
    let until = window.left.map_or(usize::MAX, |left| left.at);
    let launched = window.emitted.iter().chain(&window.rollback_requests);
    for child in launched.flat_map(|row| hierarchy.handling(row.event.message)) {
        let ends = child.ends().filter(|end| window.closed.at < end.at && end.at < until);
        let end = ends.filter(|end| end.kind() != EventKind::Committed).last();
        let Some((end, turned)) = end.zip(child.first(EventKind::RollingBack)) else {
            continue;
        };
        let rollback_failed = (end.kind() == EventKind::RollbackFailed).then_some(end);
        let rollback_requested = child.is_rollback_requested();
        if !rollback_requested || rollback_failed.is_some() {
            failed.push(Failed { turned, rollback_requested, rollback_failed });
        }
    }
    failed.sort_by_key(|failed| failed.turned.event.at);
    failed
}

/// The next row of the run handles the failures of its children.
fn reaches_parent(hierarchy: &Hierarchy<'_>, run: &Run<'_>, window: &Window<'_>, findings: &mut Findings) {
    let failed = failed_in(hierarchy, window);
    let Some(next) = window.left.map(|left| outcome(run, left)) else {
        return;
    };
    let handles = handles(hierarchy, run, window);
    let handled = handles_failures(next);
    if window.emitted.iter().any(|emitted| window.strategy(*emitted).is_some()) {
        // Which of these children count, their strategies say.
        return;
    }
    if failed.is_empty() {
        if handled && !hierarchy.repaired {
            let what = format!("{} handles a failure, but no child had failed", next.describe());
            hierarchy.find(findings, Invariant::Failures, what);
        }
        return;
    }
    let heard = match next.kind() {
        EventKind::Suspended => handled || hierarchy.repaired,
        EventKind::RollingBack if next.gave_up() => true,
        EventKind::RollingBack | EventKind::RollbackFailed if handles => handled || next.gave_up(),
        EventKind::RollingBack => {
            handled && tells_of_exactly(next, &failed, hierarchy.log.tolerance.min(ONE_COMMIT))
        }
        EventKind::RollbackFailed => (handled || next.gave_up()) && tells_of_all(next, &failed),
        EventKind::RolledBack => hierarchy.repaired,
        _ => false,
    };
    if !heard {
        let children: Vec<_> = failed.iter().map(|failed| failed.turned.describe()).collect();
        let what = format!("{} does not contain the failures of {}", next.describe(), children.join(", "));
        hierarchy.find(findings, Invariant::Failures, what);
    }
    failed_rollbacks_block(hierarchy, run, next, &failed, findings);
}

/// A run that rolls back still has to handle children whose rollback failed.
fn failed_rollbacks_block(
    hierarchy: &Hierarchy<'_>,
    run: &Run<'_>,
    turned: Row<'_>,
    failed: &[Failed<'_>],
    findings: &mut Findings,
) {
    let rollback_failed = failed.iter().find_map(|failed| failed.rollback_failed);
    let Some(rollback_failed) = rollback_failed.filter(|_| turned.kind() == EventKind::RollingBack) else {
        return;
    };
    let Some(next) = run.after(turned).map(|next| outcome(run, next)) else {
        return;
    };
    let heard = handles_failures(next) || next.gave_up();
    if !heard && !hierarchy.repaired {
        let what = format!("{} ignores {}", next.describe(), rollback_failed.describe());
        hierarchy.find(findings, Invariant::Failures, what);
    }
}

/// The outcome of the move that begins with this row; emissions precede the outcome.
fn outcome<'a>(run: &Run<'a>, row: Row<'a>) -> Row<'a> {
    let emits = |row: &Row<'_>| matches!(row.kind(), EventKind::Emitted | EventKind::RollbackEmitted);
    let rows = run.rows.iter().copied().filter(|later| later.at >= row.at);
    rows.filter(|row| !emits(row)).min_by_key(|row| row.at).unwrap_or(row)
}

/// Whether this row is the outcome of handling the failures of children. The row after it repeats its count.
fn handles_failures(row: Row<'_>) -> bool {
    let outcomes = [EventKind::Suspended, EventKind::RollingBack, EventKind::RollbackFailed];
    outcomes.contains(&row.kind()) && row.event.handler_iteration.is_some() && !row.gave_up()
}

/// Whether user code handles the failures of this window.
fn handles(hierarchy: &Hierarchy<'_>, run: &Run<'_>, window: &Window<'_>) -> bool {
    let versions = hierarchy.versions(run);
    let suspended = window.closed.step();
    let of_part = || {
        let (_, rest) = suspended.split_once("Rollback of ")?;
        let (step, _) = rest.trim_start_matches('$').rsplit_once('[')?;
        Some(step)
    };
    let name = if window.rolling_back { of_part() } else { Some(suspended) };
    let known: Vec<_> = name.into_iter().flat_map(|name| steps(&versions, name)).collect();
    known.is_empty() || known.iter().any(|step| step.handles_child_failure)
}

/// The failures that must reach the parent: those of failed rollbacks, and those of children that rolled back on
/// their own.
fn causes_to_report<'a>(failed: &'a [Failed<'_>]) -> impl Iterator<Item = &'a Failure> {
    failed.iter().flat_map(|failed| {
        let rollback_failed = failed.rollback_failed.as_ref().and_then(Row::failure);
        let turned = failed.turned.failure().filter(|_| !failed.rollback_requested);
        rollback_failed.into_iter().chain(turned)
    })
}

fn tells_of_all(row: Row<'_>, failed: &[Failed<'_>]) -> bool {
    row.failure().is_some_and(|failure| causes_to_report(failed).all(|cause| contains_cause(failure, cause)))
}

/// Children that begin to roll back within this time may have done so in one commit, and then have no order.
const ONE_COMMIT: Duration = Duration::milliseconds(1);

/// Whether the row contains all failures. If all children rolled back, it must contain each once, in the order in
/// which they began to.
fn tells_of_exactly(row: Row<'_>, failed: &[Failed<'_>], slack: Duration) -> bool {
    let Some(failure) = row.failure() else {
        return false;
    };
    if failed.iter().any(|failed| failed.rollback_failed.is_some()) {
        return kind_of(failure) == "ChildRollbackFailedException" && tells_of_all(row, failed);
    }
    let mut left: Vec<_> = failed.iter().map(|failed| failed.turned).collect();
    let one_by_one = failure.causes.iter().all(|listed| {
        let soon = left.first().map(|first| first.event.at + slack);
        let next =
            left.iter().position(|turned| turned.failure() == Some(listed) && Some(turned.event.at) <= soon);
        next.map(|at| left.remove(at)).is_some()
    });
    let one_by_one = one_by_one && left.is_empty();
    let counted = || !is_truncated(failure) && count_of(failure) == failed.len() as u64;
    let reported = one_by_one
        || is_truncated(failure) && tells_of_all(row, failed)
        || is_shortened(failure) && (is_truncated(failure) || counted());
    kind_of(failure) == "ChildRolledBackException" && reported
}

/// Rollback requests of a run contain the cause of its own rollback.
fn tells_why(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    let cause = run.first(EventKind::RollingBack);
    for request in run.of_kind(EventKind::RollbackEmitted) {
        let why = request.failure().zip(cause.as_ref().and_then(Row::failure));
        if !why.is_some_and(|(recorded, cause)| contains_cause(recorded, cause)) {
            let what = format!("{} lacks the cause of the run's rollback", request.describe());
            hierarchy.find(findings, Invariant::Failures, what);
        }
    }
}

/// I9: no child launched in the newest execution of a rolled-back run stays committed.
fn is_undone_as_a_whole(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    let undone = run.end().is_some_and(|end| end.kind() == EventKind::RolledBack);
    if !undone || hierarchy.repaired {
        return;
    }
    for window in run.newest_execution() {
        for child in window.emitted.iter().flat_map(|row| hierarchy.handling(row.event.message)) {
            let stays = child.end().is_none_or(|end| end.kind() == EventKind::Committed);
            if stays {
                let what = format!("{} is not rolled back, but its parent is", child.seen.describe());
                hierarchy.find(findings, Invariant::Whole, what);
            }
        }
    }
}

/// Whether `failure` reports `cause`: it contains `cause`, or its root causes if deep wrappers were left out.
fn contains_cause(failure: &Failure, cause: &Failure) -> bool {
    let origins = failure.root_causes();
    let origin_told = || cause.root_causes().iter().all(|origin| origins.contains(origin));
    // The first one may be shortened to the beginning of its text, or only counted among others.
    let first_told = || {
        let known = |first: &Failure| origins.iter().any(|origin| origin.kind == first.kind);
        cause.root_causes().first().is_none_or(|first| known(first)) || stands_for_others(failure)
    };
    // Of a large cause a small part may be left, without a mark.
    let is_cut = is_shortened(failure) || serde_json::to_vec(cause).is_ok_and(|cause| cause.len() > MUCH);
    failure.contains(cause) || is_excerpt(failure) && origin_told() || is_cut && first_told()
}

/// The approximate limit on the bytes of the cause in a rollback request.
const MUCH: usize = 3_500;

/// Whether texts or causes were left out because of their size.
fn is_shortened(failure: &Failure) -> bool {
    let left_out =
        |failure: &Failure| failure.kind == MORE || failure.message.contains(" bytes left out ..] ");
    let any = |failure: &Failure| in_all(failure, &mut |failure| usize::from(left_out(failure))) > 0;
    any(failure) || in_all(failure, &mut |failure| failure.message.len() + failure.kind.len() + 100) > MUCH
}

fn stands_for_others(failure: &Failure) -> bool {
    in_all(failure, &mut |failure| usize::from(failure.kind == MORE)) > 0
}

/// The type of a cause that replaces others.
const MORE: &str = "scoop:more";

/// The number of its causes, listed or only counted.
fn count_of(failure: &Failure) -> u64 {
    let stands_for = |cause: &Failure| {
        let count = cause.message.strip_prefix("and ").filter(|_| cause.kind == MORE)?.split(' ').next()?;
        count.parse().ok()
    };
    failure.causes.iter().map(|cause| stands_for(cause).unwrap_or(1)).sum()
}

/// The sum over a failure and all its causes.
fn in_all(failure: &Failure, of: &mut impl FnMut(&Failure) -> usize) -> usize {
    let own = of(failure);
    failure.causes.iter().fold(own, |sum, cause| sum + in_all(cause, of))
}

/// Whether the failure is wrapped so often that the protocol may have left wrappers out.
fn is_truncated(failure: &Failure) -> bool {
    depth(failure) >= 38
}

/// Whether the failure is nested so deeply that a rollback request may contain the inner failures only.
fn is_excerpt(failure: &Failure) -> bool {
    depth(failure) >= 7
}

fn depth(failure: &Failure) -> usize {
    1 + failure.causes.iter().map(depth).max().unwrap_or(0)
}
