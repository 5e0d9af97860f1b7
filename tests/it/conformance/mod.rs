//! The scenarios of structured cooperation, named as in the catalogue, with the rows and the
//! calls that it lists. A scenario is a module with its sagas and a test.

mod cf;
mod gt;
mod hp;
mod if_;
mod ja;
mod lp;
mod me;
mod mq;
mod rb;

use scoop::prelude::*;

use crate::support::Ends as _;
use crate::support::messages::*;
