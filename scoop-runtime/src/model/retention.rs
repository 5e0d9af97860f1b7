//! For how long finished hierarchies are kept.

use std::time::Duration;

/// The times for which finished hierarchies are kept, before programs with sagas delete them: see [`Builder::retention`](crate::Builder::retention).
///
/// By default those whose first message was handled without a rollback are kept for 7 days, and the others, also those that no
/// handler took, for 30 days. Those that are unfinished, or that an operator has to settle, are always kept. The time begins with
/// the end of the last run of a hierarchy.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use std::time::Duration;
/// use scoop::Retention;
///
/// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// let keep = Retention::default().committed(30 * DAY).rolled_back(90 * DAY);
/// assert_ne!(keep, Retention::forever());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub(crate) committed: Duration,
    pub(crate) rolled_back: Duration,
    /// The time for which the unique key of a launch counts.
    pub(crate) unique_keys: Duration,
    /// The time between two looks for what is due.
    pub(crate) interval: Duration,
    /// Whether the program has an archive, which gets them before.
    pub(crate) is_archived: bool,
}

/// The least time for which anything is kept: younger rows may still decide whether a repeated request is a repetition.
pub const RETENTION_MIN: Duration = Duration::from_secs(60 * 60);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Retention {
    /// Keeps everything for ever.
    pub fn forever() -> Self {
        Self::always(Duration::MAX)
    }

    /// The time for hierarchies that committed, an hour at least; [`Duration::MAX`] is for ever, as is any time above a thousand years.
    pub fn committed(mut self, time: Duration) -> Self {
        self.committed = time;
        self
    }

    /// The time for those of which a run of the first message was rolled back, or without a handler, an hour at least;
    /// [`Duration::MAX`] is for ever, as is any time above a thousand years.
    pub fn rolled_back(mut self, time: Duration) -> Self {
        self.rolled_back = time;
        self
    }

    /// The time for which the [unique](crate::Launch::unique) key of a launch counts after the end of its hierarchy,
    /// whether or not that is deleted; [`Duration::MAX`] is for ever. By default a key counts as long as its hierarchy is kept.
    ///
    /// A key that outlives its hierarchy costs two rows, of some 150 bytes.
    pub fn unique_keys(mut self, time: Duration) -> Self {
        self.unique_keys = time;
        self
    }

    /// The interval at which a program looks for what is due: by default ten minutes, a millisecond at least. The first look
    /// comes one interval after the start.
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// The same time for all of them.
    pub(crate) fn always(time: Duration) -> Self {
        Self { committed: time, rolled_back: time, ..Self::default() }
    }

    pub(crate) fn is_forever(self) -> bool {
        self.shortest() == Duration::MAX
    }

    pub(crate) fn shortest(self) -> Duration {
        self.committed.min(self.rolled_back)
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            committed: 7 * DAY,
            rolled_back: 30 * DAY,
            unique_keys: Duration::ZERO,
            interval: Duration::from_secs(10 * 60),
            is_archived: false,
        }
    }
}
