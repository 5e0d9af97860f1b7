//! Signals, and the waits for them.

use std::collections::BTreeMap;

use scoop_core::{EventKind, SignalKey};
use time::{Duration, OffsetDateTime, PrimitiveDateTime};

use crate::history::{Findings, Hierarchy, Row, Run};
use crate::timing::deadlines;
use crate::{AwaitedSignal, Invariant, LoggedOutput, LoggedSignal, Tables, Violation};

/// A wait of a run for a signal.
struct SignalWait<'a> {
    hierarchy: &'a Hierarchy<'a>,
    run: &'a Run<'a>,
    /// The suspension with which it begins.
    since: Row<'a>,
    awaited: &'a AwaitedSignal,
    /// The next row of the run.
    left: Option<Row<'a>>,
    /// The signal with which it ended.
    output: Option<&'a LoggedOutput>,
    /// Whether a delivery was found for the output.
    is_explained: bool,
}

pub(crate) fn check(hierarchies: &[Hierarchy<'_>], tables: &Tables, findings: &mut Findings) {
    let mut waits = waits(hierarchies, tables);
    for wait in waits.values().flatten() {
        wait.ends_for_a_reason(findings);
    }
    let mut delivered: Vec<_> =
        tables.signals.iter().filter_map(|signal| Some((signal.delivered_at?, signal))).collect();
    delivered.sort_by_key(|(at, signal)| (*at, signal.id));
    for (at, signal) in delivered {
        deliver(waits.get_mut(&signal.to).map_or(&mut [], Vec::as_mut_slice), signal, at, findings);
    }
    for wait in waits.values().flatten().filter(|wait| wait.output.is_some() && !wait.is_explained) {
        wait.find(findings, format!("{} has a signal that was not delivered to it", wait.since.describe()));
    }
}

/// All waits, by what they await.
fn waits<'a>(
    hierarchies: &'a [Hierarchy<'a>],
    tables: &'a Tables,
) -> BTreeMap<&'a SignalKey, Vec<SignalWait<'a>>> {
    let outputs: BTreeMap<_, _> =
        tables.outputs.iter().map(|output| ((output.run, &*output.step, output.number), output)).collect();
    let mut waits: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for hierarchy in hierarchies {
        for run in &hierarchy.runs {
            for (number, window) in run.forward().into_iter().enumerate() {
                let Some(awaited) = &window.closed.event.awaits else {
                    continue;
                };
                let step = window.closed.event.step.as_deref().unwrap_or_default();
                let output = outputs.get(&(run.id(), step, number)).copied();
                let (since, left) = (window.closed, window.left);
                let wait = SignalWait { hierarchy, run, since, awaited, left, output, is_explained: false };
                waits.entry(&awaited.to).or_default().push(wait);
            }
        }
    }
    waits
}

/// Gives a signal to the waits for it at this time, and checks that no other wait was open then.
fn deliver(waits: &mut [SignalWait<'_>], signal: &LoggedSignal, at: OffsetDateTime, findings: &mut Findings) {
    let reached = |wait: &&mut SignalWait<'_>| {
        let has_it = wait.output.is_some_and(|output| output.value == signal.payload);
        has_it && !wait.is_explained && wait.may_be_open(at)
    };
    let mut candidates: Vec<_> = waits.iter_mut().filter(reached).collect();
    // Signals may have equal payloads. Those that were certainly open have to have this one, and those that ended first may
    // have no later one.
    candidates.sort_by_key(|wait| {
        let end = wait.left.map_or(PrimitiveDateTime::MAX.assume_utc(), |left| left.event.at);
        (!wait.is_open(at), end)
    });
    let mut explained = 0;
    for wait in candidates.into_iter().take(usize::try_from(signal.reached).unwrap_or(usize::MAX)) {
        (wait.is_explained, explained) = (true, explained + 1);
    }
    let LoggedSignal { id, to, reached, .. } = signal;
    let SignalKey { name, key } = to;
    let mut wrong = |what: String| {
        let hierarchy = waits.first().map_or(*id, |wait| wait.hierarchy.root);
        findings.push(Violation { invariant: Invariant::Signals, hierarchy, what });
    };
    if explained != *reached {
        wrong(format!("signal {name} for {key} reached {reached} runs, of which {explained} have it"));
    }
    if *reached == 0 {
        wrong(format!("signal {name} for {key} was used up, but reached no run"));
    }
    if at >= signal.kept_until {
        wrong(format!("signal {name} for {key} was delivered after it was no longer kept"));
    }
    // One that ended by an earlier signal is not open any more, and one that ends by a later signal should have had this one.
    for wait in waits.iter().filter(|wait| !wait.is_explained && wait.is_open(at)) {
        let what = format!("{} awaited signal {id}, but did not get it", wait.since.describe());
        wait.find(findings, what);
    }
}

impl SignalWait<'_> {
    fn find(&self, findings: &mut Findings, what: String) {
        self.hierarchy.find(findings, Invariant::Signals, what);
    }

    fn tolerance(&self) -> Duration {
        self.hierarchy.log.tolerance
    }

    /// Whether it may have been open at this time.
    fn may_be_open(&self, at: OffsetDateTime) -> bool {
        let tolerance = self.tolerance();
        self.since.event.at <= at + tolerance
            && self.left.is_none_or(|left| at <= left.event.at + tolerance)
            && self.awaited.until.is_none_or(|until| at <= until.saturating_add(tolerance))
    }

    /// Whether it was certainly open at this time, in a run that did not have to give up.
    fn is_open(&self, at: OffsetDateTime) -> bool {
        let latest = at + self.tolerance();
        self.since.event.at + self.tolerance() < at
            && self.left.is_none_or(|left| latest < left.event.at && !left.gave_up())
            && self.awaited.until.is_none_or(|until| latest < until)
            && !self.hierarchy.set_aside
            && !self.may_give_up(at)
    }

    /// Whether its run may have been cancelled by this time, or may have missed a deadline.
    fn may_give_up(&self, at: OffsetDateTime) -> bool {
        let (lineage, latest) = (self.run.seen.event.lineage.ids(), at + self.tolerance());
        let cancelled = self.hierarchy.rows.iter().any(|row| {
            row.kind() == EventKind::CancellationRequested
                && row.event.at <= latest
                && lineage.starts_with(row.event.lineage.ids())
        });
        cancelled || deadlines(&self.since.event.context).any(|deadline| deadline <= latest)
    }

    /// It ends by a signal, by its limit, or since its run gives up or is repaired.
    fn ends_for_a_reason(&self, findings: &mut Findings) {
        let Some(left) = self.left.filter(|left| self.output.is_none() && !left.gave_up()) else {
            return;
        };
        let in_time = self.awaited.until.is_some_and(|until| until <= left.event.at + self.tolerance());
        if !in_time && !left.is_operators() {
            let what = format!("{} follows {} without its signal", left.describe(), self.since.describe());
            self.find(findings, what);
        }
    }
}
