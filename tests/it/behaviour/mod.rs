//! What users rely on beyond the rows that other participants see.

mod children;
mod failures;
mod values;

use scoop::prelude::*;

use crate::support::messages::*;
