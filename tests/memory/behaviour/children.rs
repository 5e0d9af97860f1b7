//! Runs with failing children.

#[path = "../../it/behaviour/children/emitting.rs"]
mod emitting;
#[path = "../../it/behaviour/children/failure_handlers.rs"]
mod failure_handlers;
#[path = "../../it/behaviour/children/of_compensations.rs"]
mod of_compensations;
#[path = "../../it/behaviour/children/rollback_requested.rs"]
mod rollback_requested;
#[path = "../../it/behaviour/children/several.rs"]
mod several;

use super::*;
use crate::support::{Gate, eventually, handled, invoked};
