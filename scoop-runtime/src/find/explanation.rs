//! Why a run does not go on: what it waits for, and what would end that.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime};

use scoop_core::{Escaped, Priority, SignalKey};
use time::OffsetDateTime;
use uuid::Uuid;

use super::run::{RunPhase, RunSummary, WaitKind};
use crate::saga::limits::{Limit, Rate};
use crate::util::shown::{ahead, humane, system_time, utc};
use crate::{HierarchyId, Named, Pause, RunId};

/// The maximum value of a count: it stands for so many or more.
pub(crate) const COUNT_MAX: usize = 1_000;

/// The maximum number of runs in [`WaitReason::Children`].
pub(crate) const BLOCKING_MAX: usize = 10;

/// The maximum number of runs that are read to find them.
pub(crate) const BELOW_MAX: usize = 500;

/// What the runs of a hierarchy, of a message, or one run wait for. Display it for a paragraph on each run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The id that was asked about.
    pub id: Uuid,
    /// What it names.
    pub named: Named,
    /// The hierarchy.
    pub hierarchy: HierarchyId,
    /// The run itself; or the runs of the message, or of the message that started the hierarchy: a few of them if there
    /// are many. Empty if the message has no handler.
    pub runs: Vec<RunExplanation>,
    /// The time at which this was read, by the clock of the database.
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
    /// The pauses that cover it, longest first; also while it waits for something else. Empty if it has ended.
    pub pauses: Vec<Pause>,
    /// The message of this run waits for others of its set, if a saga joins it.
    pub join: Option<JoinWait>,
    /// The time at which this was read, by the clock of the database.
    pub read_at: SystemTime,
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WaitReason {
    /// Nothing: it has ended.
    Ended,
    /// A worker executes it.
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
    },
    /// A signal.
    Signal {
        /// The signal, with the key.
        signal: SignalKey,
        /// The time at which the wait ends in any case.
        until: Option<SystemTime>,
    },
    /// A time.
    Time {
        /// That time.
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
        is_suspect: bool,
        /// The living workers that can execute it.
        workers: Vec<WorkerInfo>,
    },
    /// The end of another run, since the limit of its saga is reached.
    Limit {
        /// How many runs are executed at once: of the saga, or of each key.
        concurrency: u32,
        /// Its key, if the limit is by key.
        key: Option<LimitKey>,
        /// The runs in execution that count with it, by their ids; ten at most.
        holders: Vec<RunId>,
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
        period: Duration,
        /// Its key, if the rate is by key.
        key: Option<LimitKey>,
        /// The time from which the next run may begin, unless it may now.
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
        /// Why.
        why: String,
        /// The failed runs below it that an operator has to retry, skip or resolve first; ten at most. Empty if the
        /// decision is about the run itself.
        failed_below: Vec<RunId>,
    },
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Its identifier in events.
    pub identifier: String,
    /// The time since which it runs.
    pub started_at: SystemTime,
    /// Whether its session lives. If it does not, another worker takes its runs over.
    pub is_alive: bool,
    /// The name of its connection, which begins with that of the program; if the role may see it.
    pub application: Option<String>,
    /// The address from which it has connected, unless that is a local socket; if the role may see it.
    pub address: Option<String>,
    /// The number of the definition of the saga that it has.
    pub definition: i32,
}

/// A registered worker, with its sagas.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredWorker {
    /// Its identifier in events.
    pub identifier: String,
    /// The time since which it runs.
    pub started_at: SystemTime,
    /// Whether its session lives. If it does not, another worker takes its runs over, and its registration is deleted.
    pub is_alive: bool,
    /// The name of its connection, which begins with that of the program; if the role may see it.
    pub application: Option<String>,
    /// The address from which it has connected, unless that is a local socket; if the role may see it.
    pub address: Option<String>,
    /// Its sagas.
    pub sagas: Vec<WorkerSaga>,
}

/// A saga that a worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSaga {
    /// The topic that it is subscribed to.
    pub topic: String,
    /// The saga, by its stored name.
    pub handler: String,
    /// The number of the definition of the saga.
    pub definition: i32,
}

impl WorkerSaga {
    /// The sagas in the lists of a row.
    pub(crate) fn of_lists(topics: Vec<String>, handlers: Vec<String>, definitions: Vec<i32>) -> Vec<Self> {
        let pairs = topics.into_iter().zip(handlers).zip(definitions);
        pairs.map(|((topic, handler), definition)| Self { topic, handler, definition }).collect()
    }
}

/// A message that waits for the others of its set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinWait {
    /// The saga that joins it, by its first name.
    pub saga: String,
    /// The key that the messages of a set have in common.
    pub key: String,
    /// The time since which it waits.
    pub since: SystemTime,
    /// The time at which it fails to be joined, if it has a limit.
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

/// What the store knows of a run.
#[derive(Debug)]
pub(crate) struct RunFacts {
    pub(crate) run: RunSummary,
    pub(crate) giving_up: bool,
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
    /// Unfinished descendants, the nearest first.
    pub(crate) below: Vec<RunSummary>,
    /// Failed descendants, on which an operator has to decide before.
    pub(crate) failed_below: Vec<Uuid>,
    pub(crate) join: Option<JoinWait>,
    pub(crate) read_at: SystemTime,
}

/// What the store knows of the limits for which a run waits.
#[derive(Debug)]
pub(crate) struct LimitFacts {
    pub(crate) concurrency: Option<Limit<u32>>,
    pub(crate) rate: Option<Limit<Rate>>,
    /// Its key, if a limit is by key.
    pub(crate) key: Option<LimitKey>,
    /// The runs in execution that count with it.
    pub(crate) holders: Vec<Uuid>,
    /// The time from which the rate admits a further run, if it admits none now.
    pub(crate) opens_at: Option<OffsetDateTime>,
}

impl LimitFacts {
    /// The rate if it admits no run now, or is the only limit; else the concurrency.
    fn reason(self, (ahead, queued): (usize, usize)) -> Option<WaitReason> {
        let Self { concurrency, rate, key, mut holders, opens_at } = self;
        let key_of = |is_by_key: bool| key.clone().filter(|_| is_by_key);
        let Some(concurrency) = concurrency.filter(|_| opens_at.is_none()) else {
            return rate.map(|Limit { most: Rate { runs, period_ms }, is_by_key }| WaitReason::Rate {
                runs,
                period: Duration::from_millis(period_ms),
                key: key_of(is_by_key),
                opens_at: opens_at.map(system_time),
                ahead,
                queued,
            });
        };
        holders.truncate(BLOCKING_MAX);
        Some(WaitReason::Limit {
            concurrency: concurrency.most,
            key: key_of(concurrency.is_by_key),
            holders: holders.into_iter().map(Into::into).collect(),
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
            definition: None,
            is_suspect: false,
            priority: Priority::Normal,
            queue: (0, 0),
            workers: vec![],
            pauses: vec![],
            limit: None,
            children: 0,
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
            definition,
            is_suspect,
            priority,
            queue,
            workers,
            pauses,
            limit,
            children,
            below,
            mut failed_below,
            join,
            read_at,
        } = self;
        let can_execute = |worker: &WorkerInfo| {
            worker.is_alive && definition.is_none_or(|definition| worker.definition == definition)
        };
        let reason = match (run.phase, run.waits_for, limit) {
            (phase, ..) if phase.is_finished() && phase != RunPhase::RollbackFailed => WaitReason::Ended,
            (RunPhase::RollbackFailed, ..) | (_, Some(WaitKind::Operator), _) => {
                let failure = run.failure.as_ref().map(ToString::to_string);
                failed_below.truncate(BLOCKING_MAX);
                WaitReason::Operator {
                    why: run.reason.clone().or(failure).unwrap_or_default(),
                    failed_below: failed_below.into_iter().map(Into::into).collect(),
                }
            }
            (RunPhase::Running, ..) => WaitReason::Executing { worker: workers.into_iter().next() },
            (_, Some(WaitKind::Children), _) => blocked(children, below),
            (_, Some(WaitKind::Signal), _) if run.awaits.is_some() => {
                let signal =
                    run.awaits.clone().unwrap_or(SignalKey { name: String::new(), key: String::new() });
                WaitReason::Signal { signal, until: run.wakes_at }
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
        RunExplanation { run, reason, priority, giving_up, pauses, join, read_at }
    }
}

/// The runs that a parent really waits for: those of its descendants that wait for no child.
fn blocked(unfinished: usize, below: Vec<RunSummary>) -> WaitReason {
    let mut blocking: Vec<_> =
        below.into_iter().filter(|run| run.waits_for != Some(WaitKind::Children)).collect();
    blocking.sort_by_key(|run| {
        let needs_help =
            matches!(run.waits_for, Some(WaitKind::Operator | WaitKind::Program | WaitKind::Pause));
        (!needs_help, run.since)
    });
    let blocking_count = blocking.len();
    blocking.truncate(BLOCKING_MAX);
    WaitReason::Children { unfinished, blocking, blocking_count }
}

impl WaitReason {
    /// The kind of wait; `None` if it waits for nothing.
    pub fn kind(&self) -> Option<WaitKind> {
        match self {
            Self::Ended | Self::Executing { .. } => None,
            Self::Children { .. } => Some(WaitKind::Children),
            Self::Signal { .. } => Some(WaitKind::Signal),
            Self::Time { .. } => Some(WaitKind::Time),
            Self::Slot { .. } => Some(WaitKind::Slot),
            Self::Limit { .. } | Self::Rate { .. } => Some(WaitKind::Limit),
            Self::Pause { .. } => Some(WaitKind::Pause),
            Self::Program { .. } => Some(WaitKind::Program),
            Self::Operator { .. } => Some(WaitKind::Operator),
        }
    }
}

impl RunExplanation {
    /// What would end the wait, in a sentence or two.
    pub fn ends_by(&self) -> String {
        match self.other_pauses() {
            [] => self.reason_ends_by(),
            [Pause { target, until: None, .. }] => {
                format!("{} Also, `resume` has to end the pause of {target}.", self.reason_ends_by())
            }
            [Pause { target, until: Some(_), .. }] => format!(
                "{} Also, `resume` has to end the pause of {target}, unless its time is over before.",
                self.reason_ends_by()
            ),
            _ => format!("{} Also, all of these pauses have to end.", self.reason_ends_by()),
        }
    }

    /// The pauses that cover it while it waits for something else.
    fn other_pauses(&self) -> &[Pause] {
        match self.reason {
            WaitReason::Pause { .. } | WaitReason::Ended => &[],
            _ => &self.pauses,
        }
    }

    fn reason_ends_by(&self) -> String {
        let RunSummary { run, handler, .. } = &self.run;
        let handler = Escaped(handler);
        match &self.reason {
            WaitReason::Ended => "Nothing is left to do.".into(),
            WaitReason::Executing { worker: Some(worker) } if worker.is_alive => {
                "It goes on when the step ends.".into()
            }
            WaitReason::Executing { .. } => {
                "Another worker takes it over; if none lives, start a program that has its saga.".into()
            }
            WaitReason::Children { .. } => "It goes on when all its children have ended.".into(),
            WaitReason::Signal { signal, until } => {
                let (name, key) = (Escaped(&signal.name), Escaped(&signal.key));
                let or = if until.is_some() { ", or at that time" } else { "" };
                format!("It goes on when the signal `{name}` is sent with the key `{key}`{or}.")
            }
            WaitReason::Time { .. } => "It goes on at that time.".into(),
            WaitReason::Slot { .. } => {
                "It goes on when a worker has a free slot; more programs or a higher concurrency make that \
                 earlier."
                    .into()
            }
            WaitReason::Limit { key: None, .. } => {
                format!("It goes on when runs of `{handler}` that are in execution end, wait or sleep.")
            }
            WaitReason::Limit { key: Some(_), .. } => {
                "It goes on when runs of its key that are in execution end, wait or sleep.".into()
            }
            WaitReason::Rate { key: None, .. } => {
                format!("It goes on when fewer runs of `{handler}` have begun within the period.")
            }
            WaitReason::Rate { key: Some(_), .. } => {
                "It goes on when fewer runs of its key have begun within the period.".into()
            }
            WaitReason::Pause { pauses } => match &pauses[..] {
                [Pause { target, until: None, .. }] => {
                    format!("It goes on when `resume` ends the pause of {target}.")
                }
                [Pause { target, until: Some(_), .. }] => {
                    format!("It goes on when `resume` ends the pause of {target}, or at that time.")
                }
                _ => "It goes on when all of these pauses have ended.".into(),
            },
            WaitReason::Program { definition: Some(definition), .. } => format!(
                "It goes on when a program starts whose saga `{handler}` has definition {definition} or can continue \
                 the run."
            ),
            WaitReason::Program { .. } => {
                format!(
                    "It goes on when a program starts that has saga `{handler}` and can continue the run."
                )
            }
            WaitReason::Operator { failed_below, .. } if !failed_below.is_empty() => {
                let runs: Vec<_> = failed_below.iter().map(ToString::to_string).collect();
                format!(
                    "An operator has to decide about what failed below it: `retry`, `skip` or `resolve` the run {}.",
                    runs.join(", then the run ")
                )
            }
            WaitReason::Operator { .. } => {
                format!("An operator has to decide: `retry`, `skip` or `resolve` the run {run}.")
            }
        }
    }
}

impl fmt::Display for WorkerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", Escaped(&self.identifier))?;
        match (&self.application, &self.address) {
            (Some(name), Some(address)) => write!(f, " ({} at {})", Escaped(name), Escaped(address))?,
            (Some(name), None) => write!(f, " ({})", Escaped(name))?,
            (None, Some(address)) => write!(f, " (at {})", Escaped(address))?,
            (None, None) => {}
        }
        f.write_str(if self.is_alive { "" } else { ", whose session is gone" })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "begins",
            Self::Sleep => "sleeps until",
            Self::Backoff => "is retried",
        })
    }
}

/// A count that may stand for more.
struct Count(usize, &'static str, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, one, many) = self;
        let or_more = if *count >= COUNT_MAX { " or more" } else { "" };
        write!(f, "{count}{or_more} {}", if *count == 1 { one } else { many })
    }
}

impl RunExplanation {
    /// What it waits for, without a full stop.
    fn write_reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = Some(self.read_at);
        let since = self.run.since;
        let long = self.read_at.duration_since(since).map(humane).unwrap_or_else(|_| "0 ms".into());
        match &self.reason {
            WaitReason::Ended => write!(f, "is {} since {}", self.run.phase, utc(since)),
            WaitReason::Executing { worker: Some(worker) } => {
                write!(f, "is executed by {worker}; its last event was {long} ago")
            }
            WaitReason::Executing { worker: None } => {
                write!(
                    f,
                    "was executed by a worker that is not registered any more; its last event was {long} ago"
                )
            }
            WaitReason::Children { unfinished, blocking, blocking_count } => {
                let children = Count(*unfinished, "child", "children");
                write!(f, "waits for {children}, for {long}")?;
                for (nth, run) in blocking.iter().enumerate() {
                    let before = if nth == 0 { ". Below it, " } else { "; " };
                    write!(f, "{before}run {} of `{}` ", run.run, Escaped(&run.handler))?;
                    write_blocker(f, run, self.read_at)?;
                }
                let more = blocking_count - blocking.len();
                if more > 0 { write!(f, "; and {}", Count(more, "other", "others")) } else { Ok(()) }
            }
            WaitReason::Signal { signal, until } => {
                let (name, key) = (Escaped(&signal.name), Escaped(&signal.key));
                write!(f, "awaits the signal `{name}` with the key `{key}`, for {long}")?;
                until.map_or(Ok(()), |until| write!(f, ", until {} at the latest", ahead(until, now)))
            }
            WaitReason::Time { until, delay: Delay::Sleep } => {
                write!(f, "sleeps until {}", ahead(*until, now))
            }
            WaitReason::Time { until, delay } => write!(f, "{delay} at {}", ahead(*until, now)),
            WaitReason::Slot { ahead, queued, is_suspect, workers } => {
                let workers = Count(workers.len(), "worker has", "workers have");
                write!(f, "waits for a free slot, for {long}: {workers} its saga, ")?;
                write!(
                    f,
                    "and {} ahead of it in its queue of {queued}",
                    Count(*ahead, "run is", "runs are")
                )?;
                let alone = ". It may be what ended its former workers, and each worker executes one such run at a time";
                f.write_str(if *is_suspect { alone } else { "" })
            }
            WaitReason::Limit { concurrency, key, holders, ahead, queued } => {
                let handler = Escaped(&self.run.handler);
                write!(f, "waits for the limit of `{handler}`")?;
                write_key(f, key.as_ref())?;
                let executed = Count(*concurrency as usize, "run is executed", "runs are executed");
                write!(f, ", for {long}: at most {executed} at once, ")?;
                let before = Count(*ahead, "run is", "runs are");
                write!(f, "and {before} ahead of it in its queue of {queued}")?;
                let holders: Vec<_> = holders.iter().map(ToString::to_string).collect();
                match holders.len() {
                    0 => Ok(()),
                    _ => write!(f, ". In execution: {}", holders.join(", ")),
                }
            }
            WaitReason::Rate { runs, period, key, opens_at, ahead: before, queued } => {
                write!(f, "waits for the rate of `{}`", Escaped(&self.run.handler))?;
                write_key(f, key.as_ref())?;
                let runs = Count(*runs as usize, "run begins", "runs begin");
                write!(f, ", for {long}: {runs} within {}, ", humane(*period))?;
                let before = Count(*before, "run is", "runs are");
                write!(f, "and {before} ahead of it in its queue of {queued}")?;
                opens_at.map_or(Ok(()), |at| write!(f, ". The next one may begin at {}", ahead(at, now)))
            }
            WaitReason::Pause { pauses } => {
                write!(f, "waits for the end of a pause, for {long}")?;
                for (nth, pause) in pauses.iter().enumerate() {
                    write!(f, "{}{}", if nth == 0 { ": " } else { "; " }, pause.in_words(now))?;
                }
                Ok(())
            }
            WaitReason::Program { why: Some(why), .. } => {
                write!(f, "waits for a program that can continue it, for {long}: {}", Escaped(why))
            }
            WaitReason::Program { definition, why: None } => {
                let handler = Escaped(&self.run.handler);
                write!(f, "waits for a program, for {long}: no living worker has saga `{handler}`")?;
                definition.map_or(Ok(()), |number| write!(f, " with definition {number}"))
            }
            WaitReason::Operator { why, .. } => {
                write!(f, "waits for an operator, for {long}: {}", Escaped(why))
            }
        }
    }
}

/// The key of a run under a limit, if it has one.
fn write_key(f: &mut fmt::Formatter<'_>, key: Option<&LimitKey>) -> fmt::Result {
    key.map_or(Ok(()), |LimitKey { from, key }| {
        write!(f, " for its key `{}` of `{}`", Escaped(key), Escaped(from))
    })
}

/// What a run waits for that others wait for, in a few words.
fn write_blocker(f: &mut fmt::Formatter<'_>, run: &RunSummary, now: SystemTime) -> fmt::Result {
    let long = now.duration_since(run.since).map(humane).unwrap_or_else(|_| "0 ms".into());
    match (run.waits_for, &run.awaits, run.wakes_at) {
        (None, ..) if run.phase == RunPhase::Running => write!(f, "has been running for {long}"),
        (Some(WaitKind::Signal), Some(signal), _) => {
            write!(f, "awaits the signal `{}` with the key `{}`", Escaped(&signal.name), Escaped(&signal.key))
        }
        (Some(WaitKind::Time), _, Some(until)) => {
            write!(f, "is {} until {}", run.phase, ahead(until, Some(now)))
        }
        (Some(WaitKind::Slot), ..) => write!(f, "has been waiting for a slot for {long}"),
        (Some(WaitKind::Limit), ..) => write!(f, "has been waiting for the limit of its saga for {long}"),
        (Some(WaitKind::Pause), ..) => write!(f, "has been waiting for the end of a pause for {long}"),
        (Some(WaitKind::Program), ..) => write!(f, "has been waiting for a program for {long}"),
        (Some(WaitKind::Operator), ..) => write!(f, "has been waiting for an operator for {long}"),
        _ => write!(f, "has been {} for {long}", run.phase),
    }
}

impl fmt::Display for RunExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunSummary { run, handler, rolling_back, attempts, reason, failure, deadline, .. } = &self.run;
        write!(f, "Run {run} of `{}` ", Escaped(handler))?;
        self.write_reason(f)?;
        f.write_str(".")?;
        if self.priority != Priority::Normal {
            write!(f, " Its priority is {}.", self.priority.name())?;
        }
        if *rolling_back {
            let why = failure.as_ref().map_or_else(String::new, |why| format!(", because of {why}"));
            write!(f, " It is rolling back{why}.")?;
        } else if let (RunPhase::RolledBack, Some(why)) = (self.run.phase, failure) {
            write!(f, " The reason is {why}.")?;
        }
        if *attempts > 0 {
            let attempts = Count(*attempts as usize, "attempt has", "attempts have");
            write!(f, " {attempts} failed")?;
            let last =
                reason.as_ref().map_or_else(String::new, |why| format!(", the last one: {}", Escaped(why)));
            write!(f, "{last}.")?;
        }
        if self.giving_up {
            f.write_str(" It gives up as soon as it can: it was cancelled, or has missed its deadline.")?;
        } else if let Some(deadline) = deadline {
            write!(f, " Its deadline is {}.", ahead(*deadline, Some(self.read_at)))?;
        }
        for pause in self.other_pauses() {
            write!(f, " No step of it begins now: {}.", pause.in_words(Some(self.read_at)))?;
        }
        if let Some(join) = &self.join {
            let (saga, key) = (Escaped(&join.saga), Escaped(&join.key));
            write!(f, " Its message waits to be joined by `{saga}` with others of the key `{key}` since ")?;
            write!(f, "{}; there are messages of {}", utc(join.since), Escaped(&join.present.join(", ")))?;
            if !join.missing.is_empty() {
                write!(f, ", and none of {}", Escaped(&join.missing.join(", ")))?;
            }
            let until = join.until.map(|until| format!(", until {}", ahead(until, Some(self.read_at))));
            write!(f, "{}.", until.unwrap_or_default())?;
        }
        write!(f, " {}", self.ends_by())
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.runs.is_empty() {
            return write!(
                f,
                "{} is {}: no handler was subscribed when it was launched.",
                self.id, self.named
            );
        }
        for (nth, run) in self.runs.iter().enumerate() {
            write!(f, "{}{run}", if nth == 0 { "" } else { "\n\n" })?;
        }
        Ok(())
    }
}

impl Named {
    /// The hierarchy of the object of this id, and its runs, as far as they are named.
    pub(crate) fn runs_of(&self, id: Uuid) -> (HierarchyId, Vec<RunId>) {
        let ids = |runs: &[(RunId, String)]| runs.iter().map(|(run, _)| *run).collect();
        match self {
            Self::Hierarchy { runs } => (id.into(), ids(runs)),
            Self::Run { hierarchy, .. } => (*hierarchy, vec![id.into()]),
            Self::Message { hierarchy, runs } => (*hierarchy, ids(runs)),
        }
    }
}
