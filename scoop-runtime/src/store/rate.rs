//! The rate at which runs begin: a window of those of the last period.
//!
//! In no period of the length of the rate more runs begin than it admits. The window has the time of each run that began in the
//! last period. Of a high rate it has groups of runs, each of which counts until its last run is a period old: so a window has a
//! bounded size, and a run begins at most a 64th of the period later than it might.
//!
//! A time more than a period from now is none of a run: another program has written it, or the clock of the server was set back. It
//! does not count, so that no row holds up its saga for longer than two periods.

use serde::{Deserialize, Serialize};

use crate::model::limits::Rate;

/// A group covers this part of the period, if the rate admits more runs than this.
const GROUPS: i64 = 64;

/// A window with more groups is none that programs write.
const GROUPS_MAX: usize = 128;

/// The latest time that is stored: the last day of the year 9999.
const TIME_MAX: i64 = 253_402_214_400_000_000;

/// A wait that reaches beyond that time, and that can be added to the time of the database.
const WAIT_MS_MAX: i64 = 2 * TIME_MAX / 1_000;

/// The runs that began in the last period. Times are microseconds since 1970, of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RateWindow(Vec<Begun>);

/// Runs that began together: the times of the first and of the last one, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Begun(i64, i64, i64);

/// The runs of one key, or of a saga, that began in the last period, and whether others wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateState {
    pub(crate) window: RateWindow,
    /// Whether runs of the key may be parked until its rate admits them.
    pub(crate) has_parked: bool,
    /// The time from which the next run may begin; in the past if it may begin now.
    pub(crate) opens_at: i64,
    /// The time from which none of these runs counts.
    pub(crate) idle_at: i64,
}

impl RateState {
    pub(crate) fn after(&self, rate: Rate, now: i64, begun: i64, has_parked: bool) -> Self {
        let window = self.window.with(rate, now, begun);
        let opens_at = window.opens_at(rate, now).unwrap_or(now).min(TIME_MAX);
        let idle_at = window.idle_at(rate, now).min(TIME_MAX);
        Self { window, has_parked, opens_at, idle_at }
    }

    /// Whether the parked runs of the key return when its rate admits the next one, so that nothing else has to look at them.
    #[cfg(feature = "in-memory")]
    pub(crate) fn waits_for_rate(&self, rate: Rate, now: i64) -> bool {
        let longest = rate.longest_wait_ms().saturating_mul(1_000);
        self.has_parked && self.opens_at <= self.idle_at.min(now.saturating_add(longest))
    }
}

/// A time in microseconds since 1970.
#[cfg(feature = "in-memory")]
pub(crate) fn micros(time: time::OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

impl Rate {
    fn period(self) -> i64 {
        i64::try_from(self.period_ms).unwrap_or(i64::MAX).saturating_mul(1_000)
    }

    /// For how many milliseconds its next run may have to wait: what holds it up for longer, no program has written.
    pub(crate) fn longest_wait_ms(self) -> i64 {
        i64::try_from(self.period_ms).unwrap_or(i64::MAX).saturating_mul(2).min(WAIT_MS_MAX)
    }
}

impl RateWindow {
    /// Whether a program may have written it.
    pub(crate) fn is_bounded(&self) -> bool {
        self.0.len() <= GROUPS_MAX
    }

    pub(crate) fn closed_until(rate: Rate, idle_at: i64) -> Self {
        let last = idle_at.saturating_sub(rate.period());
        Self(vec![Begun(last, last, i64::from(rate.runs))])
    }

    /// How many runs may begin now.
    pub(crate) fn capacity(&self, rate: Rate, now: i64) -> i64 {
        let counts = self.0.iter().filter(|begun| begun.counts(rate, now)).map(|begun| begun.2.max(0));
        (i64::from(rate.runs) - counts.fold(0, i64::saturating_add)).max(0)
    }

    /// The time at which the next run may begin, if none may begin now.
    fn opens_at(&self, rate: Rate, now: i64) -> Option<i64> {
        if self.capacity(rate, now) > 0 {
            return None;
        }
        let mut counting: Vec<_> = self.0.iter().filter(|begun| begun.counts(rate, now)).collect();
        counting.sort_unstable_by_key(|begun| begun.1);
        // A lower rate than before may be exceeded by more than one group.
        let mut count = counting.iter().map(|begun| begun.2.max(0)).fold(0, i64::saturating_add);
        for begun in counting {
            count = count.saturating_sub(begun.2.max(0));
            if count < i64::from(rate.runs) {
                return Some(begun.1.saturating_add(rate.period()));
            }
        }
        None
    }

    /// The time from which no run counts.
    fn idle_at(&self, rate: Rate, now: i64) -> i64 {
        let last = self.0.iter().map(|begun| begun.1.saturating_add(rate.period())).max();
        last.unwrap_or(now)
    }

    /// The window after so many runs have begun now.
    fn with(&self, rate: Rate, now: i64, count: i64) -> Self {
        let mut window = Self(self.0.iter().filter(|begun| begun.counts(rate, now)).copied().collect());
        if count == 0 {
            return window;
        }
        match window.0.last_mut() {
            Some(last)
                if i64::from(rate.runs) > GROUPS
                    && (0..rate.period() / GROUPS).contains(&now.saturating_sub(last.0)) =>
            {
                (last.1, last.2) = (now.max(last.1), last.2.saturating_add(count));
            }
            _ => window.0.push(Begun(now, now, count)),
        }
        window
    }
}

pub(crate) fn seconds_between(now: i64, later: i64) -> f64 {
    time::Duration::microseconds(later.saturating_sub(now).max(0)).as_seconds_f64()
}

impl Begun {
    fn counts(&self, rate: Rate, now: i64) -> bool {
        let (period, last) = (rate.period(), self.1);
        now < last.saturating_add(period) && last <= now.saturating_add(period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    /// Has runs begin whenever the rate admits them, in steps of so many microseconds. Returns their times.
    fn saturate(rate: Rate, step: i64, until: i64) -> Vec<i64> {
        let (mut window, mut begun) = (RateWindow::default(), vec![]);
        for now in (0..until).step_by(usize::try_from(step).unwrap()) {
            // At most seven at once: as a claim with few slots.
            let count = window.capacity(rate, now).min(7);
            window = window.with(rate, now, count);
            begun.extend((0..count).map(|_| now));
            assert_eq!(window.capacity(rate, now) == 0, window.opens_at(rate, now).is_some());
        }
        begun
    }

    fn most_within(times: &[i64], period: i64) -> usize {
        let within = |from: &i64| times.iter().filter(|at| (*from..from + period).contains(at)).count();
        times.iter().map(within).max().unwrap_or(0)
    }

    #[test]
    fn no_period_has_more_runs_than_the_rate_admits() {
        for (most, step) in [(1, 70_000), (10, 30_000), (100, 1_700), (64, 4_000), (1_000, 900)] {
            let begun = saturate(Rate { runs: most, period_ms: 1_000 }, step, 4 * SECOND);
            assert_eq!(most_within(&begun, SECOND), usize::try_from(most).unwrap());
            let expected = usize::try_from(most).unwrap() * 4;
            assert!(begun.len() * 100 >= expected * 90, "{most}: {} of {expected}", begun.len());
        }
    }

    #[test]
    fn window_of_a_high_rate_has_a_bounded_size() {
        let rate = Rate { runs: 100_000, period_ms: 1_000 };
        let mut window = RateWindow::default();
        for now in (0..2 * SECOND).step_by(20) {
            window = window.with(rate, now, 1);
        }
        assert!(window.0.len() <= 66, "{}", window.0.len());
    }

    #[test]
    fn full_window_opens_when_its_oldest_run_is_a_period_old() {
        let rate = Rate { runs: 2, period_ms: 1_000 };
        let window = RateWindow::default().with(rate, 0, 1).with(rate, 300_000, 1);
        assert_eq!((window.capacity(rate, 400_000), window.opens_at(rate, 400_000)), (0, Some(SECOND)));
        assert_eq!((window.capacity(rate, SECOND), window.opens_at(rate, SECOND)), (1, None));
    }

    #[test]
    fn time_more_than_a_period_from_now_does_not_count() {
        let (rate, now) = (Rate { runs: 2, period_ms: 1_000 }, 10 * SECOND);
        for last in [now + SECOND + 1, i64::MAX, now - SECOND, i64::MIN] {
            let window = RateWindow(vec![Begun(last, last, 2)]);
            assert_eq!((window.capacity(rate, now), window.opens_at(rate, now)), (2, None), "{last}");
            assert_eq!(window.with(rate, now, 1).0, [Begun(now, now, 1)]);
        }
        let soon = RateWindow(vec![Begun(now + SECOND, now + SECOND, 2)]);
        assert_eq!((soon.capacity(rate, now), soon.opens_at(rate, now)), (0, Some(now + 2 * SECOND)));
    }

    #[test]
    fn forged_counts_admit_no_more_runs_than_the_rate() {
        let rate = Rate { runs: 2, period_ms: 1_000 };
        for (counts, capacity) in
            [(vec![-5], 2), (vec![-5, 2], 0), (vec![i64::MIN, 1], 1), (vec![i64::MAX, i64::MAX], 0)]
        {
            let window = RateWindow(counts.iter().map(|count| Begun(0, 0, *count)).collect());
            assert_eq!(window.capacity(rate, 0), capacity, "{counts:?}");
            assert_eq!(window.opens_at(rate, 0), (capacity == 0).then_some(SECOND), "{counts:?}");
        }
    }

    #[test]
    fn group_that_begins_later_than_now_is_not_extended() {
        let rate = Rate { runs: 1_000, period_ms: 1_000 };
        let window = RateWindow(vec![Begun(i64::MAX, 0, 1)]).with(rate, 0, 1);
        assert_eq!(window.0, [Begun(i64::MAX, 0, 1), Begun(0, 0, 1)]);
    }

    #[cfg(feature = "in-memory")]
    #[test]
    fn key_waits_for_its_rate_for_two_periods_at_most() {
        let (rate, now) = (Rate { runs: 1, period_ms: 1_000 }, 10 * SECOND);
        let state = RateState::default().after(rate, now, 1, true);
        assert!(state.waits_for_rate(rate, now));
        assert!(state.waits_for_rate(rate, now + 9 * SECOND), "it returns by its time");
        for changed in [
            RateState { has_parked: false, ..state.clone() },
            RateState { idle_at: now, ..state.clone() },
            RateState { opens_at: now + 2 * SECOND + 1, idle_at: i64::MAX, ..state.clone() },
            RateState { opens_at: i64::MAX, idle_at: i64::MAX, ..state },
        ] {
            assert!(!changed.waits_for_rate(rate, now), "{changed:?}");
        }
        let endless = Rate { runs: 1, period_ms: u64::MAX };
        assert!(RateState::default().after(endless, now, 1, true).waits_for_rate(endless, now));
    }

    #[test]
    fn times_of_a_period_without_an_end_can_be_stored() {
        let rate = Rate { runs: 1, period_ms: u64::MAX };
        let state = RateState::default().after(rate, 10 * SECOND, 1, false);
        assert_eq!((state.opens_at, state.idle_at), (TIME_MAX, TIME_MAX));
    }

    #[test]
    fn lower_rate_counts_the_runs_of_the_higher_one() {
        let (high, low) = (Rate { runs: 3, period_ms: 1_000 }, Rate { runs: 1, period_ms: 1_000 });
        let window = RateWindow::default().with(high, 0, 1).with(high, 200_000, 1).with(high, 500_000, 1);
        assert_eq!((window.capacity(low, 600_000), window.opens_at(low, 600_000)), (0, Some(1_500_000)));
    }
}
