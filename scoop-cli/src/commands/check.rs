//! `scoop check`

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use scoop_core::{Definition, RecordedStep, StepDefinition};
use scoop_operate::{OperateExt as _, RunPosition};
use scoop_runtime::Scoop;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::lock_file;
use crate::fault::{Exit, Fault};
use crate::output::{Output, Rows, Tone, cell, cell_if_any, toned};

/// Say which unfinished runs a program would strand, by its lock file, before it is deployed
///
/// Each unfinished run is compared with the steps in the file: a run that could not go on, or could not be undone, is counted with
/// the reason. A run with two reasons is in two rows. The exit code is 1 if there are such runs.
///
/// Of a run that rolls back, or has completed no step, only the topic is compared. Not compared are sagas that the file lacks, since
/// they may belong to another program, and types: neither those of messages and values, nor the values that a step takes.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The lock file of the new program
    file: PathBuf,
}

/// A lock file. A field that is unknown here may change what another one means.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    sagas: BTreeMap<String, Saga>,
    #[serde(rename = "context")]
    _context: IgnoredAny,
    #[serde(rename = "signals")]
    _signals: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Saga {
    topics: BTreeSet<String>,
    #[serde(default)]
    was: Vec<String>,
    /// None of a collector of joined messages.
    steps: Vec<RecordedStep>,
    #[serde(rename = "types")]
    _types: IgnoredAny,
}

/// Runs that would be stranded.
#[derive(Serialize)]
struct StrandedRecord<'a> {
    saga: &'a str,
    /// Why they would be.
    change: &'a str,
    /// The step that they have completed last.
    step: Option<&'a str>,
    runs: usize,
    /// Whether there are perhaps more.
    capped: bool,
}

/// Compares the file with the unfinished runs.
pub(crate) async fn check(scoop: &Scoop, output: Output, args: CheckArgs) -> Result<Exit, Fault> {
    let lock: Lock = lock_file::read(&args.file)?;
    let former = lock.sagas.iter().flat_map(|(name, saga)| saga.was.iter().map(move |was| (was, name)));
    let mut names: BTreeMap<&String, &String> = former.collect();
    names.extend(lock.sagas.keys().map(|name| (name, name)));
    let handlers: Vec<_> = names.keys().map(|name| (*name).clone()).collect();
    let definitions: BTreeMap<_, _> =
        lock.sagas.iter().map(|(name, saga)| (name, definition(name, &saga.steps))).collect();
    let positions = scoop.operate().runs().positions(&handlers).await?;
    let mut stranded = BTreeMap::new();
    for position in &positions {
        let name = names[&position.handler];
        for change in lock.sagas[name].changes(&definitions[name], position) {
            let (runs, capped) = stranded.entry((name, &position.step, change)).or_insert((0, false));
            *runs += position.count;
            *capped |= position.is_capped;
        }
    }
    let mut rows = Rows::new(&["SAGA", "STEP", "LIVE RUNS", "CHANGE"]);
    for ((saga, step, change), (runs, capped)) in &stranded {
        let (step, runs, capped) = (step.as_deref(), *runs, *capped);
        if output.json {
            output.record(&StrandedRecord { saga, change, step, runs, capped })?;
            continue;
        }
        let more = if capped { "+" } else { "" };
        rows.add([
            cell(saga),
            cell_if_any(step),
            toned(format_args!("{runs}{more}"), Tone::Bad),
            cell(change),
        ]);
    }
    if !rows.is_empty() {
        output.table(rows)?;
    } else if !output.json {
        output.line("no unfinished run would be stranded")?;
    }
    Ok(if stranded.is_empty() { Exit::Success } else { Exit::Failed })
}

impl Saga {
    /// Why the runs there would be stranded.
    fn changes(&self, definition: &Definition, position: &RunPosition) -> Vec<String> {
        let RunPosition { topic, step, jump, steps, awaits, .. } = position;
        if !self.topics.contains(topic) {
            return vec![format!("the saga has left topic `{topic}`")];
        }
        let is_awaited = |signal: &String| self.steps.iter().any(|step| step.awaits.as_ref() == Some(signal));
        let unawaited = awaits.iter().filter(|signal| !is_awaited(signal));
        let mut changes: Vec<_> =
            unawaited.map(|signal| format!("no step awaits signal `{signal}` any more")).collect();
        if let Some(step) = step.as_ref().filter(|_| !self.steps.is_empty()) {
            let stuck = definition.strands_after(steps, step, jump.as_deref(), &|_| true);
            changes.extend(stuck.iter().map(ToString::to_string));
        }
        changes
    }
}

/// A definition with these steps. Their names are kept until the end of the program.
fn definition(saga: &str, steps: &[RecordedStep]) -> Definition {
    let leaked = |name: &String| -> &'static str { name.clone().leak() };
    let step = |step: &RecordedStep| StepDefinition {
        name: step.name.clone().into(),
        was: step.was.iter().map(leaked).collect::<Vec<_>>().leak(),
        compensated: step.compensated,
        handles_child_failure: step.handles_child_failure,
        awaits: step.awaits.as_ref().map(leaked),
        ..StepDefinition::new("").of_kind(step.kind)
    };
    let steps: Vec<_> = steps.iter().map(step).collect();
    Definition { saga: saga.to_owned().into(), steps: steps.into(), ..Definition::new("", "", &[]) }
}
