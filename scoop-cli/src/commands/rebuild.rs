//! `scoop rebuild`

use std::collections::BTreeMap;
use std::io;

use scoop_core::Escaped;
use scoop_runtime::{ChangedField, RebuildChange, RunDifference, RunId, Scoop, SkippedHierarchy};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::{Output, counted};
use crate::progress::Progress;

/// Rebuild the working set from the recorded events, after it was damaged or lost
///
/// All programs with sagas have to be stopped first. Progress, waits and cancellations stay; the numbers of attempts are
/// lost, and stuck runs are retried once. The exit code is 1 if a hierarchy cannot be rebuilt: it keeps its runs.
///
/// With `--dry-run`, programs can go on. Each run that would change is listed: with `--json` on a line of its own, before
/// that of the result.
#[derive(Debug, clap::Args)]
pub(crate) struct RebuildArgs {
    #[command(flatten)]
    consent: Consent,
}

/// The result of a rebuild.
#[derive(Serialize)]
struct RebuildRecord {
    before: u64,
    after: u64,
    /// The number of differences, in a dry run.
    different: Option<u64>,
    skipped: Vec<SkippedRecord>,
}

/// A run that a rebuild would change.
#[derive(Serialize)]
struct DifferenceRecord<'a> {
    hierarchy: Uuid,
    /// Null if it has not begun.
    run: Option<Uuid>,
    saga: &'a str,
    message_id: Uuid,
    change: &'static str,
    /// The names of the fields that would change, each with its values before and after; null for contents.
    fields: BTreeMap<&'a str, Option<&'a [Value; 2]>>,
}

/// A hierarchy that cannot be rebuilt.
#[derive(Serialize)]
struct SkippedRecord {
    hierarchy: Uuid,
    reason: String,
}

/// Rebuilds.
pub(crate) async fn rebuild(scoop: &Scoop, output: Output, args: RebuildArgs) -> Result<Exit, Fault> {
    if args.consent.is_dry_run() {
        return compare(scoop, output).await;
    }
    let alive = scoop.workers().await?.iter().filter(|worker| worker.is_alive).count();
    if alive > 0 {
        return Err(Fault::Refused(format!(
            "{}: stop the programs with sagas first; `scoop topology` lists them",
            counted(alive, "worker lives", "workers live")
        )));
    }
    let counts = scoop.counts().exact().await?;
    let unfinished: usize = counts.unfinished.iter().map(|count| count.count).sum();
    let change = format!(
        "replace {} by those that follow from the events",
        counted(unfinished, "unfinished run", "unfinished runs")
    );
    if !args.consent.to(output, &change)? {
        return Ok(Exit::Done);
    }
    let progress = Progress::begin("reading the events of unfinished hierarchies");
    let count = progress.counter("hierarchies");
    let rebuild = scoop.rebuild_working_set();
    let report = rebuild.on_progress(move |so_far| count(so_far.hierarchies, so_far.total)).await;
    drop(progress);
    let report = report?;
    let (before, after) = (report.before, report.after);
    let text = format!("{} unfinished, {after} are", counted(before, "run was", "runs were"));
    write_result(output, &text, before, after, None, &report.skipped)
}

/// Lists the runs that a rebuild would change.
async fn compare(scoop: &Scoop, output: Output) -> Result<Exit, Fault> {
    let progress = Progress::begin("comparing the working set with the events");
    let mut written = Ok(());
    let compared = scoop.compare_working_set(|difference| {
        if written.is_ok() {
            written = write_difference(output, &difference);
        }
    });
    let compared = compared.await;
    drop(progress);
    let compared = compared?;
    written?;
    let (before, after, different) = (compared.before, compared.after, compared.different);
    let text = format!(
        "{} unfinished, {after} would be; {} in all",
        counted(before, "run is", "runs are"),
        counted(different, "difference", "differences")
    );
    write_result(output, &text, before, after, Some(different), &compared.skipped)
}

fn write_difference(output: Output, difference: &RunDifference) -> io::Result<()> {
    if !output.json {
        return output.line(difference);
    }
    let mut fields = BTreeMap::new();
    let change = match &difference.change {
        RebuildChange::Added => "added",
        RebuildChange::Removed => "removed",
        RebuildChange::Changed(changed) => {
            let changed = changed.iter();
            fields.extend(changed.map(|ChangedField { name, values, .. }| (&**name, values.as_ref())));
            "changed"
        }
        _ => "unknown",
    };
    output.record(&DifferenceRecord {
        hierarchy: difference.hierarchy.uuid(),
        run: difference.run.map(RunId::uuid),
        saga: &difference.handler,
        message_id: difference.message_id,
        change,
        fields,
    })
}

fn write_result(
    output: Output,
    text: &str,
    before: u64,
    after: u64,
    different: Option<u64>,
    skipped: &[SkippedHierarchy],
) -> Result<Exit, Fault> {
    let written = if output.json {
        let skipped = skipped.iter().map(|skipped| SkippedRecord {
            hierarchy: skipped.hierarchy.uuid(),
            reason: skipped.reason.clone(),
        });
        output.record(&RebuildRecord { before, after, different, skipped: skipped.collect() })
    } else {
        let mut skipped = skipped.iter();
        output.line(text).and_then(|()| {
            skipped.try_for_each(|skipped| {
                let reason = Escaped(&skipped.reason);
                output.line(format_args!("not rebuilt: {}: {reason}", skipped.hierarchy))
            })
        })
    };
    let exit = if skipped.is_empty() { Exit::Done } else { Exit::Failed };
    exit.despite(written)
}
