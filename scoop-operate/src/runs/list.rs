//! Lists of runs, page by page.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_runtime::{RunPhase, When};
use time::OffsetDateTime;
use uuid::Uuid;

use super::filter::{Depth, PageSize, Part, RunFilter};
use super::found::{self, FieldFilter, FindValue};
use super::{RunSummary, Runs, WaitKind};
use crate::OperateError;
use crate::cursor::{EndedCursor, PageStart, RunCursor};
use crate::database::Database;

/// The default number of runs in a page.
const PAGE_SIZE: usize = 50;

/// The maximum number of runs in a page.
const PAGE_SIZE_MAX: usize = 1_000;

/// The number of rows that a page may read for a filter that no index serves.
const READS_MAX: usize = 1_000;

/// The same for all handlers at once.
const READS_OF_ALL_MAX: usize = 500;

/// The number of messages, and of their runs, that a page may read for a filter beside a field.
const READS_OF_FOUND_MAX: usize = 1_000;

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
/// Unfinished runs come first, the newest one first; then those that have ended, the latest end first. Runs that are
/// [found by a field](Self::found_by) come in the order of their launches, the newest first.
#[must_use = "nothing is read before this is awaited"]
#[derive(Clone)]
pub struct FindRuns {
    database: Arc<Database>,
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

    /// Lists only runs that are found by this value of a field, in which `#[message(find_by(..))]` lists the field: those of messages with
    /// the value, and all of hierarchies whose first message has it. After several calls, those that are found by all of the
    /// values.
    ///
    /// Such a list has the runs of the newest message first, also if they have ended. It is served by an index; together with
    /// other filters, or other fields that more messages have, a page passes over 1,000 messages or runs.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for run in scoop.operate().runs().list().found_by("order", 2167).found_by("customer", "ada").await?.runs {
    ///     println!("{run}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn found_by(mut self, field: impl Into<String>, value: impl Into<FindValue>) -> Self {
        self.filter.fields.push(FieldFilter::new(field, value));
        self
    }

    /// Sets the maximum number of runs in the page: by default 50, at most 1,000.
    pub fn page(mut self, runs: usize) -> Self {
        self.size = runs.clamp(1, PAGE_SIZE_MAX);
        self
    }

    /// Reads the page at this place: [`RunPage::next`] of the page before, under the same filters.
    pub fn after(mut self, cursor: impl Into<Option<RunCursor>>) -> Self {
        self.after = cursor.into();
        self
    }

    async fn read(mut self) -> Result<RunPage, OperateError> {
        self.filter.since = instant(self.times.0)?;
        self.filter.until = instant(self.times.1)?;
        let mut page = RunPage { runs: vec![], next: None };
        let mut start = self.after.map(|RunCursor(start)| start);
        if !self.filter.fields.is_empty() {
            return found::read(&self.database, &self.filter, start, self.found_size()).await;
        }
        // A place in a list of other filters is none here.
        start = start.filter(|start| !matches!(start, PageStart::Found(_)));
        if let None | Some(PageStart::Unfinished(_)) = start {
            let after = start.and_then(unfinished);
            if self.filter.has_unfinished() {
                let Part { runs, next } = self.read_unfinished(after).await?;
                page.runs = runs;
                page.next = next.map(|run| RunCursor(PageStart::Unfinished(run)));
            }
            if page.next.is_some() || self.filter.ends().is_empty() {
                return Ok(page);
            }
            start = Some(PageStart::Finished);
        }
        if page.runs.len() >= self.size {
            page.next = start.map(RunCursor);
            return Ok(page);
        }
        if !self.filter.ends().is_empty() {
            let after = start.and_then(ended);
            let database = &self.database;
            let size = self.page_size(self.size - page.runs.len());
            let part = database
                .read_retrying("runs were listed", |_| database.finished_runs(&self.filter, after, size))
                .await?;
            page.runs.extend(part.runs);
            page.next = part.next.map(|ended| RunCursor(PageStart::Ended(ended)));
        }
        Ok(page)
    }

    async fn read_unfinished(&self, after: Option<Uuid>) -> Result<Part<Uuid>, OperateError> {
        let (database, size) = (&self.database, self.page_size(self.size));
        database
            .read_retrying("runs were listed", |_| database.unfinished_runs(&self.filter, after, size))
            .await
    }

    /// How much is read for a page of runs that are found by fields.
    fn found_size(&self) -> PageSize {
        let is_selective =
            self.filter.is_selective() || self.filter.handler.is_some() || self.filter.fields.len() > 1;
        let reads = if is_selective { READS_OF_FOUND_MAX } else { 0 };
        PageSize { runs: self.size, reads: reads.max(2 * self.size) }
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

fn unfinished(start: PageStart) -> Option<Uuid> {
    match start {
        PageStart::Unfinished(run) => Some(run),
        PageStart::Finished | PageStart::Ended(_) | PageStart::Found(_) => None,
    }
}

fn ended(start: PageStart) -> Option<EndedCursor> {
    match start {
        PageStart::Ended(end) => Some(end),
        PageStart::Unfinished(_) | PageStart::Finished | PageStart::Found(_) => None,
    }
}

fn instant(time: Option<SystemTime>) -> Result<Option<OffsetDateTime>, OperateError> {
    Ok(time.map(|time| When::At(time).instant(OffsetDateTime::UNIX_EPOCH)).transpose()?)
}

impl IntoFuture for FindRuns {
    type Output = Result<RunPage, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

impl Runs {
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
    /// [`OperateError::is_invalid`] if a time is outside the years 1 to 9999; or if the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{RunPhase, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let failed = scoop.operate().runs().list().handler("checkout").state(RunPhase::RolledBack).failed_with("out-of-stock");
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
    pub fn list(&self) -> FindRuns {
        let (filter, times) = (RunFilter::default(), (None, None));
        FindRuns { database: self.operate.database(), filter, times, size: PAGE_SIZE, after: None }
    }
}
