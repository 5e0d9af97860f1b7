//! `scoop explain`

use std::collections::BTreeSet;

use scoop_operate::{Explanation, OperateExt as _, RunExplanation, WaitKind, WaitReason};
use scoop_runtime::{RunRequest, Scoop};
use serde::Serialize;

use super::run_requests::repair_commands;
use super::target::Target;
use crate::fault::{Exit, Fault};
use crate::output::Output;

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
    run: &'a RunExplanation,
    commands: Vec<String>,
}

/// Writes what each run waits for, and the commands that end a wait for an operator.
pub(crate) async fn show(scoop: &Scoop, output: Output, args: ExplainArgs) -> Result<Exit, Fault> {
    let explanation: Explanation = scoop.operate().runs().explain(args.target.id(scoop).await?).await?;
    if output.json {
        for run in &explanation.runs {
            output.record(&ExplanationRecord { run, commands: decision_commands(run) })?;
        }
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
    Ok(Exit::Success)
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
