//! `scoop explain`

use std::collections::BTreeSet;

use scoop_core::Priority;
use scoop_core::wait::MessageWait;
use scoop_operate::{Delay, Explanation, FailedBelow, OperateExt as _, RunExplanation, WaitKind, WaitReason};
use scoop_runtime::{RunId, RunRequest, Scoop};
use serde::Serialize;

use super::pause::PauseRecord;
use super::records::{FailureRecord, RunRecord, SignalRecord, WorkerRecord};
use super::run_requests::repair_commands;
use super::target::Target;
use crate::fault::{Exit, Fault};
use crate::output::Output;
use crate::times::{utc, utc_if_limited};

/// Explain what a run waits for, since when, and what would end that
///
/// A run that waits for its children is followed to the runs below it that really block it. Of a hierarchy or a message a
/// few runs are explained.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    target: Target,
}

/// The explanation of one run.
#[derive(Serialize)]
struct ExplanationRecord<'a> {
    #[serde(flatten)]
    run: RunRecord<'a>,
    waiting: WaitRecord<'a>,
    /// Null if it is normal.
    priority: Option<&'static str>,
    giving_up: bool,
    pauses: Vec<PauseRecord>,
    join: Option<JoinRecord<'a>>,
    text: String,
    ends_by: String,
    commands: Vec<String>,
    read_at: String,
}

/// A run that counts for a limit.
#[derive(Serialize)]
struct HolderRecord {
    run: RunId,
    state: &'static str,
}

/// What a run waits for.
#[derive(Serialize)]
#[serde(tag = "for", rename_all = "lowercase")]
enum WaitRecord<'a> {
    Nothing,
    Step {
        worker: Option<WorkerRecord<'a>>,
    },
    Children {
        unfinished: usize,
        blocking_count: usize,
        blocking: Vec<RunRecord<'a>>,
        strategies: Vec<StrategyRecord<'a>>,
    },
    Signal {
        signal: SignalRecord<'a>,
        until: Option<String>,
    },
    Time {
        until: String,
        delay: &'static str,
    },
    Slot {
        ahead: usize,
        queued: usize,
        suspect: bool,
        workers: Vec<WorkerRecord<'a>>,
    },
    Program {
        definition: Option<i32>,
        why: Option<&'a str>,
    },
    Operator {
        why: &'a str,
        failed_below: Vec<FailedBelowRecord<'a>>,
        more_below: bool,
    },
    Limit {
        concurrency: u32,
        serial: bool,
        key_from: Option<&'a str>,
        key: Option<&'a str>,
        holders: Vec<HolderRecord>,
        ahead: usize,
        queued: usize,
    },
    Rate {
        runs: u32,
        period_seconds: f64,
        key_from: Option<&'a str>,
        key: Option<&'a str>,
        opens_at: Option<String>,
        ahead: usize,
        queued: usize,
    },
    Pause {
        pauses: Vec<PauseRecord>,
    },
    Other,
}

/// A run below that comes first: an operator has to decide on it, or it is in progress.
#[derive(Serialize)]
struct FailedBelowRecord<'a> {
    run: String,
    handler: &'a str,
    failure: Option<FailureRecord>,
}

/// The set that the message of a run waits for.
#[derive(Serialize)]
struct JoinRecord<'a> {
    saga: &'a str,
    key: &'a str,
    since: String,
    until: Option<String>,
    present: &'a [String],
    missing: &'a [String],
}

/// A message whose handlers a run waits for by a strategy.
#[derive(Serialize)]
struct StrategyRecord<'a> {
    topic: &'a str,
    waits_for: &'a str,
    until: Option<String>,
}

impl<'a> From<&'a MessageWait> for StrategyRecord<'a> {
    fn from(message: &'a MessageWait) -> Self {
        let until = message.plan.until().map(|until| utc(until.into()));
        Self { topic: &message.topic, waits_for: message.plan.describe(), until }
    }
}

impl<'a> From<&'a WaitReason> for WaitRecord<'a> {
    fn from(reason: &'a WaitReason) -> Self {
        match reason {
            WaitReason::Ended => Self::Nothing,
            WaitReason::Executing { worker } => Self::Step { worker: worker.as_ref().map(Into::into) },
            WaitReason::Children { unfinished, blocking, blocking_count, strategies } => Self::Children {
                unfinished: *unfinished,
                blocking_count: *blocking_count,
                blocking: blocking.iter().map(Into::into).collect(),
                strategies: strategies.iter().map(Into::into).collect(),
            },
            WaitReason::Signal { signal, until } => {
                Self::Signal { signal: signal.into(), until: until.and_then(utc_if_limited) }
            }
            WaitReason::Time { until, delay } => Self::Time {
                until: utc(*until),
                delay: match delay {
                    Delay::Start => "start",
                    Delay::Sleep => "sleep",
                    Delay::Backoff => "backoff",
                    _ => "other",
                },
            },
            WaitReason::Slot { ahead, queued, is_suspect, workers } => Self::Slot {
                ahead: *ahead,
                queued: *queued,
                suspect: *is_suspect,
                workers: workers.iter().map(Into::into).collect(),
            },
            WaitReason::Program { definition, why } => {
                Self::Program { definition: *definition, why: why.as_deref() }
            }
            WaitReason::Operator { why, failed_below, has_more_below } => Self::Operator {
                why,
                failed_below: failed_below.iter().map(Into::into).collect(),
                more_below: *has_more_below,
            },
            WaitReason::Limit { concurrency, serial, key, holders, ahead, queued } => Self::Limit {
                concurrency: *concurrency,
                serial: *serial,
                key_from: key.as_ref().map(|key| &*key.from),
                key: key.as_ref().map(|key| &*key.key),
                holders: holders
                    .iter()
                    .map(|(run, phase)| HolderRecord { run: *run, state: phase.name() })
                    .collect(),
                ahead: *ahead,
                queued: *queued,
            },
            WaitReason::Rate { runs, period, key, opens_at, ahead, queued } => Self::Rate {
                runs: *runs,
                period_seconds: period.as_secs_f64(),
                key_from: key.as_ref().map(|key| &*key.from),
                key: key.as_ref().map(|key| &*key.key),
                opens_at: opens_at.map(utc),
                ahead: *ahead,
                queued: *queued,
            },
            WaitReason::Pause { pauses } => {
                Self::Pause { pauses: pauses.iter().cloned().map(Into::into).collect() }
            }
            _ => Self::Other,
        }
    }
}

impl<'a> From<&'a FailedBelow> for FailedBelowRecord<'a> {
    fn from(below: &'a FailedBelow) -> Self {
        Self {
            run: below.run.to_string(),
            handler: &below.handler,
            failure: below.failure.as_ref().map(Into::into),
        }
    }
}

impl<'a> From<&'a RunExplanation> for ExplanationRecord<'a> {
    fn from(run: &'a RunExplanation) -> Self {
        Self {
            run: (&run.run).into(),
            waiting: (&run.reason).into(),
            priority: Some(run.priority).filter(|it| *it != Priority::Normal).map(Priority::name),
            giving_up: run.giving_up,
            pauses: run.pauses.iter().cloned().map(Into::into).collect(),
            join: run.join.as_ref().map(|join| JoinRecord {
                saga: &join.saga,
                key: &join.key,
                since: utc(join.since),
                until: join.until.and_then(utc_if_limited),
                present: &join.present,
                missing: &join.missing,
            }),
            text: run.to_string(),
            ends_by: run.ends_by(),
            commands: decision_commands(run),
            read_at: utc(run.read_at),
        }
    }
}

/// Writes what each run waits for, and the commands that end a wait for an operator.
pub(crate) async fn show(scoop: &Scoop, output: Output, args: ExplainArgs) -> Result<Exit, Fault> {
    let explanation: Explanation = scoop.operate().runs().explain(args.target.id(scoop).await?).await?;
    if output.json {
        explanation.runs.iter().try_for_each(|run| output.record(&ExplanationRecord::from(run)))?;
    } else {
        output.line(&explanation)?;
        let commands = explanation.runs.iter().map(decision_commands);
        let commands: BTreeSet<_> = commands.filter(|commands| !commands.is_empty()).collect();
        for commands in &commands {
            output.line(format_args!("\nFix the cause, then run one of:\n  {}", commands.join("\n  ")))?;
        }
        if !commands.is_empty() {
            output.remark_options();
        }
    }
    Ok(Exit::Done)
}

/// The commands that end the wait of a run for an operator, or that of the first run below it; none if it waits for something
/// else.
fn decision_commands(run: &RunExplanation) -> Vec<String> {
    match &run.reason {
        WaitReason::Operator { failed_below, .. } => match failed_below.first() {
            Some(below) => repair_commands(below.run, RunRequest::REPAIRS.into_iter()),
            None => repair_commands(run.run.run, run.requests()),
        },
        WaitReason::Children { blocking, .. } => {
            let undecided = blocking.iter().find(|run| run.waits_for == Some(WaitKind::Operator));
            undecided.map(|run| repair_commands(run.run, run.requests())).unwrap_or_default()
        }
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use scoop_core::SignalKey;
    use scoop_operate::LimitKey;
    use scoop_runtime::RunPhase;
    use uuid::Uuid;

    use super::*;

    /// Programs read these fields: docs/reference/command_line.md lists them.
    #[test]
    fn each_kind_of_wait_has_its_fields() {
        let at = UNIX_EPOCH + Duration::from_secs(90);
        let key = || Some(LimitKey::new("customer", "7"));
        let expected = [
            (WaitReason::Ended, r#"{"for":"nothing"}"#),
            (WaitReason::Executing { worker: None }, r#"{"for":"step","worker":null}"#),
            (
                WaitReason::Children {
                    unfinished: 2,
                    blocking: vec![],
                    blocking_count: 1,
                    strategies: vec![],
                },
                r#"{"for":"children","unfinished":2,"blocking_count":1,"blocking":[],"strategies":[]}"#,
            ),
            (
                WaitReason::Signal {
                    signal: SignalKey { name: "paid".into(), key: "order 7".into() },
                    until: Some(at),
                },
                r#"{"for":"signal","signal":{"name":"paid","key":"order 7"},"until":"1970-01-01T00:01:30.000Z"}"#,
            ),
            (
                WaitReason::Time { until: at, delay: Delay::Backoff },
                r#"{"for":"time","until":"1970-01-01T00:01:30.000Z","delay":"backoff"}"#,
            ),
            (
                WaitReason::Slot { ahead: 3, queued: 4, is_suspect: false, workers: vec![] },
                r#"{"for":"slot","ahead":3,"queued":4,"suspect":false,"workers":[]}"#,
            ),
            (
                WaitReason::Program { definition: Some(2), why: Some("no step `pack`".into()) },
                r#"{"for":"program","definition":2,"why":"no step `pack`"}"#,
            ),
            (
                WaitReason::Operator {
                    why: "it is stuck".into(),
                    failed_below: vec![],
                    has_more_below: false,
                },
                r#"{"for":"operator","why":"it is stuck","failed_below":[],"more_below":false}"#,
            ),
            (
                WaitReason::Limit {
                    concurrency: 2,
                    serial: false,
                    key: key(),
                    holders: vec![(Uuid::nil().into(), RunPhase::Running)],
                    ahead: 0,
                    queued: 1,
                },
                r#"{"for":"limit","concurrency":2,"serial":false,"key_from":"customer","key":"7","holders":[{"run":"00000000-0000-0000-0000-000000000000","state":"running"}],"ahead":0,"queued":1}"#,
            ),
            (
                WaitReason::Rate {
                    runs: 5,
                    period: Duration::from_secs(60),
                    key: None,
                    opens_at: Some(at),
                    ahead: 0,
                    queued: 1,
                },
                r#"{"for":"rate","runs":5,"period_seconds":60.0,"key_from":null,"key":null,"opens_at":"1970-01-01T00:01:30.000Z","ahead":0,"queued":1}"#,
            ),
            (WaitReason::Pause { pauses: vec![] }, r#"{"for":"pause","pauses":[]}"#),
        ];
        for (reason, json) in expected {
            assert_eq!(serde_json::to_string(&WaitRecord::from(&reason)).unwrap(), json);
        }
    }
}
