//! Helpers shared with the tests on PostgreSQL, and a database in memory in place of theirs.

#![allow(dead_code, reason = "the tests on PostgreSQL need more of it")]

#[path = "../../it/support/calls.rs"]
mod calls;
mod database;
#[path = "../../it/support/events.rs"]
pub(crate) mod events;
#[path = "../../it/support/exceptions.rs"]
mod exceptions;
#[path = "../../it/support/messages.rs"]
pub(crate) mod messages;
#[path = "../../it/support/rows.rs"]
mod rows;
#[path = "../../it/support/signals.rs"]
mod signals;
#[path = "../../it/support/warnings.rs"]
mod warnings;

pub(crate) use calls::{calls_of, compensated, handled, invoked};
pub(crate) use database::Database;
pub(crate) use signals::{Ends, Gate, Notes, eventually, takes};
pub(crate) use warnings::warnings;
