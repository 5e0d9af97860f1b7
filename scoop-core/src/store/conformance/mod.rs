//! Holds any store of rounds against what [`Rounds`] promises.
//!
//! Whoever has a store of his own gives the suite a [`World`] for it: how to open it, and, as far as he can,
//! how to make a call fail, move the clock and kill a holder. Then [`check`] goes through every
//! [`Case`], each in worlds of its own:
//!
//! ```
//! use std::time::Duration;
//!
//! use scoop_core::store::conformance::{self, Faults, Faulty, World};
//! use scoop_core::store::memory::Memory;
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
//! Nothing here depends on chance, on a runtime or on how fast anything is: what a case does follows from
//! the case. Several holders at once are several futures of one task; which of them is when at what
//! follows from numbers that are the same each time.
//!
//! [`Faulty`] makes whole calls fail. A store whose calls are made of smaller ones has to fail between these,
//! or atomicity is not put to the test: put the [`Faulty`] below (the suite of
//! [`Ordered`](super::peek_lock::Ordered) does), or ask [`Faults::next`] before each of them.

mod cases;
mod faults;
mod support;

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

pub use faults::{Fault, Faults, Faulty, FaultyError, Struck};

use super::Rounds;
use support::Wrong;

/// One store, and what happens to it from outside.
pub trait World {
    /// A handle on the store.
    type Store: Rounds;

    /// Opens one more handle on the same store, as another process would.
    fn open(&self) -> impl Future<Output = Self::Store>;

    /// Moves the clock of the store on by at least this time, and not by a minute more.
    fn advance(&self, by: Duration) -> impl Future<Output = ()>;

    /// Has the store count a holder as dead, in whatever way it tells: its session ends, or time passes
    /// until its locks have run out. Those of others may run out, too.
    ///
    /// What is done in the holder's name afterwards is done by one who does not know that he is dead.
    fn kill(&self, holder: &str) -> impl Future<Output = ()>;

    /// Which calls of the store are to fail. What the suite puts there has to come to pass in all handles.
    fn faults(&self) -> &Faults;

    /// How long a living holder may hold an item before others take it over; nothing if for ever.
    fn lock_time(&self) -> Option<Duration> {
        None
    }
}

/// One promise, put to the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Case {
    /// An item that was dequeued is not gone, and nobody else has it; who abandons it gives it to anybody.
    Held,
    /// Entries and items are there once, whoever says them how often.
    Idempotence,
    /// Entries come in the order of their rounds, items in that of their times.
    Ordering,
    /// Nobody sees an item before its time.
    Visibility,
    /// A lock lasts as long as it is said to, and no longer.
    LockExpiry,
    /// Who was taken over is refused, and leaves nothing.
    Fencing,
    /// A round that fails at whatever call was carried out altogether or not at all.
    Atomicity,
    /// So was one that acknowledges nothing.
    LaunchAtomicity,
    /// A process that dies at whatever call leaves work that others bring to the same end.
    CrashWindows,
    /// A process that loses the answer to whatever call may repeat it.
    LostAnswers,
    /// Of several holders at once no two have one item, and each item is acknowledged once.
    Concurrency,
    /// Nobody sees half a round, whenever he looks.
    HalfRounds,
}

impl Case {
    /// All of them.
    pub const ALL: [Self; 12] = [
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
    ];

    /// Goes through this one. Each world that `make` returns has to be empty.
    ///
    /// # Errors
    /// If the store does not keep the promise.
    pub async fn check<W: World>(self, make: impl AsyncFn() -> W) -> Result<(), Violation> {
        let kept = match self {
            Self::Held => cases::values::held(&make).await,
            Self::Idempotence => cases::values::idempotence(&make).await,
            Self::Ordering => cases::values::ordering(&make).await,
            Self::Visibility => cases::values::visibility(&make).await,
            Self::LockExpiry => cases::fence::lock_expiry(&make).await,
            Self::Fencing => cases::fence::fencing(&make).await,
            Self::Atomicity => cases::atomicity::with_item(&make).await,
            Self::LaunchAtomicity => cases::atomicity::launch(&make).await,
            Self::CrashWindows => cases::life::crashes(&make).await,
            Self::LostAnswers => cases::life::lost_answers(&make).await,
            Self::Concurrency => cases::many::concurrency(&make).await,
            Self::HalfRounds => cases::many::half_rounds(&make).await,
        };
        kept.map_err(|Wrong(what)| Violation { case: self, what })
    }
}

/// Goes through all cases, and tells of all that are not kept.
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
    /// Which.
    pub case: Case,
    /// What was seen.
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
