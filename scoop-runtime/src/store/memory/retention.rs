//! Deletion of finished hierarchies and signals; see `prune_*.sql` and `retention_*.sql`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use scoop_core::EventKind;
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::{Event, EventLog};
use super::row::RowState;
use super::state::{Hierarchy, State};
use crate::HierarchyId;
use crate::api::{KEEP_MIN, Keep, Undeletable};
use crate::bug::{Bug, is_injected};
use crate::saga::registry::SubscribedSaga;
use crate::store::{
    DueHierarchies, DueSettlement, PruneMode, PrunePage, PrunePlace, PruneResult, PruneTimes, PruneVerdict,
    Rest, RetentionStorage,
};
use crate::util::format::system_time;

/// The topics of messages about failed runs begin with this.
const FAILED_TOPICS: &str = "scoop.failed";

/// The number of events or hierarchies on a page.
const PAGE_MAX: usize = 1_000;

/// A worker that stopped without a word keeps others waiting for so long.
const TAKEN_FOR: time::Duration = time::Duration::minutes(5);

/// The most characters of the error of a hierarchy that could not be deleted.
const ERROR_MAX: usize = 1_000;

/// The time until the next attempt to delete such a hierarchy is doubled as often.
const DOUBLINGS_MAX: u32 = 5;

/// The rows of `keep_time`, `retention`, `kept_hierarchy` and `kept_key`.
#[derive(Debug, Default)]
pub(super) struct Retention {
    times: BTreeMap<(String, String), Keep>,
    /// The place of the newest event that was read.
    after: u64,
    taken: Option<(Uuid, OffsetDateTime)>,
    kept: BTreeMap<Uuid, KeptRow>,
    /// The rows of `kept_key`: until when each counts.
    keys: BTreeMap<Uuid, OffsetDateTime>,
}

/// A row of `kept_hierarchy`.
#[derive(Clone, Debug)]
pub(super) struct KeptRow {
    topic: Arc<str>,
    kind: Kind,
    since: OffsetDateTime,
    /// How often its deletion failed, and the last time why.
    failures: u32,
    error: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Committed,
    RolledBack,
    Later,
    Undeletable,
}

/// Whether a hierarchy is to be deleted, and how it is remembered otherwise.
struct Judgement {
    verdict: PruneVerdict,
    kept: KeptRow,
}

impl RetentionStorage for MemoryStore {
    async fn prune_page(&self, after: PrunePlace, age: Duration) -> sqlx::Result<PrunePage> {
        self.run("prune_page", |state| {
            let before = state.before(age);
            Ok(match after {
                PrunePlace::Kept(after) => state.kept_page(after, before),
                PrunePlace::Events(after) => state.event_page(after, before),
            })
        })
        .await
    }

    async fn prune(&self, roots: &[Uuid], age: Duration, mode: PruneMode) -> sqlx::Result<Vec<PruneResult>> {
        self.run("prune", |state| {
            Ok(roots.iter().map(|root| state.prune(*root, PruneTimes::Age(age), mode).0).collect())
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

    async fn take_due(&self, worker: Uuid, keep: Keep, limit: usize) -> sqlx::Result<Option<DueHierarchies>> {
        self.run("take_due", |state| Ok(state.take_due(worker, keep, limit))).await
    }

    async fn settle_due(
        &self,
        worker: Uuid,
        keep: Keep,
        settlement: &DueSettlement,
    ) -> sqlx::Result<Vec<PruneResult>> {
        self.run("settle_due", |state| Ok(state.settle_due(worker, keep, settlement))).await
    }

    async fn put_off(&self, root: Uuid, error: &str, retry_after: Duration) -> sqlx::Result<String> {
        self.run("put_off", |state| {
            let topic = state.root_topic(root).unwrap_or_default().to_owned();
            let failures = state.retention.kept.get(&root).map_or(0, |row| row.failures);
            let retry_after = retry_after.saturating_mul(2_u32.pow(failures.min(DOUBLINGS_MAX)));
            let since = state.now().saturating_add(retry_after.try_into().unwrap_or(time::Duration::MAX));
            let row = KeptRow {
                topic: "".into(),
                kind: Kind::Undeletable,
                since,
                failures: failures.saturating_add(1),
                error: error.chars().take(ERROR_MAX).collect(),
            };
            state.retention.kept.insert(root, row);
            Ok(topic)
        })
        .await
    }

    async fn undeletable(&self, limit: u32) -> sqlx::Result<Vec<Undeletable>> {
        self.run("undeletable", |state| {
            let mut rows: Vec<_> = state.undeletable().collect();
            rows.sort_by_key(|(_, row)| row.since);
            let shown = rows.into_iter().take(limit as usize).map(|(root, row)| Undeletable {
                hierarchy: HierarchyId::from(*root),
                topic: state.root_topic(*root).unwrap_or_default().to_owned(),
                error: row.error.clone(),
                failures: row.failures,
                retry_at: system_time(row.since),
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

    async fn key_kept_until(&self, message: Uuid) -> sqlx::Result<Option<OffsetDateTime>> {
        self.run("key_kept_until", |state| Ok(state.retention.keys.get(&message).copied())).await
    }
}

impl Retention {
    /// Records for how long the hierarchies of a handler's messages are kept.
    pub(super) fn publish(&mut self, saga: &SubscribedSaga, keep: Keep) {
        self.times.insert((saga.topic.clone(), saga.handler.clone()), saga.kept(keep));
    }
}

impl State {
    /// What is older than this is old enough.
    fn before(&self, age: Duration) -> OffsetDateTime {
        let age = age.max(KEEP_MIN).try_into().unwrap_or(time::Duration::MAX);
        self.now().saturating_sub(age)
    }

    /// Hierarchies that are remembered.
    fn kept_page(&self, after: Uuid, before: OffsetDateTime) -> PrunePage {
        let page = self.retention.kept.range((Bound::Excluded(after), Bound::Unbounded)).take(PAGE_MAX);
        let mut found = PrunePage { next: Some(PrunePlace::Events(id_of(0))), ..PrunePage::default() };
        for (root, row) in page {
            found.next = Some(PrunePlace::Kept(*root));
            let is_any_age = matches!(row.kind, Kind::Later | Kind::Undeletable);
            found.roots.extend((is_any_age || row.since < before).then_some(*root));
            found.put_off.extend((row.kind == Kind::Undeletable).then_some(*root));
        }
        found
    }

    /// Hierarchies that could not be deleted.
    pub(super) fn undeletable(&self) -> impl Iterator<Item = (&Uuid, &KeptRow)> {
        self.retention.kept.iter().filter(|(_, row)| row.kind == Kind::Undeletable)
    }

    /// Hierarchies that began after the event of this id. Those that the automatic deletion has passed are all read; not those
    /// that are remembered as kept.
    fn event_page(&self, after: Uuid, before: OffsetDateTime) -> PrunePage {
        let passed = self.retention.after;
        let is_over = |event: &Event| event.place > passed && event.at >= before;
        let (mut roots, mut next) = (vec![], None);
        for event in self.events_from(place_of(after) + 1).take(PAGE_MAX).take_while(|event| !is_over(event))
        {
            next = Some(PrunePlace::Events(id_of(event.place)));
            let is_kept =
                || event.place <= passed && self.retention.kept.contains_key(&event.lineage.root_id());
            roots.extend(launched_root(event).filter(|_| event.at < before && !is_kept()));
        }
        PrunePage { roots, put_off: vec![], next }
    }

    /// Launches of hierarchies before this time; the place after them, and the number of events that were read.
    fn launches(&self, after: u64, before: OffsetDateTime, limit: usize) -> (Vec<Uuid>, u64, usize) {
        let (mut roots, mut next, mut count) = (vec![], after, 0);
        for event in self.events_from(after + 1).take(PAGE_MAX).take_while(|event| event.at < before) {
            if roots.len() >= limit {
                break;
            }
            next = event.place;
            count += 1;
            roots.extend(launched_root(event));
        }
        (roots, next, count)
    }

    /// Whether only programs with an archive delete hierarchies of this topic.
    fn needs_archive(&self, topic: &str) -> bool {
        let all = || self.retention.times.iter().filter(|((of, _), _)| of == topic);
        let listening = self.listening(topic);
        let mut active = all()
            .filter(|((_, handler), _)| listening.iter().any(|(name, _)| **name == **handler))
            .peekable();
        match active.peek() {
            Some(_) => active.any(|(_, keep)| keep.is_archived),
            None => all().any(|(_, keep)| keep.is_archived),
        }
    }

    /// The topic of the message that started a hierarchy.
    fn root_topic(&self, root: Uuid) -> Option<&str> {
        let Hierarchy { record, .. } = self.hierarchy(root)?;
        let emitted = record.of_run(root).find(|event| event.kind == EventKind::Emitted)?;
        record.messages.get(&emitted.message).map(|message| &*message.topic)
    }

    /// For how long hierarchies of this topic are kept.
    fn keep_of(&self, topic: &str, kind: Kind, by_default: Keep) -> Duration {
        let time = |keep: &Keep| if kind == Kind::RolledBack { keep.rolled_back } else { keep.committed };
        self.longest_of(topic, time).unwrap_or_else(|| time(&by_default))
    }

    /// For how long after the last event of a hierarchy of this topic the unique key of its launch counts.
    fn keep_keys_of(&self, topic: &str) -> Duration {
        self.longest_of(topic, |keep| keep.unique_keys).unwrap_or_default()
    }

    /// The longest of the times of the handlers of this topic; of the retired ones if all are.
    fn longest_of(&self, topic: &str, time: impl Fn(&Keep) -> Duration) -> Option<Duration> {
        let all = || self.retention.times.iter().filter(|((of, _), _)| of == topic);
        let listening = self.listening(topic);
        let active = all().filter(|((_, handler), _)| listening.iter().any(|(name, _)| **name == **handler));
        let longest = active.map(|(_, keep)| time(keep)).max();
        longest.or_else(|| all().map(|(_, keep)| time(keep)).max())
    }

    fn take_due(&mut self, worker: Uuid, keep: Keep, limit: usize) -> Option<DueHierarchies> {
        let now = self.now();
        // No worker takes the place for longer: the clock was set back then.
        let times = now..now + TAKEN_FOR * 2;
        if self.retention.taken.is_some_and(|(by, until)| by != worker && times.contains(&until)) {
            return None;
        }
        self.retention.taken = Some((worker, now + TAKEN_FOR));
        let due_at = |row: &KeptRow| match row.kind {
            Kind::Later | Kind::Undeletable => row.since,
            kind => row.since.saturating_add(now - self.before(self.keep_of(&row.topic, kind, keep))),
        };
        let is_mine = |row: &KeptRow| match row.kind {
            Kind::Undeletable => false,
            Kind::Later => true,
            Kind::Committed | Kind::RolledBack => keep.is_archived || !self.needs_archive(&row.topic),
        };
        let due = self.retention.kept.iter().map(|(root, row)| (root, row, due_at(row)));
        let due =
            due.filter(|(_, row, at)| *at < now && is_mine(row) && !is_injected(Bug::ForgetKept)).take(limit);
        let (mut roots, due_since): (Vec<_>, Vec<_>) = due.map(|(root, _, at)| (*root, at)).unzip();
        let times = self.retention.times.values().chain([&keep]);
        let shortest = times.map(|keep| keep.shortest()).min().unwrap_or(Duration::MAX);
        let before = self.before(shortest);
        let (mut next, mut count) = (self.retention.after, 0);
        let first = self.events_from(next + 1).next().map(|event| before - event.at);
        let behind = due_since.into_iter().map(|at| now - at).chain(first).max();
        let behind = behind.and_then(|behind| behind.try_into().ok()).unwrap_or_default();
        if roots.len() < limit {
            let launches;
            (launches, next, count) = self.launches(next, before, limit - roots.len());
            roots.extend(launches);
        }
        if count < PAGE_MAX {
            let mut put_off: Vec<_> = self.undeletable().filter(|(_, row)| row.since < now).collect();
            put_off.sort_by_key(|(_, row)| row.since);
            let room = limit.saturating_sub(roots.len());
            roots.extend(put_off.into_iter().take(room).map(|(root, _)| *root));
        }
        let rest = if roots.len() >= limit || count == PAGE_MAX { Rest::More } else { Rest::Nothing };
        if rest == Rest::Nothing && roots.is_empty() {
            self.retention.taken = None;
            self.retention.after = next;
        }
        Some(DueHierarchies { roots, next: id_of(next), rest, behind })
    }

    fn settle_due(&mut self, worker: Uuid, keep: Keep, settlement: &DueSettlement) -> Vec<PruneResult> {
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
            let (mut result, mut kept) = self.prune(*root, PruneTimes::ByTopic(keep), mode);
            if result.verdict == PruneVerdict::Deleted && mode == PruneMode::Count {
                result = PruneResult::kept(PruneVerdict::Unarchived);
                if archived.is_some() {
                    let retry_after = (*retry_after).try_into().unwrap_or(time::Duration::MAX);
                    kept =
                        KeptRow { kind: Kind::Later, since: self.now().saturating_add(retry_after), ..kept };
                }
            }
            match result.verdict {
                PruneVerdict::Deleted | PruneVerdict::Absent => drop(self.retention.kept.remove(root)),
                _ => {
                    let failures = self.retention.kept.get(root).map_or(0, |row| row.failures);
                    self.retention.kept.insert(*root, KeptRow { failures, ..kept });
                }
            }
            results.push(result);
        }
        self.retention.after = self.retention.after.max(place_of(due.next));
        self.retention.taken = (due.rest == Rest::More).then(|| (worker, self.now() + TAKEN_FOR));
        results
    }

    fn prune(&mut self, root: Uuid, times: PruneTimes, mode: PruneMode) -> (PruneResult, KeptRow) {
        let Judgement { verdict, kept } = self.judge(root, times);
        if verdict != PruneVerdict::Deleted {
            return (PruneResult::kept(verdict), kept);
        }
        let Some(Hierarchy { record, .. }) = self.hierarchy(root) else {
            return (PruneResult::kept(PruneVerdict::Absent), kept);
        };
        let keys_until = kept
            .since
            .saturating_add(self.keep_keys_of(&kept.topic).try_into().unwrap_or(time::Duration::MAX));
        let launched = record.of_run(root).filter(|event| event.kind == EventKind::Emitted);
        let launched = launched.map(|event| event.message).filter(|id| id.get_version_num() == 5);
        let keys: Vec<_> = launched.filter(|_| keys_until > self.now()).collect();
        let messages = record.messages.keys().filter(|id| !self.is_entity_event(**id) && !keys.contains(id));
        let (messages, events) = (messages.count() as u64, record.events.len() as u64);
        if mode == PruneMode::Delete {
            self.join_members.forget(|run| self.hierarchy_by_id.get(&run) == Some(&root));
            self.take_record(root);
            self.retention.kept.remove(&root);
            for message in keys {
                self.hierarchy_by_id.insert(message, root);
                self.retention.keys.insert(message, keys_until);
            }
        }
        (PruneResult { verdict, messages, events }, kept)
    }

    fn judge(&self, root: Uuid, times: PruneTimes) -> Judgement {
        let now = self.now();
        let (failures, error) = (0, String::new());
        let mut kept = KeptRow { topic: "".into(), kind: Kind::Later, since: now, failures, error };
        let Some(Hierarchy { rows, record, .. }) = self.hierarchy(root) else {
            return Judgement { verdict: PruneVerdict::Absent, kept };
        };
        let emitted = record.of_run(root).find(|event| event.kind == EventKind::Emitted);
        let Some(emitted) = emitted else {
            return Judgement { verdict: PruneVerdict::Absent, kept };
        };
        let Some(message) = record.messages.get(&emitted.message) else {
            return Judgement { verdict: PruneVerdict::Absent, kept };
        };
        kept.since = now + time::Duration::HOUR.max((now - emitted.at) / 8);
        let mut unfinished = rows.values().filter(|row| row.state != RowState::Failed);
        let verdict = match unfinished.next() {
            Some(_) => Some(PruneVerdict::Unfinished),
            None if rows.is_empty() || is_injected(Bug::DeleteAwaiting) => None,
            None => Some(PruneVerdict::Failed),
        };
        if let Some(verdict) = verdict {
            return Judgement { verdict, kept };
        }
        let any = |kind| record.events.iter().any(|event| event.kind == kind);
        let is_rolled_back = any(EventKind::RolledBack) || !any(EventKind::Seen);
        let kind = if is_rolled_back { Kind::RolledBack } else { Kind::Committed };
        let before = self.before(match times {
            PruneTimes::Age(age) => age,
            PruneTimes::ByTopic(keep) => self.keep_of(&message.topic, kind, keep),
        });
        let last = record.events.iter().map(|event| event.at).max();
        let over = KeptRow { topic: message.topic.clone(), kind, since: last.unwrap_or(now), ..kept.clone() };
        if last.is_some_and(|last| last >= before) {
            return Judgement { verdict: PruneVerdict::Recent, kept: over };
        }
        let about = message.payload.get("hierarchy").filter(|_| message.topic.starts_with(FAILED_TOPICS));
        let about = about.and_then(|about| Uuid::try_parse(about.as_str()?).ok());
        let is_needed = self.join_members.needs(root, |run| self.hierarchy_by_id.get(&run) == Some(&root))
            || about.and_then(|about| self.hierarchy(about)).is_some_and(|about| !about.rows.is_empty());
        if is_needed && !is_injected(Bug::DeleteNeeded) {
            return Judgement { verdict: PruneVerdict::Needed, kept };
        }
        Judgement { verdict: PruneVerdict::Deleted, kept: over }
    }
}

/// The hierarchy that this event started.
fn launched_root(event: &Event) -> Option<Uuid> {
    let is_launch = event.kind == EventKind::Emitted && event.lineage.id() == event.lineage.root_id();
    is_launch.then(|| event.lineage.root_id())
}

/// A place in the order of all events, as the id that stands for it.
fn id_of(place: u64) -> Uuid {
    Uuid::from_u128(place.into())
}

fn place_of(id: Uuid) -> u64 {
    id.as_u64_pair().1
}
