//! Plain values that several layers share.

pub(crate) mod answers;
pub(crate) mod backoff;
pub(crate) mod children;
pub(crate) mod entity;
pub(crate) mod failed;
pub(crate) mod format;
pub(crate) mod handlers;
pub(crate) mod join;
pub(crate) mod json;
pub(crate) mod launched_topics;
pub(crate) mod limits;
pub(crate) mod name;
pub(crate) mod pause;
pub(crate) mod program;
pub(crate) mod pruning;
pub(crate) mod retention;
pub(crate) mod run;
pub(crate) mod running_step;
pub(crate) mod schedule;
pub(crate) mod signal;
pub(crate) mod stored_time;
pub(crate) mod subscribed;
pub(crate) mod subscribed_saga;
pub(crate) mod tick;
