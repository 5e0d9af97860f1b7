//! Pauses: no worker records a move of a paused run.

use scoop_core::EventKind;

use crate::history::{Findings, Hierarchy, Row};
use crate::{Invariant, LoggedPause};

pub(crate) fn check(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    let log = hierarchy.log;
    let moves = hierarchy.rows.iter().filter(|row| is_move(row) && !row.is_operators());
    for row in moves {
        let topic = log.messages.iter().find(|message| message.id == row.event.message);
        let topic = topic.map(|message| &*message.topic);
        let violated = log.pauses.iter().find(|pause| {
            let has_begun = row.event.at > pause.drained_at.saturating_add(log.tolerance);
            let is_over = pause.ended_at.is_some_and(|end| row.event.at.saturating_add(log.tolerance) >= end);
            covers(pause, topic, row.event.handler.as_deref()) && has_begun && !is_over
        });
        if let Some(pause) = violated {
            let what = format!(
                "{} although its handler was paused and drained at {}",
                row.describe(),
                pause.drained_at
            );
            hierarchy.find(findings, Invariant::Paused, what);
        }
    }
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
