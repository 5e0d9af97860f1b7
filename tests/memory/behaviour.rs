//! Guarantees to users beyond the rows that the conformance tests compare, on a database in memory.

#[path = "../it/behaviour/at_most_once.rs"]
mod at_most_once;
#[path = "../it/behaviour/attempts_changed.rs"]
mod attempts_changed;
#[path = "../it/behaviour/awaiting.rs"]
mod awaiting;
mod children;
#[path = "../it/behaviour/commands.rs"]
mod commands;
#[path = "../it/behaviour/commands_authorized.rs"]
mod commands_authorized;
#[path = "../it/behaviour/commands_below.rs"]
mod commands_below;
#[path = "../it/behaviour/continued_as_new.rs"]
mod continued_as_new;
#[path = "../it/behaviour/floats.rs"]
mod floats;
#[path = "../it/behaviour/idempotency_keys.rs"]
mod idempotency_keys;
#[path = "../it/behaviour/keys_changed.rs"]
mod keys_changed;
#[path = "../it/behaviour/long_loops.rs"]
mod long_loops;
#[path = "../it/behaviour/misused_steps.rs"]
mod misused_steps;
#[path = "../it/behaviour/names.rs"]
mod names;
#[path = "../it/behaviour/no_handler.rs"]
mod no_handler;
#[path = "../it/behaviour/panics.rs"]
mod panics;
#[path = "../it/behaviour/read_back.rs"]
mod read_back;
#[path = "../it/behaviour/replies_last_step.rs"]
mod replies_last_step;
#[path = "../it/behaviour/replies_to_clients.rs"]
mod replies_to_clients;
#[path = "../it/behaviour/replies_windows.rs"]
mod replies_windows;
#[path = "../it/behaviour/rollback_requests.rs"]
mod rollback_requests;
#[path = "../it/behaviour/sleeping.rs"]
mod sleeping;
#[path = "../it/behaviour/timelines.rs"]
mod timelines;
#[path = "../it/behaviour/trees.rs"]
mod trees;
#[path = "../it/behaviour/trees_parts.rs"]
mod trees_parts;

use scoop::RuntimeError;
use scoop::operate::OperateExt as _;
use scoop::prelude::*;
use scoop::requests::{CancelAnswer, RollbackAnswer};
use scoop::tree::{RunInfo, RunState, Tree};

use crate::support::messages::*;
use crate::support::{
    Ends as _, Run, Store as _, accepts, acts, at_gate, done, fails, handler, launches, passes_on,
};
