//! The message of scheduled sagas.

use std::time::SystemTime;

use scoop_core::Message;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The message of a scheduled saga: a due time of its schedule.
///
/// The engine creates it; programs cannot launch it. Each saga has a private topic for its ticks.
///
/// ```
/// # use scoop_runtime::Tick;
/// fn describe(tick: &Tick) -> String {
///     format!("run {}, which was due at {:?}", tick.count(), tick.due())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    #[serde(with = "time::serde::rfc3339")]
    due: OffsetDateTime,
    run: u64,
}

impl Tick {
    pub(crate) fn new(due: OffsetDateTime, run: u64) -> Self {
        Self { due, run }
    }

    /// The due time, by the clock of the database. The run begins later, if only by milliseconds. If one run makes up
    /// for several missed times, this is the first of them.
    pub fn due(&self) -> SystemTime {
        self.due.into()
    }

    /// The number of this run of the saga, from 1, over all processes and all starts.
    pub fn count(&self) -> u64 {
        self.run
    }
}

/// A topic without handlers: `#[saga]` subscribes each scheduled saga to a private topic.
const TOPIC: &str = "ticks";

#[diagnostic::do_not_recommend]
impl Message for Tick {
    const TOPIC: &'static str = TOPIC;
    type Reply = ();
}
