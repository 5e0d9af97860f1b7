//! The tree of a hierarchy as rows, and its events in the order of their times, for the script that plays them.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use askama::filters::HtmlSafe;
use scoop_core::EventKind;
use scoop_runtime::shown::humane;
use scoop_runtime::{RunEvent, RunInfo, Tree};
use uuid::Uuid;

use super::timeline::Scale;
use crate::shown::line;

/// The number of events above which only those of whole runs are played.
const EVENTS_MAX: usize = 1_000;

/// The least and the most time between two events, in place of what was between them.
const PAUSE_MIN: Duration = Duration::from_millis(300);
const PAUSE_MAX: Duration = Duration::from_millis(1_200);

/// A row of the tree.
pub(super) struct Branch<'a> {
    pub(super) run: &'a RunInfo,
    /// The number of the event with which a step completed, if the row is that of the step, above the runs that it launched.
    step: Option<usize>,
    /// The row of the step that launched the run.
    above: Option<usize>,
}

impl Branch<'_> {
    /// The step, if the row is that of one.
    pub(super) fn step(&self) -> Option<&str> {
        self.step.map(|step| self.run.events[step].subject().unwrap_or_default())
    }
}

/// The rows of the tree: each run before its steps that launched others, each of these before the runs that it launched.
pub(super) fn branches(tree: &Tree) -> Vec<Branch<'_>> {
    let mut branches = vec![];
    tree.roots().iter().for_each(|root| add(&mut branches, root, None));
    branches
}

fn add<'a>(branches: &mut Vec<Branch<'a>>, run: &'a RunInfo, above: Option<usize>) {
    branches.push(Branch { run, step: None, above });
    let mut children: Vec<_> = run.children.iter().map(|child| (launch(run, child), child)).collect();
    children.sort_by_key(|(step, _)| *step);
    let (mut last, mut above) = (None, None);
    for (step, child) in children {
        if step != last {
            above = Some(branches.len());
            branches.push(Branch { run, step, above: None });
        }
        last = step;
        add(branches, child, above);
    }
}

/// The event with which the step completed that launched a child: the last one before the child began, since a run waits for the
/// children of a step before its next one.
fn launch(run: &RunInfo, child: &RunInfo) -> Option<usize> {
    let began = child.began_at();
    let is_before = |event: &RunEvent| began.is_none_or(|began| event.at.is_some_and(|at| at <= began));
    run.events.iter().rposition(|event| event.is_completion() && is_before(event))
}

/// An event, or the end of a wait after one.
struct Moment {
    at: SystemTime,
    text: String,
    /// Rows, and their states from then on. An empty one stays as it is.
    changes: Vec<(usize, &'static str)>,
    is_of_step: bool,
}

/// The moments as JSON: of each the place in the time line, in per cent; the milliseconds since the one before, within bounds; its
/// text; and the changes.
pub(super) struct Moments(String);

impl Moments {
    pub(super) fn of(branches: &[Branch<'_>], scale: &Scale) -> Self {
        let rows = branches.iter().enumerate();
        let steps = rows.clone().filter_map(|(row, it)| Some(((it.run.id().uuid(), it.step?), row)));
        let steps: HashMap<_, _> = steps.collect();
        let runs = rows.filter(|(_, branch)| branch.step.is_none());
        let mut all: Vec<_> = runs.flat_map(|(row, branch)| of_run(row, branch, &steps)).collect();
        if all.len() > EVENTS_MAX {
            all.retain(|moment| !moment.is_of_step);
        }
        all.sort_by_key(|moment| moment.at);
        let mut before = scale.begin;
        let played = all.into_iter().map(|Moment { at, text, changes, .. }| {
            let gap = at.duration_since(std::mem::replace(&mut before, at)).unwrap_or_default();
            let wait = if gap > PAUSE_MAX { format!(" (shortened: {})", humane(gap)) } else { String::new() };
            let percent = (100.0 * scale.percent(at)).round() / 100.0;
            let pause = gap.clamp(PAUSE_MIN, PAUSE_MAX).as_millis();
            (percent, pause, format!("{} {text}{wait}", scale.offset(at)), changes)
        });
        // Numbers and texts can be serialized. No text ends the element, or looks like one.
        let json = serde_json::to_string(&played.collect::<Vec<_>>()).unwrap_or_default();
        Self(json.replace('<', "\\u003c").replace('>', "\\u003e"))
    }
}

impl fmt::Display for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// It has no `<`, and an element with JSON has no references to characters.
impl HtmlSafe for Moments {}

/// The moments of a run in this row, by the rows of steps.
fn of_run(row: usize, branch: &Branch<'_>, steps: &HashMap<(Uuid, usize), usize>) -> Vec<Moment> {
    let run = branch.run;
    let (mut moments, mut completed, mut state) = (vec![], vec![], "");
    let moment = |at, what: &dyn fmt::Display, changes, is_of_step| {
        let text = line(&format!("{}: {what}", run.handler));
        Moment { at, text, changes, is_of_step }
    };
    for (nth, event) in run.events.iter().enumerate() {
        let is_last = nth + 1 == run.events.len() && !run.has_ended();
        state = match (event.kind, state) {
            (EventKind::Committed, _) => "committed",
            (EventKind::RollingBack, "committed") => "rolling back",
            (EventKind::RollingBack, _) => "failed",
            (EventKind::RolledBack, _) => "rolled back",
            (EventKind::RollbackFailed, _) => "rollback failed",
            _ if is_last => run.state.phase().name(),
            (_, "failed" | "rolling back" | "rollback failed") => "rolling back",
            _ if event.waited.is_some() => "waiting",
            _ => "running",
        };
        let mut changes = vec![(row, state)];
        if state == "failed" {
            changes.extend(branch.above.map(|above| (above, "child failed")));
        }
        if event.is_completion() {
            let step = steps.get(&(run.id().uuid(), nth)).copied();
            changes.extend(step.map(|step| (step, "completed")));
            completed.push((event.subject(), step));
        } else if event.is_undoing()
            && let Some(at) = completed.iter().rposition(|(step, _)| *step == event.subject())
        {
            changes.extend(completed.remove(at).1.map(|step| (step, "undone")));
        }
        let Some(at) = event.at.filter(|_| event.has_details()) else { continue };
        let is_of_step = match event.kind {
            EventKind::Suspended => !is_last,
            kind => kind == EventKind::Emitted,
        };
        moments.push(moment(at, &event.in_words(), changes, is_of_step));
        if let (Some(waited), "waiting") = (event.waited, state) {
            moments.push(moment(at + waited, &"the wait is over", vec![(row, "running")], true));
        }
    }
    let decisions = run.interventions.iter();
    moments.extend(decisions.map(|it| moment(it.at, it, vec![(row, "")], false)));
    moments
}
