//! What users rely on beyond the rows that other participants see.

mod cancelled;
mod children;
mod cleanup;
mod clock;
mod contexts;
mod deadlines;
mod decisions;
mod failures;
mod failures_above;
mod fairness;
mod fence;
mod giving_up;
mod ground;
mod handed_over;
mod hierarchies;
mod idling;
mod keys;
mod late_claim;
mod launching;
mod lost_answers;
mod other_schema;
mod panics;
mod passed_on;
mod processes;
mod rebuild;
mod repair;
mod replies;
mod replies_windows;
mod requests_to_cancel;
mod requests_to_undo;
mod retries;
mod schedules;
mod setup;
mod sleeping;
mod slow_statements;
mod stuck;
mod topology;
mod undoing;
mod uniqueness;
mod values;
mod woken;

use scoop::prelude::*;
use scoop::{CancelAnswer, RollbackAnswer, RunInfo, RunState, RuntimeError, Tree};

use crate::support::Ends as _;
use crate::support::messages::*;
