//! `scoop cancel`, `rollback`, `retry`, `skip`, `resolve` and `relaunch`: requests about a run or a hierarchy.

use scoop_core::Escaped;
use scoop_operate::{Explanation, OperateError, OperateExt as _, WaitReason};
use scoop_runtime::internal::ErrorKind;
use scoop_runtime::{
    IdKind, IdObject, RelaunchAnswer, RepairAnswer, Request, RunId, RunPhase, RunRequest, RuntimeError, Scoop,
};
use serde::Serialize;
use uuid::Uuid;

use super::filters::one_of;
use super::many_runs::{Answer, Many, phases_for};
use super::target::{Target, by_key, id};
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::Output;

/// The commands for the repairs among these requests. A shell refuses the placeholder of the reason.
pub(crate) fn repair_commands(run: RunId, requests: impl Iterator<Item = RunRequest>) -> Vec<String> {
    let repairs = requests.filter(|request| request.is_repair());
    let commands = repairs.map(|request| {
        let reason = if request == RunRequest::Retry { "" } else { " --reason <why>" };
        format!("scoop {request} {run}{reason}")
    });
    commands.collect()
}

/// Cancel a hierarchy or a part of it, or all runs that pass filters: unfinished runs are rolled back
///
/// Running steps end first, and runs that have not begun never begin.
///
/// With filters in place of an id, each unfinished run that passes them is cancelled, with what it has launched. Runs that
/// roll back or give up already are left out. The question says how many runs there are; `--dry-run` lists them, and says how
/// many requests would be refused, and why. The command can be interrupted between two runs.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("state", |state| state.value_parser(one_of(phases_for(RunRequest::Cancel)))),
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
/// The compensations of its steps run, the newest step first, and before each step those of the messages that it launched. A part
/// of a hierarchy is undone without the rest: the runs above it have gone on because it succeeded, and are not told. So the whole may
/// be inconsistent afterwards, and the question says so.
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
/// many runs there are; `--dry-run` lists them, and says how many requests would be refused, and why. The command can be
/// interrupted between two runs. If the rollback of a run failed because of runs below it, it goes on after the retry of these.
#[derive(Debug, clap::Args)]
#[command(mut_arg("state", |state| state.value_parser(one_of(phases_for(RunRequest::Retry)))))]
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

/// Launch the first message of a finished hierarchy again, in a new one, or those of all that pass filters
///
/// The message has the same payload and context, but for deadlines and a delay. A second time answers with the hierarchy of the
/// first, unless it is asked for with `--again`.
///
/// With filters in place of an id, the hierarchy of each run that passes them is relaunched, once. The question says how many
/// there are; `--dry-run` lists a run of each, and says how many requests would be refused, and why. The command can be
/// interrupted between two of them.
#[derive(Debug, clap::Args)]
pub(crate) struct RelaunchArgs {
    /// The id of a hierarchy or of a run of it
    #[arg(value_name = "ID", value_parser = id::<Uuid>)]
    id: Option<Uuid>,
    /// Another payload, as JSON; - reads it from standard input
    #[arg(long, value_name = "JSON", requires = "id")]
    payload: Option<String>,
    /// Also one that has committed: its effects come a second time
    #[arg(long)]
    even_if_committed: bool,
    /// Also one that was relaunched before
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten, next_help_heading = "Many hierarchies, instead of an id")]
    many: Many,
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
        let cancel = |run: RunId| scoop.cancel(run, &reason).source(&source).without_call_site();
        return many.carry_out((scoop, output, consent), (RunRequest::Cancel, None), cancel).await;
    };
    let object = describe_object(scoop, id, IdKind::RunOrHierarchy).await?;
    let request = scoop.cancel(id, reason).source(source).without_call_site();
    answered(output, request_with_consent(output, consent, &format!("cancel {object}"), request).await?)
}

/// What the question adds for a part of a hierarchy.
const CAUTION_OF_PART: &str =
    ", and leave the runs above it as they are, so that the hierarchy as a whole may be inconsistent";

/// Rolls back.
pub(crate) async fn rollback(scoop: &Scoop, output: Output, args: RollbackArgs) -> Result<Exit, Fault> {
    let RollbackArgs { target, reason: Reason { reason, source }, consent } = args;
    let id = target.id(scoop).await?;
    let explained = explain_object(scoop, id, IdKind::RunOrHierarchy).await?;
    let is_part = explained.runs.iter().any(|it| it.run.parent.is_some());
    let caution = if is_part { CAUTION_OF_PART } else { "" };
    let request = scoop.rollback(id, reason).source(source.source).without_call_site();
    let change = format!("roll back {}{caution}", describe(&explained));
    answered(output, request_with_consent(output, consent, &change, request).await?)
}

/// Retries.
pub(crate) async fn retry(scoop: &Scoop, output: Output, args: RetryArgs) -> Result<Exit, Fault> {
    let RetryArgs { run, source: Source { source }, consent, many } = args;
    let Some(run) = many.or_id("retry", run)? else {
        let retry = |run: RunId| scoop.operate().failures().retry(run).source(&source);
        return many.carry_out((scoop, output, consent), (RunRequest::Retry, None), retry).await;
    };
    let object = describe_object(scoop, run, IdKind::Run).await?;
    let request = scoop.operate().failures().retry(run).source(source);
    let mut answer = request_with_consent(output, consent, &format!("retry {object}"), request).await?;
    if let Some(refused) = answer.as_mut().filter(|answer| answer.name == RepairAnswer::FailedBelow.name()) {
        refused.text = failed_below(scoop, run).await?;
    }
    answered(output, answer)
}

/// The text of the answer that runs below come first, with these and the command for the first.
async fn failed_below(scoop: &Scoop, run: Uuid) -> Result<String, Fault> {
    let reasons = scoop.operate().runs().explain(run).await?.runs.into_iter().map(|run| run.reason);
    let (mut below, mut more) = (vec![], "");
    for reason in reasons {
        if let WaitReason::Operator { failed_below, has_more_below, .. } = reason {
            below.extend(failed_below);
            more = if has_more_below { ", then more runs" } else { more };
        }
    }
    Ok(match below.first() {
        // They were settled meanwhile.
        None => RepairAnswer::FailedBelow.to_string(),
        Some(first) => {
            let runs: Vec<_> = below.iter().map(ToString::to_string).collect();
            format!(
                "its rollback failed because of runs below it: repair {}{more}, and it goes on; begin with `scoop retry {}`",
                runs.join(", then "),
                first.run
            )
        }
    })
}

/// Skips.
pub(crate) async fn skip(scoop: &Scoop, output: Output, args: SkipArgs) -> Result<Exit, Fault> {
    let SkipArgs { run, reason: Reason { reason, source }, consent } = args;
    let object = describe_object(scoop, run.uuid(), IdKind::Run).await?;
    let request = scoop.operate().failures().skip(run, reason).source(source.source);
    let change = format!("skip the failed compensation, or the wait for failed runs below, of {object}");
    answered(output, request_with_consent(output, consent, &change, request).await?)
}

/// Resolves.
pub(crate) async fn resolve(scoop: &Scoop, output: Output, args: ResolveArgs) -> Result<Exit, Fault> {
    let ResolveArgs { run, reason: Reason { reason, source }, consent } = args;
    let object = describe_object(scoop, run.uuid(), IdKind::Run).await?;
    let request = scoop.operate().failures().resolve(run, reason).source(source.source);
    let change = format!("count as rolled back by hand: {object}");
    answered(output, request_with_consent(output, consent, &change, request).await?)
}

/// Launches again.
pub(crate) async fn relaunch(scoop: &Scoop, output: Output, args: RelaunchArgs) -> Result<Exit, Fault> {
    let RelaunchArgs { id, payload, even_if_committed, again, reason, consent, many } = args;
    let Reason { reason, source: Source { source } } = reason;
    let request = |id: Uuid| {
        let mut request = scoop.operate().runs().relaunch(id, &reason).source(&source);
        if even_if_committed {
            request = request.even_if_committed();
        }
        if again { request.again() } else { request }
    };
    let Some(id) = many.or_id("relaunch", id)? else {
        let also = even_if_committed.then_some(RunPhase::Committed);
        let relaunch = |run: RunId| request(run.uuid()).into();
        return many.carry_out((scoop, output, consent), (RunRequest::Relaunch, also), relaunch).await;
    };
    let object = describe_object(scoop, id, IdKind::RunOrHierarchy).await?;
    let request = match payload {
        Some(payload) => request(id).payload(super::payload::read(&payload)?),
        None => request(id),
    };
    let change = format!("launch the message again of {object}");
    let request: Request<RelaunchAnswer, OperateError> = request.into();
    answered(output, request_with_consent(output, consent, &change, request).await?)
}

/// The object of the id and the states of its runs, for the question.
async fn describe_object(scoop: &Scoop, id: Uuid, wanted: IdKind) -> Result<String, Fault> {
    Ok(describe(&explain_object(scoop, id, wanted).await?))
}

/// Looks at the object of the id. That of another kind of object is an error, as it is for the request.
async fn explain_object(scoop: &Scoop, id: Uuid, wanted: IdKind) -> Result<Explanation, Fault> {
    let explained = scoop.operate().runs().explain(id).await?;
    let is_wanted = match explained.named {
        IdObject::Run { .. } => true,
        IdObject::Hierarchy { .. } => wanted != IdKind::Run,
        _ => false,
    };
    if !is_wanted {
        return Err(RuntimeError::from(ErrorKind::WrongId { id, named: explained.named, wanted }).into());
    }
    Ok(explained)
}

fn describe(Explanation { id, named, runs, .. }: &Explanation) -> String {
    let states: Vec<_> = runs.iter().map(|run| run.run.phase.name()).collect();
    let states = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    format!("{id}, {}{states}", Escaped(&named.to_string()))
}

/// Makes a request after the question; a dry run only checks it, and says what it would change. `None` if there is no answer to
/// write.
async fn request_with_consent<A, E>(
    output: Output,
    consent: Consent,
    change: &str,
    request: Request<A, E>,
) -> Result<Option<Answer>, Fault>
where
    A: Into<Answer> + Send + 'static,
    E: From<RuntimeError> + Send + 'static,
    Fault: From<E>,
{
    if consent.is_dry_run() {
        let answer: Answer = request.dry_run().await?.into();
        if !answer.is_accepted() {
            return Ok(Some(answer));
        }
        consent.to(output, change)?;
        return Ok(None);
    }
    Ok(if consent.to(output, change)? { Some(request.await?.into()) } else { None })
}

/// Writes the response, if there is one.
fn answered(output: Output, answer: Option<Answer>) -> Result<Exit, Fault> {
    let Some(answer) = answer else {
        return Ok(Exit::Success);
    };
    let written = if output.json {
        output.record(&AnswerRecord { answer: answer.name, text: &answer.text })
    } else {
        output.line(format_args!("{}: {}", answer.name, answer.text))
    };
    let exit = if answer.is_accepted() { Exit::Success } else { Exit::NotAccepted };
    exit.despite(written)
}
