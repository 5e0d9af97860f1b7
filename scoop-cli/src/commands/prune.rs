//! `scoop prune`

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scoop_operate::OperateExt as _;
use scoop_runtime::{Pruned, Scoop};
use serde::Serialize;

use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::times::{self, in_words};

/// Delete the records of hierarchies that finished long ago, and old signals
///
/// A hierarchy is deleted as a whole, if it is at rest and has no event in the given time. What is deleted cannot be found
/// any more, and its unique key is free again, unless its program keeps keys for longer.
#[derive(Debug, clap::Args)]
pub(crate) struct PruneArgs {
    /// Keep hierarchies with an event in this time: an hour at least
    #[arg(long, value_name = "TIME", value_parser = times::duration, default_value = "30 days")]
    older_than: Duration,
    /// How many hierarchies at most
    #[arg(long, value_name = "HIERARCHIES")]
    limit: Option<u64>,
    #[command(flatten)]
    consent: Consent,
}

/// What was deleted, or would be.
#[derive(Serialize)]
struct PruneRecord {
    dry_run: bool,
    #[serde(flatten)]
    pruned: Pruned,
}

/// Deletes.
pub(crate) async fn prune(scoop: &Scoop, output: Output, args: PruneArgs) -> Result<Exit, Fault> {
    let PruneArgs { older_than, limit, consent } = args;
    let dry_run = consent.is_dry_run();
    let at_most = limit.map(|limit| format!("at most {limit} ")).unwrap_or_default();
    let change = format!(
        "delete {at_most}finished hierarchies without an event in the last {}, signals as old, and unique keys whose time is over",
        in_words(older_than)
    );
    if !dry_run {
        // A declined question is an error.
        consent.to(output, &change)?;
    }
    let mut prune = scoop.operate().retention().prune().older_than(older_than);
    if let Some(limit) = limit {
        prune = prune.limit(limit);
    }
    if dry_run {
        prune = prune.dry_run();
    }
    let progress = match limit {
        Some(limit) => Progress::of(limit, "hierarchies"),
        None => Progress::begin("looking for old hierarchies"),
    };
    let (show, count) = (progress.teller(), progress.counter("hierarchies"));
    let so_far = Arc::new(Mutex::new(Pruned::default()));
    let last = so_far.clone();
    prune = prune.on_progress(move |now| {
        *last.lock().unwrap_or_else(PoisonError::into_inner) = *now;
        match limit {
            Some(limit) => count(now.hierarchies, limit),
            None => show(format!("{} hierarchies, {} events", now.hierarchies, now.events)),
        }
    });
    let pruned = prune.await.map_err(|error| match error.least() {
        // In the words of the command line.
        Some(least) => Fault::Usage(format!(
            "nothing younger than {0} can be pruned, and --older-than is {1}; write --older-than {0} or more",
            in_words(least),
            in_words(older_than)
        )),
        None => error.into(),
    });
    drop(progress);
    let so_far = *so_far.lock().unwrap_or_else(PoisonError::into_inner);
    // What was deleted before an error stays deleted.
    let written = match &pruned {
        Ok(pruned) => write(output, *pruned, dry_run),
        Err(_) if so_far != Pruned::default() => write(output, so_far, dry_run),
        Err(_) => Ok(()),
    };
    pruned?;
    written?;
    Ok(Exit::Success)
}

fn write(output: Output, pruned: Pruned, dry_run: bool) -> Result<(), Fault> {
    if output.json {
        output.record(&PruneRecord { dry_run, pruned })?;
        return Ok(());
    }
    let Pruned { hierarchies, messages, events, signals, unique_keys, retained, more, .. } = pruned;
    let verb = if dry_run { "would delete" } else { "deleted" };
    output.line(format_args!(
        "{verb} {} with {} and {}, and {}",
        counted(hierarchies, "hierarchy", "hierarchies"),
        counted(messages, "message", "messages"),
        counted(events, "event", "events"),
        counted(signals, "signal", "signals")
    ))?;
    if unique_keys > 0 {
        output.line(format_args!("{verb} {}", counted(unique_keys, "unique key", "unique keys")))?;
    }
    let reasons = [
        (retained.recent, "with a recent event"),
        (retained.unfinished, "unfinished"),
        (retained.failed, "awaiting an operator"),
        (retained.needed, "still needed by others"),
        (retained.busy, "locked by another transaction"),
        (retained.refused, "that the database refuses to delete: see scoop doctor"),
    ];
    for (count, reason) in reasons.into_iter().filter(|(count, _)| *count > 0) {
        output.line(format_args!("kept {count} {reason}"))?;
    }
    if more {
        output.line("there may be more: the limit was reached")?;
    }
    Ok(())
}
