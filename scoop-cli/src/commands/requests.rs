//! `scoop cancel`, `rollback`, `retry`, `skip` and `resolve`: requests about a run or a hierarchy.

use scoop_core::Escaped;
use scoop_runtime::{CancelAnswer, Explanation, RepairAnswer, RunId, Scoop};
use serde::Serialize;
use uuid::Uuid;

use super::target::{Target, id};
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::Output;

// The help of `cancel` and `rollback` is beside their names, in `args.rs`.
#[derive(Debug, clap::Args)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
}

/// Retry a failed compensation, or a stuck run
///
/// If the compensation succeeds, the rollback goes on from there. A stuck run is retried with the programs that live now.
#[derive(Debug, clap::Args)]
pub(crate) struct RetryArgs {
    /// The id of the run
    #[arg(value_parser = id::<RunId>)]
    run: RunId,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    consent: Consent,
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
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    source: Source,
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
pub(crate) async fn cancel(scoop: &Scoop, output: Output, args: RequestArgs) -> Result<Exit, Fault> {
    let RequestArgs { target, reason: Reason { reason, source }, consent } = args;
    let id = target.id(scoop).await?;
    if !consent.to(output, &format!("cancel {}", described(scoop, id).await?))? {
        return Ok(Exit::Done);
    }
    let answer = scoop.cancel(id, reason).source(source.source).await?;
    answered(output, answer.name(), &answer.to_string())
}

/// Rolls back.
pub(crate) async fn rollback(scoop: &Scoop, output: Output, args: RequestArgs) -> Result<Exit, Fault> {
    let RequestArgs { target, reason: Reason { reason, source }, consent } = args;
    let id = target.id(scoop).await?;
    if !consent.to(output, &format!("roll back {}", described(scoop, id).await?))? {
        return Ok(Exit::Done);
    }
    let answer = scoop.rollback(id, reason).source(source.source).await?;
    answered(output, answer.name(), &answer.to_string())
}

/// Retries.
pub(crate) async fn retry(scoop: &Scoop, output: Output, args: RetryArgs) -> Result<Exit, Fault> {
    let RetryArgs { run, source, consent } = args;
    if !consent.to(output, &format!("retry {}", described(scoop, run.uuid()).await?))? {
        return Ok(Exit::Done);
    }
    repaired(output, scoop.retry(run).source(source.source).await?)
}

/// Skips.
pub(crate) async fn skip(scoop: &Scoop, output: Output, args: SkipArgs) -> Result<Exit, Fault> {
    let SkipArgs { run, reason: Reason { reason, source }, consent } = args;
    let change = format!("skip the failed compensation of {}", described(scoop, run.uuid()).await?);
    if !consent.to(output, &change)? {
        return Ok(Exit::Done);
    }
    repaired(output, scoop.skip(run, reason).source(source.source).await?)
}

/// Resolves.
pub(crate) async fn resolve(scoop: &Scoop, output: Output, args: ResolveArgs) -> Result<Exit, Fault> {
    let ResolveArgs { run, reason: Reason { reason, source }, consent } = args;
    let change = format!("count as rolled back by hand: {}", described(scoop, run.uuid()).await?);
    if !consent.to(output, &change)? {
        return Ok(Exit::Done);
    }
    repaired(output, scoop.resolve(run, reason).source(source.source).await?)
}

/// The object of a request, for the question: what the id names, and the state of its runs.
async fn described(scoop: &Scoop, id: Uuid) -> Result<String, Fault> {
    let Explanation { named, runs, .. } = scoop.explain(id).await?;
    let states: Vec<_> = runs.iter().map(|run| run.run.phase.name()).collect();
    let states = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    Ok(format!("{id}, {}{states}", Escaped(&named.to_string())))
}

fn repaired(output: Output, answer: RepairAnswer) -> Result<Exit, Fault> {
    answered(output, answer.name(), &answer.to_string())
}

/// Writes the response.
fn answered(output: Output, answer: &'static str, text: &str) -> Result<Exit, Fault> {
    if output.json {
        output.record(&AnswerRecord { answer, text })?;
    } else {
        output.line(format_args!("{answer}: {text}"))?;
    }
    // All three kinds of answers have this name for it.
    let is_accepted = answer == CancelAnswer::Accepted.name();
    Ok(if is_accepted { Exit::Done } else { Exit::NotAccepted })
}
