//! Queues with a limit. The limit is kept by launches: no claim reads it.

use std::collections::BTreeMap;
use std::fmt;

use scoop_core::Escaped;
use serde::Serialize;

/// The longest queue that a limit can state: the count of a queue ends there.
pub(crate) const QUEUE_MAX: u32 = 100_000;

/// The topics whose sagas have queues with a limit, with these sagas.
pub(crate) type LimitedTopics = BTreeMap<String, Vec<String>>;

/// The queue of a saga with `#[saga(queue = ..)]`. Display it for one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueLength {
    /// The saga.
    pub saga: String,
    /// How many runs may wait for a worker when a message is launched from outside.
    pub limit: u32,
    /// The number of runs that wait; the limit stands for that or more.
    pub waiting: usize,
}

impl QueueLength {
    /// Whether nine tenths of the limit wait, or more.
    pub fn is_nearly_full(&self) -> bool {
        self.waiting as u64 * 10 >= u64::from(self.limit) * 9
    }
}

impl fmt::Display for QueueLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { saga, limit, waiting } = self;
        let or_more = if *waiting >= *limit as usize { " or more" } else { "" };
        let runs = if *waiting == 1 && or_more.is_empty() { "run waits" } else { "runs wait" };
        write!(f, "{waiting}{or_more} {runs} in the queue of saga `{}`; its limit is {limit}", Escaped(saga))
    }
}

pub(crate) fn limited_topics(subscriptions: impl IntoIterator<Item = (String, String)>) -> LimitedTopics {
    let mut topics = LimitedTopics::new();
    for (topic, saga) in subscriptions {
        topics.entry(topic).or_default().push(saga);
    }
    topics
}
