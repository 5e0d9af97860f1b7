//! Runs and their states, as the store passes them to the engine and gets them back.

use std::collections::BTreeMap;

use scoop_core::wait::WaitedChild;
use scoop_core::{
    Context, Direction, Entry, Failure, Lineage, RecordedStep, RollbackProgress, Run, SignalKey,
    TraceContext, Wait, Window,
};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::requests::RequestTarget;
use crate::model::handlers::GoneHandler;

/// A run under a claim. A statement changes nothing if that claim no longer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimKey {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    pub(crate) epoch: i64,
}

/// A worker that claims runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimer<'a> {
    pub(crate) worker: Uuid,
    pub(crate) identifier: &'a str,
}

/// The wakeable parents that are claimed or committed by the same statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WakeOptions {
    /// So many of the first parents may be claimed.
    pub(crate) slots: usize,
    /// Whether parents without a step left commit.
    pub(crate) commits: bool,
}

#[derive(Debug)]
pub(crate) struct ClaimedRun {
    pub(crate) key: ClaimKey,
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) payload: Value,
    /// Failed attempts since the last event that do not count as retries.
    pub(crate) attempts: i32,
    /// Retries since the last event, after failures that did not count.
    pub(crate) retries: u32,
    /// The definitions of the programs that made the attempts, the newest one last. Stale if there were none.
    pub(crate) tried_under: Vec<i32>,
    pub(crate) newest_failure: Option<String>,
    pub(crate) flags: HierarchyFlags,
    /// When it was claimed for the first time.
    pub(crate) began_at: OffsetDateTime,
    /// Whether it may have to give up.
    pub(crate) overdue: bool,
    pub(crate) definition: Option<i32>,
    /// The definition that it is reserved for; 0 for none.
    pub(crate) reserved_for: i32,
    /// The key under which it counts for the limit of its saga.
    pub(crate) limit_key: Option<String>,
    /// The span that has sent the signal with which it goes on, if it goes on with one.
    pub(crate) signalled_by: Option<TraceContext>,
    /// What it waits for, while strategies decide about messages that it has launched, or once one of these has said that a
    /// launch has failed.
    pub(crate) wait: Option<Wait>,
    pub(crate) run: Run,
}

/// What strategies have decided about the messages that a run waits for.
#[derive(Debug, Default, Serialize)]
pub(crate) struct WaitDecision {
    /// The messages of which it waits for no handler any more.
    pub(crate) gone_on: Vec<Uuid>,
    /// The messages of which those runs are dropped that have not begun.
    pub(crate) closed: Vec<Uuid>,
    /// The messages that go to handlers which have registered since the launch.
    pub(crate) late: Vec<LateDelivery>,
    /// What is left of the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait: Option<Wait>,
    /// The strategies decide again when at most so many children have not ended; without it, the run waits for all that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) children: Option<i32>,
    /// And at this time at the latest.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<OffsetDateTime>,
}

/// A delivery of a message to the handlers that have registered since its launch.
#[derive(Debug, Serialize)]
pub(crate) struct LateDelivery {
    pub(crate) message: Uuid,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) give_up_at: Option<OffsetDateTime>,
}

/// The runs of messages for which strategies decide.
#[derive(Debug, Default)]
pub(crate) struct WaitedChildren {
    pub(crate) runs: Vec<LaunchedRun>,
    /// How many children of the launcher have not ended, those of other messages included.
    pub(crate) unfinished: i32,
}

/// An unfinished run of a message, for which the launcher of that does not wait.
#[derive(Debug)]
pub(crate) struct LeftRun {
    pub(crate) target: RequestTarget,
    pub(crate) gives_up: bool,
    /// For how many seconds it has recorded no event.
    pub(crate) rests: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct LaunchedRun {
    pub(crate) message: Uuid,
    pub(crate) lineage: Lineage,
    /// What became of it so far.
    pub(crate) child: WaitedChild,
}

/// What a run is in its hierarchy: whether a parent waits for it, and whether it belongs to a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HierarchyFlags {
    /// A parent run waits for it.
    pub(crate) has_parent: bool,
    /// It belongs to a rollback, its own or that of an ancestor. It cannot be cancelled.
    pub(crate) in_rollback: bool,
}

impl HierarchyFlags {
    pub(crate) fn direction(self, run: &Run) -> Direction {
        Direction::backward_if(self.in_rollback || run.is_backward())
    }
}

/// A run of a claim that this worker cannot work on.
#[derive(Debug)]
pub(crate) enum Unclaimed {
    /// It was claimed, but this program cannot read its record.
    Unreadable { key: ClaimKey, handler: String, why: String },
    /// The database refuses its claim: it is stuck.
    Refused { root: Uuid, id: Uuid, why: String },
}

pub(crate) fn timestamps<S: serde::Serializer>(
    times: &[OffsetDateTime],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Timestamp(#[serde(with = "time::serde::rfc3339")] OffsetDateTime);
    serializer.collect_seq(times.iter().copied().map(Timestamp))
}

/// A run of which a child has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParentRef {
    /// Its hierarchy.
    pub root: Uuid,
    /// The run.
    pub id: Uuid,
    /// The time of the child's last event.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
}

/// The runs that wait for no child any more.
#[derive(Default)]
pub(crate) struct Woken {
    /// The handlers of the runs that are ready.
    pub(crate) handlers: Vec<String>,
    /// Whether one of them is ready only when the time is over for which it waits.
    pub(crate) sleeps: bool,
    pub(crate) awaited: Vec<SignalKey>,
    pub(crate) claimed: Vec<Result<ClaimedRun, Unclaimed>>,
    /// The runs committed by the same statement.
    pub(crate) committed: Vec<CommittedParent>,
}

/// A run that has committed when its last child did, as no step was left.
#[derive(Debug)]
pub(crate) struct CommittedParent {
    pub(crate) root: Uuid,
    /// The run of which a child ended with that.
    pub(crate) parent: Option<ParentRef>,
    /// Whether it has handled the message of the hierarchy.
    pub(crate) is_first: bool,
    pub(crate) handler: String,
    /// The time from its beginning to its end.
    pub(crate) duration: time::Duration,
}

/// The step of the failed attempts since the last event, compared with that of the newest attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormerAttempts {
    OfSameStep,
    OfOtherStep,
}

/// A run that is handed back without a settlement.
pub(crate) struct Release {
    pub(crate) key: ClaimKey,
    /// How long it cannot be claimed.
    pub(crate) pause_seconds: f64,
    /// The cause; `None` if it is merely handed back.
    pub(crate) reason: Option<String>,
    /// Whether the attempt counts as a retry that the step is granted.
    pub(crate) granted: bool,
    /// The definition of the program; `None` if it does not have the saga.
    pub(crate) definition: Option<i32>,
    pub(crate) former_attempts: FormerAttempts,
}

impl Release {
    /// Hands it back without a failed attempt.
    pub(crate) fn at_once(key: ClaimKey) -> Self {
        Self {
            key,
            pause_seconds: 0.0,
            reason: None,
            granted: false,
            definition: None,
            former_attempts: FormerAttempts::OfSameStep,
        }
    }

    /// Hands it back after a failed attempt.
    pub(crate) fn after(key: ClaimKey, pause_seconds: f64, reason: String) -> Self {
        Self { pause_seconds, reason: Some(reason.replace('\0', "")), ..Self::at_once(key) }
    }
}

/// Why a run has to give up.
pub(crate) struct GiveUpReasons {
    /// The requests to it or to its ancestors.
    pub(crate) requests: Vec<Failure>,
    pub(crate) context: Context,
    pub(crate) now: OffsetDateTime,
    /// Earlier deadlines do not count, if it belongs to a rollback.
    pub(crate) since: Option<OffsetDateTime>,
}

impl GiveUpReasons {
    /// The failures of a run that has to give up.
    pub(crate) fn failures(self, run: &Run, flags: HierarchyFlags) -> Vec<Failure> {
        let direction = flags.direction(run);
        let mut reasons = self.requests;
        reasons.extend(self.context.missed_deadlines(direction, self.now, self.since, &run.source));
        if reasons.is_empty() {
            reasons.push(Failure::new("GaveUp", "cancelled without a recorded reason", &run.source));
        }
        reasons
    }
}

/// The runs that became free.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Freed {
    pub(crate) runs: usize,
    /// The stuck ones of the freed runs, with their hierarchies.
    pub(crate) stuck: Vec<(Uuid, Uuid)>,
    pub(crate) retired: Vec<GoneHandler>,
}

/// The dead workers that were deleted.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Reaped {
    pub(crate) workers: usize,
    pub(crate) freed: Freed,
}

#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Reconciled {
    pub(crate) freed: Freed,
    /// The handlers of the runs that were waiting although no child was left, and are ready now.
    pub(crate) woken: Vec<String>,
}

/// How many of the failed runs that come before a failed one are named.
pub const FIRST_MAX: u8 = 10;

/// How many attempts of a run may have an unknown result before its next event; with the last one the run is stuck.
/// With the pauses of the engine that takes about a minute or more.
pub const UNKNOWN_MAX: i32 = 12;

/// The reason of a run whose last attempt ended with its worker.
pub(crate) const WORKER_GONE: &str = "the worker that executed it ended";

/// The reason of a run whose last attempt ended without an answer of the database, or in a panic of the worker.
pub(crate) const ANSWER_LOST: &str = "the result of the last attempt is unknown";

/// The reason of a run that is stuck because of them.
pub(crate) const UNKNOWN_TOO_OFTEN: &str = "the results of 12 of its attempts are unknown: each time the worker ended or \
    panicked, or the answer of the database was lost; see the logs. `operate().failures().retry` makes it run again";

/// The newest part of a history, or a window of it.
#[derive(Default)]
pub(crate) struct RollbackHistory {
    pub(crate) progress: RollbackProgress,
    /// The window that the newest part is in, if the history is long.
    pub(crate) window: Option<Window>,
    /// The entries of that window; without one, the newest entries.
    pub(crate) entries: Vec<Entry>,
    /// The outputs of the steps, if there are no more entries, and the run has had one execution.
    pub(crate) outputs: BTreeMap<String, Value>,
    /// The newest execution, if it is not the first one.
    pub(crate) execution: Option<ExecutionHistory>,
}

pub(crate) struct ExecutionHistory {
    /// The time of the SUSPENDED before it, in microseconds since 1970.
    pub(crate) after: i64,
    pub(crate) suspensions: u32,
    pub(crate) number: u32,
    /// Its message.
    pub(crate) payload: Value,
}

/// The requested values of a run.
#[derive(Debug, Default)]
pub(crate) struct ValueQuery {
    pub(crate) names: Vec<String>,
    /// Of each of these ranges, from a name to another of the same length, the one with the last name.
    pub(crate) newest: Vec<(String, String)>,
}

/// In microseconds since 1970.
pub(crate) fn micros_of(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

pub(super) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

/// The length at which an unreadable value is cut.
const SHOWN_CHARS_MAX: usize = 200;

/// The failure; or a substitute, and the reason why it cannot be read.
pub(crate) fn readable(exception: Value) -> (Option<Failure>, Option<String>) {
    let text = exception.to_string();
    match serde_json::from_value(exception) {
        Ok(failure) => (failure, None),
        Err(error) => {
            let shortened: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            let stand_in = Failure::new("Unreadable", &shortened, "unknown");
            (Some(stand_in), Some(format!("its failure is not as the protocol has it: {error}")))
        }
    }
}

/// What a worker has to do next.
#[derive(Debug)]
pub(crate) struct NextDue {
    /// The seconds until its queues or a waiting run have work, or a pause is over; negative if that is past.
    pub(crate) seconds: Option<f64>,
    pub(crate) is_pause_over: bool,
    pub(crate) is_worker_dead: bool,
    /// The topology, if this worker is registered.
    pub(crate) topology: Option<i64>,
    /// The suspect that has been ready longest.
    pub(crate) suspect: Option<Suspect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuspectClaim {
    Allowed,
    /// The worker executes another suspect, so suspects do not count as due.
    Deferred,
}

/// The beginning of a step that runs at most once.
#[derive(Clone, Debug)]
pub(crate) enum StepBeginning {
    /// By this claim.
    Now,
    /// An earlier claim has begun a step, and not completed it.
    Before(BegunStep),
}

/// A step that runs at most once and has begun.
#[derive(Clone, Debug)]
pub(crate) struct BegunStep {
    /// Its name in the program that began it.
    pub(crate) step: String,
    pub(crate) at: OffsetDateTime,
}

/// A pending run that has to give up, and whose saga no living worker has.
#[derive(Clone, Debug)]
pub(crate) struct OverdueRun {
    /// The run, to be claimed by itself, as a suspect is.
    pub(crate) run: Suspect,
    /// The steps of the newest definition of its saga.
    pub(crate) steps: Vec<RecordedStep>,
}

/// A ready run that may be what ends its workers; see `scoop.is_suspect`.
#[derive(Clone, Debug)]
pub(crate) struct Suspect {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) reserved_for: i32,
    pub(crate) ready_at: OffsetDateTime,
}

impl Suspect {
    /// Its queue: topic, handler and reservation.
    pub(crate) fn queue(&self) -> (&str, &str, i32) {
        (&self.topic, &self.handler, self.reserved_for)
    }
}
