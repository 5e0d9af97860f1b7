//! What a run waits for: a function of facts that the store has read.

use std::time::{Duration, SystemTime};

use scoop_core::wait::MessageWait;
use scoop_core::{Priority, SignalKey};
use time::OffsetDateTime;

use super::{Delay, FailedBelow, JoinWait, LimitKey, RunExplanation, WaitReason, WorkerInfo};
use crate::runs::{RunSummary, WaitKind};
use scoop_runtime::internal::system_time;
use scoop_runtime::{Limit, Pause, Rate, RunId, RunPhase};

/// The maximum number of runs in [`WaitReason::Children`].
pub(crate) const BLOCKING_MAX: usize = 10;

/// The maximum number of runs that are read for [`WaitReason::Operator`]: one more than it has.
pub(crate) const FAILED_BELOW_READ: usize = BLOCKING_MAX + 1;

/// The maximum number of runs that are read to find those of [`WaitReason::Children`].
pub(crate) const BELOW_MAX: usize = 500;

/// What the store knows of a run.
#[derive(Debug)]
pub(crate) struct RunFacts {
    pub(crate) run: RunSummary,
    pub(crate) giving_up: bool,
    /// Whether a cancellation is a reason for that.
    pub(crate) cancelled: bool,
    /// The definition under which it continues, if that is not the newest.
    pub(crate) definition: Option<i32>,
    pub(crate) is_suspect: bool,
    pub(crate) priority: Priority,
    /// The ready runs of its queue before it, and all.
    pub(crate) queue: (usize, usize),
    /// Its owner, or else the workers that have its saga.
    pub(crate) workers: Vec<WorkerInfo>,
    /// The pauses that cover it.
    pub(crate) pauses: Vec<Pause>,
    /// The limit of its saga, if it waits for that.
    pub(crate) limit: Option<LimitFacts>,
    /// The number of its unfinished children.
    pub(crate) children: usize,
    /// The messages whose handlers it waits for by a strategy.
    pub(crate) strategies: Vec<MessageWait>,
    /// Unfinished descendants, the nearest first.
    pub(crate) below: Vec<RunSummary>,
    /// The failed descendants that come first, if it is failed; [`FAILED_BELOW_READ`] at most.
    pub(crate) failed_below: Vec<FailedBelow>,
    pub(crate) join: Option<JoinWait>,
    pub(crate) read_at: SystemTime,
}

/// What the store knows of the limits for which a run waits.
#[derive(Debug)]
pub(crate) struct LimitFacts {
    pub(crate) concurrency: Option<Limit<u32>>,
    pub(crate) serial: bool,
    pub(crate) rate: Option<Limit<Rate>>,
    /// Its key, if a limit is by key.
    pub(crate) key: Option<LimitKey>,
    /// The runs that count with it.
    pub(crate) holders: Vec<(RunId, RunPhase)>,
    /// The time from which the rate admits a further run, if it admits none now.
    pub(crate) opens_at: Option<OffsetDateTime>,
}

impl LimitFacts {
    /// The rate if it admits no run now, or is the only limit; else the concurrency.
    fn reason(self, (ahead, queued): (usize, usize)) -> Option<WaitReason> {
        let Self { concurrency, serial, rate, key, mut holders, opens_at } = self;
        let key_of = |is_by_key: bool| key.clone().filter(|_| is_by_key);
        let Some(concurrency) = concurrency.filter(|_| opens_at.is_none()) else {
            return rate.map(|Limit { most: Rate { runs, period_ms, .. }, is_by_key, .. }| {
                WaitReason::Rate {
                    runs,
                    period: Duration::from_millis(period_ms),
                    key: key_of(is_by_key),
                    opens_at: opens_at.map(system_time),
                    ahead,
                    queued,
                }
            });
        };
        holders.truncate(BLOCKING_MAX);
        Some(WaitReason::Limit {
            concurrency: concurrency.most,
            serial,
            key: key_of(concurrency.is_by_key),
            holders,
            ahead,
            queued,
        })
    }
}

impl RunFacts {
    /// What is known of a run that has ended.
    pub(crate) fn ended(run: RunSummary, read_at: SystemTime) -> Self {
        Self {
            run,
            giving_up: false,
            cancelled: false,
            definition: None,
            is_suspect: false,
            priority: Priority::Normal,
            queue: (0, 0),
            workers: vec![],
            pauses: vec![],
            limit: None,
            children: 0,
            strategies: vec![],
            below: vec![],
            failed_below: vec![],
            join: None,
            read_at,
        }
    }

    pub(crate) fn explain(self) -> RunExplanation {
        let Self {
            run,
            giving_up,
            cancelled,
            definition,
            is_suspect,
            priority,
            queue,
            workers,
            pauses,
            limit,
            children,
            strategies,
            below,
            mut failed_below,
            join,
            read_at,
        } = self;
        let can_execute = |worker: &WorkerInfo| {
            worker.is_alive && definition.is_none_or(|definition| worker.definition == definition)
        };
        let reason = match (run.phase, run.waits_for, limit) {
            (phase, ..) if phase.is_finished() => WaitReason::Ended,
            (RunPhase::Waiting, ..) => blocked(children, below, strategies),
            (_, Some(WaitKind::Operator), _) => {
                let first = failed_below.first().and_then(|below| below.failure.as_ref());
                let first = first.map(ToString::to_string);
                let failure = run.failure.as_ref().map(ToString::to_string);
                let has_more_below = cut(&mut failed_below);
                WaitReason::Operator {
                    why: first.or(run.reason.clone()).or(failure).unwrap_or_default(),
                    failed_below,
                    has_more_below,
                }
            }
            (RunPhase::Running, ..) => WaitReason::Executing { worker: workers.into_iter().next() },
            (_, Some(WaitKind::Signal), _) if run.awaits.is_some() => {
                let signal =
                    run.awaits.clone().unwrap_or(SignalKey { name: String::new(), key: String::new() });
                // The end of that year stands for a wait without a limit.
                let is_limit = |until: &SystemTime| OffsetDateTime::from(*until).year() < 9999;
                WaitReason::Signal { signal, until: run.wakes_at.filter(is_limit) }
            }
            (phase, Some(WaitKind::Time | WaitKind::Signal), _) => WaitReason::Time {
                until: run.wakes_at.unwrap_or(run.since),
                delay: match phase {
                    RunPhase::Pending => Delay::Start,
                    RunPhase::Retrying => Delay::Backoff,
                    _ => Delay::Sleep,
                },
            },
            (_, Some(WaitKind::Pause), _) => WaitReason::Pause { pauses: pauses.clone() },
            (RunPhase::Stuck, ..) => WaitReason::Program { definition, why: run.reason.clone() },
            _ if !workers.iter().any(can_execute) => WaitReason::Program { definition, why: None },
            (_, waits_for, limit) => {
                let limit = limit.filter(|_| waits_for == Some(WaitKind::Limit));
                limit.and_then(|limit| limit.reason(queue)).unwrap_or_else(|| WaitReason::Slot {
                    ahead: queue.0,
                    queued: queue.1,
                    is_suspect,
                    workers: workers.into_iter().filter(can_execute).collect(),
                })
            }
        };
        RunExplanation { run, reason, priority, giving_up, cancelled, pauses, join, read_at }
    }
}

/// Cuts a list to the length that is shown, and tells whether it was longer.
fn cut(runs: &mut Vec<FailedBelow>) -> bool {
    let is_longer = runs.len() > BLOCKING_MAX;
    runs.truncate(BLOCKING_MAX);
    is_longer
}

/// The runs that a parent really waits for: those of its descendants that wait for no child.
fn blocked(unfinished: usize, below: Vec<RunSummary>, strategies: Vec<MessageWait>) -> WaitReason {
    let mut blocking: Vec<_> = below.into_iter().filter(|run| run.phase != RunPhase::Waiting).collect();
    blocking.sort_by_key(|run| {
        let needs_help =
            matches!(run.waits_for, Some(WaitKind::Operator | WaitKind::Program | WaitKind::Pause));
        (!needs_help, run.since)
    });
    let blocking_count = blocking.len();
    blocking.truncate(BLOCKING_MAX);
    WaitReason::Children { unfinished, blocking, blocking_count, strategies }
}
