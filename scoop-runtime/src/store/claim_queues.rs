//! The queues that a worker claims from.

use scoop_core::Definition;

/// The runs that a worker may claim: those of some handlers, on some topic each, that are reserved for one definition
/// of the handler, or for none. Lists with an element for each such queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClaimQueues {
    pub(crate) topics: Vec<String>,
    pub(crate) handlers: Vec<String>,
    /// The definition that the runs are reserved for; 0 for those that continue under the current definition.
    pub(crate) reserved_for: Vec<i32>,
    /// Whether a pause for new runs only covers the queue: then claims pass over its new runs.
    pub(crate) begun_only: Vec<bool>,
    /// The definition at hand.
    pub(crate) definitions: Vec<i32>,
    /// The last step of the definition at hand.
    pub(crate) last_steps: Vec<String>,
    /// The value of `worker.topology` that the lists follow from. With another value nothing is claimed.
    pub(crate) topology: i64,
}

impl ClaimQueues {
    pub(crate) fn push(
        &mut self,
        topic: &str,
        saga: &Definition,
        definition: i32,
        reserved_for: i32,
        begun_only: bool,
    ) {
        self.topics.push(topic.to_owned());
        self.handlers.push(saga.saga.to_string());
        self.reserved_for.push(reserved_for);
        self.begun_only.push(begun_only);
        self.definitions.push(definition);
        self.last_steps.push(saga.last_step().unwrap_or_default().to_owned());
    }

    pub(crate) fn extend(&mut self, queues: &Self) {
        self.topics.extend_from_slice(&queues.topics);
        self.handlers.extend_from_slice(&queues.handlers);
        self.reserved_for.extend_from_slice(&queues.reserved_for);
        self.begun_only.extend_from_slice(&queues.begun_only);
        self.definitions.extend_from_slice(&queues.definitions);
        self.last_steps.extend_from_slice(&queues.last_steps);
    }

    /// The queues of runs that are not reserved, of these topics and handlers.
    #[cfg(test)]
    pub(crate) fn unreserved(topics: &[String], handlers: &[String]) -> Self {
        let count = topics.len();
        Self {
            topics: topics.to_vec(),
            handlers: handlers.to_vec(),
            reserved_for: vec![0; count],
            begun_only: vec![false; count],
            definitions: vec![0; count],
            last_steps: vec![String::new(); count],
            topology: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    /// The topics, handlers and reservations.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &str, i32)> {
        let subscriptions = self.topics.iter().zip(&self.handlers);
        subscriptions.zip(&self.reserved_for).map(|((topic, handler), queue)| (&**topic, &**handler, *queue))
    }

    /// The queues that `accepts` accepts, by topic, handler and reservation.
    pub(crate) fn only(&self, accepts: impl Fn((&str, &str, i32)) -> bool) -> Self {
        let mut only = Self { topology: self.topology, ..Self::default() };
        for (at, queue) in self.each().enumerate().filter(|(_, queue)| accepts(*queue)) {
            only.topics.push(queue.0.to_owned());
            only.handlers.push(queue.1.to_owned());
            only.reserved_for.push(queue.2);
            only.begun_only.push(self.begun_only[at]);
            only.definitions.push(self.definitions[at]);
            only.last_steps.push(self.last_steps[at].clone());
        }
        only
    }
}
