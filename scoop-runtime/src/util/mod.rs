//! Small parts without a layer of their own.

pub(crate) mod database_url;
pub(crate) mod detached;
pub(crate) mod format;
pub(crate) mod ids;
pub(crate) mod json;
pub(crate) mod name;
pub(crate) mod payload;
pub(crate) mod program;
pub(crate) mod read_permits;
pub(crate) mod retries;
pub(crate) mod stored_time;
pub(crate) mod subscribed;
pub(crate) mod sync;
pub(crate) mod when;
