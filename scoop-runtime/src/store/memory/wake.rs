//! Makes runs ready that wait for nobody any more, and frees what nobody works on: parents after their
//! children's end, the runs of the dead, and what a worker has lost track of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use scoop_core::EventKind;
use time::OffsetDateTime;
use uuid::Uuid;

use super::super::engine::{Committed, DOUBTS_MAX, Disowned, IN_DOUBT, IN_DOUBT_TOO_OFTEN, Woken};
use super::super::{Lanes, Parent, Release};
use super::Memory;
use super::definitions::named;
use super::record::Event;
use super::row::{Row, RunState};
use super::state::{Lane, RunId, State, after, later};
use crate::bug::{Bug, made};
use crate::settings::Backoff;

impl Memory {
    /// Makes the runs ready that wait for nobody any more, and says whose they are.
    pub(crate) async fn wake(&self, parents: &[Parent]) -> sqlx::Result<Vec<String>> {
        let woken = self.wake_here(parents, Uuid::nil(), "", &Lanes::default(), (0, false)).await?;
        Ok(woken.handlers)
    }

    /// The same, by a worker of these queues that has room for so many of the parents, from the first
    /// on: of these, the ones that wait for nobody are claimed. Those that had come to the last step of their
    /// saga commit instead, if that is wanted.
    pub(crate) async fn wake_here(
        &self,
        parents: &[Parent],
        worker: Uuid,
        identifier: &str,
        lanes: &Lanes,
        (room, commits): (usize, bool),
    ) -> sqlx::Result<Woken> {
        self.run("wake", |state| {
            let listed = state.may_claim(worker, lanes.topology);
            let room = if listed { room } else { 0 };
            let end =
                |at: usize| (listed && commits).then(|| (&*lanes.last_steps[at], lanes.definitions[at]));
            let own = named(lanes).enumerate().map(|(at, lane)| (lane, end(at)));
            let own: BTreeMap<Lane, Option<(&str, i32)>> = own.collect();
            let identifier: Arc<str> = identifier.into();
            let mut woken = Woken::default();
            for (place, parent) in parents.iter().enumerate() {
                let run = (parent.root, parent.id);
                let waits = state.row(run).filter(|row| row.state == RunState::Waiting);
                let Some(row) = waits.filter(|_| state.is_alone(run)) else {
                    continue;
                };
                let end = own.get(&(row.handler.clone(), row.topic.clone(), row.reserved_for));
                if let Some(end) = end.copied().flatten()
                    && state.commits(row, end)
                {
                    woken.committed.extend(state.commit(run, parent.at, &identifier));
                    continue;
                }
                let mine = place < room && !row.is_untouched() && end.is_some();
                let handler = row.handler.to_string();
                state.wake(run, parent.at, mine.then_some(worker));
                match state.claimed(run, &identifier, true).filter(|_| mine) {
                    Some(claimed) => woken.claimed.push(Ok(claimed)),
                    None => woken.handlers.push(handler),
                }
            }
            Ok(woken)
        })
        .await
    }

    /// Frees the runs of this worker that it does not work on, and makes the runs ready that it may have
    /// failed to wake.
    pub(crate) async fn disown(
        &self,
        worker: Uuid,
        in_flight: impl Fn() -> Vec<Uuid>,
        backoff: Backoff,
    ) -> sqlx::Result<Disowned> {
        self.run("disown", |state| {
            let (now, in_flight) = (state.now(), in_flight());
            let owned = state.owned_by(worker).into_iter();
            let lost: Vec<_> = owned.filter(|(_, id)| !in_flight.contains(id)).collect();
            let mut stuck = vec![];
            for run in &lost {
                let definition = state.definition_of(worker, *run);
                state.change(*run, |row| {
                    row.tried(definition, None);
                    row.doubts = if row.reason.as_deref() == Some(IN_DOUBT) { row.doubts + 1 } else { 1 };
                    row.attempts += 1;
                    if row.doubts < DOUBTS_MAX {
                        let pause =
                            if row.doubts > 1 { backoff.pause(row.doubts - 2) } else { Duration::ZERO };
                        row.free(now + pause);
                        row.reason = Some(IN_DOUBT.into());
                    } else {
                        row.free(now);
                        row.state = RunState::Stuck;
                        row.reason = Some(IN_DOUBT_TOO_OFTEN.into());
                        stuck.push(*run);
                    }
                });
            }
            Ok(Disowned { freed: lost.len(), stuck, woken: state.sweep() })
        })
        .await
    }

    /// Hands runs back. Returns how many were still held under their keys.
    pub(crate) async fn release(&self, releases: &[Release]) -> sqlx::Result<u64> {
        self.run("release", |state| {
            Ok(releases.iter().map(|release| u64::from(state.release(release))).sum())
        })
        .await
    }

    /// Strikes out the dead and frees what they had taken: how many dead, how many runs.
    pub(crate) async fn reap(&self, worker: Uuid) -> sqlx::Result<(usize, u64)> {
        self.run("reap", |state| {
            let dead: Vec<_> = state.dead(worker).collect();
            if dead.is_empty() {
                return Ok((0, 0));
            }
            let freed: u64 = dead.iter().map(|dead| state.strike(*dead)).sum();
            state.sweep();
            Ok((dead.len(), freed))
        })
        .await
    }

    /// Makes the runs ready that nobody came to wake, and says whose they are.
    pub(crate) async fn sweep(&self) -> sqlx::Result<Vec<String>> {
        self.run("sweep", |state| Ok(state.sweep())).await
    }

    /// Strikes this process out, frees what it may have lost track of, and tells the others, since they may
    /// go on with what it has handed back.
    pub(crate) async fn leave(&self, worker: Uuid) -> sqlx::Result<()> {
        self.run("leave", |state| {
            state.strike(worker);
            state.tell(worker);
            Ok(())
        })
        .await
    }

    /// Tells the other processes that there may be something to do.
    pub(crate) async fn notify(&self, worker: Uuid) -> sqlx::Result<()> {
        self.run("notify", |state| {
            state.tell(worker);
            Ok(())
        })
        .await
    }
}

impl State {
    /// A run waits for nobody any more, its last child having ended at this time: it is ready, or this
    /// worker's from now on.
    fn wake(&mut self, run: RunId, at: OffsetDateTime, worker: Option<Uuid>) {
        if forgotten(run) {
            return;
        }
        let now = self.now();
        self.change(run, |row| {
            (row.owner, row.ready_at) = (worker, now);
            if worker.is_some() {
                row.state = RunState::Running;
                row.epoch += 1;
                row.last_event_at = now.max(after(row.last_event_at)).max(after(at));
            } else {
                row.state = RunState::Ready;
                row.last_event_at = row.last_event_at.max(at);
            }
        });
    }

    /// Whether a run that waits for no child has no step left, if this is the last step of that definition.
    fn commits(&self, row: &Row, (last_step, definition): (&str, i32)) -> bool {
        let run = (row.root(), row.id());
        row.step.as_deref() == Some(last_step)
            && row.jump.is_none()
            && row.definition == Some(definition)
            && !row.backward
            && !row.is_overdue(self.now())
            && (self.children(run).next().is_none() || made(Bug::CommitOverFailure))
    }

    /// A run has committed with its last child, which ended at this time.
    fn commit(&mut self, run: RunId, at: OffsetDateTime, identifier: &Arc<str>) -> Option<Committed> {
        if forgotten(run) {
            return None;
        }
        let row = self.remove(run)?;
        let at = later(self.now(), row.last_event_at).max(after(at));
        let committed = Committed::of(&row.lineage, row.parent.is_some(), at);
        self.append(Event {
            handler: Some(row.handler),
            identifier: Some(identifier.clone()),
            step: row.step,
            context: row.context,
            handling: row.handler_iteration,
            ..Event::new(EventKind::Committed, row.message, row.lineage, at)
        });
        Some(committed)
    }

    fn sweep(&mut self) -> Vec<String> {
        let now = self.now();
        let alone = self.waiting().filter(|run| self.is_alone(*run) && !forgotten(*run));
        let alone: Vec<_> = alone.collect();
        let mut wake = |run| self.change(run, |row| row.free(now)).map(|row| row.handler.to_string());
        alone.into_iter().filter_map(&mut wake).collect()
    }

    /// A worker is gone. What it was in the middle of counts as an attempt in vain.
    fn strike(&mut self, worker: Uuid) -> u64 {
        let now = self.now();
        let owned = if made(Bug::KeepDead) { vec![] } else { self.owned_by(worker) };
        let definitions: Vec<_> = owned.iter().map(|run| self.definition_of(worker, *run)).collect();
        let gone = self.workers.remove(&worker);
        self.change_topology(&gone.map_or_else(Vec::new, |worker| worker.handlers));
        for (run, definition) in owned.iter().zip(definitions) {
            self.change(*run, |row| {
                row.free(now);
                row.tried(definition, None);
                row.attempts += 1;
                row.reason = Some("the process that was at it is gone".into());
            });
        }
        u64::try_from(owned.len()).unwrap_or(u64::MAX)
    }

    /// Under which definition a worker continues a run.
    fn definition_of(&self, worker: Uuid, run: RunId) -> Option<i32> {
        let (worker, row) = (self.workers.get(&worker)?, self.row(run)?);
        let at = worker.handlers.iter().position(|handler| **handler == *row.handler)?;
        worker.definitions.get(at).copied()
    }

    /// Whether the run was held under the key.
    fn release(&mut self, release: &Release) -> bool {
        let now = self.now();
        let Release { key, pause_seconds, reason, granted, definition, again } = release;
        if self.claimed_under(*key).is_none() {
            return false;
        }
        let pause = time::Duration::seconds_f64(*pause_seconds);
        self.change((key.root, key.id), |row| {
            let ready_at = match (reason, granted) {
                (None, _) => now,
                (Some(_), false) => now + pause,
                (Some(_), true) if row.gives_up => now,
                (Some(_), true) => row.give_up_at.map_or(now + pause, |at| at.min(now + pause)),
            };
            row.free(ready_at);
            if reason.is_some() {
                row.tried(Some(*definition), Some(*again));
                row.attempts += i32::from(!granted);
                row.retries += i32::from(*granted);
            }
            row.reason.clone_from(reason);
        });
        true
    }
}

/// Whether the run is one of those that nobody wakes.
fn forgotten((_, id): RunId) -> bool {
    made(Bug::ForgetWake) && id.as_bytes()[15].is_multiple_of(8)
}
