//! Due times, deadlines, and the runs that have to give up.

use scoop_core::{EventKind, Priority};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::definitions::queues_of;
use super::row::WorkingRow;
use super::state::State;
use crate::store::claim_queues::ClaimQueues;
use crate::store::{
    ClaimKey, DueStorage, GiveUpReasons, NextDue, OverdueRun, ParentRef, QueueCursors, Suspect, SuspectClaim,
};
use crate::util::when::Now;

impl DueStorage for MemoryStore {
    async fn next_due(
        &self,
        queues: &ClaimQueues,
        worker: Uuid,
        suspects: SuspectClaim,
        progress: &QueueCursors,
    ) -> sqlx::Result<NextDue> {
        self.run("due", |state| {
            let reached = Priority::ALL.map(|level| (level, progress.since(queues, level)));
            let ready = queues_of(queues).enumerate().filter_map(|(at, queue)| {
                let first =
                    |(level, reached): &(_, Vec<_>)| state.ready_since(&queue, *level, reached[at]).next();
                reached.iter().filter_map(first).map(|(at, ..)| *at).min()
            });
            let suspect = state.suspect(queues).filter(|_| suspects == SuspectClaim::Allowed);
            let overdue = state.overdue.first().map(|(at, _)| *at);
            let of_runs = ready.chain(suspect.iter().map(|suspect| suspect.ready_at)).chain(overdue);
            let first = of_runs.min();
            Ok(NextDue {
                seconds: first.map(|at| (at - state.now()).as_seconds_f64()),
                is_pause_over: false,
                is_worker_dead: state.dead(worker).next().is_some(),
                topology: state.workers.get(&worker).map(|worker| worker.topology),
                suspect: suspect.filter(|suspect| suspect.ready_at <= state.now()),
            })
        })
        .await
    }

    async fn expire_waiting(&self, limit: i64) -> sqlx::Result<Vec<ParentRef>> {
        self.run("overdue", |state| {
            let (now, limit) = (state.now(), usize::try_from(limit).unwrap_or(usize::MAX));
            let late = state.overdue.iter().take_while(|(at, _)| *at <= now).take(limit);
            let late: Vec<_> = late.map(|(_, run)| *run).collect();
            let parents = late.into_iter().filter_map(|run| {
                let dropped = state.children(run).filter(|child| child.is_unclaimed());
                let dropped: Vec<_> = dropped.map(WorkingRow::id).collect();
                dropped.into_iter().for_each(|child| drop(state.drop_run((run.0, child))));
                let row = state.change(run, |row| {
                    (row.giving_up, row.ready_at) = (true, row.ready_at.min(now));
                })?;
                Some(ParentRef { root: run.0, id: run.1, at: row.last_event_at })
            });
            Ok(parents.collect())
        })
        .await
    }

    async fn overdue_runs(&self, limit: i64) -> sqlx::Result<Vec<OverdueRun>> {
        self.run("overdue_runs", |state| {
            let now = state.now();
            let is_overdue =
                |row: &&WorkingRow| row.is_unclaimed() && !row.rollback_requested && row.is_overdue(now);
            let overdue = state.abandoned().filter(is_overdue).filter_map(|row| {
                let mut definitions = state.definitions.iter().rev();
                let definition = definitions.find(|definition| *definition.handler == *row.handler)?;
                Some(OverdueRun { run: Suspect::of_row(row), steps: definition.recorded_steps() })
            });
            Ok(overdue.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
        })
        .await
    }

    async fn stop_deadlines(&self, keys: &[ClaimKey]) -> sqlx::Result<Vec<(Uuid, f64)>> {
        self.run("stops", |state| {
            let seconds = |row: &WorkingRow| match (row.giving_up, row.give_up_at) {
                (true, _) => Some(0.0),
                (false, at) => at.map(|at| (at - state.now()).as_seconds_f64()),
            };
            let claimed = keys.iter().filter_map(|key| {
                let row = state.row((key.root, key.id)).filter(|row| row.epoch == key.epoch)?;
                Some((key.id, seconds(row)?))
            });
            Ok(claimed.collect())
        })
        .await
    }

    async fn give_up_reasons(&self, key: ClaimKey) -> sqlx::Result<Option<GiveUpReasons>> {
        self.run("give_up", |state| {
            let now = state.now();
            let Some(row) = state.claimed_under(key).filter(|row| row.is_overdue(now)) else {
                return Ok(None);
            };
            let requests = state.requests_against(row);
            Ok(Some(GiveUpReasons { requests, context: row.context.clone(), now, since: row.rollback_since }))
        })
        .await
    }

    async fn is_claimed(&self, key: ClaimKey) -> sqlx::Result<bool> {
        self.run("is_claimed", |state| Ok(state.claimed_under(key).is_some())).await
    }

    async fn now(&self) -> sqlx::Result<Now> {
        self.run("now", |state| {
            let now: OffsetDateTime = state.now();
            Ok(Now { earliest: now, latest: now })
        })
        .await
    }
}

impl State {
    /// The requests to cancel this run or its ancestors, oldest first. None counts for a rollback.
    pub(super) fn requests_against(&self, row: &WorkingRow) -> Vec<scoop_core::Failure> {
        let Some(hierarchy) = self.hierarchy(row.root()).filter(|_| row.rollback_since.is_none()) else {
            return vec![];
        };
        // A request is about a message of the run, or of one above it, and has the lineage of either.
        let events = row.lineage.ids().iter().flat_map(|id| hierarchy.record.of_run(*id));
        let asked = events.filter(|event| event.kind == EventKind::CancellationRequested);
        let mut asked: Vec<_> = asked.collect();
        asked.sort_by_key(|event| (event.at, event.ordinal));
        asked.into_iter().filter_map(|event| event.exception.clone()).collect()
    }
}
