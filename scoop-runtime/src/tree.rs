//! The runs of a hierarchy, for people.

use std::fmt;
use std::time::Duration;

use scoop_core::{EventKind, Failure, Lineage, SLEEP_TOPIC};
use serde::Deserialize;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use crate::clock::since_1970;
use crate::store::lineage;

use crate::Intervention;

/// The runs of a hierarchy. Display it to see who did what and when.
#[derive(Clone, Debug)]
pub struct Tree {
    roots: Vec<RunInfo>,
    unhandled: Option<UnhandledMessage>,
}

/// One run, as far as it is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// The saga.
    pub handler: String,
    /// Where it heard of the message.
    pub topic: String,
    /// The message.
    pub message_id: Uuid,
    /// Its place in the hierarchy.
    pub lineage: Lineage,
    /// How far it is.
    pub state: RunState,
    /// What is on record about it, oldest first.
    pub events: Vec<RunEvent>,
    /// What operators did about it, oldest first.
    pub interventions: Vec<Intervention>,
    /// The runs of the messages that it launched.
    pub children: Vec<RunInfo>,
    /// The messages that it launched without any handler.
    pub unhandled: Vec<UnhandledMessage>,
}

/// A message for which no handler was subscribed when it was launched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnhandledMessage {
    /// Where it was published.
    pub topic: String,
    /// The message.
    pub message_id: Uuid,
    /// When it was launched, since 1970.
    pub at: Duration,
    /// The hierarchy that handles it after all, if it was [redelivered](crate::Scoop::redeliver).
    pub redelivered_as: Option<Uuid>,
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RunState {
    /// Nobody has begun it yet.
    NotBegun,
    /// It can go on, and nobody works on it at this moment.
    Ready,
    /// It is tried again: its step failed, which does not count yet, or the ground under it did.
    Retrying {
        /// How many times in vain so far.
        attempts: u32,
        /// Why the last time.
        reason: String,
    },
    /// Somebody works on it.
    Running,
    /// It waits for its children.
    Waiting,
    /// No process at hand can continue it.
    Stuck {
        /// Why.
        reason: String,
    },
    /// It succeeded.
    Committed,
    /// It was undone.
    RolledBack(Failure),
    /// It could not be undone.
    RollbackFailed(Failure),
}

/// One thing that happened in a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunEvent {
    /// What.
    pub kind: EventKind,
    /// In which step.
    pub step: Option<String>,
    /// When, since 1970.
    pub at: Duration,
    /// What went wrong.
    pub failure: Option<Failure>,
}

/// A row of `run_tree.sql`: a run, or a message of the run with this lineage.
pub(crate) struct RunRow {
    lineage: Lineage,
    entry: Entry,
}

enum Entry {
    Run(Box<RunInfo>),
    Unhandled(UnhandledMessage),
}

#[derive(Deserialize)]
struct EventRow {
    #[serde(rename = "type")]
    kind: String,
    step: Option<String>,
    exception: Option<Failure>,
    micros: u64,
}

impl RunRow {
    /// A run of this saga, of this topic. `stands` is what the working set says of it, if it is there:
    /// its state, how many attempts were in vain, and the reason.
    pub(crate) fn new(
        lineage: Lineage,
        message_id: Uuid,
        (handler, topic): (&str, &str),
        stands: Option<(&str, u32, Option<String>)>,
        events: Vec<RunEvent>,
    ) -> Self {
        let (state, attempts, reason) =
            stands.map_or((None, 0, None), |(state, attempts, reason)| (Some(state), attempts, reason));
        let info = RunInfo {
            handler: handler.to_owned(),
            topic: topic.to_owned(),
            message_id,
            lineage: lineage.clone(),
            state: state_of(state, attempts, reason, &events),
            events,
            interventions: vec![],
            children: vec![],
            unhandled: vec![],
        };
        Self { lineage, entry: Entry::Run(Box::new(info)) }
    }

    /// A message without a handler; `lineage` is that of its emitter.
    pub(crate) fn unhandled(
        lineage: Lineage,
        (message_id, topic): (Uuid, &str),
        at: Duration,
        redelivered_as: Option<Uuid>,
    ) -> Self {
        let message = UnhandledMessage { topic: topic.to_owned(), message_id, at, redelivered_as };
        Self { lineage, entry: Entry::Unhandled(message) }
    }

    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let lineage = lineage(row)?;
        let (message_id, topic): (_, &str) = (row.try_get("message_id")?, row.try_get("topic")?);
        let Some(handler) = row.try_get("handler")? else {
            let at = since_1970(row.try_get("began_at")?);
            return Ok(Self::unhandled(lineage, (message_id, topic), at, row.try_get("redelivered_as")?));
        };
        let events: Option<Json<Vec<EventRow>>> = row.try_get("events")?;
        let events: Vec<RunEvent> =
            events.into_iter().flat_map(|Json(events)| events).filter_map(EventRow::into_event).collect();
        let state: Option<String> = row.try_get("state")?;
        let reason: Option<String> = row.try_get("reason")?;
        let attempts: Option<i32> = row.try_get("attempts")?;
        let attempts = attempts.and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or(0);
        let stands = state.as_deref().map(|state| (state, attempts, reason));
        Ok(Self::new(lineage, message_id, (handler, topic), stands, events))
    }
}

impl EventRow {
    fn into_event(self) -> Option<RunEvent> {
        Some(RunEvent {
            kind: EventKind::from_name(&self.kind)?,
            step: self.step,
            at: Duration::from_micros(self.micros),
            failure: self.exception,
        })
    }
}

/// What the working set says counts while the run is in it; then its last event.
fn state_of(state: Option<&str>, attempts: u32, reason: Option<String>, events: &[RunEvent]) -> RunState {
    let last = events.last();
    let turned_back = events.iter().rev().find(|event| event.kind == EventKind::RollingBack);
    let failure = |event: Option<&RunEvent>| {
        let known = event.and_then(|event| event.failure.clone());
        known.unwrap_or_else(|| Failure::new("Unknown", "", "scoop"))
    };
    match (state, last.map(|event| event.kind)) {
        (Some("stuck"), _) => RunState::Stuck { reason: reason.unwrap_or_default() },
        (Some("waiting"), _) => RunState::Waiting,
        (Some("running"), _) => RunState::Running,
        (Some("ready"), _) if attempts > 0 => {
            RunState::Retrying { attempts, reason: reason.unwrap_or_default() }
        }
        (_, None) => RunState::NotBegun,
        (Some("ready"), _) => RunState::Ready,
        (_, Some(EventKind::Committed)) => RunState::Committed,
        (_, Some(EventKind::RolledBack)) => RunState::RolledBack(failure(turned_back)),
        (_, Some(EventKind::RollbackFailed)) => RunState::RollbackFailed(failure(last)),
        // Between two looks of one statement there is no such moment.
        _ => RunState::Running,
    }
}

impl Tree {
    /// Puts the runs, parents before children, into their places, and with them what was done about them.
    pub(crate) fn of(rows: Vec<RunRow>, interventions: Vec<Intervention>) -> Self {
        let (mut roots, mut unhandled): (Vec<RunInfo>, Vec<_>) = Default::default();
        for RunRow { lineage, entry } in rows {
            let mut info = match entry {
                Entry::Run(info) => *info,
                Entry::Unhandled(message) => {
                    unhandled.push((lineage, message));
                    continue;
                }
            };
            info.interventions =
                interventions.iter().filter(|done| done.run == lineage.id()).cloned().collect();
            let mut siblings = &mut roots;
            // The first id is the root emission's; those between are the ancestors.
            let ancestors = lineage.ids().get(1..lineage.ids().len() - 1).unwrap_or_default();
            for ancestor in ancestors {
                let Some(at) = siblings.iter().position(|run| run.lineage.id() == *ancestor) else {
                    break;
                };
                siblings = &mut siblings[at].children;
            }
            siblings.push(info);
        }
        let mut tree = Self { roots, unhandled: None };
        for (emitter, message) in unhandled {
            match tree.run_mut(&emitter) {
                Some(run) => run.unhandled.push(message),
                None => tree.unhandled = Some(message),
            }
        }
        tree
    }

    fn run_mut(&mut self, lineage: &Lineage) -> Option<&mut RunInfo> {
        let (mut runs, mut found) = (&mut self.roots, None);
        for id in lineage.ids().get(1..)? {
            let run = runs.iter_mut().find(|run| run.lineage.id() == *id)?;
            if run.lineage == *lineage {
                found = Some(run);
                break;
            }
            runs = &mut run.children;
        }
        found
    }

    /// The runs of the message that started the hierarchy.
    pub fn roots(&self) -> &[RunInfo] {
        &self.roots
    }

    /// The messages of the hierarchy that no handler was subscribed for: the one that started it, or those of its runs.
    pub fn unhandled(&self) -> Vec<&UnhandledMessage> {
        let of_runs = self.runs().into_iter().flat_map(|run| &run.unhandled);
        self.unhandled.iter().chain(of_runs).collect()
    }

    /// All runs, each before its children.
    pub fn runs(&self) -> Vec<&RunInfo> {
        fn collect<'a>(runs: &'a [RunInfo], all: &mut Vec<&'a RunInfo>) {
            for run in runs {
                all.push(run);
                collect(&run.children, all);
            }
        }
        let mut all = vec![];
        collect(&self.roots, &mut all);
        all
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunState::NotBegun => f.write_str("not begun"),
            RunState::Ready => f.write_str("ready"),
            RunState::Retrying { attempts, reason } => {
                write!(f, "ready again after {attempts} attempts in vain: {reason}")
            }
            RunState::Running => f.write_str("running"),
            RunState::Waiting => f.write_str("waiting for its children"),
            RunState::Stuck { reason } => write!(f, "STUCK: {reason}"),
            RunState::Committed => f.write_str("committed"),
            RunState::RolledBack(failure) => write!(f, "rolled back: {}", essence(failure)),
            RunState::RollbackFailed(failure) => write!(f, "ROLLBACK FAILED: {}", essence(failure)),
        }
    }
}

/// What it all came from.
fn essence(failure: &Failure) -> String {
    failure.root_causes().iter().map(|cause| cause.message.as_str()).collect::<Vec<_>>().join("; ")
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = self.runs().iter().filter_map(|run| run.events.first()).map(|event| event.at).min();
        if let Some(message) = &self.unhandled {
            writeln!(f, "{message}")?;
        }
        for root in &self.roots {
            write_run(f, root, begin.unwrap_or_default(), "", "", "")?;
        }
        Ok(())
    }
}

/// One run and those below it, each with the way it went and when.
fn write_run(
    f: &mut fmt::Formatter<'_>,
    run: &RunInfo,
    begin: Duration,
    indent: &str,
    branch: &str,
    below: &str,
) -> fmt::Result {
    if run.topic == SLEEP_TOPIC {
        // What it took is told by the run that slept.
        return writeln!(f, "{indent}{branch}sleep: {}", run.state);
    }
    writeln!(f, "{indent}{branch}{} (on {}): {}", run.handler, run.topic, run.state)?;
    let indent = format!("{indent}{below}");
    let bar = if run.children.is_empty() && run.unhandled.is_empty() { "  " } else { "│ " };
    let events = run.events.iter().map(|event| {
        let step = event.step.as_deref().unwrap_or("");
        (event.at, format!("{:<15} {step}", event.kind.as_str()))
    });
    let interventions = run.interventions.iter().map(|done| (done.at, done.to_string()));
    let mut lines: Vec<_> = events.chain(interventions).collect();
    lines.sort_by_key(|(at, _)| *at);
    for (at, line) in lines {
        let millis = at.saturating_sub(begin).as_secs_f64() * 1000.0;
        writeln!(f, "{}", format!("{indent}{bar}{millis:>9.1} ms  {line}").trim_end())?;
    }
    let last = (run.children.len() + run.unhandled.len()).saturating_sub(1);
    let branch = |at: usize| if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
    for (at, child) in run.children.iter().enumerate() {
        let (branch, below) = branch(at);
        write_run(f, child, begin, &indent, branch, below)?;
    }
    for (at, message) in run.unhandled.iter().enumerate() {
        writeln!(f, "{indent}{}{message}", branch(run.children.len() + at).0)?;
    }
    Ok(())
}

impl fmt::Display for UnhandledMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no handler (on {})", self.topic)?;
        match self.redelivered_as {
            Some(hierarchy) => write!(f, ": redelivered as hierarchy {hierarchy}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod fuzz {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn row(ids: &[u128]) -> RunRow {
        let lineage = Lineage::from_ids(ids.iter().copied().map(Uuid::from_u128).collect()).expect("ids");
        let info = RunInfo {
            handler: "saga".into(),
            topic: "topic".into(),
            message_id: Uuid::nil(),
            lineage: lineage.clone(),
            state: state_of(None, 0, None, &[]),
            events: vec![],
            interventions: vec![],
            children: vec![],
            unhandled: vec![],
        };
        RunRow { lineage, entry: Entry::Run(Box::new(info)) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Also those whose ancestors are missing, or that have no root.
        #[test]
        fn every_run_has_its_place(places in vec(vec(1..4u128, 1..5), 0..12)) {
            let tree = Tree::of(places.iter().map(|ids| row(ids)).collect(), vec![]);
            let mut found: Vec<_> = tree.runs().iter().map(|run| run.lineage.clone()).collect();
            let mut expected: Vec<_> = places.iter().map(|ids| row(ids).lineage).collect();
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(tree.to_string().lines().count(), places.len());
            let is_below = |above: &RunInfo, below: &RunInfo| {
                below.lineage.ids()[1..].contains(&above.lineage.id())
            };
            prop_assert!(tree.runs().iter().all(|run| run.children.iter().all(|child| is_below(run, child))));
        }
    }
}
