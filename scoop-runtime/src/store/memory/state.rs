//! The state of a database in memory, and its indices.
//!
//! A hierarchy never needs rows of another, so each has its own. Indices answer the questions about all of them (ready,
//! overdue or owned runs), so that no operation costs more with a longer history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scoop_core::{EventKind, Lineage, RecordedStep, SignalKey};
use time::{Duration, OffsetDateTime};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::event_log::{Event, EventLog};
use super::ready_queue::{ReadyQueue, ReadyRun};
use super::row::{ClaimQueue, EndedRow, IndexKey, Need, RunOutcome, WorkingRow};
use crate::completion::{Completions, RunEnd};
use crate::model::program::Program;
use crate::model::run::RowState;
use crate::store::limit::{RateStates, RecordedLimit};
use crate::store::memory::row::Parked;
use crate::store::memory::row::{EntityRow, JoinMembers, RowKey, SignalRow, WaitingSignal};
use crate::store::{ClaimKey, EntityId, NewStep};

/// A handler and its topic, in this order, as the index of ready runs has them.
pub(super) type Pair = (Arc<str>, Arc<str>);

/// A row of `handler`.
#[derive(Clone, Debug)]
pub(super) struct Registration {
    pub(super) topic: Arc<str>,
    pub(super) handler: Arc<str>,
    pub(super) since: OffsetDateTime,
    pub(super) until: Option<OffsetDateTime>,
    pub(super) dropped: bool,
    /// Former names of the saga.
    pub(super) was: Vec<String>,
    pub(super) owner: Option<HandlerOwner>,
}

/// The program that has started last with a handler.
#[derive(Clone, Debug)]
pub(super) struct HandlerOwner {
    pub(super) service: String,
    pub(super) build: String,
    /// When this build first started with it.
    pub(super) since: OffsetDateTime,
}

/// A session that marks a process as alive. Without it the process is dead.
#[derive(Debug)]
pub(super) struct OpenSession {
    /// The process that it belongs to, as [`super::MemoryStore`] numbers them.
    #[cfg_attr(not(feature = "simulation"), expect(dead_code, reason = "only a simulation cuts sessions"))]
    pub(super) process: u64,
    pub(super) hears: mpsc::UnboundedSender<Uuid>,
}

#[derive(Default)]
pub(super) struct Hierarchy {
    pub(super) rows: BTreeMap<Uuid, WorkingRow>,
    pub(super) ended: BTreeMap<Uuid, EndedRow>,
    pub(super) record: EventLog,
    pub(super) begun_steps: Vec<BegunStepRow>,
    children: BTreeMap<Uuid, Children>,
    failed: usize,
}

pub(super) struct BegunStepRow {
    pub(super) run: Uuid,
    pub(super) instance: i32,
    pub(super) step: String,
    /// The epoch of the claim under which it began.
    pub(super) epoch: i64,
    pub(super) at: OffsetDateTime,
}

impl Hierarchy {
    /// The children for which a run waits, or because of which it failed.
    pub(super) fn children_of(&self, run: Uuid) -> impl Iterator<Item = Uuid> {
        self.children.get(&run).into_iter().flat_map(|children| children.all.iter().copied())
    }
}

/// The rows of the children of a run.
#[derive(Default)]
struct Children {
    all: BTreeSet<Uuid>,
    open: usize,
}

#[derive(Default)]
pub(super) struct State {
    /// The time of the operation under way.
    pub(super) now: Option<OffsetDateTime>,
    /// Time of the newest event; the clock must pass it, since a real commit takes time.
    pub(super) newest: Option<OffsetDateTime>,
    pub(super) hierarchies: BTreeMap<Uuid, Hierarchy>,
    /// The hierarchy of a message or a run.
    pub(super) hierarchy_by_id: BTreeMap<Uuid, Uuid>,
    pub(super) topology: Vec<Registration>,
    pub(super) workers: BTreeMap<Uuid, Worker>,
    pub(super) definitions: Vec<RecordedRow>,
    pub(super) sessions: BTreeMap<u64, OpenSession>,
    pub(super) schedules: BTreeMap<(String, String), ScheduleRow>,
    /// The fields whose values operators do not see.
    pub(super) redacted_fields: BTreeSet<String>,
    pub(super) limits: Vec<RecordedLimit>,
    /// The runs that began of sagas with a rate, by the name of the saga.
    pub(super) rates: BTreeMap<String, RateStates>,
    pub(super) ready: BTreeMap<ClaimQueue, ReadyQueue>,
    pub(super) suspects: BTreeSet<ReadyRun>,
    pub(super) reserved: BTreeSet<(Arc<str>, RowKey)>,
    pub(super) awaiting: BTreeMap<SignalKey, BTreeSet<RowKey>>,
    /// The ready runs about which a strategy decides again.
    undecided: BTreeSet<RowKey>,
    /// The ready runs that wait for a place of their key.
    pub(super) parked: Parked,
    pub(super) signals: BTreeMap<Uuid, SignalRow>,
    pub(super) entities: BTreeMap<EntityId, EntityRow>,
    pub(super) entity_event_ids: BTreeSet<Uuid>,
    /// The signals that are not delivered, in their order.
    pub(super) undelivered: BTreeMap<SignalKey, BTreeSet<WaitingSignal>>,
    pub(super) join_members: JoinMembers,
    owned: BTreeMap<Uuid, BTreeSet<RowKey>>,
    waiting: BTreeSet<RowKey>,
    pub(super) requests: BTreeSet<Uuid>,
    pub(super) overdue: BTreeSet<(OffsetDateTime, RowKey)>,
    pub(super) stuck: BTreeSet<(OffsetDateTime, Uuid, Uuid)>,
    pub(super) failed: BTreeSet<(OffsetDateTime, Uuid, Uuid)>,
    pub(super) completions: Arc<Completions>,
    written: u64,
    order_count: u64,
    sessions_opened: u64,
    #[cfg(feature = "simulation")]
    processes: u64,
}

impl State {
    /// The time of the operation under way: later than any before.
    pub(super) fn now(&self) -> OffsetDateTime {
        self.now.unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    pub(super) fn hierarchy(&self, root: Uuid) -> Option<&Hierarchy> {
        self.hierarchies.get(&root)
    }

    /// The hierarchy of a message or a run.
    pub(super) fn hierarchy_of(&self, id: Uuid) -> Option<&Hierarchy> {
        self.hierarchies.get(self.hierarchy_by_id.get(&id)?)
    }

    pub(super) fn row(&self, (root, id): RowKey) -> Option<&WorkingRow> {
        self.hierarchies.get(&root)?.rows.get(&id)
    }

    /// The row that is held under this key.
    pub(super) fn claimed_under(&self, key: ClaimKey) -> Option<&WorkingRow> {
        self.row((key.root, key.id)).filter(|row| row.is_claimed_under(key))
    }

    /// Puts a run into the working set that is not in it. It may have ended before.
    pub(super) fn insert(&mut self, mut row: WorkingRow) {
        let (root, id) = (row.root(), row.id());
        self.order_count += 1;
        row.order = self.order_count;
        self.hierarchy_by_id.insert(id, root);
        let index_key = row.index_key();
        let hierarchy = self.hierarchies.entry(root).or_default();
        if let Some(parent) = row.parent {
            let children = hierarchy.children.entry(parent).or_default();
            children.all.insert(id);
            children.open += usize::from(!row.state.has_ended());
        }
        let queue = row.queue();
        if let Some(ended) = hierarchy.ended.remove(&id) {
            (row.queued_at, row.began_at) = (ended.last.queued_at, ended.last.began_at);
        }
        hierarchy.rows.insert(id, row);
        self.index((root, id), queue, index_key);
    }

    /// Changes a row, and keeps the indices in step.
    pub(super) fn change(
        &mut self,
        (root, id): RowKey,
        change: impl FnOnce(&mut WorkingRow),
    ) -> Option<&WorkingRow> {
        let hierarchy = self.hierarchies.get_mut(&root)?;
        let row = hierarchy.rows.get_mut(&id)?;
        let (before, was_in, was_open) = (row.index_key(), row.queue(), !row.state.has_ended());
        change(row);
        if row.state == RowState::Ready && !matches!(before, IndexKey::Ready(..)) {
            self.order_count += 1;
            row.order = self.order_count;
        }
        let (after, is_in, is_open) = (row.index_key(), row.queue(), !row.state.has_ended());
        if let Some(children) = row.parent.and_then(|parent| hierarchy.children.get_mut(&parent)) {
            children.open = children.open + usize::from(is_open) - usize::from(was_open);
        }
        if before != after || was_in != is_in {
            self.unindex((root, id), &was_in, &before);
            self.index((root, id), is_in, after);
        }
        if was_open && !is_open {
            self.notify_if_failed(root);
        }
        self.row((root, id))
    }

    pub(super) fn add_end(&mut self, (root, id): RowKey, outcome: RunOutcome) {
        if let Some(hierarchy) = self.hierarchies.get_mut(&root)
            && let Some(last) = hierarchy.rows.get(&id)
        {
            let ended = EndedRow { outcome, last: last.clone() };
            hierarchy.ended.entry(id).or_insert(ended);
        }
    }

    /// Takes a run out of the working set that is not executed any more; see `scoop.dropped_run` in `0003_views.sql`.
    pub(super) fn drop_run(&mut self, run: RowKey) -> Option<WorkingRow> {
        let row = self.row(run)?;
        let record = &self.hierarchy(run.0)?.record;
        let committed = record.of_handler(row.message_id, EventKind::Committed, &row.handler);
        let committed = committed.filter(|_| row.rollback_requested && row.is_unclaimed());
        let outcome = if committed.is_some() { RunOutcome::Committed } else { RunOutcome::Dropped };
        let committed = committed.map(|committed| (committed.at, committed.context.clone()));
        self.change(run, |row| {
            if let Some((at, context)) = committed {
                (row.last_event_at, row.context, row.failure) = (at, context, None);
            }
        });
        self.add_end(run, outcome);
        self.remove(run)
    }

    pub(super) fn remove(&mut self, (root, id): RowKey) -> Option<WorkingRow> {
        let hierarchy = self.hierarchies.get_mut(&root)?;
        let row = hierarchy.rows.remove(&id)?;
        if let Some(parent) = row.parent
            && let Some(children) = hierarchy.children.get_mut(&parent)
        {
            children.all.remove(&id);
            children.open -= usize::from(!row.state.has_ended());
            if children.all.is_empty() {
                hierarchy.children.remove(&parent);
            }
        }
        if hierarchy.record.of_run(id).next().is_none() {
            self.hierarchy_by_id.remove(&id);
        }
        self.unindex((root, id), &row.queue(), &row.index_key());
        if row.parent.is_none() {
            self.completions.notify(root, RunEnd::Unknown);
        } else {
            self.notify_if_failed(root);
        }
        Some(row)
    }

    /// Has no run wait for this one any more.
    pub(super) fn detach(&mut self, run: RowKey) {
        let Some(parent) = self.row(run).and_then(|row| row.parent) else { return };
        let Some(hierarchy) = self.hierarchies.get_mut(&run.0) else { return };
        let is_open = hierarchy.rows.get(&run.1).is_some_and(|row| !row.state.has_ended());
        if let Some(children) = hierarchy.children.get_mut(&parent) {
            children.all.remove(&run.1);
            children.open -= usize::from(is_open);
        }
        if let Some(row) = hierarchy.rows.get_mut(&run.1) {
            row.parent = None;
        }
    }

    /// Notifies clients that wait for a hierarchy with failed runs: its message may now wait for an operator.
    fn notify_if_failed(&self, root: Uuid) {
        if self.hierarchy(root).is_some_and(|hierarchy| hierarchy.failed > 0) {
            self.completions.notify(root, RunEnd::Unknown);
        }
    }

    fn index(&mut self, run: RowKey, queue: ClaimQueue, index_key: IndexKey) {
        if queue.2 != 0 {
            self.reserved.insert((queue.0.clone(), run));
        }
        match index_key {
            IndexKey::Ready(at, order, priority, suspect, waits_for) => {
                match waits_for {
                    Some(Need::Signal(signal)) => drop(self.awaiting.entry(signal).or_default().insert(run)),
                    Some(Need::Parked(key, since)) => {
                        self.parked.entry((queue.0.clone(), key)).or_default().insert((since, run));
                    }
                    Some(Need::Children) => drop(self.undecided.insert(run)),
                    None => {}
                }
                self.ready.entry(queue).or_default().insert(priority, (at, order, run));
                self.suspects.extend(suspect.then_some((at, order, run)));
            }
            IndexKey::Running(owner) => {
                if let Some(owner) = owner {
                    self.owned.entry(owner).or_default().insert(run);
                }
            }
            IndexKey::Waiting(give_up) => {
                self.waiting.insert(run);
                self.overdue.extend(give_up.map(|at| (at, run)));
            }
            IndexKey::Ended => {}
            IndexKey::Stuck(at) => drop(self.stuck.insert((at, run.1, run.0))),
            IndexKey::Failed(at) => {
                self.failed.insert((at, run.1, run.0));
                self.hierarchies.entry(run.0).or_default().failed += 1;
            }
        }
    }

    fn unindex(&mut self, run: RowKey, queue: &ClaimQueue, index_key: &IndexKey) {
        if queue.2 != 0 {
            self.reserved.remove(&(queue.0.clone(), run));
        }
        match index_key {
            IndexKey::Ready(at, order, priority, _, waits_for) => {
                match waits_for {
                    Some(Need::Signal(signal)) => take_out(&mut self.awaiting, signal, &run),
                    Some(Need::Parked(key, since)) => {
                        take_out(&mut self.parked, &(queue.0.clone(), key.clone()), &(*since, run));
                    }
                    Some(Need::Children) => drop(self.undecided.remove(&run)),
                    None => {}
                }
                self.suspects.remove(&(*at, *order, run));
                if let Some(ready) = self.ready.get_mut(queue) {
                    ready.remove(*priority, &(*at, *order, run));
                    if ready.is_empty() {
                        self.ready.remove(queue);
                    }
                }
            }
            IndexKey::Running(owner) => {
                if let Some(owner) = owner
                    && let Some(owned) = self.owned.get_mut(owner)
                {
                    owned.remove(&run);
                    if owned.is_empty() {
                        self.owned.remove(owner);
                    }
                }
            }
            IndexKey::Waiting(give_up) => {
                self.waiting.remove(&run);
                if let Some(at) = give_up {
                    self.overdue.remove(&(*at, run));
                }
            }
            IndexKey::Ended => {}
            IndexKey::Stuck(at) => drop(self.stuck.remove(&(*at, run.1, run.0))),
            IndexKey::Failed(at) => {
                self.failed.remove(&(*at, run.1, run.0));
                self.hierarchies.entry(run.0).or_default().failed -= 1;
            }
        }
    }

    pub(super) fn owned_by(&self, worker: Uuid) -> Vec<RowKey> {
        self.owned.get(&worker).into_iter().flatten().copied().collect()
    }

    /// The runs that workers own, living or not.
    pub(super) fn owned(&self) -> impl Iterator<Item = RowKey> {
        self.owned.values().flatten().copied()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = RowKey> {
        self.waiting.iter().chain(&self.undecided).copied()
    }

    pub(super) fn children(&self, (root, parent): RowKey) -> impl Iterator<Item = &WorkingRow> {
        let hierarchy = self.hierarchies.get(&root);
        let children = hierarchy.and_then(|hierarchy| hierarchy.children.get(&parent));
        let ids = children.into_iter().flat_map(|children| &children.all);
        ids.filter_map(move |id| hierarchy?.rows.get(id))
    }

    /// Whether a run that waits for others wakes: no child is left to wait for, or few enough for a strategy to decide again.
    pub(super) fn wakes(&self, (root, parent): RowKey) -> bool {
        let children = self.hierarchies.get(&root).and_then(|hierarchy| hierarchy.children.get(&parent));
        let open = children.map_or(0, |children| i32::try_from(children.open).unwrap_or(i32::MAX));
        open <= self.row((root, parent)).and_then(|row| row.children_max).unwrap_or(0)
    }

    /// Writes an event that the indices admit, in the hierarchy of its lineage.
    pub(super) fn append(&mut self, mut event: Event) {
        self.written += 1;
        event.ordinal = self.written;
        self.newest = self.newest.max(Some(event.at));
        let root = event.lineage.root_id();
        let record = &mut self.hierarchies.entry(root).or_default().record;
        record.append(event);
    }

    /// The handlers registered for a topic.
    pub(super) fn listening(&self, topic: &str) -> Vec<Pair> {
        let entries = self.topology.iter().filter(|entry| &*entry.topic == topic && entry.until.is_none());
        entries.map(|entry| (entry.handler.clone(), entry.topic.clone())).collect()
    }

    #[cfg(feature = "simulation")]
    pub(super) fn new_process(&mut self) -> u64 {
        self.processes += 1;
        self.processes
    }

    /// A new session of this process.
    pub(super) fn open(&mut self, process: u64, hears: mpsc::UnboundedSender<Uuid>) -> u64 {
        self.sessions_opened += 1;
        self.sessions.insert(self.sessions_opened, OpenSession { process, hears });
        self.sessions_opened
    }

    /// Removes a session. If a worker lived by it, the others are notified.
    pub(super) fn close(&mut self, session: u64) {
        if self.sessions.remove(&session).is_none() {
            return;
        }
        let died = self.workers.iter().find(|(_, of)| of.session == session).map(|(worker, _)| *worker);
        if let Some(worker) = died {
            self.notify(worker);
        }
    }

    pub(super) fn notify(&self, worker: Uuid) {
        for session in self.sessions.values() {
            // One that does not listen any more is about to be closed.
            let _ = session.hears.send(worker);
        }
    }

    /// The workers whose sessions are gone.
    pub(super) fn dead(&self, but: Uuid) -> impl Iterator<Item = Uuid> {
        let others = self.workers.iter().filter(move |(id, _)| **id != but);
        others.filter(|(_, worker)| !self.sessions.contains_key(&worker.session)).map(|(id, _)| *id)
    }

    /// Forgets the hierarchies without unfinished runs, and returns their number.
    pub(super) fn prune_finished(&mut self) -> usize {
        let ended = self.hierarchies.iter().filter(|(_, hierarchy)| hierarchy.rows.is_empty());
        let ended: Vec<_> = ended.map(|(root, _)| *root).collect();
        for root in &ended {
            self.take_record(*root);
        }
        ended.len()
    }

    /// Takes the record of a hierarchy without unfinished runs out of the database.
    pub(super) fn take_record(&mut self, root: Uuid) -> Option<EventLog> {
        let Hierarchy { record, .. } = self.hierarchies.remove(&root)?;
        let runs = record.events.iter().map(|event| event.lineage.id());
        let ids = runs.chain(record.messages.keys().copied());
        for id in ids {
            self.hierarchy_by_id.remove(&id);
        }
        Some(record)
    }
}

fn take_out<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &K, entry: &V) {
    if let Some(entries) = index.get_mut(key) {
        entries.remove(entry);
        if entries.is_empty() {
            index.remove(key);
        }
    }
}

/// The microseconds since 1970.
pub(super) fn micros(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

/// The time `now`, or just after `than` if that is later.
pub(super) fn later(now: OffsetDateTime, than: OffsetDateTime) -> OffsetDateTime {
    now.max(after(than))
}

/// The next time that differs from this one.
pub(super) fn after(time: OffsetDateTime) -> OffsetDateTime {
    time + Duration::MICROSECOND
}

pub(super) fn child_of(parent: &Lineage) -> Lineage {
    parent.child(crate::util::ids::now_v7())
}

/// A row of `definition`. Its number is its position, from 1 on.
#[derive(Debug)]
pub(super) struct RecordedRow {
    pub(super) handler: String,
    pub(super) fingerprint: Uuid,
    pub(super) steps: Vec<NewStep>,
}

impl RecordedRow {
    pub(super) fn recorded_steps(&self) -> Vec<RecordedStep> {
        self.steps.iter().map(|it| it.step.clone()).collect()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Worker {
    /// The number of the session that marks it as alive.
    pub(super) session: u64,
    pub(super) topics: Vec<String>,
    pub(super) handlers: Vec<String>,
    pub(super) definitions: Vec<i32>,
    pub(super) started_at: OffsetDateTime,
    pub(super) topology: i64,
    pub(super) acknowledged: i64,
    pub(super) program: Program,
}

/// A row of `schedule`.
#[derive(Clone, Debug)]
pub(super) struct ScheduleRow {
    pub(super) every_ms: Option<i64>,
    pub(super) cron: Option<(String, String)>,
    pub(super) missed: &'static str,
    pub(super) overlap: &'static str,
    /// `None` if it never runs again.
    pub(super) next_at: Option<OffsetDateTime>,
    pub(super) run_count: i64,
    pub(super) last_root: Option<Uuid>,
}
