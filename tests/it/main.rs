//! Everything that needs a database: one binary, one server, a database for each test.
//!
//! `conformance` has the scenarios of structured cooperation, as the reference implementation has them, each with the rows
//! that it writes: `docs/reference/conformance.md` describes them. `behaviour` has the other guarantees to users, one file per
//! subject. Both run on a private PostgreSQL, or on the server that `DATABASE_URL` names.

mod behaviour;
mod conformance;
/// The helpers, with databases on PostgreSQL.
mod support {
    pub(crate) use scoop_test_support::postgres::{Database, in_a_process_that_dies};
    pub(crate) use scoop_test_support::*;

    pub(crate) type Run = scoop_test_support::Run<Database>;
}
