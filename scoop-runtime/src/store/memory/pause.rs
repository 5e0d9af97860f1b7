//! Pauses; see `pause_*.sql`.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::MemoryStore;
use super::row::{RowState, WorkingRow};
use super::state::{PauseRow, State};
use crate::store::{
    EndedPause, NewPause, PAUSE_MAX, PAUSE_RUNNING_MAX, Pause, PauseProgress, PauseStorage, PauseTarget,
};
use crate::util::format::system_time;

/// The number of ended pauses that are kept; see `scoop.trim_ended_pauses` in the migrations.
const ENDED_MAX: usize = 1_000;

impl PauseStorage for MemoryStore {
    async fn pause(&self, asked: &NewPause) -> sqlx::Result<Pause> {
        self.run("pause", |state| {
            let NewPause { target, reason, source, limit, new_runs_only } = asked.clone();
            let now = state.now();
            let since = state.pauses.get(&target).map_or(now, |pause| pause.since);
            let until = limit.map(|limit| now + limit.min(PAUSE_MAX));
            let row = PauseRow { reason, source, since, until, new_runs_only };
            let pause = row.pause(&target);
            state.pauses.insert(target, row);
            state.on_pauses_changed();
            Ok(pause)
        })
        .await
    }

    async fn resume(
        &self,
        target: &PauseTarget,
        source: &str,
        reason: Option<&str>,
    ) -> sqlx::Result<Option<Pause>> {
        self.run("resume", |state| {
            let Some(row) = state.pauses.remove(target) else {
                return Ok(None);
            };
            let pause = row.pause(target);
            state.record_end(pause.clone(), Some(source), reason);
            state.on_pauses_changed();
            Ok(Some(pause))
        })
        .await
    }

    async fn end_expired_pauses(&self) -> sqlx::Result<Vec<Pause>> {
        self.run("end_expired_pauses", |state| {
            let now = state.now();
            let is_over = |row: &PauseRow| row.until.is_some_and(|until| until <= now);
            let ended: Vec<_> = state
                .pauses
                .iter()
                .filter(|(_, row)| is_over(row))
                .map(|(target, row)| row.pause(target))
                .collect();
            if !ended.is_empty() {
                state.pauses.retain(|_, row| !is_over(row));
                ended.iter().for_each(|pause| state.record_end(pause.clone(), None, None));
                state.on_pauses_changed();
            }
            Ok(ended)
        })
        .await
    }

    async fn pauses(&self) -> sqlx::Result<Vec<Pause>> {
        self.run("pauses", |state| {
            let mut pauses: Vec<_> = state.pauses.iter().map(|(target, row)| row.pause(target)).collect();
            pauses.sort_by_key(|pause| pause.since);
            Ok(pauses)
        })
        .await
    }

    async fn ended_pauses(&self, limit: u32) -> sqlx::Result<Vec<EndedPause>> {
        let read =
            |state: &mut State| state.ended_pauses.iter().rev().take(limit as usize).cloned().collect();
        self.run("ended_pauses", |state| Ok(read(state))).await
    }

    async fn pause_progress(&self, target: &PauseTarget) -> sqlx::Result<PauseProgress> {
        self.run("pause_progress", |state| {
            let living =
                state.workers.iter().filter(|(_, worker)| state.sessions.contains_key(&worker.session));
            let behind = living.filter(|(_, worker)| worker.acknowledged != worker.topology);
            let names = state.names_covered(target);
            // Also those of the dead: a process that has lost its session may still be in a step until the run is freed.
            let running = state.owned().filter(|run| {
                let row = state.row(*run).filter(|row| row.state == RowState::Running);
                row.is_some_and(|row| names.iter().any(|name| name.covers(&row.topic, &row.handler)))
            });
            Ok(PauseProgress {
                is_known: *target == PauseTarget::Everything
                    || state
                        .topology
                        .iter()
                        .any(|it| names.iter().any(|name| name.covers(&it.topic, &it.handler))),
                in_force: state.pauses.contains_key(target),
                running: running.take(PAUSE_RUNNING_MAX).count(),
                behind: behind.map(|(id, _)| *id).collect(),
            })
        })
        .await
    }

    async fn runs_left(&self, target: &PauseTarget) -> sqlx::Result<usize> {
        self.run("runs_left", |state| {
            let names = state.names_covered(target);
            let is_covered =
                |row: &&WorkingRow| names.iter().any(|name| name.covers(&row.topic, &row.handler));
            let rows = state.hierarchies.values().flat_map(|hierarchy| hierarchy.rows.values());
            let left = rows.filter(is_covered);
            let left = left.filter(|row| row.state != RowState::Ended && !state.is_new(row));
            Ok(left.take(PAUSE_RUNNING_MAX).count())
        })
        .await
    }

    async fn acknowledge(&self, worker: Uuid, topology: i64) -> sqlx::Result<()> {
        self.run("acknowledge", |state| {
            if let Some(worker) = state.workers.get_mut(&worker).filter(|worker| worker.topology == topology)
            {
                worker.acknowledged = topology;
            }
            Ok(())
        })
        .await
    }
}

impl PauseRow {
    fn pause(&self, target: &PauseTarget) -> Pause {
        Pause {
            target: target.clone(),
            reason: self.reason.clone(),
            source: self.source.clone(),
            since: system_time(self.since),
            until: self.until.map(system_time),
            new_runs_only: self.new_runs_only,
        }
    }
}

impl State {
    /// Has all workers read the pauses before their next claims.
    fn on_pauses_changed(&mut self) {
        self.raise_topology();
        self.notify(Uuid::nil());
    }

    fn record_end(&mut self, pause: Pause, source: Option<&str>, reason: Option<&str>) {
        let (ended_by, end_reason) = (source.map(str::to_owned), reason.map(str::to_owned));
        let excess = (self.ended_pauses.len() + 1).saturating_sub(ENDED_MAX);
        self.ended_pauses.drain(..excess);
        self.ended_pauses.push(EndedPause { pause, ended_at: system_time(self.now()), ended_by, end_reason });
    }

    /// What is paused: handlers under all their names, and whether for new runs only.
    pub(super) fn paused(&self) -> impl Iterator<Item = (PauseTarget, bool)> {
        let names = |(target, row): (&PauseTarget, &PauseRow)| {
            let new_runs_only = row.new_runs_only;
            self.names_covered(target).into_iter().map(move |name| (name, new_runs_only))
        };
        self.pauses.iter().flat_map(names)
    }

    /// Whether a pause for new runs only covers a run.
    pub(super) fn is_paused_for_new(&self, row: &WorkingRow) -> bool {
        self.paused().any(|(name, new_runs_only)| new_runs_only && name.covers(&row.topic, &row.handler))
    }

    /// Whether a run waits under a pause for new runs only; see `scoop.is_new`.
    pub(super) fn is_new(&self, row: &WorkingRow) -> bool {
        let is_covered = |above: &WorkingRow| {
            above.id() != row.id() && above.state != RowState::Ended && self.is_paused_for_new(above)
        };
        row.began_at.is_none()
            && !row.rollback_requested
            && !row.giving_up
            && !row.lineage.ids().iter().any(|id| self.row((row.root(), *id)).is_some_and(is_covered))
    }

    /// The target, and the other names of its saga.
    fn names_covered(&self, target: &PauseTarget) -> BTreeSet<PauseTarget> {
        let mut covered = BTreeSet::from([target.clone()]);
        if let PauseTarget::Handler(name) = target {
            for listed in self.topology.iter().filter(|listed| !listed.was.is_empty()) {
                let names = || listed.was.iter().map(|was| &**was).chain([&*listed.handler]);
                if names().any(|other| other == name) {
                    covered.extend(names().map(PauseTarget::handler));
                }
            }
        }
        covered
    }

    /// The pauses that cover a run, longest first. Those for new runs only are among them for a new run.
    pub(super) fn pauses_of(&self, row: &WorkingRow) -> Vec<Pause> {
        let is_new = self.is_new(row);
        let covers = |target: &PauseTarget| {
            self.names_covered(target).iter().any(|name| name.covers(&row.topic, &row.handler))
        };
        let counts = |row: &PauseRow| is_new || !row.new_runs_only;
        let covering = self.pauses.iter().filter(|(target, row)| counts(row) && covers(target));
        let mut pauses: Vec<_> = covering.map(|(target, row)| row.pause(target)).collect();
        pauses.sort_by_key(|pause| pause.since);
        pauses
    }
}
