//! What users rely on beyond the rows that other participants see.

mod cancelled;
mod children;
mod failures;
mod failures_above;
mod fence;
mod giving_up;
mod ground;
mod hierarchies;
mod idling;
mod keys;
mod late_claim;
mod launching;
mod lost_answers;
mod other_schema;
mod panics;
mod processes;
mod replies;
mod schedules;
mod setup;
mod slow_statements;
mod stuck;
mod undoing;
mod values;

use scoop::prelude::*;

use crate::support::Ends as _;
use crate::support::messages::*;
