//! I1: a run waits for all handlers of its messages. I7, as far as a log at rest shows: nothing is left to do.

use scoop_core::EventKind;
use time::OffsetDateTime;

use crate::Invariant;
use crate::history::{Findings, Hierarchy, Row, Run, Window};
use crate::log::{Redelivery, Subscription};

pub(crate) fn check(hierarchy: &Hierarchy<'_>, findings: &mut Findings) {
    for emitted in hierarchy.rows.iter().filter(|row| row.kind() == EventKind::Emitted) {
        redelivered_once(hierarchy, *emitted, findings);
        only_listeners_hear(hierarchy, *emitted, findings);
        if emitted.event.handler.is_none() {
            all_listeners_heard(hierarchy, *emitted, None, findings);
        }
    }
    for run in &hierarchy.runs {
        for window in run.windows() {
            children_ended(hierarchy, &window, findings);
            children_rolled_back(hierarchy, &window, findings);
        }
        ended_at_rest(hierarchy, run, findings);
    }
}

/// The time at which the handlers of the message were determined: its emission, or a redelivery. A redelivered message
/// has started a hierarchy, since no run waits for it.
fn delivered_at(hierarchy: &Hierarchy<'_>, emitted: Row<'_>) -> OffsetDateTime {
    let mut redeliveries = hierarchy.log.redeliveries.iter().filter(|_| emitted.event.handler.is_none());
    let redelivered = redeliveries.find(|redelivery| redelivery.message == emitted.event.message);
    redelivered.map_or(emitted.event.at, |redelivery| redelivery.at)
}

/// A message is redelivered at most once, after an emission without subscribed handlers.
fn redelivered_once(hierarchy: &Hierarchy<'_>, emitted: Row<'_>, findings: &mut Findings) {
    let of_message = |it: &&Redelivery| it.message == emitted.event.message;
    for (nth, redelivery) in hierarchy.log.redeliveries.iter().filter(of_message).enumerate() {
        let mut runs = hierarchy.handling(emitted.event.message);
        let early = redelivery.at <= emitted.event.at || runs.any(|run| run.seen.event.at < redelivery.at);
        if nth > 0 || early || emitted.event.handler.is_some() {
            let what = format!("{} was delivered a second time", emitted.describe());
            hierarchy.find(findings, Invariant::Once, what);
        }
    }
}

/// The handlers subscribed when those of the message were determined: certain ones, or possible ones.
fn listened(
    hierarchy: &Hierarchy<'_>,
    emitted: Row<'_>,
    subscription: &Subscription,
    certainly: bool,
) -> bool {
    let slack = if certainly { hierarchy.log.tolerance } else { -hierarchy.log.tolerance };
    let at = delivered_at(hierarchy, emitted);
    hierarchy.topic(emitted.event.message) == Some(&subscription.topic)
        && subscription.since + slack <= at
        && subscription.until.is_none_or(|until| at < until - slack)
}

/// Until when handlers that subscribe get the message, too, by the strategy with which it was launched.
fn late_until(hierarchy: &Hierarchy<'_>, emitted: Row<'_>) -> Option<OffsetDateTime> {
    let strategies = hierarchy.rows.iter().flat_map(|row| &row.event.strategies);
    strategies
        .filter(|strategy| strategy.message == emitted.event.message)
        .find_map(|strategy| strategy.late_until)
}

fn only_listeners_hear(hierarchy: &Hierarchy<'_>, emitted: Row<'_>, findings: &mut Findings) {
    let subscriptions = || hierarchy.log.subscriptions.iter();
    let topic = hierarchy.topic(emitted.event.message);
    if !subscriptions().any(|subscription| Some(&*subscription.topic) == topic) {
        return;
    }
    let late_until = late_until(hierarchy, emitted);
    for run in hierarchy.handling(emitted.event.message) {
        let mut own = subscriptions().filter(|subscription| subscription.handler == run.handler);
        let is_late =
            |subscription: &Subscription| late_until.is_some_and(|until| subscription.since <= until);
        if !own.any(|subscription| listened(hierarchy, emitted, subscription, false) || is_late(subscription))
        {
            let what = format!("{}: it was not subscribed when the message was emitted", run.seen.describe());
            hierarchy.find(findings, Invariant::Waits, what);
        }
    }
}

/// Every certainly subscribed handler has begun: before the emitter continued with `left`, or at rest.
fn all_listeners_heard(
    hierarchy: &Hierarchy<'_>,
    emitted: Row<'_>,
    left: Option<Row<'_>>,
    findings: &mut Findings,
) {
    // A run that gives up stops waiting. The log does not show that a run gave up again, but it does show the
    // intervention of an operator.
    let need_not_wait = |left: Row<'_>| left.gave_up() || left.is_operators();
    if left.is_none() && !hierarchy.is_at_rest() || left.is_some_and(need_not_wait) {
        return;
    }
    let subscriptions = hierarchy.log.subscriptions.iter();
    let certain = subscriptions
        .filter(|subscription| !subscription.dropped && listened(hierarchy, emitted, subscription, true));
    for subscription in certain {
        let mut runs = hierarchy.handling(emitted.event.message);
        if runs.any(|run| run.handler == subscription.handler) {
            continue;
        }
        let (listener, message) = (&subscription.handler, emitted.describe());
        match left {
            Some(left) => {
                let what =
                    format!("{} did not wait for `{listener}` to begin with {message}", left.describe());
                hierarchy.find(findings, Invariant::Waits, what);
            }
            None if !hierarchy.set_aside => {
                let what = format!("`{listener}` never began with {message}");
                hierarchy.find(findings, Invariant::Progress, what);
            }
            None => {}
        }
    }
}

/// The runs that a run launched began after it suspended, and ended before it continues.
fn children_ended(hierarchy: &Hierarchy<'_>, window: &Window<'_>, findings: &mut Findings) {
    for emitted in &window.emitted {
        let is_awaited = window.strategy(*emitted).is_none();
        if is_awaited {
            all_listeners_heard(hierarchy, *emitted, window.left, findings);
        }
        for child in hierarchy.handling(emitted.event.message) {
            let seen = child.seen;
            if !is_later(seen, window.closed) {
                let what = format!("{} began before {} was done", seen.describe(), window.closed.describe());
                hierarchy.find(findings, Invariant::Waits, what);
            }
            let Some(left) = window.left.filter(|_| is_awaited) else {
                continue;
            };
            let ended = child.ends().next().is_some_and(|end| is_later(left, end));
            if !ended {
                let what = format!("{} did not wait for {}", left.describe(), seen.describe());
                hierarchy.find(findings, Invariant::Waits, what);
            }
        }
    }
}

/// A rollback continues after the requested rollbacks of children have ended. Children that failed before the
/// request rolled back on their own.
fn children_rolled_back(hierarchy: &Hierarchy<'_>, window: &Window<'_>, findings: &mut Findings) {
    let Some(left) = window.left else {
        return;
    };
    for request in &window.rollback_requests {
        for child in hierarchy.handling(request.event.message) {
            let had_ended = |row: &Row<'_>| row.at < request.at && row.kind() != EventKind::Committed;
            if child.ends().any(|row| had_ended(&row)) || left.gave_up() {
                continue;
            }
            let mut ends = child.ends().filter(|end| end.kind() != EventKind::Committed);
            if !ends.any(|end| is_later(left, end) && is_later(end, window.closed)) {
                let what =
                    format!("{} continued before {} had rolled back", left.describe(), child.seen.describe());
                hierarchy.find(findings, Invariant::Reverse, what);
            }
        }
    }
}

fn is_later(row: Row<'_>, than: Row<'_>) -> bool {
    row.at > than.at && row.event.at > than.event.at
}

/// At rest every run has ended, and every requested rollback has happened.
fn ended_at_rest(hierarchy: &Hierarchy<'_>, run: &Run<'_>, findings: &mut Findings) {
    if !hierarchy.is_at_rest() || hierarchy.set_aside {
        return;
    }
    let request = hierarchy.about(run.message(), EventKind::RollbackEmitted).last();
    let what = match (run.end(), request) {
        (None, _) => "never ended",
        (Some(end), Some(request)) if end.kind() == EventKind::Committed && end.at < request.at => {
            if gave_up_on(hierarchy, request) {
                return;
            }
            "was requested to roll back, and did not"
        }
        _ => return,
    };
    hierarchy.find(findings, Invariant::Progress, format!("{} {what}", run.seen.describe()));
}

/// Whether the run that requested this rollback gave up waiting for it, and did not complete its own rollback without
/// it, unless an operator intervened.
fn gave_up_on(hierarchy: &Hierarchy<'_>, request: Row<'_>) -> bool {
    let mut runs = hierarchy.runs.iter().filter(|run| run.seen.event.lineage == request.event.lineage);
    runs.any(|run| {
        let mut later = run.rows.iter().filter(|row| row.at > request.at);
        let is_undone = later.clone().any(|row| row.kind() == EventKind::RolledBack);
        let wanted = later.clone().any(|row| row.is_operators());
        later.any(|row| row.gave_up()) && (!is_undone || wanted)
    })
}
