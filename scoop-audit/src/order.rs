//! I2, I3, I6: lineages and the order of events. Every event occurs once and at an allowed position, and the
//! emissions of a step exist together with its outcome.

use std::collections::BTreeSet;

use scoop_core::{Definition, EventKind};
use uuid::Uuid;

use crate::history::{Findings, Hierarchy, Row, Run, kind_of};
use crate::{Invariant, Log, LoggedEvent, Violation};

pub(crate) fn check(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    rows_belong_to_runs(hierarchy, findings);
    messages_once(hierarchy, findings);
    runs_once(hierarchy, findings);
    for run in &hierarchy.runs {
        has_its_place(hierarchy, run, findings);
        kinds_follow(hierarchy, run, findings);
        each_kind_once(hierarchy, run, findings);
        is_told_for_a_reason(hierarchy, run, findings);
        ends_executions_alone(hierarchy, run, findings);
        if let [definition] = hierarchy.versions(run)[..] {
            steps_follow(hierarchy, run, definition, findings);
        }
    }
}

/// I2: the message of each event exists.
pub(crate) fn messages_exist(log: &Log, findings: &mut Findings) {
    let known: BTreeSet<Uuid> = log.messages.iter().map(|message| message.id).collect();
    for (at, event) in log.events.iter().enumerate() {
        if !known.contains(&event.message) {
            let what = format!("{}: its message does not exist", Row { at, event }.describe());
            let hierarchy = event.lineage.root_id();
            findings.push(Violation { invariant: Invariant::Lineage, hierarchy, what });
        }
    }
}

/// A row belongs to a run that has begun, and names its handler and message.
fn rows_belong_to_runs(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    for row in hierarchy.rows.iter().filter(|row| row.event.handler.is_some()) {
        let LoggedEvent { lineage, handler, message, .. } = row.event;
        let about_others = matches!(row.kind(), EventKind::Emitted | EventKind::RollbackEmitted);
        let run =
            hierarchy.runs.iter().find(|run| run.seen.event.lineage == *lineage && run.seen.at <= row.at);
        let fits = run.is_some_and(|run| {
            Some(run.handler) == handler.as_deref() && (about_others || run.message() == *message)
        });
        if !fits {
            hierarchy.find(findings, Invariant::Lineage, format!("{} belongs to no run", row.describe()));
        }
        let fits = match (row.kind(), row.failure()) {
            (EventKind::RollingBack | EventKind::RollbackEmitted | EventKind::RollbackFailed, failure) => {
                failure.is_some()
            }
            (EventKind::Suspended, Some(failure)) => kind_of(failure) == "FailedAttempts",
            (_, failure) => failure.is_none(),
        };
        if !fits {
            let what = format!("{} has a failure where none belongs, or lacks one", row.describe());
            hierarchy.find(findings, Invariant::Whole, what);
        }
    }
}

fn messages_once(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    for kind in [EventKind::Emitted, EventKind::RollbackEmitted] {
        let mut known = BTreeSet::new();
        for row in hierarchy.rows.iter().filter(|row| row.kind() == kind) {
            if !known.insert(row.event.message) {
                hierarchy.find(findings, Invariant::Once, format!("{} is there before", row.describe()));
            }
        }
    }
    let mut asked = BTreeSet::new();
    for row in hierarchy.rows.iter().filter(|row| row.kind() == EventKind::CancellationRequested) {
        if !asked.insert(&row.event.lineage) {
            hierarchy.find(findings, Invariant::Once, format!("{} is there before", row.describe()));
        }
    }
}

/// At most one run for a handler and a message, and a unique id for each run.
fn runs_once(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    let (mut begun, mut ids) = (BTreeSet::new(), BTreeSet::new());
    let seen = hierarchy.rows.iter().filter(|row| row.kind() == EventKind::Seen);
    for row in seen {
        if !begun.insert((row.event.message, row.event.handler.as_deref())) {
            hierarchy.find(findings, Invariant::Once, format!("{} is there before", row.describe()));
        }
        if !ids.insert(row.event.lineage.id()) {
            let what = format!("{}: another run has the same id", row.describe());
            hierarchy.find(findings, Invariant::Lineage, what);
        }
    }
}

/// I2: the lineage of a run is that of the emission and one more id.
fn has_its_place(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    let emitted = hierarchy.about(run.message(), EventKind::Emitted).next();
    let above = run.seen.event.lineage.parent();
    let Some(emitted) = emitted.filter(|emitted| emitted.at < run.seen.at) else {
        let what = format!("{}: no emission of the message precedes it", run.seen.describe());
        return hierarchy.find(findings, Invariant::Lineage, what);
    };
    if above.as_ref() != Some(&emitted.event.lineage) {
        let what = format!("{} is not one id below {}", run.seen.describe(), emitted.describe());
        hierarchy.find(findings, Invariant::Lineage, what);
    }
}

/// The kinds of a run's events come in an allowed order.
fn kinds_follow(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    let (mut before, mut backward, mut failed): (Option<Row<'_>>, _, _) = (None, false, false);
    // Positions in the list of steps are not comparable between versions of a saga.
    let changed = hierarchy.versions(run).len() > 1;
    for row in &run.rows {
        let fits = match before {
            None => row.kind() == EventKind::Seen,
            Some(before) => may_follow(before, *row, backward, failed && hierarchy.repaired, changed),
        };
        if !fits {
            let after = before.map_or("nothing".into(), |before| before.describe());
            let half =
                matches!(before.map(|it| it.kind()), Some(EventKind::Emitted | EventKind::RollbackEmitted));
            let invariant = if half { Invariant::Atomic } else { Invariant::Once };
            hierarchy.find(findings, invariant, format!("{} cannot follow {after}", row.describe()));
        }
        backward |= row.kind() == EventKind::RollingBack;
        failed |= row.kind() == EventKind::RollbackFailed;
        before = Some(*row);
    }
    let half = before.filter(|row| matches!(row.kind(), EventKind::Emitted | EventKind::RollbackEmitted));
    if let Some(row) = half {
        hierarchy.find(findings, Invariant::Atomic, format!("{} has no outcome", row.describe()));
    }
}

fn may_follow(before: Row<'_>, row: Row<'_>, backward: bool, repaired: bool, changed: bool) -> bool {
    use EventKind::{
        Committed, Emitted, RollbackEmitted, RollbackFailed, RolledBack, RollingBack, Seen, Suspended,
    };
    let requested = row.event.step.is_none();
    match (before.kind(), row.kind()) {
        (Emitted, Emitted | Suspended) => true,
        (RollbackEmitted, RollbackEmitted | Suspended) => backward,
        (Seen, Emitted | Suspended) => !backward,
        (Seen, RollingBack) => !requested,
        (Suspended, Emitted | Suspended) => true,
        (Suspended, Committed) => !backward && (changed || before.event.next_step.is_none()),
        (Suspended, RollingBack) => !backward && !requested,
        (Committed, RollingBack) => requested,
        (RollingBack, Emitted | Suspended | RollbackEmitted | RolledBack | RollbackFailed) => true,
        (Suspended, RollbackEmitted | RolledBack | RollbackFailed) => backward,
        (RollbackFailed, Emitted | Suspended | RollbackEmitted | RolledBack | RollbackFailed) => repaired,
        _ => false,
    }
}

fn each_kind_once(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    use EventKind::{Committed, RolledBack, RollingBack};
    for kind in [Committed, RollingBack, RolledBack] {
        for row in run.of_kind(kind).skip(1) {
            hierarchy.find(findings, Invariant::Once, format!("{} is there before", row.describe()));
        }
    }
}

/// A requested rollback follows a request with the same cause.
fn is_told_for_a_reason(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    let turned = run.first(EventKind::RollingBack).filter(|turned| turned.event.step.is_none());
    let Some(turned) = turned else {
        return;
    };
    let requested = hierarchy.about(run.message(), EventKind::RollbackEmitted).next();
    let fits = requested
        .is_some_and(|requested| requested.at < turned.at && requested.failure() == turned.failure());
    if !fits {
        let what = format!("{}: no rollback request with this cause precedes it", turned.describe());
        hierarchy.find(findings, Invariant::Reverse, what);
    }
}

/// A step that ends an execution launches nothing that the run would have to wait for, and the first step follows.
fn ends_executions_alone(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    for window in run.windows().iter().filter(|window| window.closed.event.continues_as_new) {
        let closed = window.closed;
        let is_step = !window.rolling_back && closed.event.handler_iteration.is_none();
        if !is_step || !window.emitted.is_empty() || closed.event.next_step != Some(0) {
            let what = format!("{} cannot end an execution", closed.describe());
            hierarchy.find(findings, Invariant::Once, what);
        }
    }
}

/// On the forward path each step is the one that the last suspension named, and calls of a child failure handler
/// are numbered without a gap.
fn steps_follow(hierarchy: &Hierarchy<'_>, run: &Run<'_>, definition: &Definition, findings: &mut Findings) {
    let (mut next, mut last): (Option<usize>, Option<Row<'_>>) = (Some(0), None);
    for row in &run.rows {
        let wanted = next.and_then(|next| definition.steps.get(next)).map(|step| &*step.name);
        let suspended_in = last.map(|last| last.step().to_owned());
        let handled = last.map_or(0, |last| last.event.handler_iteration.map_or(0, |before| before + 1));
        let last_step = definition.last_step();
        let here = Some(row.step());
        let fits = match (row.kind(), row.event.handler_iteration) {
            (EventKind::Suspended, None) => here == wanted && next_fits(definition, *row, None),
            (EventKind::Suspended, Some(handling)) => {
                suspended_in.as_deref() == here && handling == handled && next_fits(definition, *row, last)
            }
            (EventKind::Committed, _) => next.is_none() && here == last_step,
            (EventKind::Emitted, _) => here == wanted || here == suspended_in.as_deref(),
            (EventKind::RollingBack, _) if row.event.step.is_some() => {
                [wanted, suspended_in.as_deref(), last_step].contains(&here)
            }
            _ => true,
        };
        if !fits {
            let wanted = wanted.unwrap_or("the end");
            let what = format!("{} where `{wanted}` was next", row.describe());
            hierarchy.find(findings, Invariant::Once, what);
        }
        match row.kind() {
            EventKind::Suspended => {
                (next, last) = (row.event.next_step, Some(*row).filter(|row| !row.event.continues_as_new));
            }
            EventKind::RollingBack => return,
            _ => {}
        }
    }
}

/// Whether the next position is a step, or the end after the last step. `kept` is an earlier decision that may still
/// hold.
fn next_fits(definition: &Definition, row: Row<'_>, kept: Option<Row<'_>>) -> bool {
    match row.event.next_step {
        Some(next) => next < definition.steps.len(),
        None if kept.is_some_and(|kept| kept.event.next_step.is_none()) => true,
        None => definition.last_step() == Some(row.step()),
    }
}
