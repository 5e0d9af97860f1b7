//! A live stream of recorded events.

mod following;
mod rows;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, Stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use scoop_runtime::HierarchyId;
use scoop_runtime::internal::{FOREVER, is_out_of_permits};

pub(crate) use self::following::first_id_of;
pub use self::following::{BadEventCursor, EventCursor, RecordedEvent};
use self::following::{EventFilter, EventWindow, FollowedPage, Following};
use crate::OperateError;
use crate::database::Database;
use crate::error::failed;

/// What was done when the database failed.
const DOING: &str = "events were followed";

/// The default interval between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// The maximum number of events that one statement reads.
const BATCH: usize = 1_000;

/// The pause after a look is so many times as long as the look.
const REST: u32 = 9;

/// The recorded events of all hierarchies, or of some. [`follow`](Self::follow) reads them.
#[must_use = "nothing is read before `follow`"]
#[derive(Clone)]
pub struct Events {
    database: Arc<Database>,
    filter: EventFilter,
    begin: Begin,
    interval: Duration,
}

/// Where a stream begins.
#[derive(Clone, Copy)]
enum Begin {
    Now,
    At(EventCursor),
    Since(SystemTime),
}

/// A live stream of recorded events. It ends when the program shuts down.
pub struct EventStream {
    database: Arc<Database>,
    stopped: CancellationToken,
    filter: EventFilter,
    interval: Duration,
    /// `None` until the place of the beginning is known.
    following: Option<Following>,
    end: End,
    /// Not to be read from before this.
    rests_until: Option<Instant>,
}

/// When a stream ends, besides the shutdown of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Never,
    /// After a complete round.
    AfterRound,
    Reached,
}

impl Events {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self { database, filter: EventFilter::default(), begin: Begin::Now, interval: INTERVAL }
    }

    /// Only events of this saga, by its stored name.
    pub fn handler(mut self, saga: impl Into<String>) -> Self {
        self.filter.handler = Some(saga.into());
        self
    }

    /// Only events of this hierarchy.
    pub fn hierarchy(mut self, hierarchy: impl Into<HierarchyId>) -> Self {
        self.filter.hierarchy = Some(hierarchy.into().uuid());
        self
    }

    /// Without the failures of the events: [`RecordedEvent::failure`] is `None`. They are then not read.
    pub fn without_failures(mut self) -> Self {
        self.filter.without_failures = true;
        self
    }

    /// Begins at the place of an earlier stream, in this or another process, instead of now.
    pub fn after(mut self, cursor: impl Into<Option<EventCursor>>) -> Self {
        self.begin = cursor.into().map_or(Begin::Now, Begin::At);
        self
    }

    /// Begins with the events of this time, instead of now. Events of the minute before it can be among the first.
    pub fn since(mut self, time: SystemTime) -> Self {
        self.begin = Begin::Since(time);
        self
    }

    /// Sets the interval between two looks at the record; by default a quarter of a second.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// A live stream of events. The place at which it begins is that of its first [`next`](EventStream::next), unless
    /// [`after`](Self::after) gives another.
    pub fn follow(self) -> EventStream {
        self.stream(End::Never)
    }

    /// A stream of the events that are recorded when it is read: it ends when there are no more. Without
    /// [`after`](Self::after) or [`since`](Self::since) there are none.
    pub fn recorded(self) -> EventStream {
        self.stream(End::AfterRound)
    }

    fn stream(self, end: End) -> EventStream {
        let Self { database, filter, begin, interval } = self;
        let cursor = match begin {
            Begin::Now => None,
            Begin::At(cursor) => Some(cursor),
            Begin::Since(time) => Some(EventCursor::since(time)),
        };
        let following = cursor.map(match end {
            End::AfterRound => Following::once_after,
            End::Never | End::Reached => Following::after,
        });
        EventStream {
            stopped: database.stopped.clone(),
            database,
            filter,
            interval,
            following,
            end,
            rests_until: None,
        }
    }
}

impl EventStream {
    /// The next event; waits for one. `None` once the program shuts down, or at the end of what is
    /// [recorded](Events::recorded).
    ///
    /// # Errors
    ///
    /// If the database fails for longer than [`Builder::retry_for`](scoop_runtime::Builder::retry_for). The next call goes on from
    /// the same place.
    ///
    /// # Cancel safety
    ///
    /// No event is lost if the future is dropped.
    #[expect(clippy::should_implement_trait, reason = "it waits; `into_stream` has the trait for that")]
    pub fn next(&mut self) -> BoxFuture<'_, Option<Result<RecordedEvent, OperateError>>> {
        async move {
            loop {
                if let Some(event) = self.following.as_mut().and_then(Following::next) {
                    return Some(Ok(event));
                }
                if self.end == End::Reached {
                    return None;
                }
                let stopped = self.stopped.clone();
                let read = stopped.run_until_cancelled(self.read()).await?;
                if let Err(error) = read {
                    return Some(Err(error));
                }
            }
        }
        .boxed()
    }

    /// The place from which another stream can go on: after the events that this one has returned. It leaves out none of the
    /// others, and repeats events that were written since the oldest transaction began that was open at that look. `None` before the
    /// first call of [`next`](Self::next), if the stream begins now.
    pub fn cursor(&self) -> Option<EventCursor> {
        self.following.as_ref().map(Following::cursor)
    }

    /// As a [`Stream`].
    pub fn into_stream(self) -> impl Stream<Item = Result<RecordedEvent, OperateError>> + Send {
        stream::unfold(self, async |mut events| Some((events.next().await?, events)))
    }

    /// Reads the next events, after a pause if a round is complete.
    async fn read(&mut self) -> Result<(), OperateError> {
        if let Some(until) = self.rests_until {
            tokio::time::sleep_until(until).await;
        }
        let begun = Instant::now();
        if self.following.as_ref().is_none_or(|following| following.window().is_none()) {
            let database = &self.database;
            let mut oldest = None;
            if self.following.is_none() {
                oldest = Some(database.retrying(DOING, |_| database.oldest_transaction()).await?);
            }
            let horizon = database.retrying(DOING, |_| database.event_horizon()).await?;
            if let Some(oldest) = oldest {
                self.following = Some(Following::from_now(&horizon, oldest));
            }
            if let Some(following) = &mut self.following {
                following.begin(horizon, BATCH);
            }
        }
        let Some((following, window)) =
            self.following.as_mut().and_then(|it| it.window().cloned().map(|window| (it, window)))
        else {
            return Ok(());
        };
        let (database, filter): (&Database, &EventFilter) = (&self.database, &self.filter);
        let window: &EventWindow = &window;
        let page = if window.is_empty() {
            FollowedPage { events: vec![], is_last: true }
        } else {
            match database.reading().run(|_| database.events(window, filter)).await {
                // A follower has time.
                Err(given_up) if is_out_of_permits(&given_up.source) => return Ok(()),
                read => read.map_err(failed(DOING))?,
            }
        };
        let is_complete = following.take(page);
        self.rests_until = None;
        if is_complete {
            if self.end == End::AfterRound {
                self.end = End::Reached;
            }
            let rest = self.interval.max(begun.elapsed() * REST);
            self.rests_until = Some(Instant::now() + rest.min(FOREVER));
        }
        Ok(())
    }
}
