//! `scoop tree`

use scoop_runtime::shown::{TreeHints, TreeText};
use scoop_runtime::{Scoop, Tree};
use serde_json::json;

use super::target::Target;
use crate::fault::{Exit, Fault};
use crate::output::Output;

/// Show a hierarchy: its runs with their events, times, failures and repairs
///
/// The id may be that of the hierarchy, or of a run or a message in it. With --json, each run is a line, after its parent.
#[derive(Debug, clap::Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    target: Target,
    /// Leave out runs below this level; runs of the message that started the hierarchy have level 1
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// Show at most this many runs. With this option, at most 100 messages without a handler are shown
    #[arg(long, value_name = "RUNS")]
    limit: Option<usize>,
    /// How many events of each run at most, at its beginning and as many at its end, and as many interventions on it
    #[arg(long, value_name = "EVENTS", default_value_t = 500)]
    events: usize,
}

/// The option for more events and interventions, also of `scoop timeline`.
pub(super) const RAISE_EVENTS: &str = "raise --events";

/// The options that show what is left out.
const HINTS: TreeHints =
    TreeHints { events: RAISE_EVENTS, unhandled: "leave out --limit", runs: "raise --depth or --limit" };

/// Shows the hierarchy.
pub(crate) async fn show(scoop: &Scoop, output: Output, args: TreeArgs) -> Result<Exit, Fault> {
    let hierarchy = args.target.hierarchy(scoop).await?;
    let found = scoop.find(hierarchy).await?;
    let mut tree = found.tree().events(args.events);
    if let Some(depth) = args.depth {
        tree = tree.depth(depth);
    }
    if let Some(limit) = args.limit {
        tree = tree.limit(limit);
    }
    let tree = tree.await?;
    if output.json {
        tree.runs().into_iter().try_for_each(|run| output.record(run))?;
        record_unreadable(output, &tree)?;
        let (of, others) = (tree.relaunch_of(), tree.relaunched_as());
        if of.is_some() || !others.is_empty() {
            output.record(&json!({ "relaunch_of": of, "relaunched_as": others }))?;
        }
    } else {
        let text = TreeText { tree: &tree, hints: HINTS };
        output.line(text.to_string().trim_end())?;
    }
    Ok(Exit::Success)
}

/// Writes why runs cannot be read.
pub(super) fn record_unreadable(output: Output, tree: &Tree) -> Result<(), Fault> {
    tree.unreadable().iter().try_for_each(|why| output.record(&json!({ "unreadable": why })))?;
    Ok(())
}
