//! What becomes of a run whose children fail.

mod emitting;
mod handled;
mod of_compensations;
mod several;
mod told;

use super::*;
use crate::support::{Database, Gate, calls_of, compensated, eventually, handled, invoked};
