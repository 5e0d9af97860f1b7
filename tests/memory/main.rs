//! The engine on a database in memory, where time is virtual: no server, and nothing takes time.
//!
//! `conformance` and `behaviour` are tests that run on PostgreSQL, too, as far as they do without SQL.

mod basics;
mod behaviour;
mod conformance;
mod lost_answers;
mod repeated;
mod telemetry;
mod time;

/// The helpers, with databases in memory.
mod support {
    pub(crate) use scoop_test_support::memory::Database;
    pub(crate) use scoop_test_support::*;

    pub(crate) type Run = scoop_test_support::Run<Database>;
}
