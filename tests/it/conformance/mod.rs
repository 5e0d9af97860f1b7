//! The scenarios of structured cooperation, named as in the catalogue, with the rows and the
//! calls that it lists. A scenario is a module with its sagas and a test.

mod ca;
mod cf;
mod cm;
mod cp;
mod cx;
mod dl;
mod gt;
mod hp;
mod if_;
mod im;
mod ja;
mod lp;
mod me;
mod mq;
mod pn;
mod pq;
mod rb;
mod rg;
mod rv;
mod sb;
mod sl;
mod tf;

use scoop::prelude::*;
use scoop::{CancelAnswer, ChildOutcome, RollbackAnswer, RunInfo, RunState, RuntimeError, Tree};

use crate::support::Ends as _;
use crate::support::messages::*;
