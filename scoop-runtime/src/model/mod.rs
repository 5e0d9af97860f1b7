//! Plain values that several layers share.

pub(crate) mod answers;
pub(crate) mod retention;
pub(crate) mod run;
