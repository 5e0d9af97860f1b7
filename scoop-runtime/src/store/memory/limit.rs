//! The limits of sagas, and claims under them; see `limit_*.sql`.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::MemoryStore;
use super::row::RowState;
use super::state::{RowKey, State};
use crate::bug::{Bug, is_injected};
use crate::store::{
    ClaimedRun, Claimer, LimitStorage, LimitedClaim, LimitedQueue, QueueCursors, SagaLimit, Suspect,
};

impl LimitStorage for MemoryStore {
    async fn publish_limits(&self, limits: &[SagaLimit]) -> sqlx::Result<()> {
        self.run("publish_limits", |state| {
            let mut is_changed = false;
            for limit in limits.iter().filter(|limit| limit.is_outdated(&state.limits)).collect::<Vec<_>>() {
                let recorded = limit.to_record(&state.limits);
                let known: Vec<_> = limit.recorded(&state.limits).cloned().collect();
                state.limits.retain(|it| !known.contains(it));
                state.limits.extend(recorded);
                is_changed = true;
            }
            if is_changed {
                state.raise_topology();
                state.notify(Uuid::nil());
            }
            Ok(())
        })
        .await
    }

    async fn claim_limited(
        &self,
        Claimer { worker, identifier }: Claimer<'_>,
        queue: &LimitedQueue,
        slots: usize,
        suspect: Option<&Suspect>,
    ) -> sqlx::Result<LimitedClaim> {
        self.run("claim_limited", |state| {
            let limit = state.limits.iter().find(|limit| limit.of.saga == queue.saga);
            let Some(limit) = limit.filter(|_| state.may_claim(worker, queue.lanes.topology)) else {
                return Ok(LimitedClaim::default());
            };
            let most = usize::try_from(limit.concurrency).unwrap_or(0);
            let room = most.saturating_sub(state.running_of(&limit.of.handlers));
            let room = if is_injected(Bug::ExceedLimits) { room.max(1) } else { room };
            let identifier: Arc<str> = identifier.into();
            let runs: Vec<RowKey> = match suspect {
                Some(suspect) => vec![(suspect.root, suspect.id)],
                None => {
                    state.queue(&queue.lanes, slots.min(room), &BTreeMap::new(), &QueueCursors::default())
                }
            };
            let runs = runs.into_iter().take(slots.min(room));
            let claimed: Vec<ClaimedRun> =
                runs.filter_map(|run| state.take_ready(run, worker, &identifier)).collect();
            Ok(LimitedClaim {
                is_reached: room <= claimed.len(),
                runs: claimed.into_iter().map(Ok).collect(),
            })
        })
        .await
    }
}

impl State {
    /// How many runs of these handlers are in execution.
    pub(super) fn running_of(&self, handlers: &[String]) -> usize {
        let is_one = |run: &RowKey| {
            let row = self.row(*run).filter(|row| row.state == RowState::Running);
            row.is_some_and(|row| handlers.iter().any(|handler| **handler == *row.handler))
        };
        self.owned().filter(is_one).count()
    }

    /// The limit of a handler, if it has one that is reached.
    pub(super) fn reached_limit(&self, handler: &str) -> Option<u32> {
        let limit = self.limits.iter().find(|it| it.of.handlers.iter().any(|name| name == handler))?;
        let most = u32::try_from(limit.concurrency).ok()?;
        let running = self.running_of(&limit.of.handlers);
        (u32::try_from(running).unwrap_or(u32::MAX) >= most).then_some(most)
    }

    /// Claims a run for this worker if it is ready and due.
    fn take_ready(&mut self, run: RowKey, worker: Uuid, identifier: &Arc<str>) -> Option<ClaimedRun> {
        let now = self.now();
        self.row(run).filter(|row| row.state == RowState::Ready && row.ready_at <= now)?;
        self.take(run, worker, identifier)
    }
}
