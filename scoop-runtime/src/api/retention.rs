//! For how long finished hierarchies are kept.

use std::time::Duration;

use crate::{Builder, SetupError};

/// The times for which finished hierarchies are kept, before programs with sagas delete them: see [`Builder::retention`].
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
pub(crate) const RETENTION_MIN: Duration = Duration::from_secs(60 * 60);

/// The least time between two looks for what is due.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

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

    /// The mistakes in these times.
    pub(crate) fn mistakes(self) -> impl Iterator<Item = SetupError> {
        let times = [
            ("committed", self.committed, RETENTION_MIN),
            ("rolled_back", self.rolled_back, RETENTION_MIN),
            ("every", self.interval, INTERVAL_MIN),
        ];
        let too_short = times.into_iter().filter(|(_, time, least)| time < least);
        too_short.map(|(setting, time, least)| SetupError::RetentionTime { setting, time, least })
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

impl Builder {
    /// The times for which finished hierarchies are kept: by default 7 days if they committed, and 30 days otherwise. A type
    /// of messages can have times of its own: `#[message(keep = "90 days")]`, `keep = "forever"`, or one for each outcome:
    /// `keep(committed = "7 days", rolled_back = "30 days")`. Then programs with sagas delete the whole record of a hierarchy, in
    /// small transactions beside their work, one process at a time.
    ///
    /// The times count for hierarchies that begin with a message to a saga of this program. If sagas of several programs
    /// handle it, the longest time counts. For messages without a handler the times of the program that deletes count. The
    /// guide has a page about [retention](https://docs.rs/scoop-saga/latest/scoop/guide/retention/index.html).
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), scoop_runtime::RuntimeError> {
    /// use scoop::{Retention, Scoop};
    ///
    /// let scoop = Scoop::builder().postgres(pool).retention(Retention::forever()).start().await?;
    /// # scoop.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn retention(mut self, times: Retention) -> Self {
        self.settings.retention = Retention { is_archived: self.settings.retention.is_archived, ..times };
        self
    }
}
