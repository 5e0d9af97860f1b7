//! A hierarchy on a scale of time: a bar for each run, step, wait and compensation, and a point for each intervention.

use std::fmt;
use std::time::SystemTime;

use scoop_core::{EventKind, Failure};
use serde::Serialize;

use super::{PASSED, Role, RunEvent, RunInfo, RunState, Tree, json};

const WAIT_AFTER: &str = "wait after";

/// What a run spends a span of time with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BarKind {
    /// The whole run.
    Run,
    /// The code of a step.
    Step,
    /// A wait after a step: for children, a signal, or a time.
    Wait,
    /// The code of a compensation.
    Compensation,
    /// Events that were left out because of [`ReadTree::events`](crate::ReadTree::events): what the run did is not known here.
    /// Or interventions that were left out.
    Gap,
    /// The intervention of an operator, which takes no time.
    Intervention,
}

impl BarKind {
    /// Its name: `run`, `step`, `wait`, `compensation`, `gap` or `intervention`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Step => "step",
            Self::Wait => "wait",
            Self::Compensation => "compensation",
            Self::Gap => "gap",
            Self::Intervention => "intervention",
        }
    }
}

impl fmt::Display for BarKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A span of time of a run.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Bar<'a> {
    /// The run.
    #[serde(flatten, serialize_with = "json::run_of_bar")]
    pub run: &'a RunInfo,
    /// What the time is spent with.
    pub kind: BarKind,
    /// Words before the name, such as `wait after`; empty if the name says all.
    #[serde(skip)]
    pub words: &'static str,
    /// The saga if it is a run, `events are left out` or `interventions are left out` if it is a gap, the
    /// [kind](crate::Intervention::kind) of an intervention; otherwise the step, which is empty if the wait follows no step.
    pub name: &'a str,
    /// The beginning.
    #[serde(serialize_with = "json::time")]
    pub from: SystemTime,
    /// The end; `None` if it is not over.
    #[serde(serialize_with = "json::time")]
    pub to: Option<SystemTime>,
}

impl Tree {
    /// The bars of all runs: each run, then its steps, waits, compensations, interventions and children in the order in which they
    /// begin. So a child comes after the step that launched it, since a run waits for its children.
    ///
    /// A run that has not begun has no bar, nor has one that [cannot be read](Self::unreadable). Where events or
    /// interventions were [left out](RunInfo::events_left_out), a bar of the kind [`BarKind::Gap`] stands for them. A wait that
    /// is not over has no end. The time at which a signal came is not recorded: the wait for it ends with the step that gets it,
    /// and that step is a point.
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # async fn example(order: scoop::Handle) -> Result<(), scoop::RuntimeError> {
    /// for bar in order.tree().await?.timeline() {
    ///     println!("{} {} of {}: {:?} to {:?}", bar.kind, bar.name, bar.run.handler, bar.from, bar.to);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeline(&self) -> Vec<Bar<'_>> {
        let mut bars = vec![];
        self.roots().iter().for_each(|root| root.add_bars(&mut bars));
        bars
    }
}

impl RunInfo {
    /// Adds the bars of this run and of its descendants.
    fn add_bars<'a>(&'a self, bars: &mut Vec<Bar<'a>>) {
        let mut children = self.children.iter().peekable();
        for (nth, bar) in self.timeline().into_iter().enumerate() {
            let is_earlier = |child: &&RunInfo| nth > 0 && child.began_at().is_some_and(|at| at < bar.from);
            while let Some(child) = children.next_if(is_earlier) {
                child.add_bars(bars);
            }
            bars.push(bar);
        }
        children.for_each(|child| child.add_bars(bars));
    }

    /// The bars of this run, without those of its children: its own, then those of its steps, waits, compensations and
    /// interventions, in the order in which they begin. At one time, interventions come first.
    pub fn timeline(&self) -> Vec<Bar<'_>> {
        let Some(from) = self.events.iter().find_map(|event| event.at) else { return vec![] };
        let end = self.events.last().and_then(|event| event.at).filter(|_| self.has_ended());
        let bar = |kind, words, name, from, to| Bar { run: self, kind, words, name, from, to };
        let mut bars = vec![bar(BarKind::Run, "", &*self.handler, from, end)];
        let (mut rolls_back, mut was_awaiting, mut before_gap, mut has_gap) = (false, false, from, false);
        for (nth, event) in self.events.iter().enumerate() {
            rolls_back |= event.kind == EventKind::RollingBack;
            // The time of the event may be unknown. Then the gap lasts until the next one.
            has_gap |= event.follows_gap;
            let (Some(at), name) = (event.at, event.subject().unwrap_or_default()) else { continue };
            if std::mem::take(&mut has_gap) {
                bars.push(bar(BarKind::Gap, "", "events are left out", before_gap, Some(at)));
                was_awaiting = false;
            }
            before_gap = at;
            let before = event.duration.and_then(|duration| at.checked_sub(duration)).unwrap_or(at);
            let (after_signal, begins_to_await) = (was_awaiting, event.word() == "began to await a signal");
            was_awaiting = begins_to_await;
            if begins_to_await {
                let after = &self.events[nth + 1..];
                // How long it lasted is not known if events after it are left out.
                if after.first().is_none_or(|next| !next.follows_gap) {
                    let to = after.iter().find_map(|next| next.at);
                    bars.push(bar(BarKind::Wait, "wait for the signal of", name, at, to));
                }
            } else if event.subject().is_some() && event.duration.is_some() && event.is_work() {
                let gave_up = event.kind == EventKind::RollingBack
                    && event.failure.as_ref().is_some_and(Failure::is_giving_up);
                let (kind, words) = match (rolls_back, gave_up) {
                    (_, true) => (BarKind::Wait, "gave up in"),
                    (true, false) if event.kind == EventKind::RollbackFailed => {
                        (BarKind::Compensation, "failed to undo")
                    }
                    (true, false) if event.kind != EventKind::RollingBack => (BarKind::Compensation, "undo"),
                    _ if event.role == Role::HandledFailures => (BarKind::Step, "child failures of"),
                    _ => (BarKind::Step, ""),
                };
                bars.push(bar(kind, words, name, if after_signal { at } else { before }, Some(at)));
            }
            if let Some((from, to)) = event.wait() {
                bars.push(bar(BarKind::Wait, WAIT_AFTER, name, from, Some(to)));
            }
        }
        if let Some(last) = self.events.last()
            && matches!(self.state, RunState::Waiting | RunState::Sleeping | RunState::AwaitingSignal)
            && last.waited.is_none()
            && !was_awaiting
            && let Some(at) = last.waits_from()
        {
            bars.push(bar(BarKind::Wait, WAIT_AFTER, last.subject().unwrap_or_default(), at, None));
        }
        if let (first, [next, ..]) = self.split_interventions() {
            let since = first.last().map_or(next.at, |it| it.at);
            bars.push(bar(BarKind::Gap, "", "interventions are left out", since, Some(next.at)));
        }
        for it in &self.interventions {
            bars.push(bar(BarKind::Intervention, "operator:", &*it.kind, it.at, Some(it.at)));
        }
        // What follows from an intervention may begin at its time.
        bars[1..].sort_by_key(|bar| (bar.from, bar.kind != BarKind::Intervention));
        bars
    }
}

impl RunEvent {
    /// Whether the time before the event was spent with code of its step.
    fn is_work(&self) -> bool {
        // The first part of the rollback of a step only asks its children to roll back.
        !matches!(self.word(), "undoing children" | "nothing to undo" | PASSED | "began to wait")
            && !self.is_by_operator()
            && matches!(self.kind, EventKind::Suspended | EventKind::RollingBack | EventKind::RollbackFailed)
    }
}
