//! The deletion of finished hierarchies by hand.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use scoop_runtime::Pruned;
use scoop_runtime::internal::{
    Archive, Expired, FetchExt as _, PruneBatch, PruneMode, PruneResult, PruneTimes, PruneVerdict,
    RETENTION_MIN, ROWS_MAX, RefusedDeletions, Retries, is_of_setup, is_refused, pruned, refusal,
    run_to_completion, seconds, undeletable,
};
use sqlx::Row as _;
use uuid::Uuid;

use crate::database::Database;
use crate::error::{ErrorKind, failed};
use crate::statements::{PRUNE_HIERARCHIES, PRUNE_PAGE};
use crate::{Operate, OperateError};

/// The default age.
const AGE_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The maximum number of hierarchies on a page.
const PAGE_MAX: i64 = 1_000;

/// Hierarchies that may be old enough to be deleted.
#[derive(Debug, Default)]
struct PrunePage {
    roots: Vec<Uuid>,
    /// The hierarchies that could not be deleted the last time.
    put_off: Vec<Uuid>,
    /// The next page begins after this one; `None` at the end.
    next: Option<Uuid>,
}

/// A function that is called with the counts so far.
type OnProgress = Box<dyn FnMut(&Pruned) + Send>;

/// The deletion of finished hierarchies. Await it.
#[must_use = "nothing is deleted before this is awaited"]
pub struct Prune {
    operate: Operate,
    age: Duration,
    limit: Option<u64>,
    mode: PruneMode,
    on_progress: Option<OnProgress>,
    pruned: Pruned,
    refused: RefusedDeletions,
}

impl Prune {
    pub(super) fn new(operate: Operate) -> Self {
        Self {
            operate,
            age: AGE_DEFAULT,
            limit: None,
            mode: PruneMode::Delete,
            on_progress: None,
            pruned: Pruned::default(),
            refused: RefusedDeletions::default(),
        }
    }

    /// Restricts the deletion to hierarchies whose last run ended before this time, by the clock of the server: an hour at
    /// least; 30 days by default.
    pub fn older_than(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Sets the maximum number of hierarchies; none by default.
    pub fn limit(mut self, hierarchies: u64) -> Self {
        self.limit = Some(hierarchies);
        self
    }

    /// Counts what would be deleted, and deletes nothing.
    pub fn dry_run(mut self) -> Self {
        self.mode = PruneMode::Count;
        self
    }

    /// Sets a function that is called after each transaction, with the counts so far.
    pub fn on_progress(mut self, report: impl FnMut(&Pruned) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(report));
        self
    }

    async fn carry_out(mut self) -> Result<Pruned, OperateError> {
        if self.age < RETENTION_MIN {
            return Err(ErrorKind::PruneAge { age: self.age, least: RETENTION_MIN }.into());
        }
        let database = self.operate.required("a deletion of hierarchies")?;
        let result = match self.prune_hierarchies(&database).await {
            Ok(()) => self.prune_rows(&database).await,
            Err(error) => Err(error),
        };
        if self.mode == PruneMode::Delete && !self.pruned.is_empty() {
            pruned(&self.pruned);
        }
        if self.refused.count > 0 {
            undeletable(&self.refused);
        }
        result.map(|()| self.pruned)
    }

    /// Begins an operation with retries. A dry run only reads.
    fn trial(&self, database: &Database) -> Retries {
        if self.mode == PruneMode::Count { database.reading() } else { database.trial() }
    }

    async fn prune_hierarchies(&mut self, database: &Arc<Database>) -> Result<(), OperateError> {
        let mut after = Uuid::nil();
        let mut batch = PruneBatch::default();
        loop {
            let page = self.trial(database).run(|_| database.prune_page(after, self.age)).await;
            let page = page.map_err(failed("old hierarchies were looked up"))?;
            let PrunePage { mut roots, put_off, next } = page;
            if self.mode == PruneMode::Count && !put_off.is_empty() {
                roots.retain(|root| !put_off.contains(root));
                // They count as refused if they would be deleted.
                self.prune_some(database, put_off, PruneMode::Count, PruneVerdict::Refused).await?;
            }
            let mut left = &roots[..];
            while !left.is_empty() {
                let deleted = self.pruned.hierarchies;
                let remaining = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(deleted));
                if remaining == 0 {
                    self.pruned.more = true;
                    return Ok(());
                }
                let size = batch.size().min(usize::try_from(remaining).unwrap_or(usize::MAX)).min(left.len());
                let (now, later) = left.split_at(size);
                let begun = Instant::now();
                match (self.prune_batch(database, now.to_vec()).await?, now) {
                    (None, _) => batch.record(begun.elapsed(), size),
                    (Some(error), [root]) => {
                        self.pruned.retained.refused += 1;
                        self.refused.add(*root, None, refusal(&error));
                    }
                    (Some(_), _) => {
                        batch.failed();
                        continue;
                    }
                }
                left = later;
            }
            let Some(next) = next else { return Ok(()) };
            after = next;
        }
    }

    /// Archives hierarchies if the program has an archive, and deletes them in one transaction. Returns the error if the database
    /// refuses one of them.
    async fn prune_batch(
        &mut self,
        database: &Arc<Database>,
        mut roots: Vec<Uuid>,
    ) -> Result<Option<sqlx::Error>, OperateError> {
        let mut others = vec![];
        if self.mode == PruneMode::Delete
            && let Some(archive) = &database.archive
        {
            let due = self.archived(database, archive, &roots).await?;
            roots.retain(|root| !due.contains(root));
            others = std::mem::replace(&mut roots, due);
        }
        let refusal = self.prune_some(database, roots, self.mode, PruneVerdict::Deleted).await?;
        if refusal.is_none() && !others.is_empty() {
            // One that has become due meanwhile is not archived.
            self.prune_some(database, others, PruneMode::Count, PruneVerdict::Recent).await?;
        }
        Ok(refusal)
    }

    /// Archives those of these hierarchies that would be deleted, and returns them.
    async fn archived(
        &mut self,
        database: &Database,
        archive: &Archive,
        roots: &[Uuid],
    ) -> Result<Vec<Uuid>, OperateError> {
        let times = PruneTimes::Age(self.age);
        let doing = "hierarchies were looked up";
        let due = database.retrying(doing, |_| database.deletable(roots, times)).await?;
        if !due.is_empty() {
            let archived = archive.take(&database.store, database.retry_for, &due).await;
            archived.map_err(|source| ErrorKind::Archive { count: due.len(), source })?;
        }
        Ok(due)
    }

    /// Deletes or counts hierarchies in one transaction. Those that are deleted, or would be, get the given verdict. Returns the
    /// error if the database refuses one of them.
    async fn prune_some(
        &mut self,
        database: &Arc<Database>,
        roots: Vec<Uuid>,
        mode: PruneMode,
        deletable: PruneVerdict,
    ) -> Result<Option<sqlx::Error>, OperateError> {
        let age = self.age;
        // After a lost answer, another attempt could not return the counts.
        let results = self.trial(database).once().run(|_| {
            let (database, roots) = (database.clone(), roots.clone());
            run_to_completion(async move { database.prune(&roots, age, mode).await })
        });
        let is_refused = |source| mode == PruneMode::Delete && is_refused(source) && !is_of_setup(source);
        let results = match results.await {
            Err(given_up) if is_refused(&given_up.source) => return Ok(Some(given_up.source)),
            results => results.map_err(failed("hierarchies were pruned"))?,
        };
        for result in results {
            let is_retained = result.verdict == PruneVerdict::Deleted && deletable != PruneVerdict::Deleted;
            self.pruned.add(if is_retained { PruneResult::retained(deletable) } else { result });
        }
        self.report();
        Ok(None)
    }

    /// Deletes or counts old signals, and unique keys whose time is over.
    async fn prune_rows(&mut self, database: &Arc<Database>) -> Result<(), OperateError> {
        for rows in [Expired::Signals(self.age), Expired::UniqueKeys] {
            loop {
                let mode = self.mode;
                let count = self.trial(database).once().run(|_| {
                    let database = database.clone();
                    run_to_completion(async move { rows.prune(&database, mode).await })
                });
                let count = count.await.map_err(failed("old rows were pruned"))?;
                rows.count(&mut self.pruned, count);
                if count > 0 {
                    self.report();
                }
                if mode == PruneMode::Count || count < u64::from(ROWS_MAX) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn report(&mut self) {
        if let Some(report) = &mut self.on_progress {
            report(&self.pruned);
        }
    }
}

impl IntoFuture for Prune {
    type Output = Result<Pruned, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}

impl Database {
    async fn prune_page(&self, after: Uuid, age: Duration) -> sqlx::Result<PrunePage> {
        let page = sqlx::query(self.text(PRUNE_PAGE)).bind(after).bind(seconds(age)).bind(PAGE_MAX);
        let mut found = PrunePage::default();
        for row in &page.all(self.sessions()).await? {
            let root = row.try_get("root")?;
            if row.try_get("may_be_old")? {
                found.roots.push(root);
            }
            if row.try_get("is_put_off")? {
                found.put_off.push(root);
            }
            found.next = Some(root);
        }
        Ok(found)
    }

    async fn prune(&self, roots: &[Uuid], age: Duration, mode: PruneMode) -> sqlx::Result<Vec<PruneResult>> {
        let prune = sqlx::query(self.text(PRUNE_HIERARCHIES))
            .bind(roots.to_vec())
            .bind(seconds(age))
            .bind(mode == PruneMode::Count);
        self.deletion(prune).await?.iter().map(PruneResult::from_row).collect()
    }
}
