//! The scenarios of structured cooperation, each with the rows that it writes and its calls of user code.
//!
//! `docs/reference/conformance.md` lists the scenarios by their ids, and explains the notation of rows and calls and the numbers
//! `W-nn`. The reference is Scoop for Kotlin, 0.4.0. A scenario is a module with its sagas and a test.

mod absent_subscriber;
mod cancellation;
mod claim_gate;
mod context_keys;
mod context_propagation;
mod context_roundtrip;
mod deadlines;
mod event_counts;
mod failure_json;
mod finally;
mod happy_path;
mod implied;
mod infrastructure_failures;
mod joint_atomicity;
mod jumps;
mod loops;
mod messages;
mod notifications;
mod pending_runs;
mod replies;
mod rollback;
mod sleeping;

use scoop::ChildOutcome;
use scoop::prelude::*;
use scoop::requests::{CancelAnswer, RollbackAnswer};
use scoop::tree::{RunInfo, RunState, Tree};

use crate::support::messages::*;
use crate::support::{
    Ends as _, Run, Store as _, accepts, at_gate, done, fails, handler, launches, never_ends, passes_on,
    takes_ms,
};
