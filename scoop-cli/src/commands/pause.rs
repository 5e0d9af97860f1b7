//! `scoop pause`, `resume` and `pauses`

use std::time::Duration;

use scoop_core::Escaped;
use scoop_operate::OperateExt as _;
use scoop_runtime::{Pause, PauseTarget, Scoop};

use super::names;
use super::run_requests::{Source, given_reason};
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::{Output, shell_option};
use crate::times::{duration, in_words, utc};

/// Pause a saga, a topic, or everything, in all processes
///
/// None of its steps begins, forward or in a rollback. Steps in progress end first. Launches and other sagas go on.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    target: Target,
    /// Why, shown with each run that waits
    #[arg(long, value_name = "TEXT", value_parser = given_reason)]
    reason: String,
    #[command(flatten)]
    source: Source,
    /// End the pause by itself after this time, such as `2h`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    for_at_most: Option<Duration>,
    /// Let the runs that have begun go on to their ends, so that only new ones wait
    #[arg(long)]
    new_runs_only: bool,
    /// Wait until the steps in progress have ended, or with --new-runs-only all begun runs, for at most this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    drain: Option<Duration>,
    #[command(flatten)]
    consent: Consent,
}

/// End a pause: that of exactly this saga or topic, or that of everything
///
/// With --json, the pause that has ended is a line; if another program ends it first, there is none.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    target: Target,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    consent: Consent,
}

/// List the pauses in force
#[derive(Debug, clap::Args)]
pub(crate) struct PausesArgs {}

/// What is paused or resumed.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// A saga: all of its runs
    #[arg(long, alias = "handler", value_name = "NAME")]
    saga: Option<String>,
    /// A topic: all runs of its messages
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Everything: all runs. Pauses of sagas and topics are others
    #[arg(long)]
    everything: bool,
}

/// The options of `pause` and `resume` that name a target.
pub(super) fn options(target: &PauseTarget) -> String {
    match target {
        PauseTarget::Handler(saga) => shell_option("--saga", saga),
        PauseTarget::Topic(topic) => shell_option("--topic", topic),
        _ => "--everything".to_owned(),
    }
}

impl From<Target> for PauseTarget {
    fn from(Target { saga, topic, .. }: Target) -> Self {
        match (saga, topic) {
            (Some(saga), _) => PauseTarget::Handler(saga),
            (None, Some(topic)) => PauseTarget::Topic(topic),
            (None, None) => PauseTarget::Everything,
        }
    }
}

/// Pauses.
pub(crate) async fn pause(scoop: &Scoop, output: Output, args: PauseArgs) -> Result<Exit, Fault> {
    let PauseArgs { target, reason, source, for_at_most, new_runs_only, drain, consent } = args;
    let target = PauseTarget::from(target);
    names::check(scoop, &target).await?;
    let kind = if new_runs_only { " for new runs only" } else { "" };
    if !consent.to(output, &format!("pause {target}{kind}"))? {
        return Ok(Exit::Success);
    }
    let mut pause = scoop.operate().pauses().pause(target).reason(reason).source(source.source);
    if new_runs_only {
        pause = pause.new_runs_only();
    }
    if let Some(limit) = for_at_most {
        pause = pause.for_at_most(limit);
    }
    if let Some(at_most) = drain {
        pause = pause.drain(at_most);
    }
    let paused = pause.await.map_err(|error| match (error.least(), for_at_most) {
        // In the words of the command line.
        (Some(least), Some(time)) => Fault::Usage(format!(
            "a pause for {} would end at once; write --for-at-most {} or more, or leave it out: then the pause lasts until \
             `scoop resume` ends it",
            in_words(time),
            in_words(least)
        )),
        _ => error.into(),
    })?;
    let is_complete = if drain.is_some() { paused.is_drained() } else { paused.unacknowledged.is_empty() };
    let written = if output.json { output.record(&paused) } else { output.line(&paused) };
    let exit = if is_complete { Exit::Success } else { Exit::Failed };
    exit.despite(written)
}

/// Resumes.
pub(crate) async fn resume(scoop: &Scoop, output: Output, args: ResumeArgs) -> Result<Exit, Fault> {
    let target = PauseTarget::from(args.target);
    let in_force = scoop.operate().pauses().list().await?.into_iter().any(|pause| pause.target == target);
    if !in_force {
        names::check(scoop, &target).await?;
        return Err(Fault::NotFound(format!("{target} is not paused")));
    }
    if !args.consent.to(output, &format!("resume {target}"))? {
        return Ok(Exit::Success);
    }
    let mut resume = scoop.operate().pauses().resume(&target).source(args.source.source);
    if let Some(reason) = args.reason {
        resume = resume.reason(reason);
    }
    match resume.await? {
        Some(pause) if output.json => output.record(&pause)?,
        Some(Pause { source, since, .. }) => {
            let (source, since) = (Escaped(&source), utc(since));
            output.line(format_args!("{target} goes on; it was paused by {source} since {since}"))?;
        }
        // Its time was over, or another program has ended it.
        None if output.json => {}
        None => output.line(format_args!("the pause of {target} has ended already"))?,
    }
    Ok(Exit::Success)
}

/// Lists.
pub(crate) async fn list(scoop: &Scoop, output: Output) -> Result<Exit, Fault> {
    let pauses = scoop.operate().pauses().list().await?;
    if pauses.is_empty() && !output.json {
        output.line("nothing is paused")?;
    }
    for pause in pauses {
        if output.json {
            output.record(&pause)?;
        } else {
            output.line(pause)?;
        }
    }
    Ok(Exit::Success)
}
