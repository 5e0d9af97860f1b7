//! Claims ready runs; see `run_claim.sql`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scoop_core::{ChildFailure, EventKind, Execution, Path, Priority, Run, Suspension};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::definitions::queues_of;
use super::event_log::Event;
use super::ready_queue::ReadyRun;
use super::row::{ClaimQueue, WorkingRow};
use super::state::{State, later, micros};
use crate::model::run::{RowState, no_failure};
use crate::store::claim_queues::ClaimQueues;
use crate::store::memory::row::RowKey;
use crate::store::{
    ClaimStorage, ClaimedRun, Claimer, HierarchyFlags, QueueCursors, QueueScan, Snapshot, Suspect, Unclaimed,
};

impl ClaimStorage for MemoryStore {
    async fn queues_ready(
        &self,
        queues: &ClaimQueues,
        progress: &QueueCursors,
    ) -> sqlx::Result<(ClaimQueues, QueueScan)> {
        self.run("queues_ready", |state| {
            let state = &*state;
            let ready = Priority::ALL.into_iter().flat_map(|level| {
                let known = queues_of(queues).zip(progress.since(queues, level));
                known.filter(move |(queue, reached)| state.due(queue, level, *reached).next().is_some())
            });
            let ready: BTreeSet<ClaimQueue> = ready.map(|(queue, _)| queue).collect();
            let ready =
                queues.only(|(topic, handler, queue)| ready.contains(&(handler.into(), topic.into(), queue)));
            Ok((ready, state.scan()))
        })
        .await
    }

    async fn claim(
        &self,
        Claimer { worker, identifier }: Claimer<'_>,
        queues: &ClaimQueues,
        limit: usize,
        running_counts: &BTreeMap<String, usize>,
        progress: &mut QueueCursors,
    ) -> sqlx::Result<Vec<Result<ClaimedRun, Unclaimed>>> {
        self.run("claim", |state| {
            if !state.may_claim(worker, queues.topology) {
                return Ok(vec![]);
            }
            let identifier: Arc<str> = identifier.into();
            let taken = state.queue(queues, limit, running_counts, progress);
            let mut claimed: Vec<_> = taken
                .into_iter()
                .filter_map(|run| {
                    let at = state.row(run).map(|row| row.ready_at)?;
                    Some((at, state.take(run, worker, &identifier)?))
                })
                .collect();
            claimed.sort_by_key(|(ready_at, _)| *ready_at);
            state.record_scan(queues, progress);
            Ok(claimed.into_iter().map(|(_, claimed)| Ok(claimed)).collect())
        })
        .await
    }

    async fn claim_suspect(
        &self,
        Claimer { worker, identifier }: Claimer<'_>,
        queues: &ClaimQueues,
        suspect: &Suspect,
    ) -> sqlx::Result<Option<Result<ClaimedRun, Unclaimed>>> {
        self.run("claim", |state| {
            let run = (suspect.root, suspect.id);
            let is_ready = |row: &WorkingRow| row.state == RowState::Ready && row.ready_at <= state.now();
            let is_of_queue =
                queues_of(queues).any(|queue| state.row(run).is_some_and(|row| row.queue() == queue));
            if !is_of_queue
                || !state.row(run).is_some_and(is_ready)
                || !state.may_claim(worker, queues.topology)
            {
                return Ok(None);
            }
            Ok(state.take(run, worker, &identifier.into()).map(Ok))
        })
        .await
    }
}

impl Suspect {
    pub(super) fn of_row(row: &WorkingRow) -> Self {
        Self {
            root: row.root(),
            id: row.id(),
            topic: row.topic.to_string(),
            handler: row.handler.to_string(),
            reserved_for: row.reserved_for,
            ready_at: row.ready_at,
        }
    }
}

impl State {
    /// The suspect of these queues that has been ready longest, or will be first.
    pub(super) fn suspect(&self, queues: &ClaimQueues) -> Option<Suspect> {
        let own: BTreeSet<ClaimQueue> = queues_of(queues).collect();
        let mut rows = self.suspects.iter().filter_map(|(.., run)| self.row(*run));
        rows.find(|row| own.contains(&row.queue())).map(Suspect::of_row)
    }

    /// The runs to claim, from each handler in equal parts.
    pub(super) fn queue(
        &self,
        queues: &ClaimQueues,
        limit: usize,
        running_counts: &BTreeMap<String, usize>,
        progress: &QueueCursors,
    ) -> Vec<RowKey> {
        let reached = Priority::ALL.map(|level| (level, progress.since(queues, level)));
        let mut ordered = vec![];
        for (at, queue) in queues_of(queues).enumerate() {
            let running = running_counts.get(&*queue.0).copied().unwrap_or(0);
            let mut due: Vec<_> = reached
                .iter()
                .flat_map(|(level, reached)| {
                    let due = self.due(&queue, *level, reached[at]).take(limit);
                    due.map(|(at, order, run)| (level.queue_time(*at), *order, *run, *at))
                })
                .collect();
            due.sort_unstable();
            let since = due.iter().map(|(.., at)| *at).min();
            let positions = due.into_iter().take(limit).enumerate();
            ordered.extend(positions.map(|(nth, (_, order, run, _))| (nth + running, since, order, run)));
        }
        ordered.sort_unstable();
        ordered.into_iter().take(limit).map(|(.., run)| run).collect()
    }

    /// The due runs of a queue with this priority that are no suspects, from `reached` on.
    fn due(
        &self,
        queue: &ClaimQueue,
        priority: Priority,
        reached: Option<OffsetDateTime>,
    ) -> impl Iterator<Item = &ReadyRun> {
        let now = self.now();
        self.ready_since(queue, priority, reached).take_while(move |(at, ..)| *at <= now)
    }

    /// The ready runs of a queue with this priority that are no suspects, from `reached` on, also those that are due later.
    pub(super) fn ready_since(
        &self,
        queue: &ClaimQueue,
        priority: Priority,
        reached: Option<OffsetDateTime>,
    ) -> impl Iterator<Item = &ReadyRun> {
        let ready = self.ready.get(queue).into_iter().flat_map(move |queue| queue.level(priority));
        let ready = ready.skip_while(move |(at, ..)| reached.is_some_and(|reached| *at < reached));
        ready.filter(move |(.., run)| !self.row(*run).is_some_and(WorkingRow::is_suspect))
    }

    /// A scan of this moment, without transactions in progress.
    pub(super) fn scan(&self) -> QueueScan {
        QueueScan { at: self.now(), snapshot: Snapshot::default() }
    }

    /// Advances the positions to the first runs that a claim has left in these queues.
    pub(super) fn record_scan(&self, queues: &ClaimQueues, progress: &mut QueueCursors) {
        let mut left = vec![];
        for level in Priority::ALL {
            let all = queues_of(queues).zip(queues.each());
            for ((owned, queue), reached) in all.zip(progress.since(queues, level)) {
                let first = self.due(&owned, level, reached).next();
                left.extend(first.map(|(at, ..)| (queue, level, Some(*at))));
            }
        }
        progress.record_ready(queues, &self.scan(), left);
    }

    /// Claims a ready run for this worker. The first claim records its beginning.
    pub(super) fn take(&mut self, run: RowKey, worker: Uuid, identifier: &Arc<str>) -> Option<ClaimedRun> {
        let now = self.now();
        let row = self.change(run, |row| {
            (row.state, row.owner) = (RowState::Running, Some(worker));
            row.queued_at = row.queued_at.or(row.parked_since).or(Some(row.ready_at));
            row.began_at = row.began_at.or(Some(now));
            (row.signal, row.children_max) = (None, None);
            row.last_event_at = later(now, row.last_event_at);
            row.epoch += 1;
        })?;
        let begins = row.epoch == row.unclaimed_epoch + 1;
        if begins {
            let (requested, failure, message) = (row.rollback_requested, row.failure.clone(), row.message_id);
            let kind = if requested { EventKind::RollingBack } else { EventKind::Seen };
            let mut event = Event::of(row, kind, identifier);
            if requested {
                event.exception = failure;
                // The event has the context of the rollback request. The context of the run has more by now.
                event.context = self.requested_context(run, message);
            }
            self.append(event);
        }
        if begins { self.claimed(run, identifier) } else { self.claimed_with_children(run, identifier) }
    }

    fn requested_context(&self, (root, _): RowKey, message: Uuid) -> scoop_core::Context {
        let record = self.hierarchy(root).map(|hierarchy| &hierarchy.record);
        let request = record.and_then(|record| record.of_message(message, EventKind::RollbackEmitted).next());
        request.map(|request| request.context.clone()).unwrap_or_default()
    }

    pub(super) fn claimed_with_children(&self, run: RowKey, identifier: &str) -> Option<ClaimedRun> {
        let mut claimed = self.claimed(run, identifier)?;
        claimed.run.failed_children = self.failed_children(run);
        Some(claimed)
    }

    fn claimed(&self, run: RowKey, identifier: &str) -> Option<ClaimedRun> {
        let row = self.row(run)?;
        let message =
            self.hierarchy(row.root())?.record.messages.get(&row.payload_of.unwrap_or(row.message_id))?;
        Some(ClaimedRun {
            key: row.key(),
            topic: row.topic.to_string(),
            handler: row.handler.to_string(),
            payload: message.payload.clone(),
            attempts: row.attempts,
            retries: u32::try_from(row.retries).unwrap_or(0),
            tried_under: row.tried_under.clone(),
            newest_failure: row.reason.clone(),
            flags: HierarchyFlags {
                has_parent: row.parent.is_some(),
                in_rollback: row.rollback_since.is_some(),
            },
            began_at: row.began_at.unwrap_or(row.last_event_at),
            overdue: row.is_overdue(self.now()),
            definition: row.definition,
            reserved_for: row.reserved_for,
            limit_key: None,
            signalled_by: row.signalled_by.clone(),
            wait: row.wait.clone(),
            run: row.run(identifier),
        })
    }

    fn failed_children(&self, run: RowKey) -> Vec<ChildFailure> {
        let mut ended: Vec<_> = self.children(run).filter(|child| child.state.has_ended()).collect();
        ended.sort_by_key(|child| (child.rollback_since.is_none(), child.rollback_since, child.id()));
        let failure = |child: &WorkingRow| ChildFailure {
            rolled_back: child.failure.clone().unwrap_or_else(no_failure),
            rollback_failed: child.rollback_failure.clone().filter(|_| child.state == RowState::Failed),
            rollback_requested: child.rollback_requested,
        };
        ended.into_iter().map(failure).collect()
    }
}

impl WorkingRow {
    fn run(&self, identifier: &str) -> Run {
        let source = format!("{}[{identifier}]", self.handler);
        let mut run = Run::new(self.lineage.clone(), self.message_id, source);
        let unsigned = |count: i32| u32::try_from(count).unwrap_or(0);
        run.last = self.step.as_ref().map(|step| Suspension {
            step: step.clone(),
            jump: self.jump.clone(),
            iteration: unsigned(self.iteration.unwrap_or(0)),
            handler_iteration: self.handler_iteration.map(unsigned),
        });
        run.suspensions = unsigned(self.suspensions);
        run.completions = self.completions.clone().unwrap_or_default();
        run.outputs = self.outputs.clone().unwrap_or_default();
        run.context = self.context.clone();
        run.replied = self.replied;
        run.execution = Execution {
            number: unsigned(self.execution),
            after: self.execution_since.map(micros),
            ..Execution::default()
        };
        if let (true, Some(cause)) = (self.rolling_back, self.failure.clone()) {
            run.path = Path::Backward {
                cause,
                rollback_requested: self.rollback_requested,
                begun: false,
                failed_before: self.rollback_failure.is_some(),
                plan: None,
            };
        }
        run
    }
}
