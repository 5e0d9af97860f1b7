//! The locks of the engine. They are those of the standard library; only the tests of interleavings
//! exchange them for such that let others come in between at each use: see `docs/testing.md`.

#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks. Whatever panicked while it held the lock left nothing half done: nothing here takes two steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test under many schedules of its threads: most by chance, the others with a few threads that
/// are preempted where it hurts. `SCHEDULES` in the environment says how many of each.
#[cfg(all(test, feature = "shuttle"))]
pub(crate) fn explore(test: impl Fn() + Send + Sync + Copy + 'static) {
    let schedules = std::env::var("SCHEDULES").map_or(1_000, |count| count.parse().expect("a number"));
    shuttle::check_random(test, schedules);
    shuttle::check_pct(test, schedules, 3);
}
