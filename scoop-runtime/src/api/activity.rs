//! How much happens: launches and ends over time, and how long runs take.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use time::OffsetDateTime;

use super::scoop::Scoop;
use crate::find::CountedSpan;
use crate::util::format::system_time;
use crate::util::patience::GivenUp;
use crate::{Activity, RunDurations, RuntimeError};

/// The number and the length of the spans.
const SPANS: u32 = 60;
const SPAN: Duration = Duration::from_secs(60);

/// The maximum number of events of a span that are read.
const READ_MAX: usize = 500;

/// The maximum number of runs of each saga whose durations are read.
const DURATIONS_OF_EACH: usize = 200;

impl Scoop {
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
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// let activity = scoop.activity().await?;
    /// let launched: u64 = activity.spans.iter().map(|minute| minute.launched).sum();
    /// println!("{launched} messages in the last hour");
    /// for saga in activity.durations {
    ///     println!("{}: {:?}, {:?}", saga.handler, saga.percentile(50), saga.percentile(99));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn activity(&self) -> BoxFuture<'_, Result<Activity, RuntimeError>> {
        async move {
            let failed = || GivenUp::error("activity was looked up");
            let now = self.patiently(|_| self.store().now()).await.map_err(failed())?.latest;
            // At full minutes, so that each look counts the same events in a minute that is over.
            let (seconds, nanos) = (now.second().into(), now.nanosecond().into());
            let open = now - time::Duration::seconds(seconds) - time::Duration::nanoseconds(nanos);
            let closed = (0..SPANS).rev().map(|nth| open - SPAN * nth);
            let bounds: Vec<_> = closed.chain([now]).collect();
            let counted = self.read_patiently(|_| self.store().counted_spans(&bounds, READ_MAX)).await;
            let durations =
                self.read_patiently(|_| self.store().run_durations(bounds[0], DURATIONS_OF_EACH)).await;
            let spans = bounds.windows(2).zip(counted.map_err(failed())?);
            let whole = |(ends, span): (&[OffsetDateTime], CountedSpan)| {
                let length = Duration::try_from(ends[1] - ends[0]).unwrap_or_default();
                span.extrapolated(ends[0], length, READ_MAX as u64)
            };
            Ok(Activity {
                spans: spans.map(whole).collect(),
                span: SPAN,
                durations: RunDurations::by_handler(durations.map_err(failed())?),
                read_at: system_time(now),
            })
        }
        .boxed()
    }
}
