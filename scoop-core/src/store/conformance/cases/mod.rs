//! The cases, by subject.

pub(super) mod atomicity;
pub(super) mod fence;
pub(super) mod life;
pub(super) mod many;
pub(super) mod values;
