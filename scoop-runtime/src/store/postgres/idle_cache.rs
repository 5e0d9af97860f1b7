//! Caches recently used connections for 5 ms.
//!
//! sqlx's pool pings each returned connection, which is a round trip, and hands out the longest-idle one. So
//! consecutive statements of a saga that runs alone would each meet another, cold session of the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::util::sync::{Mutex, lock};

/// The number of uses in a row after which a connection returns to its pool anyway, which limits the lifetime of
/// connections.
pub(crate) const USES_MAX: u32 = 1_000;

const IDLE_MAX: Duration = Duration::from_millis(5);

/// A cache of items for the next user. Clones share it.
#[derive(Debug)]
pub(crate) struct IdleCache<T>(Arc<Mutex<Entries<T>>>);

#[derive(Debug)]
struct Entries<T> {
    /// The items with their expiry times, earliest first.
    items: VecDeque<(Instant, T)>,
    /// Whether an [`EvictionTask`] drops expired items.
    is_evicting: bool,
}

impl<T: Send + 'static> IdleCache<T> {
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).items.len()
    }

    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.0).items.pop_back().map(|(_, thing)| thing)
    }

    /// Keeps the item until it is taken, or dropped after a moment.
    pub(crate) fn put(&self, thing: T) {
        let begins = {
            let mut entries = lock(&self.0);
            entries.items.push_back((Instant::now() + IDLE_MAX, thing));
            !std::mem::replace(&mut entries.is_evicting, true)
        };
        if begins {
            // Spawned without the lock: a runtime that is shutting down drops the task at once, which locks.
            tokio::spawn(EvictionTask(Some(self.0.clone())).until_none_is_left());
        }
    }
}

impl<T> Default for IdleCache<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Entries { items: VecDeque::new(), is_evicting: false })))
    }
}

impl<T> Clone for IdleCache<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A task that drops expired items. It ends when none is left; the field is then `None`.
struct EvictionTask<T>(Option<Arc<Mutex<Entries<T>>>>);

impl<T> EvictionTask<T> {
    async fn until_none_is_left(mut self) {
        while let Some(next) = self.drop_what_is_due() {
            tokio::time::sleep_until(next).await;
        }
    }

    /// Returns the expiry time of the next item.
    fn drop_what_is_due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        loop {
            let mut entries = lock(self.0.as_ref()?);
            let due = entries.items.pop_front_if(|(until, _)| *until <= now);
            if due.is_none() {
                let next = entries.items.front().map(|(until, _)| *until);
                entries.is_evicting = next.is_some();
                drop(entries);
                self.0.take_if(|_| next.is_none());
                return next;
            }
            // Dropped without the lock: the destructor of the item may use the cache.
            drop(entries);
        }
    }
}

impl<T> Drop for EvictionTask<T> {
    /// Drops all items if the task is stopped with its runtime: they may belong to that runtime.
    fn drop(&mut self) {
        let Some(entries) = &self.0 else { return };
        let items = {
            let mut entries = lock(entries);
            entries.is_evicting = false;
            std::mem::take(&mut entries.items)
        };
        drop(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive<T>(things: &[std::sync::Weak<T>]) -> Vec<bool> {
        things.iter().map(|thing| thing.strong_count() > 0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn next_user_gets_the_connection_used_last() {
        let warm = IdleCache::default();
        assert_eq!(warm.take(), None);
        (1..=3).for_each(|n| warm.put(n));
        assert_eq!([warm.take(), warm.take()], [Some(3), Some(2)]);
        warm.put(4);
        assert_eq!([warm.take(), warm.take(), warm.take()], [Some(4), Some(1), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn item_that_is_not_taken_is_dropped_after_a_moment() {
        let (warm, things) = (IdleCache::default(), [Arc::new(1), Arc::new(2)]);
        let weak = things.each_ref().map(Arc::downgrade);
        let [first, second] = things;
        warm.put(first);
        tokio::time::sleep(IDLE_MAX / 2).await;
        warm.put(second);
        assert_eq!(alive(&weak), [true, true]);
        tokio::time::sleep(IDLE_MAX / 2 + Duration::from_millis(1)).await;
        assert_eq!(alive(&weak), [false, true]);
        // An item that is taken and put back gets a new expiry time.
        warm.put(warm.take().unwrap());
        tokio::time::sleep(IDLE_MAX / 2).await;
        assert_eq!(alive(&weak), [false, true]);
        tokio::time::sleep(IDLE_MAX).await;
        assert_eq!(alive(&weak), [false, false]);
        // The watch starts anew, too.
        warm.put(Arc::new(3));
        let third = Arc::downgrade(lock(&warm.0).items.front().map(|(_, third)| third).unwrap());
        tokio::time::sleep(IDLE_MAX * 2).await;
        assert_eq!(alive(&[third]), [false]);
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
    }

    #[test]
    fn nothing_outlives_the_runtime() {
        let (warm, things) = (IdleCache::default(), [Arc::new(1), Arc::new(2), Arc::new(3)]);
        let weak = things.each_ref().map(Arc::downgrade);
        let [first, second, third] = things;
        let (former, latter) = (runtime(), runtime());
        let handle = former.handle().clone();
        former.block_on(async { warm.put(first) });
        assert_eq!(alive(&weak), [true, true, true]);
        drop(former);
        assert_eq!(alive(&weak), [false, true, true]);
        // A task that still runs there puts another item.
        let entered = handle.enter();
        warm.put(second);
        drop(entered);
        assert_eq!(alive(&weak), [false, false, true]);
        latter.block_on(async {
            warm.put(third);
            tokio::time::sleep(IDLE_MAX / 2).await;
            assert_eq!(alive(&weak), [false, false, true]);
            tokio::time::sleep(IDLE_MAX).await;
            assert_eq!(alive(&weak), [false, false, false]);
        });
    }
}
