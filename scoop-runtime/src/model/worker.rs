//! A registered process.

use std::time::SystemTime;

/// A registered worker, with its sagas.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredWorker {
    /// Its identifier in events.
    pub identifier: String,
    /// The time since which it runs.
    pub started_at: SystemTime,
    /// The service of its program: [`Builder::service`](crate::Builder::service).
    pub service: String,
    /// The build of its program: [`Builder::build`](crate::Builder::build).
    pub build: String,
    /// Whether its session lives. If it does not, another worker takes its runs over, and its registration is deleted.
    pub is_alive: bool,
    /// The name of its connection, which begins with that of the program; if the role may see it.
    pub application: Option<String>,
    /// The address from which it has connected, unless that is a local socket; if the role may see it.
    pub address: Option<String>,
    /// Its sagas.
    pub sagas: Vec<WorkerSaga>,
}

/// A saga that a worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSaga {
    /// The topic that it is subscribed to.
    pub topic: String,
    /// The saga, by its stored name.
    pub handler: String,
    /// The number of the definition of the saga.
    pub definition: i32,
}

impl WorkerSaga {
    /// The sagas in the lists of a row.
    pub(crate) fn of_lists(topics: Vec<String>, handlers: Vec<String>, definitions: Vec<i32>) -> Vec<Self> {
        let pairs = topics.into_iter().zip(handlers).zip(definitions);
        pairs.map(|((topic, handler), definition)| Self { topic, handler, definition }).collect()
    }
}
