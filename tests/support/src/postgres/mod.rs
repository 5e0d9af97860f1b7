//! A PostgreSQL for the tests of a binary.

mod audited;
mod database;
mod process;
mod server;

pub use audited::tables;
pub use database::Database;
pub use process::in_a_process_that_dies;
