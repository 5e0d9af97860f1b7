//! A database of its own for each test.

use std::time::SystemTime;

use scoop::{Builder, InMemory, LoggedEvent, Scoop};
use serde_json::{Value, json};

use super::rows::History;

/// A database that nobody else uses.
pub(crate) struct Database(InMemory);

impl Database {
    /// A fresh one.
    pub(crate) async fn new() -> Self {
        Self(InMemory::new())
    }

    /// What starts a program on this database.
    pub(crate) fn scoop(&self) -> Builder {
        Scoop::builder().in_memory_on(&self.0)
    }

    /// All that is on record.
    pub(crate) async fn history(&self) -> History {
        let mut events = self.0.event_log();
        events.sort_by_key(|event| (event.at, event.id));
        History::of_rows(events.into_iter().map(row))
    }
}

/// The event as a row of the table.
fn row(event: LoggedEvent) -> Value {
    let since = event.at.duration_since(SystemTime::UNIX_EPOCH).expect("it is later than that");
    json!({
        "message_id": event.message_id, "kind": event.kind.as_str(), "handler": event.handler,
        "worker": event.worker, "step": event.step, "next_step": event.next_step,
        "cfhi": event.child_failure_handler_iteration, "lineage": event.lineage.ids(),
        "exception": event.exception, "context": Some(event.context).filter(|context| !context.is_empty()),
        "micros": u64::try_from(since.as_micros()).expect("nobody lives to see it"),
    })
}
