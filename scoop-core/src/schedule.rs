//! Schedules of sagas.

use std::time::Duration;

/// The schedule of a saga, which runs without a launch of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The times of its runs.
    pub recurrence: Recurrence,
    /// The treatment of times at which no process of the saga lived.
    pub missed: Missed,
    /// The treatment of a time that comes before the run of the last one has ended.
    pub overlap: Overlap,
}

/// The times of scheduled runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrence {
    /// Periodically, counted from the first start: a whole number of milliseconds.
    Every(Duration),
    /// At the times of a cron expression, in a time zone of the IANA database.
    Cron {
        /// Five fields, or six with seconds before them, as in `0 3 * * *`.
        expression: &'static str,
        /// The name of the time zone, as in `Europe/Prague`.
        zone: &'static str,
    },
}

/// The treatment of times at which no process of a saga lived.
///
/// A time counts as missed if another one has followed it, or if it is more than a minute ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// They are skipped.
    Skip,
    /// One run makes up for all of them. It gets the first of them as its time.
    #[default]
    Once,
    /// Each gets a run, oldest first. Of more than 10,000 missed times about the newest 10,000 do, at least half as many;
    /// the others are skipped with a warning.
    All,
}

/// The treatment of a time that comes before the run of the last one has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// Two runs are active at once.
    #[default]
    Allow,
    /// The time is skipped. A stuck run has not ended; one whose rollback failed has.
    Skip,
}

impl Schedule {
    /// Runs periodically.
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

    /// Sets the treatment of missed times.
    #[must_use]
    pub const fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }
    /// Sets the treatment of overlapping runs.
    #[must_use]
    pub const fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }
}

impl Missed {
    const ALL: [Self; 3] = [Self::Skip, Self::Once, Self::All];

    /// Its name in `#[saga(missed = "..")]` and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All => "all",
        }
    }

    /// The variant with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }
}

impl Overlap {
    const ALL: [Self; 2] = [Self::Allow, Self::Skip];

    /// Its name in `#[saga(overlap = "..")]` and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
        }
    }

    /// The variant with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_names_are_those_of_the_attributes() {
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
    fn builder_methods_set_the_fields_of_a_schedule() {
        let minutely = Schedule::every(Duration::from_secs(60));
        assert_eq!(minutely.recurrence, Recurrence::Every(Duration::from_secs(60)));
        assert_eq!((minutely.missed, minutely.overlap), (Missed::default(), Overlap::default()));
        let nightly = Schedule::cron("0 3 * * *", "UTC").missed(Missed::All).overlap(Overlap::Skip);
        assert_eq!(nightly.recurrence, Recurrence::Cron { expression: "0 3 * * *", zone: "UTC" });
        assert_eq!((nightly.missed, nightly.overlap), (Missed::All, Overlap::Skip));
    }
}
