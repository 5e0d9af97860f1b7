//! Makes parents ready after the end of their children, and runs that a worker hands back.

use std::collections::BTreeMap;
use std::sync::Arc;

use scoop_core::wait::{ChildState, WaitedChild};
use scoop_core::{EventKind, Failure, Wait};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::definitions::queues_of;
use super::event_log::Event;
use super::launch::min_deadline;
use super::row::{ClaimQueue, RunOutcome, WorkingRow};
use super::state::{State, after, child_of, later};
use crate::model::run::RowState;
use crate::model::stored_time::StoredTime;
use crate::store::claim_queues::ClaimQueues;
use crate::store::memory::row::RowKey;
use crate::store::{
    ClaimKey, Claimer, CommittedParent, Deliver, LateDelivery, LaunchedRun, LeftRun, ParentRef, Release,
    RequestTarget, SignalStorage, WaitDecision, WaitedChildren, WakeOptions, WakeStorage, Woken,
};

impl WakeStorage for MemoryStore {
    async fn wake(&self, parents: &[ParentRef]) -> sqlx::Result<Vec<String>> {
        let none = Claimer { worker: Uuid::nil(), identifier: "" };
        let woken =
            self.wake_and_claim(parents, none, &ClaimQueues::default(), WakeOptions::default()).await?;
        if woken.awaited.is_empty() {
            return Ok(woken.handlers);
        }
        let reached = self.deliver_signals(&Deliver::To(woken.awaited)).await?;
        Ok([woken.handlers, reached.handlers].concat())
    }

    async fn wake_and_claim(
        &self,
        parents: &[ParentRef],
        Claimer { worker, identifier }: Claimer<'_>,
        queues: &ClaimQueues,
        WakeOptions { slots, commits }: WakeOptions,
    ) -> sqlx::Result<Woken> {
        self.run("wake", |state| {
            let may_claim = state.may_claim(worker, queues.topology);
            let slots = if may_claim { slots } else { 0 };
            let end =
                |at: usize| (may_claim && commits).then(|| (&*queues.last_steps[at], queues.definitions[at]));
            let own = queues_of(queues).enumerate().map(|(at, queue)| (queue, end(at)));
            let own: BTreeMap<ClaimQueue, Option<(&str, i32)>> = own.collect();
            let identifier: Arc<str> = identifier.into();
            let mut woken = Woken::default();
            for (nth, parent) in parents.iter().enumerate() {
                let run = (parent.root, parent.id);
                let waits = state.row(run).filter(|row| row.waits_for_children());
                let Some(row) = waits.filter(|_| state.wakes(run)) else {
                    continue;
                };
                let end = own.get(&(row.handler.clone(), row.topic.clone(), row.reserved_for));
                if let Some((last_step, definition)) = end.copied().flatten()
                    && state.can_commit(row, last_step, definition)
                {
                    woken.committed.extend(state.commit(run, parent.at, &identifier));
                    continue;
                }
                let wakes_at = row.wakes_at(state.now());
                let sleeps = wakes_at > state.now();
                let mine = nth < slots && !row.is_unclaimed() && end.is_some() && !sleeps;
                woken.sleeps |= sleeps;
                woken.awaited.extend(row.signal.clone());
                let handler = row.handler.to_string();
                state.wake(run, parent.at, mine.then_some(worker));
                match state.claimed_with_children(run, &identifier).filter(|_| mine) {
                    Some(claimed) => woken.claimed.push(Ok(claimed)),
                    None => woken.handlers.push(handler),
                }
            }
            Ok(woken)
        })
        .await
    }

    async fn decide_wait(&self, key: ClaimKey, decision: &WaitDecision) -> sqlx::Result<Option<Vec<String>>> {
        self.run("decide_wait", |state| Ok(state.decide_wait(key, decision))).await
    }

    async fn waited_children(&self, key: ClaimKey, messages: &[Uuid]) -> sqlx::Result<WaitedChildren> {
        self.run("waited_children", |state| Ok(state.waited_children((key.root, key.id), messages))).await
    }

    async fn left_children(&self, root: Uuid, messages: &[Uuid]) -> sqlx::Result<Vec<LeftRun>> {
        self.run("left_children", |state| {
            let rows = state.hierarchy(root).into_iter().flat_map(|hierarchy| hierarchy.rows.values());
            let is_left = |row: &&WorkingRow| {
                row.parent.is_none() && messages.contains(&row.message_id) && !row.state.has_ended()
            };
            let left = rows.filter(is_left).map(|row| LeftRun {
                target: RequestTarget { lineage: row.lineage.clone(), message: row.message_id },
                gives_up: row.giving_up,
                rests: (state.now() - row.last_event_at).as_seconds_f64(),
            });
            Ok(left.collect())
        })
        .await
    }

    async fn release(&self, releases: &[Release]) -> sqlx::Result<u64> {
        self.run("release", |state| {
            Ok(releases.iter().map(|release| u64::from(state.release(release))).sum())
        })
        .await
    }

    async fn notify(&self, worker: Uuid) -> sqlx::Result<()> {
        self.run("notify", |state| {
            state.notify(worker);
            Ok(())
        })
        .await
    }
}

impl State {
    /// Wakes a run after its last child, which ended at this time. The run is ready then, or when the time is over for
    /// which it waits, or claimed by this worker.
    fn wake(&mut self, run: RowKey, at: OffsetDateTime, worker: Option<Uuid>) {
        let now = self.now();
        self.change(run, |row| {
            (row.owner, row.ready_at) = (worker, row.wakes_at(now));
            if worker.is_some() {
                row.state = RowState::Running;
                (row.signal, row.children_max) = (None, None);
                row.epoch += 1;
                row.last_event_at = now.max(after(row.last_event_at)).max(after(at));
            } else {
                (row.state, row.children_max) = (RowState::Ready, None);
                row.last_event_at = row.last_event_at.max(at);
            }
        });
    }

    /// Whether a run that waits for no child has no step left, if this is the last step of that definition.
    fn can_commit(&self, row: &WorkingRow, last_step: &str, definition: i32) -> bool {
        let run = (row.root(), row.id());
        row.step.as_deref() == Some(last_step)
            && row.jump.is_none()
            && row.definition == Some(definition)
            && row.wait.is_none()
            && !row.rolling_back
            && !row.is_overdue(self.now())
            && row.wakes_at(self.now()) <= self.now()
            && self.children(run).next().is_none()
    }

    /// Commits a run after its last child, which ended at this time.
    fn commit(&mut self, run: RowKey, at: OffsetDateTime, identifier: &Arc<str>) -> Option<CommittedParent> {
        let now = self.now();
        let at = later(now, self.row(run)?.last_event_at).max(after(at));
        self.change(run, |row| row.last_event_at = at);
        self.add_end(run, RunOutcome::Committed);
        let row = self.remove(run)?;
        let root = row.root();
        let committed = CommittedParent {
            root,
            parent: row.parent.map(|id| ParentRef { root, id, at }),
            is_first: row.lineage.ids().len() == 2,
            handler: row.handler.to_string(),
            duration: at - row.began_at.unwrap_or(at),
        };
        self.append(Event {
            handler: Some(row.handler),
            identifier: Some(identifier.clone()),
            step: row.step,
            context: row.context,
            handling: row.handler_iteration,
            ..Event::new(EventKind::Committed, row.message_id, row.lineage, at)
        });
        Some(committed)
    }

    /// Applies what strategies have decided; see `scoop.decide_wait` in `0005_settle.sql`.
    fn decide_wait(&mut self, key: ClaimKey, decision: &WaitDecision) -> Option<Vec<String>> {
        let WaitDecision { gone_on, closed, late, wait, children, until } = decision;
        let now = self.now();
        let parent = self.claimed_under(key)?.clone();
        let run = (key.root, key.id);
        let dropped =
            self.children(run).filter(|child| child.is_unclaimed() && closed.contains(&child.message_id));
        let dropped: Vec<_> = dropped.map(WorkingRow::id).collect();
        dropped.into_iter().for_each(|child| drop(self.drop_run((key.root, child))));
        let mut started = vec![];
        // A cancellation would not mark them.
        for LateDelivery { message, give_up_at } in late.iter().filter(|_| !parent.giving_up) {
            started.extend(self.deliver_again(&parent, *message, *give_up_at));
        }
        let children = children.map(|children| children + i32::try_from(started.len()).unwrap_or(0));
        let left = self.children(run).filter(|child| gone_on.contains(&child.message_id));
        let left: Vec<_> = left.map(|child| (child.id(), child.state == RowState::Ended)).collect();
        for (id, has_failed) in left {
            match has_failed {
                true => drop(self.remove((key.root, id))),
                false => self.detach((key.root, id)),
            }
        }
        let signal = wait.as_ref().and_then(Wait::signal).filter(|_| children.is_none());
        let wait_until = match children {
            Some(_) => Some(until.unwrap_or(StoredTime::LATEST)),
            None if signal.is_some() => wait.as_ref().map(Wait::time),
            None => wait.as_ref().and_then(Wait::limit),
        };
        self.change(run, |row| {
            row.state = if children.is_some() { RowState::Ready } else { RowState::Waiting };
            row.owner = None;
            if row.giving_up {
                row.ready_at = now;
            } else if let Some(at) = wait_until {
                row.ready_at = min_deadline(at, row.give_up_at).max(now);
            }
            let signal = signal.filter(|_| !row.giving_up);
            (row.signal, row.children_max) = (signal.cloned(), children);
            (row.attempts, row.retries, row.reason) = (0, 0, None);
            row.wait = wait.clone().filter(|wait| !wait.messages().is_empty());
            row.epoch += 1;
        });
        Some(started)
    }

    /// Delivers a message of this run to the handlers that have registered since. Returns these.
    fn deliver_again(
        &mut self,
        parent: &WorkingRow,
        message: Uuid,
        give_up_at: Option<OffsetDateTime>,
    ) -> Vec<String> {
        let (now, run) = (self.now(), (parent.root(), parent.id()));
        let Some(record) = self.hierarchy(run.0).map(|hierarchy| &hierarchy.record) else { return vec![] };
        let emitted = record.of_message(message, EventKind::Emitted).next();
        let context = emitted.map(|emitted| emitted.context.clone()).unwrap_or_default();
        let known = record.of_message(message, EventKind::Seen).filter_map(|seen| seen.handler.clone());
        let pending = self.children(run).filter(|child| child.message_id == message);
        let known: Vec<_> = known.chain(pending.map(|child| child.handler.clone())).collect();
        let mut started = vec![];
        for (handler, topic) in self.listening(&record.topic_of(message)) {
            if known.contains(&handler) {
                continue;
            }
            started.push(handler.to_string());
            let mut row =
                WorkingRow::new(child_of(&parent.lineage), message, topic, handler, parent.last_event_at);
            row.parent = Some(parent.id());
            (row.ready_at, row.context, row.give_up_at) = (now, context.clone(), give_up_at);
            self.insert(row);
        }
        started
    }

    /// See `run_waited_children.sql`.
    fn waited_children(&self, run: RowKey, messages: &[Uuid]) -> WaitedChildren {
        let launched = |row: &WorkingRow, state: ChildState, failure: Option<Failure>| {
            let child = WaitedChild { handler: row.handler.to_string(), state, failure };
            LaunchedRun { message: row.message_id, lineage: row.lineage.clone(), child }
        };
        let children = self.children(run).filter(|child| messages.contains(&child.message_id));
        let unfinished = children.map(|child| {
            let failure = child.rollback_failure.clone().or_else(|| child.failure.clone());
            match child.state {
                RowState::Failed => launched(child, ChildState::RollbackFailed, failure),
                RowState::Ended => launched(child, ChildState::RolledBack, failure),
                _ if child.is_unclaimed() => launched(child, ChildState::Pending, failure),
                _ => launched(child, ChildState::Begun, failure),
            }
        });
        let ended = self.hierarchy(run.0).into_iter().flat_map(|hierarchy| hierarchy.ended.values());
        let committed = ended
            .filter(|end| end.outcome == RunOutcome::Committed && messages.contains(&end.last.message_id));
        let committed = committed.map(|end| launched(&end.last, ChildState::Committed, None));
        let mut runs: Vec<_> = unfinished.chain(committed).collect();
        runs.sort_by(|one, other| {
            (one.message, &one.child.handler).cmp(&(other.message, &other.child.handler))
        });
        let unfinished = self.children(run).filter(|child| !child.state.has_ended()).count();
        WaitedChildren { runs, unfinished: i32::try_from(unfinished).unwrap_or(i32::MAX) }
    }

    pub(super) fn sweep(&mut self) -> Vec<String> {
        let now = self.now();
        let woken: Vec<_> = self.waiting().filter(|run| self.wakes(*run)).collect();
        let mut wake = |run| {
            let row = self.change(run, |row| {
                row.free(row.wakes_at(now));
                row.children_max = None;
            });
            row.map(|row| row.handler.to_string())
        };
        woken.into_iter().filter_map(&mut wake).collect()
    }

    /// Hands a run back. Returns whether it was held under the key.
    fn release(&mut self, release: &Release) -> bool {
        let now = self.now();
        let Release { key, pause_seconds, reason, granted, definition, former_attempts } = release;
        if self.claimed_under(*key).is_none() {
            return false;
        }
        let pause = time::Duration::seconds_f64(*pause_seconds);
        self.change((key.root, key.id), |row| {
            let ready_at = match (reason, granted) {
                (None, _) => now,
                (Some(_), false) => now + pause,
                (Some(_), true) if row.giving_up => now,
                (Some(_), true) => row.give_up_at.map_or(now + pause, |at| at.min(now + pause)).max(now),
            };
            row.free(ready_at);
            if row.attempts + row.retries == 0 {
                row.unknown_attempts = 0;
            }
            if reason.is_some() {
                row.tried(*definition, Some(*former_attempts));
                row.attempts += i32::from(!granted);
                row.retries += i32::from(*granted);
            }
            row.reason.clone_from(reason);
        });
        true
    }
}
