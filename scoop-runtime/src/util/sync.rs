//! The locks of the engine. They are those of the standard library. Only the tests of interleavings replace them with
//! locks that let other threads run at each use: see `docs/development/testing.md`.

#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks. Poisoning is ignored: each critical section is a single change, so a panic leaves no partial change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test under many schedules of its threads: random ones, and ones with few preemptions at chosen points.
/// `SCHEDULES` in the environment is the number of each kind.
#[cfg(all(test, feature = "shuttle"))]
pub(crate) fn explore(test: impl Fn() + Send + Sync + Copy + 'static) {
    let schedules = std::env::var("SCHEDULES").map_or(1_000, |count| count.parse().expect("a number"));
    shuttle::check_random(test, schedules);
    shuttle::check_pct(test, schedules, 3);
}
