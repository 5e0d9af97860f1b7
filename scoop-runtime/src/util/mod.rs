//! Small parts without a layer of their own.

pub(crate) mod database_url;
pub(crate) mod detached;
pub(crate) mod ids;
pub(crate) mod panic_boundary;
pub(crate) mod payload;
pub(crate) mod program;
pub(crate) mod read_permits;
pub(crate) mod retries;
pub(crate) mod sync;
pub(crate) mod when;
