//! Runs with failing children.

mod emitting;
mod failure_handlers;
mod of_compensations;
mod rollback_requested;
mod several;

use super::*;
use crate::support::{Gate, eventually, handled, invoked};
