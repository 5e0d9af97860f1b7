//! The pace of the deletion: pure decisions.
//!
//! What becomes due during an interval is deleted at the next look, so a lag of one interval is normal, and costs the least
//! share of a connection. What the lag is more raises the share in proportion. A service with constant launches comes
//! to rest at the lag whose share is what it needs.

use std::time::Duration;

/// The part of one connection that the deletion takes while it lags by no more than an interval.
const FRACTION_MIN: f64 = 0.1;

/// The most that it takes.
const FRACTION_MAX: f64 = 0.5;

/// The lag beyond an interval from which on it takes the most.
const LAG_MAX: Duration = Duration::from_secs(40 * 60);

/// The least time after which a look that does not come to an end reports, and deletes other rows.
const INTERVAL_MIN: Duration = Duration::from_secs(60);

/// For how long to sleep after a transaction of this duration, if the oldest due hierarchy has been due for `lag`.
pub(super) fn pause_after(elapsed: Duration, lag: Duration, interval: Duration) -> Duration {
    elapsed.mul_f64(1.0 / working_fraction(lag, interval) - 1.0)
}

/// The time after which a look is interrupted.
pub(super) fn round_length(interval: Duration) -> Duration {
    interval.max(INTERVAL_MIN)
}

/// The part of one connection that the deletion takes.
fn working_fraction(lag: Duration, interval: Duration) -> f64 {
    let part = lag.saturating_sub(interval).div_duration_f64(LAG_MAX).min(1.0);
    FRACTION_MIN + (FRACTION_MAX - FRACTION_MIN) * part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::PruneBatch;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(60 * 60);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const INTERVAL: Duration = Duration::from_secs(10 * 60);

    /// The time that the deletion of a hierarchy takes: that of the benchmarks.
    const PER_HIERARCHY: Duration = Duration::from_micros(1_250);

    /// A service with constant launches, and its deletion. Times are those since the first hierarchy became due.
    struct Service {
        /// The time between two launches.
        every: Duration,
        now: Duration,
        deleted: u32,
        /// The time that transactions took.
        worked: Duration,
        batch: PruneBatch,
    }

    impl Service {
        fn new(launches_per_second: u32) -> Self {
            let [now, worked] = [Duration::ZERO; 2];
            let every = Duration::from_secs(1) / launches_per_second;
            Self { every, now, deleted: 0, worked, batch: PruneBatch::default() }
        }

        fn lag(&self) -> Duration {
            self.now.saturating_sub(self.every * self.deleted)
        }

        /// Goes on until this time. Returns the longest lag, and the part of a connection that transactions took.
        fn run_until(&mut self, end: Duration) -> (Duration, f64) {
            let (begun, worked) = (self.now, self.worked);
            let mut longest = Duration::ZERO;
            while self.now < end {
                let lag = self.lag();
                longest = longest.max(lag);
                let due = u32::try_from(lag.as_nanos() / self.every.as_nanos()).unwrap();
                let size = due.min(u32::try_from(self.batch.size()).unwrap());
                let is_last = size == due;
                let elapsed = PER_HIERARCHY * size;
                self.batch.record(elapsed, usize::try_from(size).unwrap());
                self.deleted += size;
                self.worked += elapsed;
                self.now += elapsed + if is_last { INTERVAL } else { pause_after(elapsed, lag, INTERVAL) };
            }
            (longest, (self.worked - worked).div_duration_f64(self.now - begun))
        }
    }

    #[test]
    fn deletion_without_lag_takes_a_tenth_of_a_connection() {
        for lag in [Duration::ZERO, MINUTE, INTERVAL] {
            let pause = pause_after(Duration::from_millis(50), lag, INTERVAL);
            assert!(pause.abs_diff(Duration::from_millis(450)) < Duration::from_millis(1), "{pause:?}");
        }
    }

    #[test]
    fn deletion_with_a_long_lag_takes_half_a_connection() {
        for lag in [INTERVAL + LAG_MAX, DAY, Duration::MAX] {
            assert_eq!(pause_after(MINUTE, lag, INTERVAL), MINUTE);
        }
    }

    #[test]
    fn share_rises_steadily_with_the_lag() {
        let fractions: Vec<_> = (0..90).map(|minutes| working_fraction(minutes * MINUTE, INTERVAL)).collect();
        assert!(fractions.is_sorted());
        assert!(fractions.windows(2).all(|pair| pair[1] - pair[0] <= 0.010_001), "{fractions:?}");
    }

    #[test]
    fn lag_of_300_launches_a_second_stays_below_an_hour() {
        let mut service = Service::new(300);
        let (longest, _) = service.run_until(DAY);
        assert!(longest < HOUR, "{longest:?}");
        // As much is deleted as is launched, at a constant lag.
        let (longest, working_fraction) = service.run_until(3 * DAY);
        assert!(longest.abs_diff(service.lag()) < MINUTE, "{longest:?}, then {:?}", service.lag());
        assert!((0.36..0.39).contains(&working_fraction), "{working_fraction}");
    }

    #[test]
    fn few_launches_are_deleted_with_a_tenth_of_a_connection() {
        let mut service = Service::new(50);
        let (longest, working_fraction) = service.run_until(3 * DAY);
        assert!(longest < 3 * INTERVAL, "{longest:?}");
        assert!(working_fraction < FRACTION_MIN, "{working_fraction}");
    }

    #[test]
    fn lag_of_a_day_is_caught_up_with_half_a_connection() {
        let mut service = Service::new(100);
        service.now = DAY;
        let (_, working_fraction) = service.run_until(2 * DAY);
        assert!(working_fraction <= FRACTION_MAX, "{working_fraction}");
        assert!(service.lag() < HOUR, "{:?}", service.lag());
    }
}
