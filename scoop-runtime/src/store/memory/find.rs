//! Lists of runs; see `run_page_unfinished.sql` and `run_page_finished.sql`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use scoop_core::{EventKind, Failure, Lineage, Wait};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::{Event, EventLog};
use super::ready_queue::ReadyQueue;
use super::row::{EndedRow, RunOutcome, WorkingRow};
use super::state::{RecordedRow, State};
use crate::WaitKind;
use crate::engine::IDENTIFIER_PREFIX;
use crate::find::{
    BELOW_MAX, COUNT_MAX, CountLimits, Counted, CountedSpan, Depth, EndedPlace, FailureSummary, PageSize,
    Part, RegisteredWorker, RunCount, RunFacts, RunFilter, RunPhase, RunPosition, RunSummary, WorkerInfo,
    WorkerSaga,
};
use crate::repair::RepairAction;
use crate::store::types::UNKNOWN_MAX;
use crate::store::{FindStorage, RowState};
use crate::util::format::system_time;
use crate::util::stored_time::StoredTime;

/// How many of the newest interventions on a finished run are looked at, as in `run_page_finished.sql`.
const INTERVENTIONS_READ: usize = 1_000;

impl FindStorage for MemoryStore {
    async fn unfinished_runs(
        &self,
        filter: &RunFilter,
        after: Option<Uuid>,
        page: PageSize,
    ) -> sqlx::Result<Part<Uuid>> {
        self.run("unfinished_runs", |state| {
            let rows = state.hierarchies.values().flat_map(|hierarchy| hierarchy.rows.values());
            let mut rows: Vec<_> = rows.filter(|row| row.state != RowState::Ended).collect();
            rows.retain(|row| after.is_none_or(|after| row.id() < after));
            rows.sort_by_key(|row| Reverse(row.id()));
            let listed = rows.into_iter().filter_map(|row| {
                let run = state.unfinished(row);
                let fits = filter.fits(&run, &row.lineage) && filter.admits_failures(row.failures());
                fits.then(|| (row.id(), run))
            });
            Ok(Part::new(listed.take(page.runs + 1).collect(), page, None))
        })
        .await
    }

    async fn finished_runs(
        &self,
        filter: &RunFilter,
        after: Option<EndedPlace>,
        page: PageSize,
    ) -> sqlx::Result<Part<EndedPlace>> {
        self.run("finished_runs", |state| {
            let ends = filter.ends();
            let place = |ended: &EndedRow| (StoredTime::from(ended.last.last_event_at), ended.last.id());
            let all = state.ended_runs();
            let mut all: Vec<_> =
                all.filter(|(_, ended)| after.is_none_or(|after| place(ended) < after)).collect();
            all.sort_by_key(|(_, ended)| Reverse(place(ended)));
            let listed = all.into_iter().filter_map(|(record, ended)| {
                let run = record.finished(ended)?;
                let fits = ends.contains(&run.phase) && filter.fits(&run, &ended.last.lineage);
                let fits = fits && filter.admits_failures(ended.last.failures());
                fits.then(|| (place(ended), run))
            });
            Ok(Part::new(listed.take(page.runs + 1).collect(), page, None))
        })
        .await
    }

    async fn run_facts(&self, root: Uuid, run: Uuid) -> sqlx::Result<Option<RunFacts>> {
        self.run("run_facts", |state| Ok(state.run_facts(root, run))).await
    }

    async fn listed_workers(&self) -> sqlx::Result<Vec<RegisteredWorker>> {
        self.run("listed_workers", |state| Ok(state.registered_workers())).await
    }

    async fn unfinished_counts(&self, limits: CountLimits) -> sqlx::Result<Counted> {
        let limit = limits.runs;
        self.run("unfinished_counts", |state| {
            let rows = state.hierarchies.values().flat_map(|hierarchy| hierarchy.rows.values());
            let mut counts: BTreeMap<_, RunCount> = BTreeMap::new();
            for row in rows.filter(|row| row.state != RowState::Ended) {
                let (phase, since) = (state.phase_of(row), system_time(row.since(state.now())));
                let key = (row.handler.clone(), phase.name());
                let count = counts.entry(key).or_insert(RunCount::new(row.handler.to_string(), phase, 0));
                count.add_one(limit);
                count.oldest = Some(count.oldest.map_or(since, |oldest| oldest.min(since)));
            }
            Ok(Counted::first(counts.into_values().collect(), limits.sagas))
        })
        .await
    }

    async fn run_positions(&self, handlers: &[String], limit: usize) -> sqlx::Result<Vec<RunPosition>> {
        self.run("run_positions", |state| {
            let rows = state.hierarchies.values().flat_map(|hierarchy| hierarchy.rows.values());
            let rows = rows.filter(|row| row.state != RowState::Ended);
            let mut positions: BTreeMap<_, RunPosition> = BTreeMap::new();
            for row in rows.filter(|row| handlers.iter().any(|it| **it == *row.handler)) {
                let definition = row.definition.filter(|_| !row.rolling_back);
                let recorded = definition.and_then(|it| state.definitions.get(usize::try_from(it - 1).ok()?));
                let step = row.step.as_ref().filter(|_| recorded.is_some());
                let jump = row.jump.as_ref().filter(|_| recorded.is_some());
                let awaits = row.signal.as_ref().map(|signal| signal.name.to_string());
                let key = (&row.handler, &row.topic, recorded.and(definition), step, jump, awaits.clone());
                let position = positions.entry(key).or_insert_with(|| RunPosition {
                    handler: row.handler.to_string(),
                    topic: row.topic.to_string(),
                    step: step.cloned(),
                    jump: jump.cloned(),
                    steps: recorded.map(RecordedRow::recorded_steps).unwrap_or_default(),
                    awaits,
                    count: 0,
                    is_capped: false,
                });
                if position.count == limit {
                    position.is_capped = true;
                } else {
                    position.count += 1;
                }
            }
            Ok(positions.into_values().collect())
        })
        .await
    }

    async fn finished_counts(&self, since: OffsetDateTime, limits: CountLimits) -> sqlx::Result<Counted> {
        self.run("finished_counts", |state| {
            let mut counts: BTreeMap<_, RunCount> = BTreeMap::new();
            for (_, EndedRow { outcome, last }) in state.ended_runs() {
                if let Some(phase) = outcome.phase().filter(|_| last.last_event_at >= since) {
                    let of_end = RunCount::new(last.handler.to_string(), phase, 0);
                    counts.entry((last.handler.clone(), phase)).or_insert(of_end).add_one(limits.runs);
                }
            }
            Ok(Counted::first(counts.into_values().collect(), limits.sagas))
        })
        .await
    }

    async fn counted_spans(&self, bounds: &[OffsetDateTime], limit: usize) -> sqlx::Result<Vec<CountedSpan>> {
        self.run("counted_spans", |state| {
            let mut spans = vec![CountedSpan::default(); bounds.len().saturating_sub(1)];
            let mut events: Vec<_> = state.newest_events().map(|(_, event)| (event.at, event.kind)).collect();
            events.sort_by_key(|(at, _)| *at);
            for (at, kind) in events {
                let span = bounds.partition_point(|bound| *bound <= at).checked_sub(1);
                let span = span.and_then(|span| spans.get_mut(span));
                let Some(span) = span.filter(|span| span.read < limit as u64) else { continue };
                span.read += 1;
                span.last_at = Some(at);
                match kind {
                    EventKind::Emitted => span.launched += 1,
                    EventKind::Committed => span.committed += 1,
                    EventKind::RolledBack | EventKind::RollbackFailed => span.failed += 1,
                    _ => {}
                }
            }
            Ok(spans)
        })
        .await
    }

    async fn run_durations(
        &self,
        since: OffsetDateTime,
        of_each: usize,
    ) -> sqlx::Result<Vec<(String, Duration)>> {
        self.run("run_durations", |state| {
            let mut of_handlers: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
            let ends = state.ended_runs().filter(|(_, ended)| ended.outcome == RunOutcome::Committed);
            let mut ends: Vec<_> = ends.map(|(_, ended)| &ended.last).collect();
            ends.sort_by_key(|run| Reverse(run.last_event_at));
            for run in ends.into_iter().filter(|run| run.last_event_at >= since) {
                let took = of_handlers.entry(&*run.handler).or_default();
                if let Some(began_at) = run.began_at.filter(|_| took.len() < of_each) {
                    took.push(Duration::try_from(run.last_event_at - began_at).unwrap_or_default());
                }
            }
            let runs = of_handlers.into_iter();
            let runs = runs.flat_map(|(handler, all)| all.into_iter().map(|took| (handler.to_owned(), took)));
            Ok(runs.collect())
        })
        .await
    }
}

impl State {
    /// The runs that have ended, with the records of their hierarchies.
    fn ended_runs(&self) -> impl Iterator<Item = (&EventLog, &EndedRow)> {
        self.hierarchies.values().flat_map(|it| it.ended.values().map(move |ended| (&it.record, ended)))
    }

    /// All events with their records, newest first.
    fn newest_events(&self) -> impl Iterator<Item = (&EventLog, &Event)> {
        let all = self.hierarchies.values().map(|hierarchy| &hierarchy.record);
        let mut all: Vec<_> = all.flat_map(|log| log.events.iter().map(move |event| (log, event))).collect();
        all.sort_by_key(|(_, event)| Reverse(event.place));
        all.into_iter()
    }

    fn run_facts(&self, root: Uuid, run: Uuid) -> Option<RunFacts> {
        let hierarchy = self.hierarchy(root)?;
        let read_at = system_time(self.now());
        let join = self.join_members.wait_of(run);
        let row = hierarchy.rows.get(&run).filter(|row| row.state != RowState::Ended);
        let Some(row) = row else {
            let ended = hierarchy.record.finished(hierarchy.ended.get(&run)?)?;
            return Some(RunFacts { join, ..RunFacts::ended(ended, read_at) });
        };
        let is_unfinished = |row: &&WorkingRow| !row.state.has_ended();
        let (mut below, mut ahead) = (vec![], VecDeque::from([run]));
        while let Some(parent) = ahead.pop_front().filter(|_| below.len() < BELOW_MAX) {
            for child in self.children((root, parent)).filter(is_unfinished) {
                below.push(self.unfinished(child));
                ahead.extend(child.waits_for_children().then(|| child.id()));
            }
        }
        below.truncate(BELOW_MAX);
        let children = self.children((root, run)).filter(is_unfinished).take(COUNT_MAX).count();
        let queue = self.ready.get(&row.lane()).into_iter().flat_map(ReadyQueue::all);
        let is_slot = matches!(self.wait_of(row), Some(WaitKind::Slot | WaitKind::Limit));
        let due = queue.filter(|(_, (at, ..))| *at <= self.now() && is_slot);
        let due: Vec<_> = match self.parked_beside(row) {
            Some(parked) => parked.collect(),
            None => due.map(|(level, (at, ..))| level.queue_time(*at)).collect(),
        };
        let run = self.unfinished(row);
        let failed_below = self.failed_below(row);
        let ahead_of_it = due.iter().filter(|time| **time < row.queue_time()).take(COUNT_MAX).count();
        Some(RunFacts {
            giving_up: row.giving_up,
            cancelled: row.giving_up && !self.requests_against(row).is_empty(),
            definition: Some(row.reserved_for).filter(|reserved| *reserved != 0),
            is_suspect: row.is_suspect(),
            queue: (ahead_of_it, due.len().min(COUNT_MAX)),
            priority: row.priority(),
            workers: self.workers_for(row),
            pauses: self.pauses_of(row),
            limit: self.limit_facts(row),
            children,
            strategies: row.wait.as_ref().map_or(&[][..], Wait::messages).to_vec(),
            below,
            failed_below: hierarchy.named_failures(&failed_below),
            join,
            ..RunFacts::ended(run, read_at)
        })
    }

    /// The registered workers, the oldest first.
    pub(super) fn registered_workers(&self) -> Vec<RegisteredWorker> {
        let listed = self.workers.iter().map(|(id, worker)| RegisteredWorker {
            identifier: format!("{IDENTIFIER_PREFIX}{id}"),
            started_at: system_time(worker.started_at),
            service: worker.program.service.clone(),
            build: worker.program.build.clone(),
            is_alive: self.sessions.contains_key(&worker.session),
            application: None,
            address: None,
            sagas: WorkerSaga::of_lists(
                worker.topics.clone(),
                worker.handlers.clone(),
                worker.definitions.clone(),
            ),
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort_by(|one, other| {
            (one.started_at, &one.identifier).cmp(&(other.started_at, &other.identifier))
        });
        listed
    }

    /// The owner of a run, or else the workers that have its saga.
    fn workers_for(&self, row: &WorkingRow) -> Vec<WorkerInfo> {
        let chosen = self.workers.iter().filter_map(|(id, worker)| {
            let position = worker.position(&row.topic, &row.handler);
            let fits = row.owner.map_or(position.is_some(), |owner| owner == *id);
            let definition = position.and_then(|position| worker.definitions.get(position));
            fits.then(|| WorkerInfo {
                identifier: format!("{IDENTIFIER_PREFIX}{id}"),
                started_at: system_time(worker.started_at),
                is_alive: self.sessions.contains_key(&worker.session),
                application: None,
                address: None,
                definition: definition.copied().unwrap_or(0),
            })
        });
        chosen.collect()
    }

    /// The phase of an unfinished run.
    pub(super) fn phase_of(&self, row: &WorkingRow) -> RunPhase {
        let is_ahead = row.due_at() > self.now();
        match row.state {
            RowState::Failed => RunPhase::RollbackFailed,
            RowState::Stuck => RunPhase::Stuck,
            RowState::Running => RunPhase::Running,
            RowState::Waiting => RunPhase::Waiting,
            RowState::Ready | RowState::Ended if row.attempts + row.retries > 0 => RunPhase::Retrying,
            RowState::Ready | RowState::Ended if row.is_unclaimed() && !row.rollback_requested => {
                RunPhase::Pending
            }
            RowState::Ready | RowState::Ended if is_ahead && row.signal.is_some() => RunPhase::AwaitingSignal,
            RowState::Ready if is_ahead && row.children_max.is_some() => RunPhase::Waiting,
            RowState::Ready | RowState::Ended if is_ahead && !row.is_unclaimed() => RunPhase::Sleeping,
            RowState::Ready | RowState::Ended => RunPhase::Ready,
        }
    }

    /// What an unfinished run waits for.
    pub(super) fn wait_of(&self, row: &WorkingRow) -> Option<WaitKind> {
        let phase = self.phase_of(row);
        match (row.state, phase) {
            (RowState::Running | RowState::Ended, _) => None,
            (RowState::Failed, _) => Some(WaitKind::Operator),
            (RowState::Waiting, _) | (RowState::Ready, RunPhase::Waiting) => Some(WaitKind::Children),
            (RowState::Stuck, _) if row.doubts >= UNKNOWN_MAX => Some(WaitKind::Operator),
            (RowState::Stuck, _) => Some(WaitKind::Program),
            (RowState::Ready, RunPhase::AwaitingSignal) => Some(WaitKind::Signal),
            (RowState::Ready, _) if row.due_at() > self.now() => Some(WaitKind::Time),
            (RowState::Ready, _) if !self.pauses_of(row).is_empty() => Some(WaitKind::Pause),
            (RowState::Ready, _) if self.is_abandoned(&row.lane()) => Some(WaitKind::Program),
            (RowState::Ready, _) if row.ready_at > self.now() || self.is_limit_reached(&row.handler) => {
                Some(WaitKind::Limit)
            }
            (RowState::Ready, _) => Some(WaitKind::Slot),
        }
    }

    fn unfinished(&self, row: &WorkingRow) -> RunSummary {
        let (phase, waits_for) = (self.phase_of(row), self.wait_of(row));
        let is_ahead = waits_for == Some(WaitKind::Time) || phase == RunPhase::AwaitingSignal;
        let failure = row.latest_failure();
        RunSummary {
            run: row.id().into(),
            hierarchy: row.root().into(),
            parent: row.parent.map(Into::into),
            handler: row.handler.to_string(),
            topic: row.topic.to_string(),
            message_id: row.message_id,
            phase,
            since: system_time(row.since(self.now())),
            queued_at: row.queued_at.map(system_time),
            began_at: row.began_at.map(system_time),
            waits_for,
            attempts: u32::try_from(row.attempts + row.retries).unwrap_or(0),
            reason: row.reason.clone(),
            failure: failure.map(|failure| FailureSummary::in_phase(phase, failure)),
            rolling_back: row.rolling_back && phase != RunPhase::RollbackFailed,
            can_give_up: row.can_give_up(),
            deadline: row.give_up_at.map(system_time),
            wakes_at: is_ahead.then(|| system_time(row.ready_at)),
            awaits: row.signal.clone().filter(|_| is_ahead),
            worker: row.owner.map(|owner| format!("{IDENTIFIER_PREFIX}{owner}")),
            step: row.step.clone(),
            skipped: 0,
        }
    }
}

impl WorkingRow {
    /// The failure of its rollback if that rests as failed, and otherwise the reason of the rollback.
    fn latest_failure(&self) -> Option<&Failure> {
        match self.state {
            RowState::Failed => self.rollback_failure.as_ref(),
            _ => self.failure.as_ref(),
        }
    }

    /// The failures by whose codes it is found.
    fn failures(&self) -> impl Iterator<Item = &Failure> {
        [&self.rollback_failure, &self.failure].into_iter().flatten()
    }

    /// Whether a cancellation makes it give up: it does not yet, and is no part of a rollback.
    pub(super) fn can_give_up(&self) -> bool {
        !self.giving_up && self.rollback_since.is_none()
    }

    /// The time since which it is in its state.
    pub(super) fn since(&self, now: OffsetDateTime) -> OffsetDateTime {
        let has_come_due = self.due_at() <= now;
        match self.state {
            RowState::Ready | RowState::Stuck if has_come_due => self.due_at().max(self.last_event_at),
            _ => self.last_event_at,
        }
    }
}

impl EventLog {
    /// What lists show of a run that has ended; `None` if it was dropped.
    fn finished(&self, EndedRow { outcome, last }: &EndedRow) -> Option<RunSummary> {
        let phase = outcome.phase()?;
        let kind = match phase {
            RunPhase::Committed => EventKind::Committed,
            _ => EventKind::RolledBack,
        };
        let end = self.of_handler(last.message_id, kind, &last.handler);
        let failure = last.failure.as_ref();
        let parent = last.lineage.parent().filter(|parent| parent.ids().len() > 1);
        let newest = self.interventions_of(last.id()).rev().take(INTERVENTIONS_READ);
        let skips = newest.filter(|done| done.kind == RepairAction::Skip.as_str());
        Some(RunSummary {
            run: last.id().into(),
            hierarchy: last.root().into(),
            parent: parent.map(|parent| parent.id().into()),
            handler: last.handler.to_string(),
            topic: last.topic.to_string(),
            message_id: last.message_id,
            phase,
            since: system_time(last.last_event_at),
            queued_at: last.queued_at.map(system_time),
            began_at: last.began_at.map(system_time),
            waits_for: None,
            attempts: 0,
            reason: None,
            failure: failure.map(|failure| FailureSummary::in_phase(phase, failure)),
            rolling_back: false,
            can_give_up: false,
            deadline: None,
            wakes_at: None,
            awaits: None,
            worker: end.and_then(|end| Some(end.identifier.as_deref()?.to_owned())),
            step: end.and_then(|end| end.step.clone()),
            skipped: skips.filter(|_| phase == RunPhase::RolledBack).count(),
        })
    }
}

impl RunFilter {
    /// Whether a run is in the list, apart from its failure.
    fn fits(&self, run: &RunSummary, lineage: &Lineage) -> bool {
        let since = |at: OffsetDateTime| run.since >= system_time(at);
        self.handler.as_ref().is_none_or(|handler| *handler == run.handler)
            && self.topic.as_ref().is_none_or(|topic| *topic == run.topic)
            && self.admits_phase(run.phase)
            && (self.waits.is_empty() || run.waits_for.is_some_and(|wait| self.waits.contains(&wait)))
            && self.since.is_none_or(since)
            && !self.until.is_some_and(since)
            && (self.depth == Depth::All || lineage.ids().len() == 2)
    }
}
