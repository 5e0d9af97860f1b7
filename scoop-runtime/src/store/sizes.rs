//! The sizes of the working set and of the record.

/// The sizes of the working set and of the record; estimated, so that reading them costs the same at any size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreSizes {
    pub(crate) unfinished_runs: i64,
    /// No more than 1,000 are counted.
    pub(crate) stuck_runs: i64,
    /// No more than 1,000 are counted.
    pub(crate) failed_rollbacks: i64,
    /// The runs of retired handlers without a program and without a deadline: nothing ends the waits for them. No more than 1,000 are
    /// counted.
    pub(crate) unbounded_waits: i64,
    /// The hierarchies that could not be deleted. No more than 1,000 are counted.
    pub(crate) undeletable: i64,
    pub(crate) working_set_bytes: i64,
    pub(crate) record_bytes: i64,
}

#[cfg(feature = "in-memory")]
impl StoreSizes {
    pub(crate) const COUNTED_MAX: usize = 1_000;
}
