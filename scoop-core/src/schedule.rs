//! When a saga runs by itself.

use std::time::Duration;

/// When a saga runs by itself, without anybody who launches its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How often.
    pub recurrence: Recurrence,
    /// What becomes of the times at which no process of it lived.
    pub missed: Missed,
    /// What becomes of a time that comes while the run of the last one has not ended.
    pub overlap: Overlap,
}

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrence {
    /// Again and again after this time, counted from the first start: a whole number of
    /// milliseconds.
    Every(Duration),
    /// At the times of a cron expression, in a time zone of the IANA database.
    Cron {
        /// Five fields, or six with seconds before them, as in `0 3 * * *`.
        expression: &'static str,
        /// As in `Europe/Prague`.
        zone: &'static str,
    },
}

/// What becomes of the times at which no process of a saga lived.
///
/// A time has been missed if another one has followed it since, or if it is more than a minute ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// They are let go.
    Skip,
    /// One run makes up for all of them. The time it is told is the first of them.
    #[default]
    Once,
    /// Each is made up for, oldest first.
    All,
}

/// What becomes of a time that comes while the run of the last one has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// There are two runs at once.
    #[default]
    Allow,
    /// It is let go. A run that somebody has to look at, since no program fits it, has not ended.
    Skip,
}

impl Schedule {
    /// Again and again after this time.
    pub const fn every(pause: Duration) -> Self {
        Self::of(Recurrence::Every(pause))
    }

    /// At the times of a cron expression.
    pub const fn cron(expression: &'static str, zone: &'static str) -> Self {
        Self::of(Recurrence::Cron { expression, zone })
    }

    const fn of(recurrence: Recurrence) -> Self {
        Self { recurrence, missed: Missed::Once, overlap: Overlap::Allow }
    }

    /// The same, with this done about missed times.
    #[must_use]
    pub const fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }
    /// The same, with this done about runs that overlap.
    #[must_use]
    pub const fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }
}

impl Missed {
    const ALL: [Self; 3] = [Self::Skip, Self::Once, Self::All];

    /// As it is written in `#[saga(missed = "..")]`, and stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All => "all",
        }
    }

    /// The one that is written so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }
}

impl Overlap {
    const ALL: [Self; 2] = [Self::Allow, Self::Skip];

    /// As it is written in `#[saga(overlap = "..")]`, and stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
        }
    }

    /// The one that is written so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_the_attributes_take() {
        let missed = [(Missed::Skip, "skip"), (Missed::Once, "once"), (Missed::All, "all")];
        for (it, name) in missed {
            assert_eq!((it.as_str(), Missed::named(name)), (name, Some(it)));
        }
        for (it, name) in [(Overlap::Allow, "allow"), (Overlap::Skip, "skip")] {
            assert_eq!((it.as_str(), Overlap::named(name)), (name, Some(it)));
        }
        assert_eq!((Missed::named("allow"), Overlap::named("once")), (None, None));
    }

    #[test]
    fn a_schedule_is_what_was_said_of_it() {
        let minutely = Schedule::every(Duration::from_secs(60));
        assert_eq!(minutely.recurrence, Recurrence::Every(Duration::from_secs(60)));
        assert_eq!((minutely.missed, minutely.overlap), (Missed::default(), Overlap::default()));
        let nightly = Schedule::cron("0 3 * * *", "UTC").missed(Missed::All).overlap(Overlap::Skip);
        assert_eq!(nightly.recurrence, Recurrence::Cron { expression: "0 3 * * *", zone: "UTC" });
        assert_eq!((nightly.missed, nightly.overlap), (Missed::All, Overlap::Skip));
    }
}
