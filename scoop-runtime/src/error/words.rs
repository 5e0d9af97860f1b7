//! Parts of the texts of errors.

use std::fmt;
use std::time::Duration;

use scoop_core::Escaped;
use uuid::Uuid;

use super::{FailedStep, NoResult};
use crate::model::running_step::RunningStep;

pub(super) fn without_result(
    id: &Uuid,
    topic: &&'static str,
    why: &NoResult,
    failed: &Option<FailedStep>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "message {id} on topic `{topic}` has no result: {why}")?;
    if let Some(failed) = failed {
        write!(f, " ({failed} failed)")?;
    }
    match why {
        NoResult::RolledBack(failure) | NoResult::RollbackFailed(failure) | NoResult::Refused(failure)
            if f.alternate() =>
        {
            write!(f, "\n{}", failure.report().trim_end())
        }
        _ => Ok(()),
    }
}

pub(super) fn because(refusal: &Option<String>) -> String {
    refusal.as_ref().map_or_else(String::new, |refusal| format!(" ({})", Escaped(refusal)))
}

pub(super) fn after(waited: Option<Duration>) -> String {
    waited.map_or_else(String::new, |waited| format!(" for {waited:.1?}"))
}

pub(super) fn messages_in_words(messages: usize) -> String {
    if messages == 1 { "a message".to_owned() } else { format!("{messages} messages") }
}

/// What could not be done: `a message could not be launched` for `a message was launched`.
pub(super) fn could_not(doing: &str) -> String {
    let words = doing.split_once(" was ").or_else(|| doing.split_once(" were "));
    words.map_or_else(|| doing.to_owned(), |(what, participle)| format!("{what} could not be {participle}"))
}

/// How many hierarchies were not archived.
pub fn unarchived(count: usize) -> String {
    match count {
        1 => "1 hierarchy was not archived".to_owned(),
        count => format!("{count} hierarchies were not archived"),
    }
}

/// The remedy for a full queue.
pub(super) fn advice(messages: usize, limit: u32) -> &'static str {
    match usize::try_from(limit).is_ok_and(|limit| messages > limit) {
        true => "launch fewer messages at once, or raise the `queue` of the saga",
        false => {
            "launch again later, or let the launch wait by `.wait_for_capacity(..)`, which one in a transaction does not; for \
             more capacity, end a pause of the saga, start more processes with it, or raise its `queue`, `concurrency` or `rate`"
        }
    }
}

pub(super) fn times(count: usize) -> String {
    if count == 2 { "twice".to_owned() } else { format!("{count} times") }
}

pub(super) fn attempts_without_success(attempts: u32) -> &'static str {
    if attempts == 1 { "attempt failed" } else { "attempts failed" }
}

pub(super) fn effect(may_have_happened: bool) -> &'static str {
    match may_have_happened {
        true => {
            "an answer of the server was lost, so the operation may have taken effect: check before trying again, or \
             launch with a key (`.unique(..)`), which makes another attempt safe"
        }
        false => "nothing was done",
    }
}

/// Lists the names, each once.
pub(super) fn distinct(names: &[String]) -> String {
    let names: std::collections::BTreeSet<_> =
        names.iter().map(|name| format!("`{}`", Escaped(name))).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// A time as it is written in a program.
pub fn written(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("Duration::from_secs({})", time.as_secs()),
        _ => format!("Duration::from_millis({})", time.as_millis()),
    }
}

pub(super) fn joined(steps: &[RunningStep]) -> String {
    steps.iter().map(RunningStep::to_string).collect::<Vec<_>>().join("; ")
}
