//! `scoop events`

use std::pin::pin;
use std::time::{Duration, SystemTime};

use scoop_operate::{EventCursor, OperateExt as _};
use scoop_runtime::{HierarchyId, Scoop};
use serde_json::json;

use super::target::id;
use crate::fault::{Exit, Fault};
use crate::interrupt::interrupted;
use crate::output::Output;
use crate::times;

/// Where the events begin by default.
const SINCE: Duration = Duration::from_secs(60 * 60);

/// Show recorded events, those of the last hour by default; with --follow also those to come
///
/// Each event comes once, after the commit of its transaction, and none is left out. With --follow alone it begins now, and
/// goes on until the program is interrupted.
#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    /// Wait for further events
    #[arg(long, short)]
    follow: bool,
    /// Only events of this saga
    #[arg(long = "saga", alias = "handler", value_name = "SAGA")]
    handler: Option<String>,
    /// Only events of the hierarchy with this id
    #[arg(long, value_name = "ID", value_parser = id::<HierarchyId>)]
    hierarchy: Option<HierarchyId>,
    /// End after so many events
    #[arg(long, alias = "limit", value_name = "EVENTS")]
    count: Option<u64>,
    /// Go on from this place: the end of the command names it. Some of the last events are repeated
    #[arg(long, value_name = "CURSOR", value_parser = cursor)]
    after: Option<EventCursor>,
    /// Begin with the events of this time: a time, or a duration such as 15m for 15 minutes ago
    #[arg(long, value_name = "TIME", value_parser = times::time, conflicts_with = "after")]
    since: Option<SystemTime>,
}

/// Reads a place in the record.
fn cursor(text: &str) -> Result<EventCursor, String> {
    text.parse().map_err(|_| {
        let text: String = text.chars().take(80).collect();
        format!("{text:?} is no place in the record; use the place that `scoop events` writes at its end")
    })
}

/// Shows the events.
pub(crate) async fn follow(scoop: &Scoop, output: Output, args: EventsArgs) -> Result<Exit, Fault> {
    let EventsArgs { follow, handler, hierarchy, count, after, since } = args;
    let mut events = scoop.operate().events().after(after);
    let by_default = !follow && after.is_none();
    if let Some(begin) = since.or_else(|| SystemTime::now().checked_sub(SINCE).filter(|_| by_default)) {
        events = events.since(begin);
    }
    if let Some(handler) = handler {
        events = events.handler(handler);
    }
    if let Some(hierarchy) = hierarchy {
        events = events.hierarchy(hierarchy);
    }
    let mut events = if follow { events.follow() } else { events.recorded() };
    let mut left = count.unwrap_or(u64::MAX);
    // One for all events: an interrupt counts while an event is written, too.
    let mut interrupted = pin!(interrupted());
    let mut ended = Ok(Exit::Success);
    while left > 0 {
        let event = tokio::select! {
            biased;
            () = &mut interrupted => None,
            event = events.next() => event,
        };
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                // Another call goes on from the place all the same.
                ended = Err(error.into());
                break;
            }
            None => break,
        };
        left -= 1;
        if output.json {
            output.record(&event)?;
        } else {
            output.line(event)?;
        }
    }
    let Some(cursor) = events.cursor() else { return ended };
    let written = if output.json { output.record(&json!({ "next": cursor.to_string() })) } else { Ok(()) };
    output.remark(format_args!("to go on from here: --after {cursor}"));
    let exit = ended?;
    written?;
    Ok(exit)
}
