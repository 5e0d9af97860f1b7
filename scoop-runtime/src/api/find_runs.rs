//! Lists of runs, page by page, and lookup by a unique key.

use std::future::IntoFuture;
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::Message;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::find::{Depth, PageSize, Part, Place, RunFilter};
use crate::store::NewMessage;
use crate::util::format::system_time;
use crate::util::patience::GivenUp;
use crate::{Handle, RunCursor, RunPhase, RunSummary, RuntimeError, Scoop, WaitKind, When};

/// The default number of runs in a page.
const PAGE_SIZE: usize = 50;

/// The maximum number of runs in a page.
const PAGE_SIZE_MAX: usize = 1_000;

/// The number of rows that a page may read for a filter that no index serves.
const READS_MAX: usize = 1_000;

/// The same for all handlers at once.
const READS_OF_ALL_MAX: usize = 500;

/// A page of a list of runs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunPage {
    /// The runs, in the order of the list.
    pub runs: Vec<RunSummary>,
    /// The place of the next page; `None` at the end of the list.
    pub next: Option<RunCursor>,
}

/// A list of runs about to be read. Await it for a [`RunPage`].
///
/// Unfinished runs come first, the newest one first; then those that have ended, the latest end first.
#[must_use = "nothing is read before this is awaited"]
#[derive(Clone)]
pub struct FindRuns {
    scoop: Scoop,
    filter: RunFilter,
    times: (Option<SystemTime>, Option<SystemTime>),
    size: usize,
    after: Option<RunCursor>,
}

impl FindRuns {
    /// Lists only runs of this saga, by its stored name.
    pub fn handler(mut self, saga: impl Into<String>) -> Self {
        self.filter.handler = Some(saga.into());
        self
    }

    /// Lists only runs of messages of this topic.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.filter.topic = Some(topic.into());
        self
    }

    /// Lists only runs in this state. After several calls, those in any of the states.
    pub fn state(mut self, phase: RunPhase) -> Self {
        self.filter.phases.insert(phase);
        self
    }

    /// Lists only runs that came into their state at this time or later, by the clock of the server.
    pub fn since(mut self, time: SystemTime) -> Self {
        self.times.0 = Some(time);
        self
    }

    /// Lists only runs that came into their state before this time, by the clock of the server.
    pub fn until(mut self, time: SystemTime) -> Self {
        self.times.1 = Some(time);
        self
    }

    /// Lists only runs with a failure of this code, which may be that of a cause, at any depth.
    ///
    /// The failures of a run are the reason of its rollback and, if the rollback failed, the latest failure of that, also after an
    /// operator has settled it. Attempts that are retried are no failures of a run.
    pub fn failed_with(mut self, code: impl Into<String>) -> Self {
        self.filter.code = Some(code.into());
        self
    }

    /// Lists only runs that wait for this. After several calls, those that wait for any of them.
    pub fn waiting_for(mut self, wait: WaitKind) -> Self {
        self.filter.waits.insert(wait);
        self
    }

    /// Lists only runs of messages that started a hierarchy.
    pub fn roots(mut self) -> Self {
        self.filter.depth = Depth::Roots;
        self
    }

    /// Sets the maximum number of runs in the page: by default 50, at most 1,000.
    pub fn page(mut self, runs: usize) -> Self {
        self.size = runs.clamp(1, PAGE_SIZE_MAX);
        self
    }

    /// Reads the page at this place: [`RunPage::next`] of the page before, under the same filters.
    pub fn after(mut self, place: impl Into<Option<RunCursor>>) -> Self {
        self.after = place.into();
        self
    }

    async fn read(mut self) -> Result<RunPage, RuntimeError> {
        self.filter.since = instant(self.times.0)?;
        self.filter.until = instant(self.times.1)?;
        let mut page = RunPage { runs: vec![], next: None };
        let mut place = self.after.map(|RunCursor(place)| place);
        if let None | Some(Place::Unfinished(_)) = place {
            let after = place.and_then(Place::unfinished);
            if self.filter.has_unfinished() {
                let Part { runs, next } = self.read_unfinished(after).await?;
                page.runs = runs;
                page.next = next.map(|run| RunCursor(Place::Unfinished(run)));
            }
            if page.next.is_some() || self.filter.ends().is_empty() {
                return Ok(page);
            }
            place = Some(Place::Finished);
        }
        if page.runs.len() >= self.size {
            page.next = place.map(RunCursor);
            return Ok(page);
        }
        if !self.filter.ends().is_empty() {
            let after = place.and_then(Place::ended);
            let scoop = &self.scoop;
            let size = self.page_size(self.size - page.runs.len());
            let part = scoop.read_patiently(|_| scoop.store().finished_runs(&self.filter, after, size)).await;
            let part = part.map_err(GivenUp::error("runs were listed"))?;
            page.runs.extend(part.runs);
            page.next = part.next.map(|ended| RunCursor(Place::Ended(ended)));
        }
        Ok(page)
    }

    async fn read_unfinished(&self, after: Option<Uuid>) -> Result<Part<Uuid>, RuntimeError> {
        let (scoop, size) = (&self.scoop, self.page_size(self.size));
        let part = scoop.read_patiently(|_| scoop.store().unfinished_runs(&self.filter, after, size)).await;
        part.map_err(GivenUp::error("runs were listed"))
    }

    fn page_size(&self, runs: usize) -> PageSize {
        let reads = match (self.filter.is_selective(), &self.filter.handler) {
            (false, _) => 2 * runs,
            (true, Some(_)) => READS_MAX,
            (true, None) => READS_OF_ALL_MAX,
        };
        PageSize { runs, reads: reads.max(2 * runs) }
    }
}

impl Place {
    fn unfinished(self) -> Option<Uuid> {
        match self {
            Self::Unfinished(run) => Some(run),
            Self::Finished | Self::Ended(_) => None,
        }
    }

    fn ended(self) -> Option<crate::find::EndedPlace> {
        match self {
            Self::Ended(end) => Some(end),
            Self::Unfinished(_) | Self::Finished => None,
        }
    }
}

fn instant(time: Option<SystemTime>) -> Result<Option<OffsetDateTime>, RuntimeError> {
    time.map(|time| When::At(time).instant(OffsetDateTime::UNIX_EPOCH)).transpose()
}

impl IntoFuture for FindRuns {
    type Output = Result<RunPage, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

impl Scoop {
    /// Lists runs, finished or not, page by page: unfinished ones first, the newest first, then those that have ended,
    /// the latest end first. Await it for a [`RunPage`].
    ///
    /// A page costs the same after any number of other runs. So it reads only so many rows: a filter that few runs
    /// pass may give a short or empty page although there is a [next](RunPage::next) one. Filters by saga, and for runs
    /// that have ended by state and time, are served by an index; among runs of one saga a page passes over 1,000 others.
    ///
    /// Each page is read at its own time. A run that ends meanwhile may be on two pages; one that is rolled back
    /// on request after its end may be on none.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Time`] if a time is outside the years 1 to 9999; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, RunPhase, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// let failed = scoop.runs().handler("checkout").state(RunPhase::RolledBack).failed_with("out-of-stock");
    /// let mut next = None;
    /// loop {
    ///     let page = failed.clone().page(20).after(next).await?;
    ///     for run in page.runs {
    ///         println!("{run}");
    ///     }
    ///     next = page.next;
    ///     if next.is_none() {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn runs(&self) -> FindRuns {
        let (filter, times) = (RunFilter::default(), (None, None));
        FindRuns { scoop: self.clone(), filter, times, size: PAGE_SIZE, after: None }
    }

    /// The hierarchy of the message of this type that was launched with this [key](crate::Launch::unique).
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoSuchKey`] if none was launched with it; [`RuntimeError::KeptKey`] if its hierarchy was deleted and
    /// the key is kept; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// // Launched by another process with `.unique("order 7")`.
    /// let order = scoop.find_by_key::<OrderPlaced>("order 7").await?;
    /// println!("{}", order.wait().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_by_key<M: Message>(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Handle, RuntimeError>> + Send {
        self.find_topic_by_key(M::TOPIC, key)
    }

    /// As [`find_by_key`](Self::find_by_key), with the topic given by name.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let order = scoop.find_topic_by_key("orders.placed", "order 7").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_topic_by_key(
        &self,
        topic: &str,
        key: &str,
    ) -> impl Future<Output = Result<Handle, RuntimeError>> + Send {
        let ids = NewMessage::unique_ids(topic, key);
        let found = self.find(ids.root);
        let (scoop, topic, key) = (self.clone(), topic.to_owned(), key.to_owned());
        async move {
            let found = found.await;
            let Err(RuntimeError::NoSuchMessage { .. }) = found else { return found };
            // The id follows from the key, so it says nothing to the caller.
            let kept = scoop.patiently(|_| scoop.store().key_kept_until(ids.id)).await;
            match kept.map_err(GivenUp::error("a unique key was looked up"))? {
                Some(until) => Err(RuntimeError::KeptKey { topic, key, until: system_time(until) }),
                None => Err(RuntimeError::NoSuchKey { topic, key }),
            }
        }
        .boxed()
    }
}
