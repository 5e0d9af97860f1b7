//! The runs of a hierarchy as text.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use scoop_core::{Escaped, EventKind, Frame, SignalKey};

use super::{
    CancellationRequest, PASSED, Role, RunEvent, RunInfo, RunState, Tree, UnhandledMessage, WaitEnd,
};
use crate::Intervention;
use crate::model::format::{ahead, humane, strategy, system_time, utc, utc_if_known};
use crate::model::run::QUEUED_MIN;
use crate::repair::no_program;

const NAMED_MAX: usize = 4;

/// The number of levels that are indented. A run below them has the number of its level instead, so that the size of
/// the text is linear in that of the tree.
const INDENTED_MAX: usize = 32;

/// A time so far ahead is no limit.
const FAR: Duration = Duration::from_secs(1_000 * 366 * 24 * 60 * 60);

/// The shortest duration shown: events that are written together are a microsecond apart.
const SHOWN_DURATION_MIN: Duration = Duration::from_micros(100);

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunState::Pending => f.write_str("pending"),
            RunState::Ready => f.write_str("ready"),
            RunState::Sleeping => f.write_str("sleeping"),
            RunState::AwaitingSignal => f.write_str("awaiting a signal"),
            RunState::Retrying { attempts, reason } => {
                write!(f, "retrying; attempt {attempts} failed: {}", Escaped(reason))
            }
            RunState::Running => f.write_str("running"),
            RunState::Waiting => f.write_str("waiting for its children"),
            RunState::Stuck { reason } => write!(f, "STUCK: {}", Escaped(reason)),
            RunState::Committed => f.write_str("committed"),
            RunState::RolledBack(failure) => write!(f, "rolled back: {}", failure.summary()),
            RunState::RollbackFailed(failed) => write!(f, "ROLLBACK FAILED: {failed}"),
        }
    }
}

impl fmt::Display for RunInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (on {}): {}", Escaped(&self.handler), Escaped(&self.topic), self.progress())
    }
}

impl RunInfo {
    fn progress(&self) -> String {
        let state = &self.state;
        let due = self.wakes_at.map(|at| ahead(at, self.read_at));
        let back = if self.rolling_back { ", rolling back" } else { "" };
        let next = u64::from(self.attempts) + 1;
        match (state, due) {
            (RunState::Pending | RunState::Ready, Some(due)) => format!("{state}{back}, due {due}"),
            (RunState::Retrying { attempts, reason }, due) => {
                let due = due.map_or_else(|| "due now".into(), |due| format!("at {due}"));
                let reason = Escaped(reason);
                format!("retrying{back}, attempt {next} {due}; attempt {attempts} failed: {reason}")
            }
            (RunState::Running, _) if self.attempts > 0 => {
                let failed = |reason| format!("; attempt {} failed: {}", self.attempts, Escaped(reason));
                let failed = self.last_failure.as_deref().map(failed).unwrap_or_default();
                format!("{state}{back}, attempt {next}{failed}")
            }
            (RunState::Sleeping, _) => {
                let until = self.sleeps_until().map(|until| format!(" until {}", ahead(until, self.read_at)));
                format!("{state}{}{back}", until.unwrap_or_default())
            }
            (RunState::AwaitingSignal, _) => {
                let signal = self.awaits.as_ref().map(|SignalKey { name, key }| {
                    format!("awaiting signal {} for {}", Escaped(name), Escaped(key))
                });
                let since = self.events.last().and_then(|event| event.at);
                let since = since.map(|since| format!(" since {}", utc(since)));
                // Without a limit the time is a far one.
                let limit = self.wakes_at.filter(|at| self.read_at.is_none_or(|now| *at < now + FAR));
                let limit = limit.map(|limit| format!(", until {}", ahead(limit, self.read_at)));
                let parts = [signal.unwrap_or_else(|| state.to_string()), since.unwrap_or_default()];
                parts.concat() + &limit.unwrap_or_default()
            }
            (RunState::Waiting, _) => format!("{}{back}", self.awaited()),
            (RunState::Stuck { .. }, _) => state.to_string(),
            _ => format!("{state}{back}"),
        }
    }

    fn awaited(&self) -> String {
        let (mut left, mut sagas) = (0_usize, BTreeMap::<String, usize>::new());
        for child in self.unfinished_children() {
            left += 1;
            *sagas.entry(child.handler.clone()).or_default() += 1;
        }
        if left == 0 {
            return RunState::Waiting.to_string();
        }
        let named = sagas.iter().take(NAMED_MAX).map(|(saga, runs)| match runs {
            1 => Escaped(saga).to_string(),
            runs => format!("{runs} × {}", Escaped(saga)),
        });
        let mut named: Vec<_> = named.collect();
        if sagas.len() > NAMED_MAX {
            named.push("…".into());
        }
        format!("waiting for {left} of {} children: {}", self.children.len(), named.join(", "))
    }

    /// The details besides the state, a line each.
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![self.identity()];
        notes.extend(self.execution());
        notes.extend(self.refused_signal.as_ref().map(|why| Escaped(why).to_string()));
        notes.extend(self.strategies());
        notes.extend(self.giving_up());
        notes.extend(self.pauses.iter().map(|pause| pause.in_words(self.read_at)));
        notes.extend(self.is_abandoned.then(|| Escaped(&no_program(&self.handler)).to_string()));
        notes
    }

    fn strategies(&self) -> Vec<String> {
        let strategies = self.events.last().filter(|_| self.state == RunState::Waiting);
        let strategies = strategies.map_or(&[][..], |event| &event.strategies);
        strategies.iter().map(|message| format!("waits for {}", strategy(message, self.read_at))).collect()
    }

    /// Its id, its duration, its time in the queue, and the worker that executes it.
    fn identity(&self) -> String {
        let mut identity = format!("run {}", self.id());
        if let Some(duration) = self.duration {
            identity += &format!(", took {}", humane(duration));
        }
        if let Some(queued) = self.queue_time.filter(|queued| *queued >= QUEUED_MIN) {
            identity += &format!(", queued for {}", humane(queued));
        }
        if let Some(worker) = &self.worker {
            identity += &format!(", executed by {}", Escaped(worker));
        }
        identity
    }

    /// Its newest execution, if that is not the first one: how far its rollback goes.
    fn execution(&self) -> Option<String> {
        let number = self.former_executions.checked_add(1).filter(|number| *number > 1)?;
        let execution = format!("execution {number}, which began {}", utc_if_known(self.execution_began_at));
        Some(match (&self.state, self.rolling_back) {
            (RunState::RolledBack(_), _) => format!("went back to {execution}"),
            (_, true) => format!("goes back to {execution}"),
            _ => format!("{execution}; a rollback goes back to it"),
        })
    }

    /// The reasons for which it gives up now, or its deadline.
    fn giving_up(&self) -> Vec<String> {
        match (self.giving_up, self.deadline) {
            (false, None) => vec![],
            (false, Some(deadline)) => {
                vec![format!("gives up at its deadline, {}", ahead(deadline, self.read_at))]
            }
            (true, Some(deadline)) if self.pending_cancellations.is_empty() => {
                vec![format!("giving up: missed its deadline, {}", utc(deadline))]
            }
            (true, _) if self.pending_cancellations.is_empty() => vec!["giving up".into()],
            (true, _) => {
                let requests = self.pending_cancellations.iter();
                requests.map(|request| format!("giving up: {request}")).collect()
            }
        }
    }

    /// The events, interventions of operators and requests, in order.
    fn happened<'a>(
        &'a self,
        asked: impl Iterator<Item = &'a CancellationRequest>,
        hints: TreeHints,
    ) -> Vec<Happened<'a>> {
        let mut workers = None;
        let events = self.events.iter().flat_map(|event| {
            let gap = event.follows_gap.then(|| {
                let left_out = format!("(events are left out: {})", hints.events);
                Happened { at: event.at, what: What::Other(left_out) }
            });
            let shown = event.has_details().then(|| {
                let is_new = event.worker != workers;
                workers.clone_from(&event.worker);
                // The intervention, which has a line of its own, names the operator.
                let says_worker = is_new && !event.is_by_operator();
                Happened { at: event.at, what: What::Event { event, says_worker } }
            });
            let waited = event.waited.map(|waited| {
                let at = event.wait().map(|(_, end)| end);
                Happened { at, what: What::Waited { event, waited } }
            });
            gap.into_iter().chain(shown).chain(waited)
        });
        let mut all: Vec<_> = events.collect();
        let line = |it: &Intervention, words| Happened { at: Some(it.at), what: What::Other(words) };
        let (first, last) = self.split_interventions();
        all.extend(first.iter().map(|it| line(it, it.to_string())));
        all.extend(last.first().map(|intervention| {
            let are = match self.interventions_left_out {
                1 => "1 intervention is".to_owned(),
                count @ ..RunInfo::LEFT_OUT_MAX => format!("{count} interventions are"),
                _ => "10,000 interventions or more are".to_owned(),
            };
            line(intervention, format!("({are} left out: {})", hints.events))
        }));
        all.extend(last.iter().map(|it| line(it, it.to_string())));
        all.extend(asked.map(|request| Happened { at: request.at, what: What::Other(request.in_words()) }));
        // Entries without a time keep their place.
        let mut known = None;
        let mut all: Vec<_> = all
            .into_iter()
            .map(|it| {
                known = it.at.or(known);
                (known, it)
            })
            .collect();
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, happened)| happened).collect()
    }
}

struct Happened<'a> {
    at: Option<SystemTime>,
    what: What<'a>,
}

enum What<'a> {
    Event {
        event: &'a RunEvent,
        says_worker: bool,
    },
    /// The end of the wait that followed the event.
    Waited {
        event: &'a RunEvent,
        waited: Duration,
    },
    Other(String),
}

impl fmt::Display for Happened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<24}", utc_if_known(self.at))?;
        match &self.what {
            What::Other(words) => write!(f, "  {:>11}  {words}", ""),
            What::Waited { event, waited } => {
                write!(f, "  {:>11}  {}", lasted(Some(*waited)), event.awaited())
            }
            What::Event { event, says_worker } => {
                write!(f, "  {:>11}  ", lasted(event.duration))?;
                event.write_what(f)?;
                match &event.worker {
                    Some(worker) if *says_worker => write!(f, ", by {}", Escaped(worker)),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Formats a duration, unless it is too short to be shown.
fn lasted(duration: Option<Duration>) -> String {
    let duration = duration.filter(|duration| *duration >= SHOWN_DURATION_MIN);
    duration.map_or_else(String::new, |duration| format!("+ {}", humane(duration)))
}

impl RunEvent {
    /// The [summary](scoop_core::Failure::summary) of the failure that it records; of that of a rollback, the summary of the failed
    /// compensation.
    pub fn failure_in_words(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(match self.kind {
            EventKind::RollbackFailed => failure.failed_compensation().summary(),
            _ => failure.summary(),
        })
    }

    /// A short description of the event, such as `completed` or `rolled back`.
    pub fn word(&self) -> &'static str {
        match (self.role, self.kind) {
            (Role::ChildrenRolledBack, _) if self.is_by_operator() => {
                "skipped the wait for the failed children"
            }
            (_, EventKind::Suspended) if self.is_by_operator() => "skipped the undoing",
            (_, EventKind::RolledBack) if self.is_by_operator() => "resolved",
            (Role::OfKind | Role::Completed | Role::BeganToWait, _) if self.awaits.is_some() => {
                "began to await a signal"
            }
            (Role::BeganToWait, _) => "began to wait",
            (Role::Completed, _) => "completed",
            (Role::AsNew, _) => "continued as new",
            (Role::HandledFailures, _) => "handled child failures",
            (Role::ChildrenRolledBack, _) => "undoing children",
            (Role::Compensated, _) => "undid",
            (Role::Passed, _) => PASSED,
            (Role::NothingToUndo, EventKind::RolledBack) => "rolled back, nothing to undo",
            (Role::NothingToUndo, EventKind::Suspended) => "nothing to undo",
            (_, EventKind::Emitted) => "launched",
            (_, EventKind::Seen) => "began",
            (_, EventKind::Suspended) => "suspended",
            (_, EventKind::Committed) => "committed",
            (_, EventKind::RollingBack) => "began to roll back",
            (_, EventKind::RollbackEmitted) => "sent rollback",
            (_, EventKind::RolledBack) => "rolled back",
            (_, EventKind::RollbackFailed) => "rollback failed",
            (_, EventKind::CancellationRequested) => "cancelled",
        }
    }

    /// The end of the wait that followed the event.
    fn awaited(&self) -> String {
        let (what, ended) = match self.wait_end {
            WaitEnd::Slept => ("sleep", "ended"),
            WaitEnd::Ended => ("children", "ended"),
            // An operator has accepted failed rollbacks of others.
            WaitEnd::RolledBack if self.role == Role::ChildrenRolledBack && self.is_by_operator() => {
                ("children", "ended")
            }
            WaitEnd::RolledBack => ("children", "rolled back"),
            WaitEnd::RollbackFailed => ("children", "failed to roll back"),
        };
        let of = self.subject().map_or_else(String::new, |step| format!(" of {}", Escaped(step)));
        format!("{what}{of} {ended}")
    }

    /// The event, without time and worker.
    pub fn in_words(&self) -> impl fmt::Display + use<'_> {
        fmt::from_fn(|f| self.write_what(f))
    }

    fn write_what(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Role::Passed, false, Some(subject)) = (self.role, self.is_by_operator(), self.subject()) {
            return write!(f, "passed {}, nothing to undo", Escaped(subject));
        }
        f.write_str(self.word())?;
        if let Some(subject) = self.subject() {
            let link = match (self.role, self.kind) {
                (Role::ChildrenRolledBack, _) => " of",
                (Role::Compensated | Role::Passed, _) if self.is_skipping() => " of",
                (Role::AsNew, _) => " after",
                (Role::HandledFailures, _) => " in",
                (Role::BeganToWait, _) => " for",
                _ if self.awaits.is_some() => " for",
                (_, EventKind::Emitted | EventKind::RollingBack | EventKind::RollbackFailed) => " in",
                _ => "",
            };
            write!(f, "{link} {}", Escaped(subject))?;
        }
        if let Some(wait) = &self.awaits
            && let Some(SignalKey { name, key }) = wait.signal()
        {
            write!(f, ": {} with key {}", Escaped(name), Escaped(key))?;
            wait.limit().map_or(Ok(()), |limit| write!(f, ", until {}", utc(system_time(limit))))?;
        }
        if let (EventKind::RollingBack | EventKind::RollbackFailed | EventKind::Suspended, Some(failure)) =
            (self.kind, &self.failure)
        {
            write!(f, ": {}", self.failure_in_words().unwrap_or_default())?;
            // A failure of the protocol, such as that of children, has no place in the code.
            if let Some(Frame { file_name, line_number, .. }) = failure.stack_trace.first() {
                write!(f, ", at {}:{line_number}", Escaped(file_name))?;
            }
        }
        self.unreadable.as_ref().map_or(Ok(()), |why| write!(f, " (unreadable: {})", Escaped(why)))
    }
}

impl fmt::Display for RunEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", utc_if_known(self.at))?;
        self.write_what(f)?;
        self.duration.map_or(Ok(()), |duration| write!(f, ", after {}", humane(duration)))?;
        if let Some(waited) = self.waited {
            write!(f, ", then {} after {}", self.awaited(), humane(waited))?;
        }
        self.worker.as_ref().map_or(Ok(()), |worker| write!(f, ", by {}", Escaped(worker)))
    }
}

impl CancellationRequest {
    fn in_words(&self) -> String {
        format!("cancellation requested by {}: {}", Escaped(&self.source), Escaped(&self.reason))
    }
}

impl fmt::Display for CancellationRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, reason) = (Escaped(&self.source), Escaped(&self.reason));
        write!(f, "cancellation requested {} by {source}: {reason}", utc_if_known(self.at))
    }
}

/// How a reader gets what the text of a tree leaves out.
#[derive(Clone, Copy, Debug)]
pub struct TreeHints {
    /// Events and interventions.
    pub events: &'static str,
    /// Messages without a handler.
    pub unhandled: &'static str,
    /// Runs.
    pub runs: &'static str,
}

const IN_LIBRARY: TreeHints = TreeHints {
    events: "see `events` of the tree",
    unhandled: "see `limit` of the tree",
    runs: "see `depth` and `limit` of the tree",
};

/// A tree as text, with other hints than those of its own text.
#[derive(Clone, Copy, Debug)]
pub struct TreeText<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// The hints.
    pub hints: TreeHints,
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&TreeText { tree: self, hints: IN_LIBRARY }, f)
    }
}

impl fmt::Display for TreeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tree, hints } = *self;
        let (of_all, of_runs): (Vec<_>, Vec<_>) =
            tree.cancellations().iter().partition(|request| request.lineage.ids().len() == 1);
        if let Some(of) = tree.relaunch_of() {
            writeln!(f, "a relaunch of hierarchy {of}")?;
        }
        tree.relaunched_as().iter().try_for_each(|new| writeln!(f, "relaunched as hierarchy {new}"))?;
        of_all.iter().try_for_each(|request| writeln!(f, "{request}"))?;
        tree.unhandled.iter().try_for_each(|message| writeln!(f, "{message}"))?;
        for root in tree.roots() {
            let requests = |run: &RunInfo| {
                of_runs.iter().copied().filter(|request| request.lineage.id() == run.lineage.id()).collect()
            };
            write_run(f, root, &requests, hints, &Position { level: 1, ..Position::default() })?;
        }
        tree.unreadable().iter().try_for_each(|why| writeln!(f, "(unreadable: {})", Escaped(why)))?;
        if tree.has_more_unhandled {
            writeln!(f, "(more messages without a handler may be left out: {})", hints.unhandled)?;
        }
        if tree.is_complete {
            Ok(())
        } else {
            let are = if tree.has_more_unhandled { "may be" } else { "are" };
            writeln!(f, "(more runs {are} left out: {})", hints.runs)
        }
    }
}

#[derive(Default)]
struct Position {
    /// The level; that of the root runs is 1.
    level: usize,
    /// The beginning of its first line, without the branch.
    indent: String,
    /// The branch to it, or its level.
    branch: String,
    /// The addition to the beginning of its other lines.
    below: &'static str,
}

impl Position {
    fn child(&self, is_last: bool) -> Self {
        let (level, indent) = (self.level + 1, format!("{}{}", self.indent, self.below));
        let (branch, below) = match (level > INDENTED_MAX, is_last) {
            (true, _) => (format!("[level {level}] "), ""),
            (false, true) => ("└─ ".into(), "   "),
            (false, false) => ("├─ ".into(), "│  "),
        };
        Self { level, indent, branch, below }
    }
}

/// Writes a run and its descendants, each with its events and their times.
fn write_run<'a>(
    f: &mut fmt::Formatter<'_>,
    run: &'a RunInfo,
    asked: &dyn Fn(&RunInfo) -> Vec<&'a CancellationRequest>,
    hints: TreeHints,
    at: &Position,
) -> fmt::Result {
    let Position { indent, branch, below, .. } = at;
    writeln!(f, "{indent}{branch}{run}")?;
    let bar = if run.children.is_empty() && run.unhandled.is_empty() { "  " } else { "│ " };
    for note in run.notes() {
        writeln!(f, "{indent}{below}{bar}{note}")?;
    }
    for line in run.happened(asked(run).into_iter(), hints) {
        writeln!(f, "{indent}{below}{bar}{line}")?;
    }
    let last = (run.children.len() + run.unhandled.len()).saturating_sub(1);
    for (index, child) in run.children.iter().enumerate() {
        write_run(f, child, asked, hints, &at.child(index == last))?;
    }
    for (index, message) in run.unhandled.iter().enumerate() {
        let Position { indent, branch, .. } = at.child(run.children.len() + index == last);
        writeln!(f, "{indent}{branch}{message}")?;
    }
    Ok(())
}

impl fmt::Display for UnhandledMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no handler (on {}): launched {}", Escaped(&self.topic), utc_if_known(self.at))?;
        match self.redelivered_as {
            Some(hierarchy) => write!(f, ", redelivered as hierarchy {hierarchy}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
