//! Explanations in words.

use std::fmt;
use std::time::SystemTime;

use scoop_core::{Escaped, Priority};

use super::{COUNT_MAX, Delay, Explanation, FailedBelow, LimitKey, RunExplanation, WaitReason, WorkerInfo};
use crate::runs::{RunSummary, WaitKind};
use scoop_runtime::internal::{ahead, strategy};
use scoop_runtime::shown::{humane, utc};
use scoop_runtime::{Pause, RunId, RunPhase, RunRequest};

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
                match self.run.deadline.is_some_and(|deadline| deadline <= self.read_at) {
                    true => "Its deadline is over: it gives up when the step ends.".into(),
                    false => "It goes on when the step ends.".into(),
                }
            }
            WaitReason::Executing { .. } => {
                "Another worker takes it over; if none lives, start a program that has its saga.".into()
            }
            WaitReason::Children { strategies, .. } if !strategies.is_empty() => {
                "It goes on when its strategies allow that, and all children have ended that they do not decide about.".into()
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
            WaitReason::Operator { failed_below, has_more_below, .. } if !failed_below.is_empty() => {
                let runs: Vec<_> = failed_below.iter().map(ToString::to_string).collect();
                format!(
                    "An operator has to decide about what failed below it: {} {}{}.",
                    choice(RunRequest::REPAIRS.into_iter()),
                    runs.join(", then "),
                    if *has_more_below { ", then more runs" } else { "" }
                )
            }
            WaitReason::Operator { .. } => {
                format!("An operator has to decide: {} the run {run}.", choice(self.requests()))
            }
        }
    }
}

/// The repairs among these requests, as "`retry`, `skip` or `resolve`".
fn choice(requests: impl Iterator<Item = RunRequest>) -> String {
    let repairs = requests.filter(|request| request.is_repair());
    let mut repairs: Vec<_> = repairs.map(|request| format!("`{request}`")).collect();
    let last = repairs.pop().unwrap_or_default();
    if repairs.is_empty() { last } else { format!("{} or {last}", repairs.join(", ")) }
}

impl fmt::Display for FailedBelow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run {} of `{}`", self.run, Escaped(&self.handler))
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
            Self::Start => "begins at",
            Self::Sleep => "sleeps until",
            Self::Backoff => "is retried at",
        })
    }
}

/// A count that may stand for more.
struct Count(usize, &'static str, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, one, many) = self;
        write!(f, "{} {}", OrMore(*count), if *count == 1 { one } else { many })
    }
}

/// The number of such a count.
struct OrMore(usize);

impl fmt::Display for OrMore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, if self.0 >= COUNT_MAX { " or more" } else { "" })
    }
}

impl RunExplanation {
    /// What it waits for, without a full stop.
    fn write_reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = Some(self.read_at);
        let since = self.run.since;
        let long = self.read_at.duration_since(since).map(humane).unwrap_or_else(|_| "0 ms".into());
        match &self.reason {
            WaitReason::Ended => {
                let ended = match self.run.phase {
                    RunPhase::Committed => "committed",
                    _ => "was rolled back",
                };
                write!(f, "{ended} at {}", utc(since))?;
                self.run.settled().map_or(Ok(()), |settled| write!(f, ", {settled}"))
            }
            WaitReason::Executing { worker: Some(worker) } => {
                write!(f, "is executed by {worker}; its last event was {long} ago")
            }
            WaitReason::Executing { worker: None } => {
                write!(
                    f,
                    "was executed by a worker that is not registered any more; its last event was {long} ago"
                )
            }
            // It waits for its children before it goes on, and for those without which it has gone on before it rolls back.
            WaitReason::Children { unfinished: 0, .. } if self.run.rolling_back => {
                write!(
                    f,
                    "waits for handlers that a strategy had left under way, which are cancelled, for {long}"
                )
            }
            WaitReason::Children { unfinished, blocking, blocking_count, strategies } => {
                let children = Count(*unfinished, "child", "children");
                write!(f, "waits for {children}, for {long}")?;
                for message in strategies {
                    write!(f, "; by its strategy for {}", strategy(message, now))?;
                }
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
                until.map_or(Ok(()), |until| write!(f, ", until {} at the latest", ahead(until, now)))?;
                self.run.reason.as_ref().map_or(Ok(()), |why| write!(f, "; {}", Escaped(why)))
            }
            WaitReason::Time { until, delay } => {
                write!(f, "{delay} {}; ", ahead(*until, now))?;
                match delay {
                    Delay::Start => write!(f, "it has waited for {long}"),
                    Delay::Sleep => write!(f, "it has slept for {long}"),
                    Delay::Backoff => write!(f, "its last event was {long} ago"),
                }
            }
            WaitReason::Slot { ahead, queued, is_suspect, workers } => {
                let workers = Count(workers.len(), "worker has", "workers have");
                write!(f, "waits for a free slot, for {long}: {workers} its saga, ")?;
                write!(
                    f,
                    "and {} ahead of it in its queue of {}",
                    Count(*ahead, "run is", "runs are"),
                    OrMore(*queued)
                )?;
                let suspicion = ". It may have crashed its previous workers, and each worker executes one such run at a time";
                f.write_str(if *is_suspect { suspicion } else { "" })
            }
            WaitReason::Limit { concurrency, serial, key, holders, ahead, queued } => {
                let handler = Escaped(&self.run.handler);
                write!(f, "waits for the limit of `{handler}`")?;
                write_key(f, key.as_ref())?;
                let most = Count(*concurrency as usize, "run", "runs");
                let until = if *serial { "until its end" } else { "at a time" };
                write!(f, ", for {long}: at most {most} {until}, ")?;
                let before = Count(*ahead, "run is", "runs are");
                write!(f, "and {before} ahead of it in its queue of {}", OrMore(*queued))?;
                let list: Vec<_> = holders.iter().map(|(run, _)| run.to_string()).collect();
                match (serial, &holders[..]) {
                    (_, []) => Ok(()),
                    (false, _) => write!(f, ". In execution: {}", list.join(", ")),
                    (true, _) => write_holders(f, holders),
                }
            }
            WaitReason::Rate { runs, period, key, opens_at, ahead: before, queued } => {
                write!(f, "waits for the rate of `{}`", Escaped(&self.run.handler))?;
                write_key(f, key.as_ref())?;
                let runs = Count(*runs as usize, "run begins", "runs begin");
                write!(f, ", for {long}: {runs} within {}, ", humane(*period))?;
                let before = Count(*before, "run is", "runs are");
                write!(f, "and {before} ahead of it in its queue of {}", OrMore(*queued))?;
                opens_at.map_or(Ok(()), |at| write!(f, ". The next one may begin at {}", ahead(at, now)))
            }
            WaitReason::Pause { pauses } => {
                // It may have waited for something else before the pause.
                let since = pauses.iter().map(|pause| pause.since).min().map_or(since, |at| at.max(since));
                let long = self.read_at.duration_since(since).unwrap_or_default();
                write!(f, "waits for the end of a pause, for {}", humane(long))?;
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

/// The runs that have to end first.
fn write_holders(f: &mut fmt::Formatter<'_>, holders: &[(RunId, RunPhase)]) -> fmt::Result {
    holders.iter().try_for_each(|(run, phase)| write!(f, ". Before it: {run}, now {phase}"))
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
        (Some(WaitKind::Limit), ..) => write!(f, "has been waiting for a limit of its saga for {long}"),
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
            // The failure of a failed rollback is not the reason for it.
            let why = failure.as_ref().filter(|_| self.run.phase != RunPhase::RollbackFailed);
            let why = why.map_or_else(String::new, |why| format!(", because of {why}"));
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
            f.write_str(" It gives up as soon as it can: it ")?;
            match (self.cancelled, deadline.filter(|deadline| *deadline <= self.read_at)) {
                (true, None) => f.write_str("was cancelled.")?,
                (true, Some(missed)) => {
                    write!(f, "was cancelled, and has missed its deadline, {}.", utc(missed))?;
                }
                (false, Some(missed)) => write!(f, "has missed its deadline, {}.", utc(missed))?,
                // The record has neither: the row was changed, or the clock was set back.
                (false, None) => f.write_str("was cancelled, or has missed its deadline.")?,
            }
        } else if let Some(missed) = deadline.filter(|deadline| *deadline <= self.read_at) {
            write!(f, " It has missed its deadline, {}.", utc(missed))?;
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
                "{} is {}: no handler was subscribed when it was launched, or its runs were cancelled or deleted \
                 before they began.",
                self.id, self.named
            );
        }
        for (nth, run) in self.runs.iter().enumerate() {
            write!(f, "{}{run}", if nth == 0 { "" } else { "\n\n" })?;
        }
        Ok(())
    }
}
