//! `scoop rebuild`

use scoop_core::Escaped;
use scoop_runtime::Scoop;
use serde::Serialize;
use uuid::Uuid;

use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::{Output, counted};
use crate::progress::Progress;

/// Rebuild the working set from the recorded events, after it was damaged or lost
///
/// All programs with sagas have to be stopped first. Progress, waits and cancellations stay; the numbers of attempts are
/// lost, and stuck runs are retried once. The exit code is 1 if a hierarchy cannot be rebuilt: it keeps its runs.
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
    skipped: Vec<SkippedRecord>,
}

/// A hierarchy that cannot be rebuilt.
#[derive(Serialize)]
struct SkippedRecord {
    hierarchy: Uuid,
    reason: String,
}

/// Rebuilds.
pub(crate) async fn rebuild(scoop: &Scoop, output: Output, args: RebuildArgs) -> Result<Exit, Fault> {
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
    let report = scoop.rebuild_working_set().await;
    drop(progress);
    let report = report?;
    if output.json {
        let skipped = report.skipped.iter().map(|skipped| SkippedRecord {
            hierarchy: skipped.hierarchy.uuid(),
            reason: skipped.reason.clone(),
        });
        output.record(&RebuildRecord {
            before: report.before,
            after: report.after,
            skipped: skipped.collect(),
        })?;
    } else {
        output.line(format_args!(
            "{} unfinished, {} are",
            counted(report.before, "run was", "runs were"),
            report.after
        ))?;
        for skipped in &report.skipped {
            output.line(format_args!("not rebuilt: {}: {}", skipped.hierarchy, Escaped(&skipped.reason)))?;
        }
    }
    Ok(if report.skipped.is_empty() { Exit::Done } else { Exit::Failed })
}
