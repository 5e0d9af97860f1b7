//! How much happens: launches and ends over time, and how long runs take.

use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use scoop_runtime::internal::system_time;
use time::OffsetDateTime;

use super::Runs;
use crate::OperateError;

/// The number and the length of the spans.
const SPANS: u32 = 60;
const SPAN: Duration = Duration::from_secs(60);

/// The maximum number of events of a span that are read.
const READ_MAX: usize = 500;

/// The maximum number of runs of each saga whose durations are read.
const DURATIONS_OF_EACH: usize = 200;

impl Runs {
    /// Launches and ends in each of the last 60 minutes of the clock, the current one among them, and the durations of the newest 200 runs of each saga that have
    /// committed in it.
    ///
    /// The cost is bounded: of each minute up to 500 events are read. Of a minute with more the numbers are
    /// [estimates](crate::ActivitySpan::is_estimate).
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let activity = scoop.operate().runs().activity().await?;
    /// let launched: u64 = activity.spans.iter().map(|minute| minute.launched).sum();
    /// println!("{launched} messages in the last hour");
    /// for saga in activity.durations {
    ///     println!("{}: {:?}, {:?}", saga.handler, saga.percentile(50), saga.percentile(99));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn activity(&self) -> BoxFuture<'static, Result<Activity, OperateError>> {
        let database = self.operate.database();
        async move {
            let doing = "activity was looked up";
            let now = database.retrying(doing, |_| database.now()).await?.latest;
            // At full minutes, so that each look counts the same events in a minute that is over.
            let (seconds, nanos) = (now.second().into(), now.nanosecond().into());
            let open = now - time::Duration::seconds(seconds) - time::Duration::nanoseconds(nanos);
            let closed = (0..SPANS).rev().map(|nth| open - SPAN * nth);
            let bounds: Vec<_> = closed.chain([now]).collect();
            let count = |_| database.counted_spans(&bounds, READ_MAX);
            let spans = bounds.windows(2).zip(database.read_retrying(doing, count).await?);
            let read = |_| database.run_durations(bounds[0], DURATIONS_OF_EACH);
            let durations = database.read_retrying(doing, read).await?;
            let whole = |(ends, span): (&[OffsetDateTime], CountedSpan)| {
                let length = Duration::try_from(ends[1] - ends[0]).unwrap_or_default();
                span.extrapolated(ends[0], length, READ_MAX as u64)
            };
            Ok(Activity {
                spans: spans.map(whole).collect(),
                span: SPAN,
                durations: RunDurations::by_handler(durations),
                read_at: system_time(now),
            })
        }
        .boxed()
    }
}

/// Launches and ends over time: the result of [`Runs::activity`](crate::Runs::activity).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Activity {
    /// The minutes of the last hour, the oldest first. The last one is not over: it ends when this was read.
    pub spans: Vec<ActivitySpan>,
    /// The length of a span.
    pub span: Duration,
    /// How long the newest runs of each saga took, by saga.
    pub durations: Vec<RunDurations>,
    /// The time at which this was read, by the clock of the database.
    pub read_at: SystemTime,
}

/// Launches and ends in a span of time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ActivitySpan {
    /// The beginning of the span.
    pub from: SystemTime,
    /// The number of messages launched.
    pub launched: u64,
    /// The number of runs that committed.
    pub committed: u64,
    /// The number of runs that ended rolled back, or with a failed rollback.
    pub failed: u64,
    /// Whether the numbers are estimates from a part of the span, since much happened in it.
    pub is_estimate: bool,
}

/// How long runs of a saga took from their beginning to their commit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunDurations {
    /// The saga; empty for all together.
    pub handler: String,
    /// The durations, shortest first; never empty.
    pub sorted: Vec<Duration>,
}

impl RunDurations {
    /// The duration that this share of the runs did not exceed, in per cent.
    ///
    /// ```no_run
    /// # fn example(durations: scoop_operate::RunDurations) {
    /// println!("half of the runs took {:?} or less", durations.percentile(50));
    /// # }
    /// ```
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.sorted.len() * percent.min(100)).div_ceil(100).max(1);
        self.sorted.get(rank - 1).copied().unwrap_or_default()
    }

    /// The runs of all sagas together; `None` without any.
    pub fn of_all(durations: &[Self]) -> Option<Self> {
        let mut sorted: Vec<_> = durations.iter().flat_map(|it| &it.sorted).copied().collect();
        sorted.sort_unstable();
        (!sorted.is_empty()).then_some(Self { handler: String::new(), sorted })
    }

    /// The runs by saga.
    pub(crate) fn by_handler(runs: Vec<(String, Duration)>) -> Vec<Self> {
        let mut by_handler = std::collections::BTreeMap::<_, Vec<_>>::new();
        for (handler, duration) in runs {
            by_handler.entry(handler).or_default().push(duration);
        }
        let sorted = by_handler.into_iter().map(|(handler, mut sorted)| {
            sorted.sort_unstable();
            Self { handler, sorted }
        });
        sorted.collect()
    }
}

/// The first events of a span, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountedSpan {
    pub(crate) launched: u64,
    pub(crate) committed: u64,
    pub(crate) failed: u64,
    /// The number of events that were read.
    pub(crate) read: u64,
    /// The time of the last of them.
    pub(crate) last_at: Option<OffsetDateTime>,
}

impl CountedSpan {
    /// The numbers of the whole span, if at most so many events of it were read.
    pub(crate) fn extrapolated(self, from: OffsetDateTime, span: Duration, read_max: u64) -> ActivitySpan {
        let covered = self.last_at.filter(|_| self.read >= read_max).map(|at| (at - from).as_seconds_f64());
        let covered = covered.map(|covered| (covered / span.as_secs_f64()).clamp(1e-6, 1.0));
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate of a number of events"
        )]
        let of_all = |count: u64| covered.map_or(count, |covered| (count as f64 / covered).round() as u64);
        ActivitySpan {
            from: from.into(),
            launched: of_all(self.launched),
            committed: of_all(self.committed),
            failed: of_all(self.failed),
            is_estimate: covered.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn span_that_was_read_in_part_is_extrapolated() {
        let from = OffsetDateTime::UNIX_EPOCH;
        let counted = CountedSpan {
            launched: 50,
            committed: 40,
            failed: 10,
            read: 100,
            last_at: Some(from + Duration::from_secs(15)),
        };
        let whole = counted.extrapolated(from, MINUTE, 101);
        assert_eq!((whole.launched, whole.committed, whole.failed, whole.is_estimate), (50, 40, 10, false));
        let part = counted.extrapolated(from, MINUTE, 100);
        assert_eq!((part.launched, part.committed, part.failed, part.is_estimate), (200, 160, 40, true));
    }

    #[test]
    fn percentile_is_the_duration_of_a_run() {
        let runs = (1..=100).rev().map(|ms| ("a".to_owned(), Duration::from_millis(ms))).collect();
        let durations = &RunDurations::by_handler(runs)[0];
        let of = |percent| durations.percentile(percent).as_millis();
        assert_eq!((of(0), of(50), of(99), of(100)), (1, 50, 99, 100));
    }
}
