//! The scenarios of structured cooperation that every participant must agree on, on a database in memory:
//! the same sagas, rows and calls as on PostgreSQL.

#[path = "../it/conformance/ca.rs"]
mod ca;
#[path = "../it/conformance/cp.rs"]
mod cp;
#[path = "../it/conformance/cx.rs"]
mod cx;
#[path = "../it/conformance/dl.rs"]
mod dl;
#[path = "../it/conformance/gt.rs"]
mod gt;
#[path = "../it/conformance/hp.rs"]
mod hp;
#[path = "../it/conformance/if_.rs"]
mod if_;
#[path = "../it/conformance/lp.rs"]
mod lp;
#[path = "../it/conformance/sb.rs"]
mod sb;
#[path = "../it/conformance/tf.rs"]
mod tf;

use scoop::prelude::*;
use scoop::{CancelAnswer, RunInfo, RunState};

use crate::support::Ends as _;
use crate::support::messages::*;
