//! `scoop events`

use std::io;

use scoop_runtime::{EventCursor, EventStream, HierarchyId, RecordedEvent, RuntimeError, Scoop};
use serde::Serialize;

use super::records::EventRecord;
use super::target::id;
use crate::fault::{Exit, Fault};
use crate::output::Output;

/// Follow events as they are recorded, until the program is interrupted
///
/// Each event comes once, after the commit of its transaction, and none is left out. To see what has happened before, use
/// `tree` or `timeline`.
#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    /// Wait for further events; the command always does
    #[arg(long, short)]
    follow: bool,
    /// Only events of this saga
    #[arg(long, value_name = "SAGA")]
    handler: Option<String>,
    /// Only events of the hierarchy with this id
    #[arg(long, value_name = "ID", value_parser = id::<HierarchyId>)]
    hierarchy: Option<HierarchyId>,
    /// End after so many events
    #[arg(long, value_name = "EVENTS")]
    count: Option<u64>,
    /// Go on from this place: the end of the command names it. Some of the last events are repeated
    #[arg(long, value_name = "PLACE")]
    after: Option<EventCursor>,
}

/// The last line: the place from which another call goes on.
#[derive(Serialize)]
struct PlaceRecord {
    next: String,
}

/// Follows the events.
pub(crate) async fn follow(scoop: &Scoop, output: Output, args: EventsArgs) -> Result<Exit, Fault> {
    // It is the only mode; the option is there since users expect it.
    let EventsArgs { follow: _, handler, hierarchy, count, after } = args;
    let mut events = scoop.events().after(after);
    if let Some(handler) = handler {
        events = events.handler(handler);
    }
    if let Some(hierarchy) = hierarchy {
        events = events.hierarchy(hierarchy);
    }
    let mut events = events.follow();
    let mut left = count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(event) = next(&mut events).await? else { break };
        left -= 1;
        if output.json {
            output.record(&EventRecord::from(&event?))?;
        } else {
            output.line(event?)?;
        }
    }
    let Some(place) = events.cursor() else { return Ok(Exit::Done) };
    if output.json {
        output.record(&PlaceRecord { next: place.to_string() })?;
    }
    output.remark(format_args!("to go on from here: --after {place}"));
    Ok(Exit::Done)
}

/// The next event; `None` if the user interrupts the program.
async fn next(events: &mut EventStream) -> io::Result<Option<Result<RecordedEvent, RuntimeError>>> {
    tokio::select! {
        event = events.next() => Ok(event),
        interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| None),
    }
}
