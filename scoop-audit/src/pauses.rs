//! Pauses: no worker records a move of a paused run. Under a pause for new runs only none begins, but below a run that such a pause
//! covers.

use scoop_core::EventKind;

use crate::history::{Findings, Hierarchy, Row, Run};
use crate::{Invariant, Log, LoggedPause};

pub(crate) fn check(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    check_begun(hierarchy, findings);
    let log = hierarchy.log;
    let moves = hierarchy.rows.iter().filter(|row| is_move(row) && !row.is_operators());
    for row in moves {
        let topic = log.messages.iter().find(|message| message.id == row.event.message);
        let topic = topic.map(|message| &*message.topic);
        let mut pauses = log.pauses.iter().filter(|pause| !pause.new_runs_only);
        let handler = row.event.handler.as_deref();
        if pauses.any(|pause| covers(pause, topic, handler) && is_drained(log, pause, row)) {
            let what = format!("{} although its handler was paused and drained", row.describe());
            hierarchy.find(findings, Invariant::Paused, what);
        }
    }
}

/// Checks the beginnings of runs. One that gives up begins without a step.
fn check_begun(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    let log = hierarchy.log;
    let covers = |pause: &LoggedPause, run: &Run<'_>| {
        pause.new_runs_only && covers(pause, hierarchy.topic(run.message()), Some(run.handler))
    };
    for run in &hierarchy.runs {
        let is_violated = |pause: &&LoggedPause| covers(pause, run) && is_drained(log, pause, &run.seen);
        let has_step = run.after(run.seen).is_some_and(|next| !next.gave_up());
        let passes =
            std::iter::successors(hierarchy.above(run), |above| hierarchy.above(above)).any(|above| {
                log.pauses.iter().any(|pause| covers(pause, above) && !is_over(log, pause, &run.seen))
            });
        if has_step && !passes && log.pauses.iter().any(|pause| is_violated(&pause)) {
            let what = format!("{} although new runs of its handler were paused", run.seen.describe());
            hierarchy.find(findings, Invariant::Paused, what);
        }
    }
}

/// Whether it was recorded when no process followed the pause any more.
fn is_over(log: &Log, pause: &LoggedPause, row: &Row<'_>) -> bool {
    pause.ended_at.is_some_and(|end| row.event.at > end.saturating_add(log.tolerance))
}

/// Whether it was recorded while the pause was drained.
fn is_drained(log: &Log, pause: &LoggedPause, row: &Row<'_>) -> bool {
    let has_begun = pause.drained_at.is_some_and(|at| row.event.at > at.saturating_add(log.tolerance));
    let is_over = pause.ended_at.is_some_and(|end| row.event.at.saturating_add(log.tolerance) >= end);
    has_begun && !is_over
}

fn covers(pause: &LoggedPause, topic: Option<&str>, handler: Option<&str>) -> bool {
    (pause.handler.is_none() || pause.handler.as_deref() == handler)
        && (pause.topic.is_none() || pause.topic.as_deref() == topic)
}

/// Whether only an execution of the run writes such an event.
fn is_move(row: &Row<'_>) -> bool {
    use EventKind::{Committed, RollbackFailed, RolledBack, RollingBack, Seen, Suspended};
    matches!(row.kind(), Seen | Suspended | Committed | RollingBack | RolledBack | RollbackFailed)
}
