//! The cases, by subject.

pub(super) mod atomicity;
pub(super) mod basics;
pub(super) mod concurrency;
pub(super) mod crashes;
pub(super) mod events;
pub(super) mod fencing;
