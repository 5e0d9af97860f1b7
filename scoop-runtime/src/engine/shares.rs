//! Which handler has how many of the slots, so that the next ones go to those that have few.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

/// How many runs of each handler are worked on. Those of which none is are not in it.
#[derive(Clone, Default)]
pub(super) struct Shares(Arc<Mutex<BTreeMap<String, usize>>>);

/// One run of a handler, as long as it has a slot.
pub(super) struct Share {
    shares: Shares,
    handler: String,
}

/// What a run holds that is worked on. The share goes first, so that whoever claims for the slot knows.
pub(super) struct Seat {
    share: Share,
    slot: OwnedSemaphorePermit,
}

impl Seat {
    pub(super) fn new(share: Share, slot: OwnedSemaphorePermit) -> Self {
        Self { share, slot }
    }

    /// The slot alone, for a run of whatever handler.
    pub(super) fn into_slot(self) -> OwnedSemaphorePermit {
        let Self { share, slot } = self;
        drop(share);
        slot
    }
}

impl Shares {
    /// Counts one more, until that is dropped.
    pub(super) fn take(&self, handler: &str) -> Share {
        *self.map().entry(handler.to_owned()).or_default() += 1;
        Share { shares: self.clone(), handler: handler.to_owned() }
    }

    /// How many there are now, as the database takes it.
    pub(super) fn now(&self) -> BTreeMap<String, usize> {
        self.map().clone()
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut map = self.shares.map();
        let last = map.get_mut(&self.handler).is_none_or(|count| {
            *count -= 1;
            *count == 0
        });
        if last {
            map.remove(&self.handler);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_dropped_is_not_counted() {
        let shares = Shares::default();
        let now = || serde_json::to_value(shares.now()).unwrap();
        let (one, another, other) = (shares.take("a"), shares.take("a"), shares.take("b"));
        assert_eq!(now(), json!({ "a": 2, "b": 1 }));
        drop((one, other));
        assert_eq!(now(), json!({ "a": 1 }));
        drop(another);
        assert_eq!(now(), json!({}));
    }
}
