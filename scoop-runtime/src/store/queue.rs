//! Queues with a limit, and the places in them that programs hold for their launches.
//!
//! A limit of the queue is kept by launches: no claim reads it. The waiting runs, counted up to the limit (`scoop.waiting_runs`), and
//! the launches that all programs have leased are together no more than the limit (`scoop.lease_places`). After a request without an
//! answer, a program has another holder: the late statement of the former one cannot shorten its lease.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use scoop_core::Escaped;
use uuid::Uuid;

/// The longest queue that a limit can state: the count of a queue ends there.
pub(crate) const QUEUE_MAX: u32 = 100_000;

/// For how long a lease counts, by the clock of the database.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// The topics on which launches need a place in the queue of a saga, with these sagas.
pub(crate) type LimitedTopics = BTreeMap<String, Vec<String>>;

/// What a program asks of the queue of a saga.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRequest {
    pub(crate) saga: String,
    pub(crate) holder: Uuid,
    /// The capacity for launches under way, and for later ones.
    pub(crate) in_use: usize,
    /// The messages of launches in doubt: each holds capacity until it is visible.
    pub(crate) in_doubt: Vec<Uuid>,
    /// The capacity that it needs beyond that. Without any in use, in doubt or needed, it returns its capacity.
    pub(crate) needed: usize,
}

/// The answer, if the queue has a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The limit.
    pub(crate) most: u32,
    /// The additional capacity of the program.
    pub(crate) granted: usize,
    /// Whether a quarter of the capacity is taken: then a program keeps none that it does not use.
    pub(crate) is_scarce: bool,
    /// The launched ones of the messages in doubt.
    pub(crate) launched: Vec<Uuid>,
}

/// The queue of a saga with `#[saga(queue = ..)]`. Display it for one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueLength {
    /// The saga.
    pub saga: String,
    /// How many runs may wait for a worker when a message is launched from outside.
    pub limit: u32,
    /// The number of runs that wait; the limit stands for that or more. Places that programs hold for launches do not count.
    pub waiting: usize,
}

impl QueueLength {
    /// Whether nine tenths of the places are taken, or more.
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

pub(crate) fn limited_topics(pairs: impl IntoIterator<Item = (String, String)>) -> LimitedTopics {
    let mut topics = LimitedTopics::new();
    for (topic, saga) in pairs {
        topics.entry(topic).or_default().push(saga);
    }
    topics
}
