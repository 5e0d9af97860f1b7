//! Keeps at hand for a moment what was just in use.
//!
//! For connections: a pool tests each that comes back, which is a round trip, and hands out the one that has
//! rested longest. A saga that runs alone would so meet another session of the server for each of its statements, one
//! that has long gone to sleep.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::{Mutex, lock};

/// After how many uses in a row a connection goes back to its pool all the same, which has its own rules about how long
/// one may live.
pub(crate) const USES_MAX: u32 = 1_000;

/// How long something is kept.
const KEPT_FOR: Duration = Duration::from_millis(5);

/// What is kept for whoever wants it next. Clones share it.
#[derive(Debug)]
pub(crate) struct Warm<T>(Arc<Mutex<Shelf<T>>>);

#[derive(Debug)]
struct Shelf<T> {
    /// Each with the time when it has to go, the first to go in front.
    kept: VecDeque<(Instant, T)>,
    /// Whether somebody sees to it that they do.
    watched: bool,
}

impl<T: Send + 'static> Warm<T> {
    /// Whatever was used last.
    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.0).kept.pop_back().map(|(_, thing)| thing)
    }

    /// Keeps it until somebody takes it. If nobody does it is soon dropped.
    pub(crate) fn put(&self, thing: T) {
        let begins = {
            let mut shelf = lock(&self.0);
            shelf.kept.push_back((Instant::now() + KEPT_FOR, thing));
            !std::mem::replace(&mut shelf.watched, true)
        };
        if begins {
            // Not while the lock is held: a runtime that is shutting down drops it at once.
            tokio::spawn(Watch(Some(self.0.clone())).until_none_is_left());
        }
    }
}

impl<T> Default for Warm<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Shelf { kept: VecDeque::new(), watched: false })))
    }
}

impl<T> Clone for Warm<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The duty to drop what nobody has taken in time. Over when there is no shelf in it any more.
struct Watch<T>(Option<Arc<Mutex<Shelf<T>>>>);

impl<T> Watch<T> {
    async fn until_none_is_left(mut self) {
        while let Some(next) = self.drop_what_is_due() {
            tokio::time::sleep_until(next).await;
        }
    }

    /// Says when the next one is due.
    fn drop_what_is_due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        loop {
            let mut shelf = lock(self.0.as_ref()?);
            let due = shelf.kept.pop_front_if(|(until, _)| *until <= now);
            if due.is_none() {
                let next = shelf.kept.front().map(|(until, _)| *until);
                shelf.watched = next.is_some();
                drop(shelf);
                self.0.take_if(|_| next.is_none());
                return next;
            }
            // Not while the lock is held: whatever is dropped may do something about it.
            drop(shelf);
        }
    }
}

impl<T> Drop for Watch<T> {
    /// If it is stopped in the middle, with its runtime, nothing stays behind that this runtime would have to drop.
    fn drop(&mut self) {
        let Some(shelf) = &self.0 else { return };
        let kept = {
            let mut shelf = lock(shelf);
            shelf.watched = false;
            std::mem::take(&mut shelf.kept)
        };
        drop(kept);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn alive<T>(things: &[std::sync::Weak<T>]) -> Vec<bool> {
        things.iter().map(|thing| thing.strong_count() > 0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn next_user_gets_the_connection_used_last() {
        let warm = Warm::default();
        assert_eq!(warm.take(), None);
        (1..=3).for_each(|n| warm.put(n));
        assert_eq!([warm.take(), warm.take()], [Some(3), Some(2)]);
        warm.put(4);
        assert_eq!([warm.take(), warm.take(), warm.take()], [Some(4), Some(1), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_longer_than_a_moment() {
        let (warm, things) = (Warm::default(), [Arc::new(1), Arc::new(2)]);
        let weak = things.each_ref().map(Arc::downgrade);
        let [first, second] = things;
        warm.put(first);
        tokio::time::sleep(KEPT_FOR / 2).await;
        warm.put(second);
        assert_eq!(alive(&weak), [true, true]);
        tokio::time::sleep(KEPT_FOR / 2 + Duration::from_millis(1)).await;
        assert_eq!(alive(&weak), [false, true]);
        // Taken and put back it starts anew.
        warm.put(warm.take().unwrap());
        tokio::time::sleep(KEPT_FOR / 2).await;
        assert_eq!(alive(&weak), [false, true]);
        tokio::time::sleep(KEPT_FOR).await;
        assert_eq!(alive(&weak), [false, false]);
        // And so does the watch.
        warm.put(Arc::new(3));
        let third = Arc::downgrade(lock(&warm.0).kept.front().map(|(_, third)| third).unwrap());
        tokio::time::sleep(KEPT_FOR * 2).await;
        assert_eq!(alive(&[third]), [false]);
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
    }

    #[test]
    fn nothing_outlives_the_runtime() {
        let (warm, things) = (Warm::default(), [Arc::new(1), Arc::new(2), Arc::new(3)]);
        let weak = things.each_ref().map(Arc::downgrade);
        let [first, second, third] = things;
        let (former, latter) = (runtime(), runtime());
        let handle = former.handle().clone();
        former.block_on(async { warm.put(first) });
        assert_eq!(alive(&weak), [true, true, true]);
        drop(former);
        assert_eq!(alive(&weak), [false, true, true]);
        // Whoever is still at work there puts more.
        let entered = handle.enter();
        warm.put(second);
        drop(entered);
        assert_eq!(alive(&weak), [false, false, true]);
        latter.block_on(async {
            warm.put(third);
            tokio::time::sleep(KEPT_FOR / 2).await;
            assert_eq!(alive(&weak), [false, false, true]);
            tokio::time::sleep(KEPT_FOR).await;
            assert_eq!(alive(&weak), [false, false, false]);
        });
    }
}
