//! Helpers of the tests on both stores: a database for each test, scripted handlers, the notation of scenarios,
//! signals.
//!
//! A test names the `Database` of its store, from [`postgres`] or [`memory`]; all else is the same for both.

mod calls;
pub mod events;
mod exceptions;
mod handlers;
pub mod memory;
pub mod messages;
pub mod postgres;
mod programs;
mod rows;
mod signals;
pub mod traces;
mod warnings;

pub use calls::{Calls, calls_of, compensated, handled, invoked};
pub use handlers::{
    Act, Gated, Handling, accepts, acts, at_gate, checks, done, executes, fails, launches, never_ends,
    passes_on, play, react, sets, takes_ms, until_stopped,
};
pub use programs::{Run, Sagas, Store};
pub use rows::{History, Row};
pub use signals::{Ends, Gate, Notes, eventually, takes};
pub use warnings::warnings;
