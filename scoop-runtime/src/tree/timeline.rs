//! A hierarchy on a scale of time: a bar for each run, step, wait and compensation.

use std::fmt;
use std::time::SystemTime;

use scoop_core::EventKind;
use serde::Serialize;

use super::{RunEvent, RunInfo, RunState, Tree};

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
}

impl BarKind {
    /// Its name: `run`, `step`, `wait` or `compensation`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Step => "step",
            Self::Wait => "wait",
            Self::Compensation => "compensation",
        }
    }
}

impl fmt::Display for BarKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A span of time of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bar<'a> {
    /// The run.
    pub run: &'a RunInfo,
    /// What the time is spent with.
    pub kind: BarKind,
    /// The saga if it is a run; otherwise the step, which is empty if the wait follows no step.
    pub name: &'a str,
    /// The beginning.
    pub from: SystemTime,
    /// The end; `None` if it is not over.
    pub to: Option<SystemTime>,
}

impl Tree {
    /// The bars of all runs: each run before its steps, waits and compensations, then its children.
    ///
    /// A run that has not begun has no bar. A wait that is not over has no end.
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
        self.runs().into_iter().flat_map(RunInfo::timeline).collect()
    }
}

impl RunInfo {
    /// The bars of this run, without those of its children: its own, then those of its steps, waits and compensations.
    pub fn timeline(&self) -> Vec<Bar<'_>> {
        let Some(from) = self.began_at() else { return vec![] };
        let end = self.events.last().and_then(|event| event.at).filter(|_| self.has_ended());
        let bar = |kind, name, from, to| Bar { run: self, kind, name, from, to };
        let mut bars = vec![bar(BarKind::Run, &*self.handler, from, end)];
        let mut rolls_back = false;
        for event in &self.events {
            rolls_back |= event.kind == EventKind::RollingBack;
            let Some(at) = event.at else { continue };
            let is_forward = !rolls_back || event.kind == EventKind::RollingBack;
            let kind = if is_forward { BarKind::Step } else { BarKind::Compensation };
            if let (Some(step), Some(took)) = (event.subject(), event.took)
                && event.is_work()
            {
                bars.push(bar(kind, step, at.checked_sub(took).unwrap_or(at), Some(at)));
            }
            if let Some(waited) = event.waited {
                bars.push(bar(
                    BarKind::Wait,
                    event.subject().unwrap_or_default(),
                    at,
                    at.checked_add(waited),
                ));
            }
        }
        if let Some(last) = self.events.last().filter(|last| self.waits() && last.waited.is_none())
            && let Some(at) = last.at
        {
            bars.push(bar(BarKind::Wait, last.subject().unwrap_or_default(), at, None));
        }
        bars
    }

    /// Whether it waits between two steps.
    fn waits(&self) -> bool {
        matches!(self.state, RunState::Waiting | RunState::Sleeping | RunState::AwaitingSignal)
    }
}

impl RunEvent {
    /// Whether the time before the event was spent with code of its step.
    fn is_work(&self) -> bool {
        // The first part of the rollback of a step only asks its children to roll back.
        let is_code = !matches!(self.word(), "undoing children" | "nothing to undo");
        is_code
            && matches!(self.kind, EventKind::Suspended | EventKind::RollingBack | EventKind::RollbackFailed)
    }
}
