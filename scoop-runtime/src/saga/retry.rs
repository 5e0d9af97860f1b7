//! Retry policies of steps and compensations.

use std::time::Duration;

use scoop_core::Error;
use uuid::Uuid;

/// The maximum pause: longer than any sensible one, and well within the range of times in the database.
const PAUSE_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A retry policy: the number of retries of a step or its compensation, and the pauses between them. During a pause
/// the run waits in the database, without a connection or a task.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    max: u32,
    first: Duration,
    longest: Duration,
    jitter_percent: u32,
    worth: Option<fn(&Error) -> bool>,
}

impl Retry {
    /// At most `max` retries after the first attempt. The pauses double from 100 ms up to 30 s, each up to 20 %
    /// shorter or longer.
    pub const fn new(max: u32) -> Self {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(30));
        Self { max, first, longest, jitter_percent: 20, worth: None }
    }

    /// Sets the first and the longest pause; the pauses double from one to the other.
    #[must_use]
    pub const fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        (self.first, self.longest) = (first, longest);
        self
    }

    /// Sets the jitter: each pause is randomly shorter or longer by up to this percentage.
    #[must_use]
    pub const fn jitter_percent(mut self, percent: u32) -> Self {
        self.jitter_percent = percent;
        self
    }

    /// Restricts the retries to errors for which `worth` returns true.
    #[must_use]
    pub const fn when(mut self, worth: fn(&Error) -> bool) -> Self {
        self.worth = Some(worth);
        self
    }

    /// The pause before the next attempt after this number of retries; `None` if the error is not retried.
    pub(crate) fn pause(&self, error: &Error, retries: u32, run: Uuid) -> Option<Duration> {
        let worth = !error.is_permanent() && self.worth.is_none_or(|worth| worth(error));
        if !worth || retries >= self.max {
            return None;
        }
        let pause = self.first.saturating_mul(1 << retries.min(20)).min(self.longest).min(PAUSE_MAX);
        // The jitter is derived from run and attempt, so that executions can be replayed.
        let chance = Uuid::new_v5(&run, &retries.to_be_bytes()).as_bytes()[0];
        let spread = f64::from(self.jitter_percent) / 100.0;
        let factor = 1.0 + spread * (f64::from(chance) / 127.5 - 1.0);
        Some(pause.mul_f64(factor.max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end() {
        let retry =
            Retry::new(4).backoff(Duration::from_millis(100), Duration::from_millis(300)).jitter_percent(0);
        let error = Error::msg("x");
        let pauses: Vec<_> = (0..5)
            .map(|retries| retry.pause(&error, retries, Uuid::nil()).map(|pause| pause.as_millis()))
            .collect();
        assert_eq!(pauses, [Some(100), Some(200), Some(300), Some(300), None]);
    }

    #[test]
    fn jitter_stays_in_its_bounds() {
        let second = Duration::from_secs(1);
        let retry = Retry::new(1).backoff(second, second).jitter_percent(50);
        let pauses = (0..500).map(|n| retry.pause(&Error::msg("x"), 0, Uuid::from_u128(n)).unwrap());
        let (shortest, longest) = (pauses.clone().min().unwrap(), pauses.max().unwrap());
        assert!(shortest >= second / 2 && shortest < second * 6 / 10, "{shortest:?}");
        assert!(longest <= second * 3 / 2 && longest > second * 14 / 10, "{longest:?}");
    }

    #[test]
    fn absurd_pauses_are_limited_to_ten_years() {
        let retry = Retry::new(9).backoff(Duration::MAX, Duration::MAX);
        let pause = retry.pause(&Error::msg("x"), 8, Uuid::nil()).unwrap();
        let year = Duration::from_secs(365 * 86_400);
        assert!(pause > 5 * year && pause < 20 * year, "{pause:?}");
    }

    #[test]
    fn error_that_is_not_worth_a_retry_is_not_retried() {
        let retry = Retry::new(9).when(|error| error.to_string() == "busy");
        let pause = |error: Error| retry.pause(&error, 0, Uuid::nil());
        assert!(pause(Error::msg("busy")).is_some());
        assert!(pause(Error::msg("declined")).is_none());
        assert!(pause(Error::msg("busy").into_permanent()).is_none());
    }
}
