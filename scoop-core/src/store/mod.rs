//! What the protocol needs of whatever it is stored in, as *rounds*.
//!
//! Whoever works with a log and a queue takes an item, records what came of it, queues what follows
//! from that, and crosses the item off. If these are separate calls, a crash between two of them
//! loses work or leaves work that nothing on record explains. So all that follows from one item is
//! one value, a [`Round`], and a store ([`Rounds`]) carries it out altogether or not at all:
//!
//! * **A dequeued item is not gone** before the round that acknowledges it is committed. Until then one
//!   holder has it, under a [`Token`], and nobody else is handed it.
//! * **Entries and items are known by key**, for good. What is there already is not put there again, by
//!   whichever round, so everything may be repeated whose answer was lost.
//! * **A lost round leaves nothing**, and so does one that is refused.
//! * **Whoever dies holding an item loses it.** The item is taken over under a higher epoch, and a round
//!   under the old one is refused as a whole, however late it comes.
//!
//! | here | in the engine on PostgreSQL |
//! | --- | --- |
//! | a round without an acknowledgement | launch |
//! | dequeue | claim |
//! | commit | settle, which appends events, emits messages and ends the run or moves it on |
//! | abandon | release |
//! | take over | reap, and disown |
//! | epoch | the epoch of a run |
//!
//! [`memory::Memory`] is the shortest store that does this, and says what is meant. A store that has
//! no transactions can do it nevertheless, by order and idempotence alone: see [`peek_lock`]. And the
//! `conformance` module, behind the feature of that name, holds any store against all of it.
//!
//! The idea of rounds, and of doing without transactions by strict order, is that of duroxide, a
//! runtime for durable functions, and its transactional providers. Locking for a while what one peeks at
//! is how message brokers do it.
//!
//! ```
//! use scoop_core::store::memory::Memory;
//! use scoop_core::store::{Round, Rounds, Verdict};
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = Memory::new();
//! store.commit(&Round::new().enqueue("order 7", json!({ "cups": 2 }))).await?;
//!
//! let held = store.dequeue("worker 1").await?.expect("there is an order");
//! assert!(store.dequeue("worker 2").await?.is_none(), "somebody has it");
//! let round = Round::new()
//!     .append("order 7", "brewed", json!({ "cups": held.item.body["cups"] }))
//!     .enqueue("bill for order 7", json!({ "euros": 6 }))
//!     .acknowledge(held.token);
//! assert_eq!(store.commit(&round).await?, Verdict::Committed);
//!
//! assert_eq!(store.read("order 7").await?[0].key, "brewed");
//! let next = store.dequeue("worker 2").await?.expect("there is a bill");
//! assert_eq!(next.item.key, "bill for order 7");
//! # Ok::<_, std::convert::Infallible>(())
//! # }).unwrap();
//! ```

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;
pub mod peek_lock;
mod round;

pub use round::{Dequeued, Entry, Item, Round, Token, Verdict};

use std::error::Error;

use time::OffsetDateTime;

/// A store of streams and a queue, in which a round is carried out altogether or not at all.
///
/// Any number of handles, in any number of processes, may work with the same store. After an error
/// it is unknown whether the call was carried out, or will be yet; all of them may be repeated.
///
/// # Cancel safety
/// A call whose future is dropped counts as one whose answer was lost: it was carried out, or was not,
/// but never in part.
pub trait Rounds: Send + Sync {
    /// What goes wrong with the store itself.
    type Error: Error + Send + Sync + 'static;

    /// What time it is, by the clock that decides which items are visible.
    ///
    /// # Errors
    /// If the store cannot be asked.
    fn now(&self) -> impl Future<Output = Result<OffsetDateTime, Self::Error>> + Send;

    /// Hands one visible item to this holder, if there is one that nobody holds: that which has been
    /// visible for longest. The item stays where it is, and is the holder's until a round acknowledges it,
    /// the holder abandons it, or somebody takes it over.
    ///
    /// A holder is one life of a process. It may hold many items.
    ///
    /// # Errors
    /// If the store fails. An item may be held then without the holder's knowing; it is taken over like any
    /// other.
    fn dequeue(&self, holder: &str) -> impl Future<Output = Result<Option<Dequeued>, Self::Error>> + Send;

    /// Carries out a round altogether: when this answers [`Verdict::Committed`], all of it is there for
    /// everybody, and whoever sees any of it sees all of it.
    ///
    /// A round whose token no longer holds is [refused](Verdict::Refused) and leaves nothing. A round that
    /// was carried out and is sent again, since the first answer was lost, leaves nothing more, whichever
    /// the answer then is.
    ///
    /// # Errors
    /// If the store fails. It may still carry the round out later, but not after somebody else has been
    /// handed the item.
    fn commit(&self, round: &Round) -> impl Future<Output = Result<Verdict, Self::Error>> + Send;

    /// Gives an item back, to be handed to anybody at once. If the token no longer holds, nothing happens.
    ///
    /// # Errors
    /// If the store fails.
    fn abandon(&self, token: &Token) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// All entries of a stream. Those of one round come in its order, and those of a round that began after
    /// another had been committed come after the other's. What was read once stays the beginning of
    /// whatever is read later.
    ///
    /// # Errors
    /// If the store fails.
    fn read(&self, stream: &str) -> impl Future<Output = Result<Vec<Entry>, Self::Error>> + Send;

    /// Frees what is held by holders that are dead, and what is locked for longer than locks last here,
    /// and says how many items those were as far as it knows. A store that does so by itself, whenever
    /// it is asked for items, has nothing to do.
    ///
    /// The token of an item that is handed to somebody again holds no longer.
    ///
    /// # Errors
    /// If the store fails.
    fn take_over(&self) -> impl Future<Output = Result<u64, Self::Error>> + Send;
}
