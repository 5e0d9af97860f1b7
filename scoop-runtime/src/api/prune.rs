//! Deletion of finished hierarchies.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use uuid::Uuid;

use super::Archive;
use crate::error::{is_of_setup, is_refused};
use crate::model::retention::RETENTION_MIN;
use crate::store::{PostgresStore, PruneBatch, PruneMode, PrunePage, PruneResult, PruneTimes, PruneVerdict};
use crate::util::detached::run_to_completion;
use crate::util::retries::{GivenUp, Retries};
use crate::{RuntimeError, Scoop, telemetry};

/// The default age.
const AGE_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The maximum number of signals, or of unique keys, deleted in one transaction.
pub(crate) const ROWS_MAX: u32 = 1_000;

/// The result of a prune (`operate().retention().prune`), or its progress. In a [dry run](Prune::dry_run) nothing is deleted, and the
/// counts are of what would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pruned {
    /// The number of deleted hierarchies.
    pub hierarchies: u64,
    /// The number of their messages. Those that are events of an entity stay, and do not count.
    pub messages: u64,
    /// The number of their events.
    pub events: u64,
    /// The number of deleted signals.
    pub signals: u64,
    /// The number of deleted keys of launches that had outlived their hierarchies: see
    /// [`Retention::unique_keys`](crate::Retention::unique_keys).
    pub unique_keys: u64,
    /// The hierarchies with a run whose last event is older than the given age, and that are kept.
    #[serde(rename = "kept")]
    pub retained: RetainedHierarchies,
    /// Whether the [limit](Prune::limit) was reached, so that there may be more hierarchies.
    pub more: bool,
}

/// The number of hierarchies that a prune (`operate().retention().prune`) kept, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RetainedHierarchies {
    /// Another run ended later.
    pub recent: u64,
    /// A run has not ended.
    pub unfinished: u64,
    /// A rollback failed, and no operator has settled it.
    pub failed: u64,
    /// A message waits to be joined; the hierarchy of a joined message is kept, which may have this one rolled back; or
    /// it was started by a [`Failed`](crate::Failed) about a hierarchy that is unfinished.
    pub needed: u64,
    /// Another transaction held a lock.
    pub busy: u64,
    /// The database refuses its deletion, for example because of a foreign key of a table of yours. The event
    /// [`undeletable`](https://docs.rs/scoop-saga/latest/scoop/guide/reference/telemetry/index.html) has the first error. In a
    /// [dry run](Prune::dry_run), these are the `operate().retention().undeletable` ones: the last attempt of a program failed,
    /// and a call that deletes tries them again.
    pub refused: u64,
}

/// Deletions that the database refuses.
#[derive(Debug, Default)]
pub(crate) struct RefusedDeletions {
    pub(crate) count: usize,
    /// The first of these hierarchies.
    pub(crate) first: Uuid,
    pub(crate) topic: Option<String>,
    pub(crate) error: String,
}

impl RefusedDeletions {
    pub(crate) fn add(&mut self, root: Uuid, topic: Option<String>, error: String) {
        if self.count == 0 {
            (self.first, self.topic, self.error) = (root, topic, error);
        }
        self.count += 1;
    }
}

impl Pruned {
    /// Whether nothing was deleted.
    pub(crate) fn is_empty(&self) -> bool {
        self.hierarchies + self.signals + self.unique_keys == 0
    }

    pub(crate) fn add(&mut self, result: PruneResult) {
        let count = match result.verdict {
            PruneVerdict::Deleted => &mut self.hierarchies,
            PruneVerdict::Recent => &mut self.retained.recent,
            PruneVerdict::Unfinished => &mut self.retained.unfinished,
            PruneVerdict::Failed => &mut self.retained.failed,
            PruneVerdict::Needed => &mut self.retained.needed,
            PruneVerdict::Busy | PruneVerdict::Unarchived => &mut self.retained.busy,
            PruneVerdict::Refused => &mut self.retained.refused,
            // Another call has deleted it.
            PruneVerdict::Absent => return,
        };
        *count += 1;
        self.messages += result.messages;
        self.events += result.events;
    }
}

/// Rows that are deleted apart from hierarchies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expired {
    /// Signals that have reached no run since this age.
    Signals(Duration),
    /// The unique keys of deleted hierarchies.
    UniqueKeys,
}

impl Expired {
    /// Deletes a batch of them, and returns its size; or counts all.
    pub(crate) async fn prune(self, tables: &PostgresStore, mode: PruneMode) -> sqlx::Result<u64> {
        match self {
            Self::Signals(age) => tables.prune_signals(age, ROWS_MAX, mode).await,
            Self::UniqueKeys => tables.prune_keys(ROWS_MAX, mode).await,
        }
    }

    pub(crate) fn count(self, pruned: &mut Pruned, more: u64) {
        match self {
            Self::Signals(_) => pruned.signals += more,
            Self::UniqueKeys => pruned.unique_keys += more,
        }
    }
}

/// Why a batch was not deleted.
enum Fault {
    /// The database refuses one of its hierarchies.
    Refused(sqlx::Error),
    Other(RuntimeError),
}

impl From<RuntimeError> for Fault {
    fn from(error: RuntimeError) -> Self {
        Self::Other(error)
    }
}

/// A function that is called with the counts so far.
type OnProgress = Box<dyn FnMut(&Pruned) + Send>;

/// The deletion of finished hierarchies. Await it.
#[must_use = "nothing is deleted before this is awaited"]
pub struct Prune {
    scoop: Scoop,
    age: Duration,
    limit: Option<u64>,
    mode: PruneMode,
    on_progress: Option<OnProgress>,
}

impl Prune {
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

    async fn carry_out(mut self) -> Result<Pruned, RuntimeError> {
        if self.age < RETENTION_MIN {
            return Err(RuntimeError::PruneAge { age: self.age, least: RETENTION_MIN });
        }
        let (mut pruned, mut refused) = (Pruned::default(), RefusedDeletions::default());
        let result = match self.prune_hierarchies(&mut pruned, &mut refused).await {
            Ok(()) => self.prune_rows(&mut pruned).await,
            Err(error) => Err(error),
        };
        if self.mode == PruneMode::Delete && !pruned.is_empty() {
            telemetry::pruned(&pruned);
        }
        if refused.count > 0 {
            telemetry::undeletable(&refused);
        }
        result.map(|()| pruned)
    }

    /// Begins an operation with retries. A dry run only reads.
    fn trial(&self) -> Retries {
        let trial = self.scoop.trial();
        match self.mode {
            PruneMode::Count => trial.reading(self.scoop.store().read_permits()),
            PruneMode::Delete => trial,
        }
    }

    async fn prune_hierarchies(
        &mut self,
        pruned: &mut Pruned,
        refused: &mut RefusedDeletions,
    ) -> Result<(), RuntimeError> {
        let tables = self.scoop.tables("a deletion of hierarchies")?.clone();
        let mut after = Uuid::nil();
        let mut batch = PruneBatch::default();
        loop {
            let page = self.trial().run(|_| tables.prune_page(after, self.age)).await;
            let page = page.map_err(GivenUp::error("old hierarchies were looked up"))?;
            let PrunePage { mut roots, put_off, next } = page;
            if self.mode == PruneMode::Count && !put_off.is_empty() {
                roots.retain(|root| !put_off.contains(root));
                // They count as refused if they would be deleted.
                let counted = self.prune_some(put_off, PruneMode::Count, PruneVerdict::Refused, pruned).await;
                if let Err(Fault::Other(error)) = counted {
                    return Err(error);
                }
            }
            let mut left = &roots[..];
            while !left.is_empty() {
                let room = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(pruned.hierarchies));
                if room == 0 {
                    pruned.more = true;
                    return Ok(());
                }
                let size = batch.size().min(usize::try_from(room).unwrap_or(usize::MAX)).min(left.len());
                let (now, later) = left.split_at(size);
                let begun = Instant::now();
                match (self.prune_batch(now.to_vec(), pruned).await, now) {
                    (Ok(()), _) => batch.took(begun.elapsed(), size),
                    (Err(Fault::Refused(error)), [root]) => {
                        pruned.retained.refused += 1;
                        refused.add(*root, None, telemetry::refusal(&error));
                    }
                    (Err(Fault::Refused(_)), _) => {
                        batch.failed();
                        continue;
                    }
                    (Err(Fault::Other(error)), _) => return Err(error),
                }
                left = later;
            }
            let Some(next) = next else { return Ok(()) };
            after = next;
        }
    }

    /// Archives hierarchies if the program has an archive, and deletes them in one transaction.
    async fn prune_batch(&mut self, mut roots: Vec<Uuid>, pruned: &mut Pruned) -> Result<(), Fault> {
        let mut others = vec![];
        if self.mode == PruneMode::Delete
            && let Some(archive) = self.scoop.archive().cloned()
        {
            let due = self.archived(&archive, &roots).await?;
            roots.retain(|root| !due.contains(root));
            others = std::mem::replace(&mut roots, due);
        }
        self.prune_some(roots, self.mode, PruneVerdict::Deleted, pruned).await?;
        if !others.is_empty() {
            // One that has become due meanwhile is not archived.
            self.prune_some(others, PruneMode::Count, PruneVerdict::Recent, pruned).await?;
        }
        Ok(())
    }

    /// Archives those of these hierarchies that would be deleted, and returns them.
    async fn archived(&mut self, archive: &Archive, roots: &[Uuid]) -> Result<Vec<Uuid>, RuntimeError> {
        let (scoop, times) = (self.scoop.clone(), PruneTimes::Age(self.age));
        let tables = scoop.tables("a deletion of hierarchies")?;
        let due = scoop.retrying(|_| tables.deletable(roots, times)).await;
        let due = due.map_err(GivenUp::error("hierarchies were looked up"))?;
        if !due.is_empty() {
            let archived = archive.take(tables, scoop.retry_for(), &due).await;
            archived.map_err(RuntimeError::unarchived(due.len()))?;
        }
        Ok(due)
    }

    /// Deletes or counts hierarchies in one transaction. Those that are deleted, or would be, get the given verdict.
    async fn prune_some(
        &mut self,
        roots: Vec<Uuid>,
        mode: PruneMode,
        deletable: PruneVerdict,
        pruned: &mut Pruned,
    ) -> Result<(), Fault> {
        let (scoop, age) = (self.scoop.clone(), self.age);
        // After a lost answer, another attempt could not return the counts.
        let results = self.trial().once().run(|_| {
            let (scoop, roots) = (scoop.clone(), roots.clone());
            run_to_completion(async move { scoop.store().tables()?.prune(&roots, age, mode).await })
        });
        let results = results.await.map_err(|given_up| match &given_up.source {
            source if mode == PruneMode::Delete && is_refused(source) && !is_of_setup(source) => {
                Fault::Refused(given_up.source)
            }
            _ => Fault::Other(GivenUp::error("hierarchies were pruned")(given_up)),
        })?;
        for result in results {
            let is_kept = result.verdict == PruneVerdict::Deleted && deletable != PruneVerdict::Deleted;
            pruned.add(if is_kept { PruneResult::kept(deletable) } else { result });
        }
        self.report(pruned);
        Ok(())
    }

    /// Deletes or counts old signals, and unique keys whose time is over.
    async fn prune_rows(&mut self, pruned: &mut Pruned) -> Result<(), RuntimeError> {
        for rows in [Expired::Signals(self.age), Expired::UniqueKeys] {
            loop {
                let (scoop, mode) = (self.scoop.clone(), self.mode);
                let count = self.trial().once().run(|_| {
                    let scoop = scoop.clone();
                    run_to_completion(async move { rows.prune(scoop.store().tables()?, mode).await })
                });
                let count = count.await.map_err(GivenUp::error("old rows were pruned"))?;
                rows.count(pruned, count);
                if count > 0 {
                    self.report(pruned);
                }
                if mode == PruneMode::Count || count < u64::from(ROWS_MAX) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn report(&mut self, pruned: &Pruned) {
        if let Some(report) = &mut self.on_progress {
            report(pruned);
        }
    }
}

impl IntoFuture for Prune {
    type Output = Result<Pruned, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}

/// `scoop_operate::Retention::prune`.
pub fn prune(scoop: &Scoop) -> Prune {
    Prune { scoop: scoop.clone(), age: AGE_DEFAULT, limit: None, mode: PruneMode::Delete, on_progress: None }
}
