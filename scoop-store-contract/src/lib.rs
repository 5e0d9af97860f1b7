//! The storage contract of the protocol, in terms of *rounds*, and a suite that tests stores against it.
//!
//! A worker on a log and a queue takes an item, records its outcome, enqueues follow-up items, and acknowledges the
//! item. If these are separate calls, a crash between two of them loses work, or leaves work that no entry explains.
//! So all effects of one item are one value, a [`Round`], and a store ([`Rounds`]) carries it out atomically:
//!
//! * **A dequeued item is not gone** before the round that acknowledges it is committed. Until then one
//!   holder has it, under a [`Token`], and no other holder gets it.
//! * **Entries and items are deduplicated by key**, permanently and across rounds. So a call whose answer was lost may
//!   be repeated.
//! * **A lost round leaves nothing**, and so does one that is refused.
//! * **A holder that dies loses its items.** The item is taken over under a higher epoch, and a round under the old one
//!   is refused as a whole, however late it comes.
//!
//! Events from outside, and instances that continue as new, need nothing more than that:
//! [`Case::ExternalEvents`](conformance::Case::ExternalEvents) and
//! [`Case::ContinueAsNew`](conformance::Case::ContinueAsNew) build them of rounds.
//!
//! | here | in the engine on PostgreSQL |
//! | --- | --- |
//! | a round without an acknowledgement | launch |
//! | dequeue | claim |
//! | commit | settle, which appends events, emits messages and ends or continues the run |
//! | abandon | release |
//! | take over | reap (dead workers), reconcile (own runs) |
//! | epoch | the epoch of a run |
//!
//! [`reference::Memory`] is the shortest such store, and the reference. A store without transactions can keep the
//! contract, too, by order and idempotence alone: see [`peek_lock`]. The module
//! [`conformance`] tests any store against the contract.
//!
//! The idea of rounds, and of replacing transactions by strict order, is that of duroxide, a runtime for durable
//! functions, and its transactional providers. Locking a peeked item for a limited time is the way of message brokers.
//!
//! ```
//! use scoop_store_contract::reference::Memory;
//! use scoop_store_contract::{Round, Rounds, Verdict};
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = Memory::new();
//! store.commit(&Round::new().enqueue("order 7", json!({ "cups": 2 }))).await?;
//!
//! let held = store.dequeue("worker 1").await?.expect("there is an order");
//! assert!(store.dequeue("worker 2").await?.is_none(), "worker 1 holds it");
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

pub mod conformance;
pub mod peek_lock;
pub mod reference;
mod round;

pub use round::{Dequeued, Entry, Item, Round, Token, Verdict};

use std::error::Error;

use time::OffsetDateTime;

/// A store of streams and a queue, which carries out a round atomically.
///
/// Any number of handles, in any number of processes, may work with the same store. After an error it is unknown
/// whether the call was carried out, or still will be; every call may be repeated.
///
/// # Cancel safety
/// A call whose future is dropped counts as one whose answer was lost: it was carried out, or was not, but never in
/// part.
pub trait Rounds: Send + Sync {
    /// An error of the store itself.
    type Error: Error + Send + Sync + 'static;

    /// The time of the clock that decides which items are visible.
    ///
    /// # Errors
    /// If the store fails.
    fn now(&self) -> impl Future<Output = Result<OffsetDateTime, Self::Error>> + Send;

    /// Hands one visible item without a holder to this holder: the one that has been visible for longest. The item
    /// stays in the queue. The holder keeps it until a round acknowledges it, the holder abandons it, or it is taken
    /// over.
    ///
    /// A holder is one life of a process. It may hold many items.
    ///
    /// # Errors
    /// If the store fails. The item may be held although the holder did not get it; it is taken over like any other.
    fn dequeue(&self, holder: &str) -> impl Future<Output = Result<Option<Dequeued>, Self::Error>> + Send;

    /// Carries out a round atomically: after [`Verdict::Committed`] every reader sees all of it, and a reader that sees
    /// a part of it earlier sees all of it.
    ///
    /// A round whose token no longer holds is [refused](Verdict::Refused) and leaves nothing. A round that was carried
    /// out and is sent again after a lost answer has no further effect, regardless of the second answer.
    ///
    /// # Errors
    /// If the store fails. It may still carry the round out later, but not after another holder got the item.
    fn commit(&self, round: &Round) -> impl Future<Output = Result<Verdict, Self::Error>> + Send;

    /// Gives an item back, so that any holder can get it at once. Has no effect if the token no longer holds.
    ///
    /// # Errors
    /// If the store fails.
    fn abandon(&self, token: &Token) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// All entries of a stream. Those of one round come in its order, and those of a round that began after another had
    /// been committed come after the other's. An earlier result is always a prefix of a later one.
    ///
    /// # Errors
    /// If the store fails.
    fn read(&self, stream: &str) -> impl Future<Output = Result<Vec<Entry>, Self::Error>> + Send;

    /// Frees the items of dead holders and those with expired locks, and returns their number as far as it is known. A
    /// store that does so in each dequeue has nothing to do here.
    ///
    /// The token of an item that is handed out again no longer holds.
    ///
    /// # Errors
    /// If the store fails.
    fn take_over(&self) -> impl Future<Output = Result<u64, Self::Error>> + Send;
}
