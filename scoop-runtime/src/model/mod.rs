//! Plain values that several layers share.

pub(crate) mod cursor;
pub(crate) mod run;
