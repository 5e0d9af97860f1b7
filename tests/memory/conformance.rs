//! The scenarios of structured cooperation, as the reference implementation has them, on a database in memory:
//! the same sagas, rows and calls as on PostgreSQL.

#[path = "../it/conformance/absent_subscriber.rs"]
mod absent_subscriber;
#[path = "../it/conformance/cancellation.rs"]
mod cancellation;
#[path = "../it/conformance/context_keys.rs"]
mod context_keys;
#[path = "../it/conformance/context_propagation.rs"]
mod context_propagation;
#[path = "../it/conformance/deadlines.rs"]
mod deadlines;
#[path = "../it/conformance/finally.rs"]
mod finally;
#[path = "../it/conformance/happy_path.rs"]
mod happy_path;
#[path = "../it/conformance/infrastructure_failures.rs"]
mod infrastructure_failures;
#[path = "../it/conformance/jumps.rs"]
mod jumps;
#[path = "../it/conformance/loops.rs"]
mod loops;

use scoop::prelude::*;
use scoop::requests::CancelAnswer;
use scoop::tree::{RunInfo, RunState};

use crate::support::messages::*;
use crate::support::{
    Ends as _, Run, Store as _, at_gate, done, fails, handler, launches, never_ends, takes_ms,
};
