//! Runs with failing children.

mod emitting;
mod handled;
mod of_compensations;
mod several;
mod told;

use super::*;
use crate::support::{Database, Gate, calls_of, compensated, eventually, handled, invoked};
