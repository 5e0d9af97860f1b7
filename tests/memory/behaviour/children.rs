//! Runs with failing children.

#[path = "../../it/behaviour/children/emitting.rs"]
mod emitting;
#[path = "../../it/behaviour/children/handled.rs"]
mod handled;
#[path = "../../it/behaviour/children/of_compensations.rs"]
mod of_compensations;
#[path = "../../it/behaviour/children/several.rs"]
mod several;
#[path = "../../it/behaviour/children/told.rs"]
mod told;

use super::*;
use crate::support::{Database, Gate, calls_of, compensated, eventually, handled, invoked};
