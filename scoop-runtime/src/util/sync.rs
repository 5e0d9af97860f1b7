//! The locks of the engine. They are those of the standard library. Only the tests of interleavings replace them with
//! locks that let other threads run at each use: see `docs/development/testing.md`.

#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(test)]
pub(crate) use self::explored::{Mutex, MutexGuard, explore};

use std::sync::PoisonError;

/// Locks. Poisoning is ignored: each critical section is a single change, so a panic leaves no partial change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod explored {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError};

    use super::lock;

    thread_local! {
        /// Whether this thread explores schedules. The threads of a test of interleavings are coroutines of one thread.
        static EXPLORING: Cell<bool> = const { Cell::new(false) };
    }

    /// A lock of `shuttle` if it is made by [`explore`], otherwise one of the standard library.
    #[derive(Debug)]
    pub(crate) enum Mutex<T> {
        Real(std::sync::Mutex<T>),
        Explored(shuttle::sync::Mutex<T>),
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            match EXPLORING.get() {
                true => Self::Explored(shuttle::sync::Mutex::new(value)),
                false => Self::Real(std::sync::Mutex::new(value)),
            }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            match self {
                Self::Real(mutex) => wrap(mutex.lock(), MutexGuard::Real),
                Self::Explored(mutex) => wrap(mutex.lock(), MutexGuard::Explored),
            }
        }
    }

    fn wrap<G, W>(locked: LockResult<G>, wrapper: impl Fn(G) -> W) -> LockResult<W> {
        locked.map(&wrapper).map_err(|poisoned| PoisonError::new(wrapper(poisoned.into_inner())))
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    #[derive(Debug)]
    pub(crate) enum MutexGuard<'a, T> {
        Real(std::sync::MutexGuard<'a, T>),
        Explored(shuttle::sync::MutexGuard<'a, T>),
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match self {
                Self::Real(guard) => guard,
                Self::Explored(guard) => guard,
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match self {
                Self::Real(guard) => guard,
                Self::Explored(guard) => guard,
            }
        }
    }

    /// Runs a test under many schedules of its threads: random ones, and ones with few preemptions at chosen points.
    /// `SCHEDULES` in the environment is the number of each kind.
    pub(crate) fn explore(test: impl Fn() + Send + Sync + Copy + 'static) {
        let schedules = std::env::var("SCHEDULES").map_or(1_000, |count| count.parse().expect("a number"));
        let _exploring = Exploring::begin();
        shuttle::check_random(test, schedules);
        shuttle::check_pct(test, schedules, 3);
    }

    /// The time in which a thread explores. A panic ends it, too: another test may run on the same thread afterwards.
    struct Exploring;

    impl Exploring {
        fn begin() -> Self {
            EXPLORING.set(true);
            Self
        }
    }

    impl Drop for Exploring {
        fn drop(&mut self) {
            EXPLORING.set(false);
        }
    }

    /// Otherwise the tests of interleavings explore one schedule, that of the operating system.
    #[test]
    fn locks_of_explored_code_are_those_of_shuttle() {
        explore(|| {
            let mutex = std::sync::Arc::new(Mutex::new(1));
            assert!(matches!(*mutex, Mutex::Explored(_)));
            let other = mutex.clone();
            let thread = shuttle::thread::spawn(move || *lock(&other) += 1);
            *lock(&mutex) += 1;
            thread.join().unwrap();
            assert_eq!(*lock(&mutex), 3);
        });
        assert!(matches!(Mutex::new(()), Mutex::Real(_)));
        let failed = std::panic::catch_unwind(|| explore(|| panic!("a test fails")));
        assert!(failed.is_err());
        assert!(matches!(Mutex::new(()), Mutex::Real(_)));
    }
}
