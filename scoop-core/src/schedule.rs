//! When a saga runs by itself.

use std::time::Duration;

/// When a saga runs by itself, without anybody who launches its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How often.
    pub recurrence: Recurrence,
    /// What becomes of the times at which no process of it lived.
    pub missed: Missed,
}

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrence {
    /// Again and again after this time, counted from the first start.
    Every(Duration),
    /// At the times of a cron expression, in a time zone of the IANA database.
    Cron {
        /// Five or six fields, as in `0 3 * * *`.
        expression: &'static str,
        /// As in `Europe/Prague`.
        zone: &'static str,
    },
}

/// What becomes of the times at which no process of a saga lived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// They are let go.
    Skip,
    /// One run makes up for all of them.
    #[default]
    Once,
    /// Each is made up for, oldest first.
    All,
}

impl Schedule {
    /// Again and again after this time.
    pub const fn every(pause: Duration) -> Self {
        Self { recurrence: Recurrence::Every(pause), missed: Missed::Once }
    }

    /// At the times of a cron expression.
    pub const fn cron(expression: &'static str, zone: &'static str) -> Self {
        Self { recurrence: Recurrence::Cron { expression, zone }, missed: Missed::Once }
    }

    /// The same, with this done about missed times.
    #[must_use]
    pub const fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }
}
