//! The launches that this process has seen first, and that are not recorded yet.

use tokio::sync::Notify;

use crate::model::launched_topics::StepTopic;
use crate::util::sync::{Mutex, lock};

/// The launches that this process has seen first.
#[derive(Default)]
pub(super) struct NewLaunches {
    pub(super) unrecorded: Mutex<Vec<StepTopic>>,
    pub(super) noted: Notify,
}

impl NewLaunches {
    pub(super) fn note(&self, seen: StepTopic) {
        lock(&self.unrecorded).push(seen);
        self.noted.notify_one();
    }
}
