//! `scoop cancel`, `rollback`, `retry`, `skip` and `resolve`: requests about a run or a hierarchy.

use scoop_core::Escaped;
use scoop_runtime::{
    CancelAnswer, Explanation, Named, RepairAnswer, RollbackAnswer, RunId, RunPhase, RuntimeError, Scoop,
    WaitReason, Wanted,
};
use serde::Serialize;
use uuid::Uuid;

use super::filters::one_of;
use super::many_runs::{Many, ManyRequest};
use super::target::{Target, by_key, id};
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::Output;

/// A cancellation of many runs.
const CANCEL: ManyRequest = ManyRequest {
    command: "cancel",
    phases: &[
        RunPhase::Pending,
        RunPhase::Ready,
        RunPhase::Retrying,
        RunPhase::Running,
        RunPhase::Waiting,
        RunPhase::Sleeping,
        RunPhase::AwaitingSignal,
        RunPhase::Stuck,
    ],
    spares_rollbacks: true,
};

/// A retry of many runs.
const RETRY: ManyRequest = ManyRequest {
    command: "retry",
    phases: &[RunPhase::Stuck, RunPhase::AwaitingOperator, RunPhase::RollbackFailed],
    spares_rollbacks: false,
};

/// The commands by which an operator decides about a failed rollback. A shell refuses the placeholder of the reason.
pub(crate) fn repair_commands(run: RunId) -> [String; 3] {
    [("retry", ""), ("skip", " --reason <why>"), ("resolve", " --reason <why>")]
        .map(|(command, reason)| format!("scoop {command} {run}{reason}"))
}

/// Cancel a hierarchy or a part of it, or all runs that pass filters: unfinished runs are rolled back
///
/// Running steps end first, and runs that have not begun never begin.
///
/// With filters in place of an id, each unfinished run that passes them is cancelled, with what it has launched. Runs that
/// roll back already are left out. The question says how many runs there are; `--dry-run` lists them. The command can be
/// interrupted between two runs.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("state", |state| state.value_parser(one_of(CANCEL.phases))),
    // It is explained in an error.
    mut_arg("failed_with", |code| code.hide(true))
)]
pub(crate) struct CancelArgs {
    /// The id of a run or a hierarchy
    #[arg(value_name = "ID", value_parser = id::<Uuid>)]
    id: Option<Uuid>,
    /// The unique key with which the message was launched on the topic of --topic, instead of an id
    #[arg(long, requires = "topic")]
    key: Option<String>,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten, next_help_heading = "Many runs, instead of an id")]
    many: Many,
}

/// Roll back a finished hierarchy or a part of it
///
/// The compensations of its steps run, the newest step first, and before each step those of the messages that it launched.
#[derive(Debug, clap::Args)]
#[command(mut_arg("id", |id| id.help("The id of a run or a hierarchy")))]
pub(crate) struct RollbackArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
}

/// Retry a failed compensation or a stuck run, or all that pass filters
///
/// If the compensation succeeds, the rollback goes on from there. A stuck run is retried with the programs that live now.
///
/// With filters in place of an id, each failed rollback and each stuck run that passes them is retried. The question says how
/// many runs there are; `--dry-run` lists them. The command can be interrupted between two runs. If the rollback of a run
/// failed because of runs below it, it goes on after the retry of these.
#[derive(Debug, clap::Args)]
#[command(mut_arg("state", |state| state.value_parser(one_of(RETRY.phases))))]
pub(crate) struct RetryArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = id::<Uuid>)]
    run: Option<Uuid>,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten, next_help_heading = "Many runs, instead of an id")]
    many: Many,
}

/// Skip a failed compensation: its effects stay, and the rollback goes on after it
#[derive(Debug, clap::Args)]
pub(crate) struct SkipArgs {
    /// The id of the run
    #[arg(value_parser = id::<RunId>)]
    run: RunId,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
}

/// Declare that a run was rolled back by hand: nothing more of it is executed
#[derive(Debug, clap::Args)]
pub(crate) struct ResolveArgs {
    /// The id of the run
    #[arg(value_parser = id::<RunId>)]
    run: RunId,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
}

/// Why a request is made, for the record.
#[derive(Debug, clap::Args)]
struct Reason {
    /// Why, for the record
    #[arg(long, value_name = "TEXT", value_parser = given_reason)]
    reason: String,
    #[command(flatten)]
    source: Source,
}

/// Reads a reason, which is not empty.
pub(super) fn given_reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the reason is empty: say why, for the record".into()),
        _ => Ok(text.to_owned()),
    }
}

/// The requester, for the record.
#[derive(Debug, clap::Args)]
pub(super) struct Source {
    /// The requester, for the record; by default the name of the user
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        hide_env = true,
        default_value = "scoop-cli",
        hide_default_value = true
    )]
    pub(super) source: String,
}

/// The response to a request.
#[derive(Serialize)]
struct AnswerRecord<'a> {
    answer: &'static str,
    text: &'a str,
}

/// Cancels.
pub(crate) async fn cancel(scoop: &Scoop, output: Output, args: CancelArgs) -> Result<Exit, Fault> {
    let CancelArgs { id, key, reason: Reason { reason, source: Source { source } }, consent, many } = args;
    let id = match (key, &many.filters.topic) {
        (Some(_), _) if id.is_some() || !many.is_empty_but_topic() => {
            return Err(Fault::Usage(
                "a key names a hierarchy: write `scoop cancel --topic TOPIC --key KEY` with its other options, or leave the \
                 key out for all runs that pass the filters"
                    .into(),
            ));
        }
        (Some(key), Some(topic)) => Some(by_key(scoop, topic, &key).await?),
        _ => many.or_id("cancel", id)?,
    };
    let Some(id) = id else {
        if many.filters.failed_with.is_some() {
            return Err(Fault::Usage(
                "`scoop cancel --failed-with` chooses nothing: a run with a failure rolls back already"
                    .into(),
            ));
        }
        let cancel = async |run| Ok(scoop.cancel(run, &reason).source(&source).without_place().await?.into());
        return many.carry_out((scoop, output, consent), &CANCEL, cancel).await;
    };
    let object = Object::read(scoop, id, Wanted::RunOrHierarchy).await?;
    if consent.is_dry_run() && object.phase.is_some_and(RunPhase::is_finished) {
        let answer = CancelAnswer::NothingToDo;
        return answered(output, answer.name(), &answer.to_string());
    }
    if !consent.to(output, &format!("cancel {}", object.text))? {
        return Ok(Exit::Done);
    }
    let answer = scoop.cancel(id, reason).source(source).without_place().await?;
    answered(output, answer.name(), &answer.to_string())
}

/// Rolls back.
pub(crate) async fn rollback(scoop: &Scoop, output: Output, args: RollbackArgs) -> Result<Exit, Fault> {
    let RollbackArgs { target, reason: Reason { reason, source }, consent } = args;
    let id = target.id(scoop).await?;
    let object = Object::read(scoop, id, Wanted::RunOrHierarchy).await?;
    if consent.is_dry_run() && object.phase.is_some_and(|phase| CANCEL.phases.contains(&phase)) {
        let answer = RollbackAnswer::StillRunning;
        return answered(output, answer.name(), &answer.to_string());
    }
    if !consent.to(output, &format!("roll back {}", object.text))? {
        return Ok(Exit::Done);
    }
    let answer = scoop.rollback(id, reason).source(source.source).without_place().await?;
    answered(output, answer.name(), &answer.to_string())
}

/// Retries.
pub(crate) async fn retry(scoop: &Scoop, output: Output, args: RetryArgs) -> Result<Exit, Fault> {
    let RetryArgs { run, source: Source { source }, consent, many } = args;
    let Some(run) = many.or_id("retry", run)? else {
        let retry = async |run| Ok(scoop.retry(run).source(&source).await?.into());
        return many.carry_out((scoop, output, consent), &RETRY, retry).await;
    };
    let object = Object::read(scoop, run, Wanted::Run).await?;
    if object.is_settled() {
        return repaired(output, RepairAnswer::NotFailed);
    }
    if !consent.to(output, &format!("retry {}", object.text))? {
        return Ok(Exit::Done);
    }
    let answer = scoop.retry(run).source(source).await?;
    match answer {
        RepairAnswer::FailedBelow => answered(output, answer.name(), &failed_below(scoop, run).await?),
        answer => repaired(output, answer),
    }
}

/// The text of the answer that runs below come first, with these.
async fn failed_below(scoop: &Scoop, run: Uuid) -> Result<String, Fault> {
    let reasons = scoop.explain(run).await?.runs.into_iter().map(|run| run.reason);
    let (mut below, mut more) = (vec![], "");
    for reason in reasons {
        if let WaitReason::Operator { failed_below, has_more_below, .. } = reason {
            below.extend(failed_below.into_iter().map(|run| run.to_string()));
            more = if has_more_below { ", then more runs" } else { more };
        }
    }
    Ok(match &below[..] {
        // They were settled meanwhile.
        [] => RepairAnswer::FailedBelow.to_string(),
        below => format!(
            "its rollback failed because of runs below it: retry the run {}{more}, and it goes on",
            below.join(", then the run ")
        ),
    })
}

/// Skips.
pub(crate) async fn skip(scoop: &Scoop, output: Output, args: SkipArgs) -> Result<Exit, Fault> {
    let SkipArgs { run, reason: Reason { reason, source }, consent } = args;
    let object = Object::read(scoop, run.uuid(), Wanted::Run).await?;
    if object.is_settled() {
        return repaired(output, RepairAnswer::NotFailed);
    }
    if !consent.to(output, &format!("skip the failed compensation of {}", object.text))? {
        return Ok(Exit::Done);
    }
    repaired(output, scoop.skip(run, reason).source(source.source).await?)
}

/// Resolves.
pub(crate) async fn resolve(scoop: &Scoop, output: Output, args: ResolveArgs) -> Result<Exit, Fault> {
    let ResolveArgs { run, reason: Reason { reason, source }, consent } = args;
    let object = Object::read(scoop, run.uuid(), Wanted::Run).await?;
    if object.is_settled() {
        return repaired(output, RepairAnswer::NotFailed);
    }
    if !consent.to(output, &format!("count as rolled back by hand: {}", object.text))? {
        return Ok(Exit::Done);
    }
    repaired(output, scoop.resolve(run, reason).source(source.source).await?)
}

/// The object of a request.
struct Object {
    /// What its id names, and the states of its runs, for the question.
    text: String,
    /// The state of its run, if it has one.
    phase: Option<RunPhase>,
}

impl Object {
    /// Reads it. The id of another kind of object is an error, as it is for the request.
    async fn read(scoop: &Scoop, id: Uuid, wanted: Wanted) -> Result<Self, Fault> {
        let Explanation { named, runs, .. } = scoop.explain(id).await?;
        let is_wanted = match named {
            Named::Run { .. } => true,
            Named::Hierarchy { .. } => wanted != Wanted::Run,
            _ => false,
        };
        if !is_wanted {
            return Err(RuntimeError::WrongId { id, named, wanted }.into());
        }
        let phases: Vec<_> = runs.iter().map(|run| run.run.phase).collect();
        let states: Vec<_> = phases.iter().map(|phase| phase.name()).collect();
        let states = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
        let text = format!("{id}, {}{states}", Escaped(&named.to_string()));
        let phase = phases.first().copied().filter(|_| phases.len() == 1);
        Ok(Self { text, phase })
    }

    /// Whether its run has ended so that there is nothing to repair.
    fn is_settled(&self) -> bool {
        matches!(self.phase, Some(RunPhase::Committed | RunPhase::RolledBack))
    }
}

fn repaired(output: Output, answer: RepairAnswer) -> Result<Exit, Fault> {
    answered(output, answer.name(), &answer.to_string())
}

/// Writes the response.
fn answered(output: Output, answer: &'static str, text: &str) -> Result<Exit, Fault> {
    let written = if output.json {
        output.record(&AnswerRecord { answer, text })
    } else {
        output.line(format_args!("{answer}: {text}"))
    };
    // All three kinds of answers have this name for it.
    let is_accepted = answer == CancelAnswer::Accepted.name();
    let exit = if is_accepted { Exit::Done } else { Exit::NotAccepted };
    exit.despite(written)
}
