//! Shared by the tests: a database for each, the notation of the scenarios, signals.

mod audited;
mod calls;
mod database;
pub(crate) mod events;
mod exceptions;
pub(crate) mod messages;
mod process;
mod rows;
mod server;
mod signals;
mod warnings;

pub(crate) use calls::{calls_of, compensated, handled, invoked};
pub(crate) use database::Database;
pub(crate) use process::in_a_process_that_dies;
pub(crate) use rows::History;
pub(crate) use signals::{Ends, Gate, Notes, eventually, takes};
pub(crate) use warnings::warnings;
