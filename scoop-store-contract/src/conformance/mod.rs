//! A conformance suite for stores of rounds: it tests the promises of [`Rounds`].
//!
//! A store under test needs a [`World`]: how to open it and, as far as possible, how to make a call fail, move the
//! clock and kill a holder. Then [`check`] runs every [`Case`], each in worlds of its own:
//!
//! ```
//! use std::time::Duration;
//!
//! use scoop_store_contract::conformance::{self, Faults, Faulty, World};
//! use scoop_store_contract::reference::Memory;
//!
//! struct InMemory {
//!     store: Memory,
//!     faults: Faults,
//! }
//!
//! impl World for InMemory {
//!     type Store = Faulty<Memory>;
//!
//!     async fn open(&self) -> Faulty<Memory> {
//!         Faulty::new(self.store.clone(), self.faults.clone())
//!     }
//!
//!     async fn advance(&self, by: Duration) {
//!         self.store.advance(by);
//!     }
//!
//!     async fn kill(&self, holder: &str) {
//!         self.store.kill(holder);
//!     }
//!
//!     fn faults(&self) -> &Faults {
//!         &self.faults
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! conformance::check(async || InMemory { store: Memory::new(), faults: Faults::default() }).await?;
//! # Ok::<_, conformance::Violations>(())
//! # }).unwrap();
//! ```
//!
//! The suite is deterministic: it depends neither on randomness, nor on a runtime, nor on speed. Concurrent holders are
//! futures of one task, which interleave by fixed pseudo-random numbers.
//!
//! [`Faulty`] makes whole calls fail. A store whose calls consist of smaller ones has to fail between these, or
//! atomicity is not tested. Put the [`Faulty`] below such a store (as the suite of
//! [`PeekLockStore`](crate::peek_lock::PeekLockStore) does), or call [`Faults::next`] before each of the smaller calls.

mod cases;
mod faults;
mod support;

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

pub use faults::{Fault, Faults, Faulty, FaultyError, InjectedAt};

use crate::Rounds;
use support::CaseFailure;

/// One store, and the control over its environment.
pub trait World {
    /// A handle on the store.
    type Store: Rounds;

    /// Opens another handle on the same store, as another process would.
    fn open(&self) -> impl Future<Output = Self::Store>;

    /// Advances the clock of the store by at least this time, and by less than a minute more.
    fn advance(&self, by: Duration) -> impl Future<Output = ()>;

    /// Makes a holder dead for the store: its session ends, or time passes until its locks have expired. Locks of other
    /// holders may expire, too.
    ///
    /// Later calls under the holder's name come from a process that does not know of its death.
    fn kill(&self, holder: &str) -> impl Future<Output = ()>;

    /// The faults to inject. They must take effect in all handles.
    fn faults(&self) -> &Faults;

    /// The time after which an item of a living holder is taken over; `None` for never.
    fn lock_time(&self) -> Option<Duration> {
        None
    }
}

/// A test of one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Case {
    /// A dequeued item stays in the queue with one holder. An abandoned item can go to any holder.
    Held,
    /// Repeated entries and items exist once.
    Idempotence,
    /// Entries come in the order of their rounds, items in that of their times.
    Ordering,
    /// No item is dequeued before its time.
    Visibility,
    /// A lock expires after the lock time, and not before.
    LockExpiry,
    /// After a takeover the round of the former holder is refused, and leaves nothing.
    Fencing,
    /// A round is atomic, no matter which call fails.
    Atomicity,
    /// A round that acknowledges nothing is atomic, too.
    LaunchAtomicity,
    /// After a crash at any call, other processes finish the work with the same result.
    CrashWindows,
    /// Any call whose answer was lost may be repeated.
    LostAnswers,
    /// No two concurrent holders have the same item, and each item is acknowledged once.
    Concurrency,
    /// No reader ever sees a part of a round.
    HalfRounds,
    /// An event from outside reaches one wait exactly once, early or late, and is lost by no crash.
    ExternalEvents,
    /// An instance that continues as new begins its next execution exactly once, with an empty history.
    ContinueAsNew,
}

impl Case {
    /// All cases.
    pub const ALL: [Self; 14] = [
        Self::Held,
        Self::Idempotence,
        Self::Ordering,
        Self::Visibility,
        Self::LockExpiry,
        Self::Fencing,
        Self::Atomicity,
        Self::LaunchAtomicity,
        Self::CrashWindows,
        Self::LostAnswers,
        Self::Concurrency,
        Self::HalfRounds,
        Self::ExternalEvents,
        Self::ContinueAsNew,
    ];

    /// Runs this case. Each world that `make` returns has to be empty.
    ///
    /// # Errors
    /// If the store does not keep the promise.
    pub async fn check<W: World>(self, make: impl AsyncFn() -> W) -> Result<(), Violation> {
        let kept = match self {
            Self::Held => cases::basics::held(&make).await,
            Self::Idempotence => cases::basics::idempotence(&make).await,
            Self::Ordering => cases::basics::ordering(&make).await,
            Self::Visibility => cases::basics::visibility(&make).await,
            Self::LockExpiry => cases::fencing::lock_expiry(&make).await,
            Self::Fencing => cases::fencing::fencing(&make).await,
            Self::Atomicity => cases::atomicity::with_item(&make).await,
            Self::LaunchAtomicity => cases::atomicity::launch(&make).await,
            Self::CrashWindows => cases::crashes::crashes(&make).await,
            Self::LostAnswers => cases::crashes::lost_answers(&make).await,
            Self::Concurrency => cases::concurrency::concurrency(&make).await,
            Self::HalfRounds => cases::concurrency::half_rounds(&make).await,
            Self::ExternalEvents => cases::events::external_events(&make).await,
            Self::ContinueAsNew => cases::events::continue_as_new(&make).await,
        };
        kept.map_err(|CaseFailure(what)| Violation { case: self, what })
    }
}

/// Runs all cases, and reports every broken promise.
///
/// # Errors
/// If the store does not keep all promises.
pub async fn check<W: World>(make: impl AsyncFn() -> W) -> Result<(), Violations> {
    let mut violations = vec![];
    for case in Case::ALL {
        violations.extend(case.check(&make).await.err());
    }
    if violations.is_empty() { Ok(()) } else { Err(Violations(violations)) }
}

/// A promise that a store does not keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{case:?}: {what}")]
pub struct Violation {
    /// The case that found it.
    pub case: Case,
    /// The observation.
    pub what: String,
}

/// All promises that a store does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations(pub Vec<Violation>);

impl Display for Violations {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("the store does not conform")?;
        self.0.iter().try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}

impl std::error::Error for Violations {}
