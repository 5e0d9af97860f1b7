//! What users rely on beyond the rows that other participants see, on a database in memory.

mod children;
#[path = "../it/behaviour/keys.rs"]
mod keys;
#[path = "../it/behaviour/panics.rs"]
mod panics;
#[path = "../it/behaviour/replies_windows.rs"]
mod replies_windows;

use scoop::prelude::*;
use scoop::{CancelAnswer, RollbackAnswer, RunInfo, RunState, RuntimeError, Tree};

use crate::support::Ends as _;
use crate::support::messages::*;
