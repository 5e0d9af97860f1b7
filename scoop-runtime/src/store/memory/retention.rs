//! Deletion of finished hierarchies and signals; see `prune_*.sql` and `retention_*.sql`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use scoop_core::EventKind;
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::EventLog;
use super::row::{RowState, RunOutcome};
use super::state::{Hierarchy, State};
use crate::HierarchyId;
use crate::api::{RETENTION_MIN, Retention, Undeletable};
use crate::bug::{Bug, is_injected};
use crate::saga::registry::SubscribedSaga;
use crate::store::{
    DueBatch, DueSettlement, PruneMode, PrunePage, PruneResult, PruneTimes, PruneVerdict, RetentionStorage,
};
use crate::util::format::system_time;

/// The topics of messages about failed runs begin with this.
const FAILED_TOPICS: &str = "scoop.failed";

const PAGE_MAX: usize = 1_000;

/// The time after which another worker takes over the deletion.
const TAKEN_FOR: time::Duration = time::Duration::minutes(5);

/// The most characters of the error of a hierarchy that could not be deleted.
const ERROR_MAX: usize = 1_000;

/// The time until the next attempt to delete such a hierarchy is doubled as often.
const DOUBLINGS_MAX: u32 = 5;

/// The rows of `keep_time`, `retention`, `kept_hierarchy` and `kept_key`.
#[derive(Debug, Default)]
pub(super) struct RetentionState {
    times: BTreeMap<(String, String), Retention>,
    /// The last hierarchy that was read.
    after: Uuid,
    taken: Option<(Uuid, OffsetDateTime)>,
    put_off: BTreeMap<Uuid, PutOff>,
    /// The rows of `kept_key`: until when each counts.
    keys: BTreeMap<Uuid, OffsetDateTime>,
}

/// A row of `kept_hierarchy`.
#[derive(Clone, Debug)]
pub(super) struct PutOff {
    until: OffsetDateTime,
    /// How often its deletion failed, and the last time why.
    failures: u32,
    error: String,
}

/// Whether a hierarchy is to be deleted, and when to look at it again otherwise.
struct Judgement {
    verdict: PruneVerdict,
    last_at: OffsetDateTime,
    recheck_at: OffsetDateTime,
}

impl RetentionStorage for MemoryStore {
    async fn prune_page(&self, after: Uuid, age: Duration) -> sqlx::Result<PrunePage> {
        self.run("prune_page", |state| {
            let mut page = PrunePage::default();
            for (root, hierarchy) in state.hierarchies_after(after).take(PAGE_MAX) {
                page.next = Some(*root);
                let ended = hierarchy.ended.values().map(|ended| &ended.last);
                let runs = hierarchy.rows.values().chain(ended).map(|row| row.last_event_at);
                let oldest = runs.min().unwrap_or_else(|| hierarchy.last_at());
                page.roots.extend((oldest < state.before(age)).then_some(*root));
                let refused = state.retention.put_off.get(root).is_some_and(|row| row.failures > 0);
                page.put_off.extend(refused.then_some(*root));
            }
            Ok(page)
        })
        .await
    }

    async fn prune(&self, roots: &[Uuid], age: Duration, mode: PruneMode) -> sqlx::Result<Vec<PruneResult>> {
        self.run("prune", |state| {
            Ok(roots.iter().map(|root| state.prune(*root, PruneTimes::Age(age), mode).1).collect())
        })
        .await
    }

    async fn deletable(&self, roots: &[Uuid], times: PruneTimes) -> sqlx::Result<Vec<Uuid>> {
        self.run("deletable", |state| {
            let is_over = |root: &&Uuid| state.judge(**root, times).verdict == PruneVerdict::Deleted;
            Ok(roots.iter().filter(is_over).copied().collect())
        })
        .await
    }

    async fn archive_parts(&self, root: Uuid) -> sqlx::Result<Vec<Uuid>> {
        self.run("archive_parts", |state| {
            let record = state.hierarchy(root).map(|hierarchy| &hierarchy.record);
            Ok(record.into_iter().flat_map(EventLog::parts).collect())
        })
        .await
    }

    async fn archive_rows(&self, root: Uuid, parts: &[Uuid]) -> sqlx::Result<Vec<String>> {
        self.run("archive_rows", |state| {
            let record = state.hierarchy(root).map(|hierarchy| &hierarchy.record);
            Ok(record
                .into_iter()
                .flat_map(|record| parts.iter().flat_map(|part| record.lines_of(root, *part)))
                .collect())
        })
        .await
    }

    async fn claim_due(&self, worker: Uuid, keep: Retention, limit: usize) -> sqlx::Result<Option<DueBatch>> {
        self.run("claim_due", |state| Ok(state.claim_due(worker, keep, limit))).await
    }

    async fn delete_due(
        &self,
        worker: Uuid,
        keep: Retention,
        settlement: &DueSettlement,
    ) -> sqlx::Result<Vec<PruneResult>> {
        self.run("delete_due", |state| Ok(state.delete_due(worker, keep, settlement))).await
    }

    async fn put_off(&self, root: Uuid, error: &str, retry_after: Duration) -> sqlx::Result<String> {
        self.run("put_off", |state| {
            let topic = state.root_topic(root).unwrap_or_default().to_owned();
            let failures = state.retention.put_off.get(&root).map_or(0, |row| row.failures);
            let retry_after = retry_after.saturating_mul(2_u32.pow(failures.min(DOUBLINGS_MAX)));
            let until = state.now().saturating_add(retry_after.try_into().unwrap_or(time::Duration::MAX));
            let (failures, error) = (failures.saturating_add(1), error.chars().take(ERROR_MAX).collect());
            state.retention.put_off.insert(root, PutOff { until, failures, error });
            Ok(topic)
        })
        .await
    }

    async fn undeletable(&self, limit: u32) -> sqlx::Result<Vec<Undeletable>> {
        self.run("undeletable", |state| {
            let mut rows: Vec<_> = state.undeletable().collect();
            rows.sort_by_key(|(_, row)| row.until);
            let shown = rows.into_iter().take(limit as usize).map(|(root, row)| Undeletable {
                hierarchy: HierarchyId::from(*root),
                topic: state.root_topic(*root).unwrap_or_default().to_owned(),
                error: row.error.clone(),
                failures: row.failures,
                retry_at: system_time(row.until),
            });
            Ok(shown.collect())
        })
        .await
    }

    async fn prune_signals(&self, age: Duration, limit: u32, mode: PruneMode) -> sqlx::Result<u64> {
        self.run("prune_signals", |state| {
            let before = state.before(age);
            let mut over: Vec<_> = state.signals_over(before);
            if mode == PruneMode::Delete {
                over.truncate(limit as usize);
                over.iter().for_each(|id| state.delete_signal(*id));
            }
            Ok(over.len() as u64)
        })
        .await
    }

    async fn prune_keys(&self, limit: u32, mode: PruneMode) -> sqlx::Result<u64> {
        self.run("prune_keys", |state| {
            let now = state.now();
            let over = state.retention.keys.iter().filter(|(_, until)| **until < now);
            let mut over: Vec<_> = over.map(|(message, until)| (*until, *message)).collect();
            if mode == PruneMode::Delete {
                over.sort_unstable();
                over.truncate(limit as usize);
                for (_, message) in &over {
                    state.retention.keys.remove(message);
                    state.hierarchy_by_id.remove(message);
                }
            }
            Ok(over.len() as u64)
        })
        .await
    }

    async fn key_valid_until(&self, message: Uuid) -> sqlx::Result<Option<OffsetDateTime>> {
        self.run("key_valid_until", |state| Ok(state.retention.keys.get(&message).copied())).await
    }
}

impl RetentionState {
    /// Records for how long the hierarchies of a handler's messages are kept.
    pub(super) fn publish(&mut self, saga: &SubscribedSaga, keep: Retention) {
        self.times.insert((saga.topic.clone(), saga.handler.clone()), saga.kept(keep));
    }
}

impl State {
    /// The time before which rows are old enough.
    fn before(&self, age: Duration) -> OffsetDateTime {
        let age = age.max(RETENTION_MIN).try_into().unwrap_or(time::Duration::MAX);
        self.now().saturating_sub(age)
    }

    fn hierarchies_after(&self, root: Uuid) -> impl Iterator<Item = (&Uuid, &Hierarchy)> {
        self.hierarchies.range((Bound::Excluded(root), Bound::Unbounded))
    }

    pub(super) fn undeletable(&self) -> impl Iterator<Item = (&Uuid, &PutOff)> {
        self.retention.put_off.iter().filter(|(_, row)| row.failures > 0)
    }

    fn root_topic(&self, root: Uuid) -> Option<&str> {
        let Hierarchy { record, .. } = self.hierarchy(root)?;
        let emitted = record.of_run(root).find(|event| event.kind == EventKind::Emitted)?;
        record.messages.get(&emitted.message).map(|message| &*message.topic)
    }

    /// The times of the handlers of this topic: those of retired ones only if all are retired.
    fn times_of(&self, topic: &str) -> Vec<Retention> {
        let (listening, times) = (self.listening(topic), self.retention.times.iter());
        let all: Vec<_> = times.filter(|((of, _), _)| of == topic).collect();
        let is_active = |handler: &str| listening.iter().any(|(name, _)| **name == *handler);
        let active: Vec<_> = all.iter().filter(|((_, handler), _)| is_active(handler)).collect();
        match active[..] {
            [] => all.iter().map(|(_, keep)| **keep).collect(),
            _ => active.iter().map(|(_, keep)| **keep).collect(),
        }
    }

    /// Whether only programs with an archive delete hierarchies of this topic.
    fn needs_archive(&self, topic: &str) -> bool {
        self.times_of(topic).iter().any(|keep| keep.is_archived)
    }

    fn claim_due(&mut self, worker: Uuid, keep: Retention, limit: usize) -> Option<DueBatch> {
        let now = self.now();
        // No worker takes the turn for longer: the clock was set back then.
        let times = now..now + TAKEN_FOR * 2;
        if self.retention.taken.is_some_and(|(by, until)| by != worker && times.contains(&until)) {
            return None;
        }
        let forgets = is_injected(Bug::ForgetKey);
        let is_put_off =
            |root| self.retention.put_off.get(root).is_some_and(|row| forgets || row.until >= now);
        let is_mine =
            |root| keep.is_archived || !self.root_topic(root).is_some_and(|it| self.needs_archive(it));
        let due_at = |root: Uuid, hierarchy: &Hierarchy| {
            let at = hierarchy.last_at().saturating_add(self.retention_of(root, PruneTimes::ByTopic(keep)));
            self.retention.put_off.get(&root).map_or(at, |row| row.until)
        };
        let open = self.hierarchies_after(self.retention.after).filter(|(root, _)| !is_put_off(root));
        let due = open.map(|(root, hierarchy)| (*root, due_at(*root, hierarchy)));
        let due = due.filter(|(root, at)| *at < now && is_mine(*root)).take(limit);
        let (roots, since): (Vec<_>, Vec<_>) = due.unzip();
        let behind = since.into_iter().map(|at| now - at).max();
        let behind = behind.and_then(|behind| behind.try_into().ok()).unwrap_or_default();
        let has_more = roots.len() >= limit;
        self.retention.after = roots.last().copied().filter(|_| has_more).unwrap_or_default();
        self.retention.taken = (!roots.is_empty()).then_some((worker, now + TAKEN_FOR));
        Some(DueBatch { roots, has_more, behind })
    }

    fn delete_due(&mut self, worker: Uuid, keep: Retention, settlement: &DueSettlement) -> Vec<PruneResult> {
        let DueSettlement { due, archived, retry_after } = settlement;
        let mut results = vec![];
        if self.retention.taken.is_none_or(|(by, _)| by != worker) {
            return results;
        }
        for root in &due.roots {
            let is_archived = match archived {
                Some(archived) => archived.contains(root),
                None => !self.root_topic(*root).is_some_and(|topic| self.needs_archive(topic)),
            };
            let mode = if is_archived { PruneMode::Delete } else { PruneMode::Count };
            let (mut until, mut result) = self.prune(*root, PruneTimes::ByTopic(keep), mode);
            if result.verdict == PruneVerdict::Deleted && mode == PruneMode::Count {
                result = PruneResult::kept(PruneVerdict::Unarchived);
                if archived.is_some() {
                    let retry_after = (*retry_after).try_into().unwrap_or(time::Duration::MAX);
                    until = self.now().saturating_add(retry_after);
                }
            }
            match result.verdict {
                PruneVerdict::Deleted | PruneVerdict::Absent => drop(self.retention.put_off.remove(root)),
                verdict => {
                    let before = self.retention.put_off.remove(root);
                    let before = before.filter(|_| verdict == PruneVerdict::Unarchived);
                    let (failures, error) = before.map(|row| (row.failures, row.error)).unwrap_or_default();
                    self.retention.put_off.insert(*root, PutOff { until, failures, error });
                }
            }
            results.push(result);
        }
        self.retention.taken = due.has_more.then(|| (worker, self.now() + TAKEN_FOR));
        results
    }

    /// Returns when to look at the hierarchy again, too.
    fn prune(&mut self, root: Uuid, times: PruneTimes, mode: PruneMode) -> (OffsetDateTime, PruneResult) {
        let Judgement { verdict, last_at, recheck_at } = self.judge(root, times);
        let Some(Hierarchy { record, .. }) =
            self.hierarchy(root).filter(|_| verdict == PruneVerdict::Deleted)
        else {
            return (recheck_at, PruneResult::kept(verdict));
        };
        let keys = self.root_topic(root).map(|topic| self.times_of(topic)).unwrap_or_default();
        let keys = keys.iter().map(|keep| keep.unique_keys).max().unwrap_or_default();
        let keys_until = last_at.saturating_add(keys.try_into().unwrap_or(time::Duration::MAX));
        let launched = record.of_run(root).filter(|event| event.kind == EventKind::Emitted);
        let launched = launched.map(|event| event.message).filter(|id| id.get_version_num() == 5);
        let keys: Vec<_> = launched.filter(|_| keys_until > self.now()).collect();
        let messages = record.messages.keys().filter(|id| !self.is_entity_event(**id) && !keys.contains(id));
        let (messages, events) = (messages.count() as u64, record.events.len() as u64);
        if mode == PruneMode::Delete {
            self.join_members.forget(|run| self.hierarchy_by_id.get(&run) == Some(&root));
            self.take_record(root);
            self.retention.put_off.remove(&root);
            self.relaunches.retain(|it| it.of != root);
            for message in keys {
                self.hierarchy_by_id.insert(message, root);
                self.retention.keys.insert(message, keys_until);
            }
        }
        (recheck_at, PruneResult { verdict, messages, events })
    }

    /// For how long a hierarchy is kept after its end.
    fn retention_of(&self, root: Uuid, times: PruneTimes) -> time::Duration {
        let time = match times {
            PruneTimes::Age(age) => age,
            PruneTimes::ByTopic(keep) => {
                let mut handled = self.hierarchy(root).into_iter().flat_map(Hierarchy::handled).peekable();
                let is_committed =
                    handled.peek().is_some() && handled.all(|outcome| outcome == RunOutcome::Committed);
                let time = |keep: &Retention| if is_committed { keep.committed } else { keep.rolled_back };
                let of_topic = self.root_topic(root).map(|topic| self.times_of(topic)).unwrap_or_default();
                of_topic.iter().map(time).max().unwrap_or_else(|| time(&keep))
            }
        };
        time.max(RETENTION_MIN).try_into().unwrap_or(time::Duration::MAX)
    }

    fn judge(&self, root: Uuid, times: PruneTimes) -> Judgement {
        let now = self.now();
        let Some(hierarchy) = self.hierarchy(root) else {
            return Judgement { verdict: PruneVerdict::Absent, last_at: now, recheck_at: now };
        };
        let age = hierarchy.record.events.first().map_or(time::Duration::ZERO, |event| now - event.at);
        let recheck_at = now + time::Duration::HOUR.max(age / 8);
        let last_at = self.last_at(root, hierarchy);
        let mut unfinished = hierarchy.rows.values().filter(|row| row.state != RowState::Failed);
        let due_at = last_at.saturating_add(self.retention_of(root, times));
        let (verdict, recheck_at) = if unfinished.next().is_some() {
            (PruneVerdict::Unfinished, recheck_at)
        } else if !hierarchy.rows.is_empty() && !is_injected(Bug::DeleteAwaiting) {
            (PruneVerdict::Failed, recheck_at)
        } else if due_at >= now {
            (PruneVerdict::Recent, due_at.min(now + time::Duration::DAY.max(age / 8)))
        } else if self.is_needed(root, hierarchy) && !is_injected(Bug::DeleteNeeded) {
            (PruneVerdict::Needed, recheck_at)
        } else {
            (PruneVerdict::Deleted, recheck_at)
        };
        Judgement { verdict, last_at, recheck_at }
    }

    /// When its last run ended so far, or it was cancelled or relaunched after that.
    fn last_at(&self, root: Uuid, hierarchy: &Hierarchy) -> OffsetDateTime {
        let events = hierarchy.record.events.iter();
        let asked = events.filter(|event| event.kind == EventKind::CancellationRequested).map(|it| it.at);
        let relaunched = self.relaunches.iter().filter(|it| it.of == root).map(|it| it.at);
        asked.chain(relaunched).fold(hierarchy.last_at(), OffsetDateTime::max)
    }

    fn is_needed(&self, root: Uuid, Hierarchy { record, .. }: &Hierarchy) -> bool {
        let emitted = record.of_run(root).find(|event| event.kind == EventKind::Emitted);
        let message = emitted.and_then(|event| record.messages.get(&event.message));
        let about = message.filter(|message| message.topic.starts_with(FAILED_TOPICS));
        let about = about.and_then(|message| message.payload.get("hierarchy")?.as_str());
        let about = about.and_then(|about| self.hierarchy(Uuid::try_parse(about).ok()?));
        self.join_members.needs(root, |run| self.hierarchy_by_id.get(&run) == Some(&root))
            || about.is_some_and(|about| !about.rows.is_empty())
    }
}

impl Hierarchy {
    /// When its last run ended so far; without one, when it began.
    fn last_at(&self) -> OffsetDateTime {
        let ended = self.ended.values().map(|ended| ended.last.last_event_at).max();
        let began = || self.record.events.first().map(|event| event.at);
        ended.or_else(began).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    pub(super) fn handled(&self) -> impl Iterator<Item = RunOutcome> {
        self.ended.values().filter(|ended| ended.last.lineage.ids().len() == 2).map(|ended| ended.outcome)
    }
}
