//! Why a run does not go on: what it waits for, and what would end that.

mod decide;
mod json;
mod text;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use scoop_core::wait::MessageWait;
use scoop_core::{Failure, Priority, SignalKey};
use serde::Serialize;
use uuid::Uuid;

pub(crate) use self::decide::{BELOW_MAX, BLOCKING_MAX, FAILED_BELOW_READ, LimitFacts, RunFacts};
use scoop_runtime::{HierarchyId, IdObject, Pause, RunId, RunPhase, RunRequest};

use super::{FailureSummary, RunSummary, WaitKind};
use crate::handlers::RegisteredWorker;

/// The maximum value of a count: it stands for so many or more.
pub(crate) const COUNT_MAX: usize = 1_000;

/// What the runs of a hierarchy, of a message, or one run wait for. Display it for a paragraph on each run.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The id that was asked about.
    pub id: Uuid,
    /// What it names.
    #[serde(serialize_with = "json::text")]
    pub named: IdObject,
    /// The hierarchy.
    pub hierarchy: HierarchyId,
    /// The run itself; or the runs of the message, or of the message that started the hierarchy: a few of them if there
    /// are many. Empty if the message has no handler.
    pub runs: Vec<RunExplanation>,
    /// The time at which this was read, by the clock of the database.
    #[serde(serialize_with = "json::time")]
    pub read_at: SystemTime,
}

/// What one run waits for. Display it for a paragraph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunExplanation {
    /// The run. Since when it waits is [`RunSummary::since`].
    pub run: RunSummary,
    /// What it waits for.
    pub reason: WaitReason,
    /// Its priority among the runs of its saga; `Normal` if it has ended.
    pub priority: Priority,
    /// Whether it will give up as soon as it can: it was cancelled, or has missed a deadline.
    pub giving_up: bool,
    /// Whether a cancellation of it, or of a run above it, is a reason why it will give up.
    pub cancelled: bool,
    /// The pauses that cover it, longest first; also while it waits for something else. Empty if it has ended.
    pub pauses: Vec<Pause>,
    /// The message of this run waits for others of its set, if a saga joins it.
    pub join: Option<JoinWait>,
    /// The time at which this was read, by the clock of the database.
    pub read_at: SystemTime,
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "for", rename_all = "lowercase")]
#[non_exhaustive]
pub enum WaitReason {
    /// Nothing: it has ended.
    #[serde(rename = "nothing")]
    Ended,
    /// A worker executes it.
    #[serde(rename = "step")]
    Executing {
        /// That worker; `None` if it is not registered any more. Then the run is taken over within a minute.
        worker: Option<WorkerInfo>,
    },
    /// Its children.
    Children {
        /// The number of its unfinished children; 1,000 stands for that or more.
        unfinished: usize,
        /// The unfinished descendants that wait for no child themselves: first those that need an operator, a program or the end of a pause,
        /// then those that are in their state longest. Ten at most, of the 500 nearest descendants.
        blocking: Vec<RunSummary>,
        /// The number of such descendants; among the 500 nearest.
        blocking_count: usize,
        /// The messages whose handlers it waits for by a strategy, and not for all of them.
        #[serde(serialize_with = "json::strategies")]
        strategies: Vec<MessageWait>,
    },
    /// A signal.
    Signal {
        /// The signal, with the key.
        signal: SignalKey,
        /// The time at which the wait ends in any case.
        #[serde(serialize_with = "json::time")]
        until: Option<SystemTime>,
    },
    /// A time.
    Time {
        /// That time.
        #[serde(serialize_with = "json::time")]
        until: SystemTime,
        /// Why it waits until then.
        delay: Delay,
    },
    /// A free slot of a worker.
    Slot {
        /// The runs of its saga and topic that are ahead of it; 1,000 stands for that or more.
        ahead: usize,
        /// The runs of its saga and topic that are ready, with itself; 1,000 stands for that or more.
        queued: usize,
        /// Whether it may be what ends its workers: each worker executes one such run at a time.
        #[serde(rename = "suspect")]
        is_suspect: bool,
        /// The living workers that can execute it.
        workers: Vec<WorkerInfo>,
    },
    /// The end of another run, since the limit of its saga is reached.
    Limit {
        /// How many runs are executed at once: of the saga, or of each key.
        concurrency: u32,
        /// Whether a run counts until its end, and not only while it is executed.
        serial: bool,
        /// Its key, if the limit is by key.
        #[serde(flatten, serialize_with = "json::limit_key")]
        key: Option<LimitKey>,
        /// The runs that count for it, by their ids, each with its state; ten at most.
        #[serde(serialize_with = "json::holders")]
        holders: Vec<(RunId, RunPhase)>,
        /// The runs that are ahead of it, of its saga and topic, or of its key; 1,000 stands for that or more.
        ahead: usize,
        /// The runs that wait, of its saga and topic, or of its key, with itself; 1,000 stands for that or more.
        queued: usize,
    },
    /// Until the rate of its saga admits a further run.
    Rate {
        /// How many runs begin within a period: of the saga, or of each key.
        runs: u32,
        /// That period.
        #[serde(rename = "period_ms", serialize_with = "json::millis")]
        period: Duration,
        /// Its key, if the rate is by key.
        #[serde(flatten, serialize_with = "json::limit_key")]
        key: Option<LimitKey>,
        /// The time from which the next run may begin, unless it may now.
        #[serde(serialize_with = "json::time")]
        opens_at: Option<SystemTime>,
        /// The runs that are ahead of it, of its saga and topic, or of its key; 1,000 stands for that or more.
        ahead: usize,
        /// The runs that wait, of its saga and topic, or of its key, with itself; 1,000 stands for that or more.
        queued: usize,
    },
    /// The end of the pauses that cover it.
    Pause {
        /// These pauses, longest first.
        pauses: Vec<Pause>,
    },
    /// A program that can continue it.
    Program {
        /// The number of the definition under which it continues; `None` for the newest one of its saga.
        definition: Option<i32>,
        /// Why no living program can; `None` if none has its saga.
        why: Option<String>,
    },
    /// The decision of an operator.
    Operator {
        /// The reason. If the decision is about runs below it, the latest failure of the first one.
        why: String,
        /// The failed runs below it that an operator has to retry, skip or resolve first; ten at most. The first one accepts
        /// that now. The run itself is never among them: if the decision is about that, the list is empty.
        failed_below: Vec<FailedBelow>,
        /// Whether there are more than these.
        #[serde(rename = "more_below")]
        has_more_below: bool,
    },
}

/// A failed descendant that an operator has to decide about first. Display it for its id and its saga.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedBelow {
    /// The run.
    pub run: RunId,
    /// The saga.
    pub handler: String,
    /// The failure of its rollback.
    pub failure: Option<FailureSummary>,
}

impl FailedBelow {
    pub(crate) fn new(run: impl Into<RunId>, handler: impl Into<String>, failure: Option<&Failure>) -> Self {
        Self { run: run.into(), handler: handler.into(), failure: failure.map(FailureSummary::of_rollback) }
    }
}

/// The key of a run under the limit of its saga.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitKey {
    /// The field or function from which keys come.
    pub from: String,
    /// The key. It is empty for runs without a valid one, which count together.
    pub key: String,
}

impl LimitKey {
    /// This key, which comes from that field or function.
    pub fn new(from: impl Into<String>, key: impl Into<String>) -> Self {
        Self { from: from.into(), key: key.into() }
    }
}

/// Why a run waits until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Delay {
    /// It was launched for that time.
    Start,
    /// It sleeps.
    Sleep,
    /// An attempt failed, and the next one is made then.
    Backoff,
}

/// A worker, as far as the database knows it. Display it for a few words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Its identifier in events.
    #[serde(rename = "worker")]
    pub identifier: String,
    /// The time since which it runs.
    #[serde(serialize_with = "json::time")]
    pub started_at: SystemTime,
    /// Whether its session lives. If it does not, another worker takes its runs over.
    #[serde(rename = "alive")]
    pub is_alive: bool,
    /// The name of its connection, which begins with that of the program; if the role may see it.
    pub application: Option<String>,
    /// The address from which it has connected, unless that is a local socket; if the role may see it.
    pub address: Option<String>,
    /// The number of the definition of the saga that it has.
    pub definition: i32,
}

/// A message that waits for the others of its set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JoinWait {
    /// The saga that joins it, by its first name.
    pub saga: String,
    /// The key that the messages of a set have in common.
    pub key: String,
    /// The time since which it waits.
    #[serde(serialize_with = "json::time")]
    pub since: SystemTime,
    /// The time at which it fails to be joined, if it has a limit.
    #[serde(serialize_with = "json::time")]
    pub until: Option<SystemTime>,
    /// The topics of the waiting messages with that key, its own included. The saga needs one of each of its topics.
    pub present: Vec<String>,
    /// The topics of which the set has no message yet, in the definitions of the living programs: none if no program has
    /// the saga.
    pub missing: Vec<String>,
}

impl JoinWait {
    /// Sets what is missing. `collector` is the handler of the run: it has a pair for each topic of the set.
    pub(crate) fn complete(&mut self, collector: &str, workers: &[RegisteredWorker]) {
        let sagas = workers.iter().filter(|worker| worker.is_alive).flat_map(|worker| &worker.sagas);
        let topics = sagas.filter(|saga| saga.handler == collector).map(|saga| &saga.topic);
        let missing: BTreeSet<_> = topics.filter(|topic| !self.present.contains(topic)).cloned().collect();
        self.missing = missing.into_iter().collect();
    }
}

impl RunExplanation {
    /// The requests of an operator to offer for the run: those of [`RunSummary::requests`], as far as they come first.
    ///
    /// None is among them if a decision about runs below it comes first, although the run accepts `skip` and `resolve` then.
    pub fn requests(&self) -> impl Iterator<Item = RunRequest> {
        let is_decided_below = match &self.reason {
            WaitReason::Operator { failed_below, .. } => !failed_below.is_empty(),
            _ => false,
        };
        self.run.requests().filter(move |_| !is_decided_below)
    }

    /// The kind of wait; `None` if it waits for nothing.
    pub fn kind(&self) -> Option<WaitKind> {
        match &self.reason {
            WaitReason::Ended | WaitReason::Executing { .. } => None,
            WaitReason::Children { .. } => Some(WaitKind::Children),
            WaitReason::Signal { .. } => Some(WaitKind::Signal),
            WaitReason::Time { .. } => Some(WaitKind::Time),
            WaitReason::Slot { .. } => Some(WaitKind::Slot),
            WaitReason::Limit { .. } | WaitReason::Rate { .. } => Some(WaitKind::Limit),
            WaitReason::Pause { .. } => Some(WaitKind::Pause),
            WaitReason::Program { .. } => Some(WaitKind::Program),
            WaitReason::Operator { .. } => Some(WaitKind::Operator),
        }
    }
}
