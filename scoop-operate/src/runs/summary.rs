//! A run in a list.

use std::fmt;
use std::time::{Duration, SystemTime};

use scoop_core::{Escaped, EventKind, Failure, OPERATOR, SignalKey};
use scoop_runtime::internal::{QUEUED_MIN, json};
use scoop_runtime::shown::{humane, utc};
use scoop_runtime::{HierarchyId, RunId, RunPhase, RunRequest, WaitKind};
use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::FoundBy;

/// The main cause of a failure: of that of a rollback, the failed compensation. Display it for one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailureSummary {
    /// The kind of its first cause that has no other: a [code](scoop_core::FailureCode), or the name of a type.
    pub code: String,
    /// The message of that cause, in one line.
    pub headline: String,
    /// The origin of that cause: `saga[worker]` for a run.
    pub source: String,
}

impl FailureSummary {
    /// The maximum length of a headline, in characters.
    const CHARS_MAX: usize = 300;

    /// The maximum length of a code or a source, in characters. Programs write no longer ones.
    const NAME_CHARS_MAX: usize = 1_024;

    /// Of the failure that a run in this state is listed with.
    pub(crate) fn in_phase(phase: RunPhase, failure: &Failure) -> Self {
        if phase == RunPhase::RollbackFailed { Self::of_rollback(failure) } else { Self::of(failure) }
    }

    /// Of the failure that this event records.
    pub(crate) fn of_event(kind: EventKind, failure: &Failure) -> Self {
        if kind == EventKind::RollbackFailed { Self::of_rollback(failure) } else { Self::of(failure) }
    }

    /// Of the failure of a rollback.
    pub(crate) fn of_rollback(failure: &Failure) -> Self {
        Self::of(failure.failed_compensation())
    }

    /// Of the reason of a rollback.
    fn of(failure: &Failure) -> Self {
        let causes = failure.root_causes();
        let cause = causes.first().copied().unwrap_or(failure);
        let line = cause.message.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Self {
            code: cause.kind.chars().take(Self::NAME_CHARS_MAX).collect(),
            headline: cut(line.trim(), Self::CHARS_MAX),
            source: cause.source.chars().take(Self::NAME_CHARS_MAX).collect(),
        }
    }
}

/// The text, up to so many characters. The last one is an ellipsis if there are more.
fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars_max - 1).chain(['…']).collect(),
    }
}

impl fmt::Display for FailureSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Escaped(&self.code), Escaped(&self.headline))
    }
}

/// A run in a list. Display it for one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// Its hierarchy.
    pub hierarchy: HierarchyId,
    /// The run that launched its message; `None` for a run of the message that started the hierarchy.
    pub parent: Option<RunId>,
    /// The saga.
    pub handler: String,
    /// The topic of the message.
    pub topic: String,
    /// The message.
    #[serde(rename = "message")]
    pub message_id: Uuid,
    /// Its state.
    #[serde(rename = "state")]
    pub phase: RunPhase,
    /// The time since which it is in that state, or of its last event if that is not known.
    #[serde(serialize_with = "json::time")]
    pub since: SystemTime,
    /// The time since which it could have begun: when its message was launched, or at the end of the delay. `None` before it began.
    #[serde(serialize_with = "json::time")]
    pub queued_at: Option<SystemTime>,
    /// The time at which it began; `None` if it has not.
    #[serde(serialize_with = "json::time")]
    pub began_at: Option<SystemTime>,
    /// How long it was in its queue before it began; `None` if it has not begun.
    #[serde(rename = "queued_ms", serialize_with = "json::millis")]
    pub queue_time: Option<Duration>,
    /// How long it took from its beginning to its end; `None` before its end.
    #[serde(rename = "took_ms", serialize_with = "json::millis")]
    pub duration: Option<Duration>,
    /// What it waits for, if it waits.
    pub waits_for: Option<WaitKind>,
    /// Failed attempts since its last event.
    pub attempts: u32,
    /// Why its last attempt failed, or why it is stuck.
    pub reason: Option<String>,
    /// Why it was rolled back or is rolling back; or why its rollback failed.
    pub failure: Option<FailureSummary>,
    /// Whether its rollback is in progress.
    pub rolling_back: bool,
    /// Whether a cancellation makes it give up: it has not ended, is not part of a rollback, and does not give up already.
    pub can_give_up: bool,
    /// The earliest deadline that applies to it, unless it has ended.
    #[serde(serialize_with = "json::time")]
    pub deadline: Option<SystemTime>,
    /// The time before which it does not continue, if it waits for one.
    #[serde(serialize_with = "json::time")]
    pub wakes_at: Option<SystemTime>,
    /// The signal that it awaits, with the key.
    pub awaits: Option<SignalKey>,
    /// The identifier of the worker that executes it, or that recorded its end.
    pub worker: Option<String>,
    /// The latest completed step, if there is one; of a finished run, the step of its last event.
    pub step: Option<String>,
    /// The number of parts of its rollback that an operator has [skipped](crate::Failures::skip), if it was rolled back: among the
    /// newest 1,000 interventions on it.
    pub skipped: usize,
    /// By what it is found: the fields of its message or, if that has none, those of the message that started its hierarchy.
    #[serde(serialize_with = "by_name")]
    pub found_by: Vec<FoundBy>,
}

/// Values by the names of their fields.
fn by_name<S: Serializer>(fields: &[FoundBy], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().map(|field| (&field.name, &field.value)))
}

impl RunSummary {
    /// The fields by which it is found, such as `order=2167 customer=ada`, or its id without any.
    ///
    /// Texts of users in it are not escaped.
    pub fn label(&self) -> String {
        match &self.found_by[..] {
            [] => self.run.to_string(),
            fields => fields.iter().map(FoundBy::to_string).collect::<Vec<_>>().join(" "),
        }
    }

    /// The requests of an operator that can have an effect on it. Where its rollback has failed, runs below it may come first:
    /// [`RunExplanation::requests`](crate::RunExplanation::requests) leaves out what is refused because of them.
    pub fn requests(&self) -> impl Iterator<Item = RunRequest> {
        self.phase.requests_if(self.can_give_up)
    }

    /// Whether an operator has declared it rolled back, by [`resolve`](crate::Failures::resolve), or by a decision about a run
    /// above it: its own code did not undo it.
    pub fn is_resolved(&self) -> bool {
        self.phase == RunPhase::RolledBack && self.worker.as_deref() == Some(OPERATOR)
    }

    /// The decisions of operators by which it was rolled back, as text: `resolved by an operator`, or
    /// `2 parts skipped by an operator`.
    pub fn settled(&self) -> Option<String> {
        match (self.phase, self.skipped) {
            _ if self.is_resolved() => Some("resolved by an operator".into()),
            (RunPhase::RolledBack, 1) => Some("1 part skipped by an operator".into()),
            (RunPhase::RolledBack, parts @ 2..) => Some(format!("{parts} parts skipped by an operator")),
            _ => None,
        }
    }

    /// What there is to say beside its state: how operators have settled it, what it waits for, and why. Empty if that is
    /// nothing.
    ///
    /// Texts of users in it are not escaped.
    pub fn about(&self) -> String {
        let mut parts: Vec<_> = self.settled().into_iter().collect();
        if let Some(duration) = self.duration {
            parts.push(format!("took {}", humane(duration)));
        }
        if let Some(queued) = self.queue_time.filter(|queued| *queued >= QUEUED_MIN) {
            parts.push(format!("queued for {}", humane(queued)));
        }
        if self.rolling_back {
            parts.push("rolling back".to_owned());
        }
        match (&self.awaits, self.wakes_at, self.waits_for) {
            (Some(signal), ..) => parts.push(format!("awaits `{}` with key `{}`", signal.name, signal.key)),
            (None, Some(at), _) => parts.push(format!("until {}", utc(at))),
            (None, None, Some(wait)) => parts.push(format!("waits for {}", wait.with_article())),
            (None, None, None) => {}
        }
        if self.attempts > 0 {
            parts.push(format!("failed attempts: {}", self.attempts));
        }
        match (&self.failure, &self.reason) {
            (Some(failure), _) => parts.push(format!("{}: {}", failure.code, failure.headline)),
            (None, Some(reason)) => parts.push(reason.clone()),
            (None, None) => {}
        }
        parts.join("; ")
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (handler, label) = (Escaped(&self.handler), self.label());
        write!(f, "{handler} {} since {} ({})", self.phase, utc(self.since), Escaped(&label))?;
        self.settled().map_or(Ok(()), |settled| write!(f, ", {settled}"))?;
        match (&self.failure, &self.reason) {
            (Some(failure), _) => write!(f, ": {failure}"),
            (None, Some(reason)) => write!(f, ": {}", Escaped(reason)),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headline_that_is_cut_says_so() {
        let headline = |chars: usize| {
            let failure = Failure::new("sold.out", "ü".repeat(chars), "stock");
            FailureSummary::of_rollback(&failure).headline
        };
        let max = FailureSummary::CHARS_MAX;
        assert_eq!(headline(max), "ü".repeat(max));
        assert_eq!(headline(max + 1), format!("{}…", "ü".repeat(max - 1)));
    }

    #[test]
    fn summary_of_a_failure_is_its_first_root_cause_in_one_line() {
        let cause = Failure::new("out-of-stock", "\nnone left\nat all", "stock[w1]");
        let failure =
            Failure::new("ChildRolledBackException", "a child failed", "orders[w1]").caused_by([cause]);
        let summary = FailureSummary::of(&failure);
        assert_eq!(summary.to_string(), "out-of-stock: none left");
        assert_eq!(summary.source, "stock[w1]");
    }
}
