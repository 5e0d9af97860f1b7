//! Applies settlements; see `scoop.settle` in `0005_settle.sql`, of which the statements in `sql/settle/` are the common case.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scoop_core::{Context, EventKind, Lineage};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::super::settlement::{EmissionRow, Ending, EventRow, ForgottenChildren, RollbackRequestRow};
use super::MemoryStore;
use super::error_queue::FailedRun;
use super::event_log::{Event, RecordedExecution};
use super::launch::min_deadline;
use super::row::{RunOutcome, WorkingRow};
use super::state::{State, child_of, later, micros};
use crate::model::failed::FailedOutcome;
use crate::model::run::RowState;
use crate::store::{ClaimKey, SettleResult, SettleStorage, Settlement, Unhandled};

impl SettleStorage for MemoryStore {
    async fn settle(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), SettleResult>> {
        self.run("settle", |state| state.settle_all(identifier, settlements)).await
    }
}

/// A settlement, its run, and what follows for that.
struct SettleStep<'a> {
    settlement: &'a Settlement,
    identifier: &'a Arc<str>,
    before: WorkingRow,
    last_event: OffsetDateTime,
    knows: Context,
    /// It belongs to a rollback.
    undoing: bool,
    started: BTreeSet<String>,
    waits: bool,
}

impl SettleStep<'_> {
    fn outcome(&self) -> RunOutcome {
        match self.settlement {
            Settlement { rolling_back: true, .. } => RunOutcome::RolledBack,
            _ => RunOutcome::Committed,
        }
    }
}

impl WorkingRow {
    fn ends_as(&mut self, step: &SettleStep<'_>) {
        self.failure.clone_from(&step.settlement.failure);
        self.context = step.knows.clone();
        self.last_event_at = step.last_event;
    }
}

impl WorkingRow {
    fn fails_as(&mut self, step: &SettleStep<'_>, now: OffsetDateTime) {
        let SettleStep { settlement, knows, .. } = step;
        let began_rollback = settlement.begins_rollback.then_some(now);
        (self.state, self.owner, self.ready_at) = (RowState::Failed, None, step.last_event);
        self.epoch += 1;
        self.step.clone_from(&settlement.step);
        self.handler_iteration = settlement.handler_iteration;
        (self.jump, self.definition, self.iteration) = (None, None, None);
        (self.completions, self.outputs, self.signal, self.signalled_by) = (None, None, None, None);
        self.wait = None;
        self.rolling_back = true;
        self.failure.clone_from(&settlement.failure);
        self.rollback_failure.clone_from(&settlement.rollback_failure);
        self.context = knows.clone();
        (self.giving_up, self.give_up_at) = (false, None);
        self.rollback_since = began_rollback.or(self.rollback_since);
        self.last_event_at = step.last_event;
        (self.execution, self.execution_since, self.payload_of) = (0, None, None);
        (self.attempts, self.retries, self.reason) = (0, 0, None);
    }
}

impl State {
    /// Applies the settlements whose claims hold; none of them if the tables would refuse one.
    pub(super) fn settle_all(
        &mut self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), SettleResult>> {
        let refused = settlements.iter().find_map(|settlement| self.refuses(settlement));
        if let Some(why) = refused {
            return Err(sqlx::Error::Protocol(why));
        }
        if let Some(unhandled) = settlements.iter().find_map(|settlement| self.lacks_handler(settlement)) {
            return Err(unhandled.into());
        }
        let identifier: Arc<str> = identifier.into();
        let settled = settlements.iter().filter_map(|settlement| {
            let settled = self.settle(settlement, &identifier)?;
            Some(((settlement.id, settlement.epoch), settled))
        });
        Ok(settled.collect())
    }

    /// Whether a settlement applies: its claim holds, and its run has not to give up.
    pub(super) fn admits(&self, settlement: &Settlement) -> bool {
        let before = self.claimed_under(ClaimKey {
            root: settlement.root,
            id: settlement.id,
            epoch: settlement.epoch,
        });
        before.is_some_and(|before| !(settlement.may_give_up && before.is_overdue(self.now())))
    }

    /// Why the unique indices of the tables would refuse a settlement that still holds.
    fn refuses(&self, settlement: &Settlement) -> Option<String> {
        let before = self.claimed_under(ClaimKey {
            root: settlement.root,
            id: settlement.id,
            epoch: settlement.epoch,
        })?;
        let record = &self.hierarchy(settlement.root)?.record;
        let written = settlement
            .events
            .iter()
            .filter_map(|event| event.to_event(before, settlement, before.last_event_at));
        let mut written = written.filter(|event| event.kind != EventKind::RollbackEmitted);
        let second = written.find(|event| !record.admits(event));
        second.map(|event| format!("there is a {} of run {} already", event.kind.as_str(), event.lineage))
    }

    /// The refusal of a settlement that still holds, and launches a message that requires a handler without any.
    fn lacks_handler(&self, settlement: &Settlement) -> Option<Unhandled> {
        let key = ClaimKey { root: settlement.root, id: settlement.id, epoch: settlement.epoch };
        let before = self.claimed_under(key)?;
        if settlement.may_give_up && before.is_overdue(self.now()) {
            return None;
        }
        let required = settlement.emissions.iter().filter(|emission| emission.required.is_some());
        let mut missing = required.filter(|emission| self.listening(&emission.topic).is_empty());
        missing.next().and_then(EmissionRow::unhandled)
    }

    fn settle(&mut self, settlement: &Settlement, identifier: &Arc<str>) -> Option<SettleResult> {
        let key = ClaimKey { root: settlement.root, id: settlement.id, epoch: settlement.epoch };
        if !self.admits(settlement) {
            return None;
        }
        let (now, before) = (self.now(), self.claimed_under(key)?.clone());
        let count = i64::try_from(settlement.event_count).unwrap_or(i64::MAX);
        let mut step = SettleStep {
            settlement,
            identifier,
            last_event: later(now, before.last_event_at) + Duration::microseconds(count),
            knows: settlement.context.clone().unwrap_or_else(|| before.context.clone()),
            undoing: settlement.begins_rollback || before.rollback_since.is_some(),
            before,
            started: BTreeSet::new(),
            waits: false,
        };
        for emission in &settlement.emissions {
            self.deliver_emission(&mut step, emission);
        }
        for request in &settlement.rollback_requests {
            self.request_rollback(&mut step, request);
        }
        for sent in &settlement.signals {
            self.insert_signal(&sent.signal());
        }
        if let Some(as_new) = &settlement.as_new {
            let topic = step.before.topic.clone();
            self.publish(settlement.root, as_new.message, &topic, as_new.payload.clone());
        }
        let settled = self.update_row(&step);
        self.write(&step);
        if let Some(forgets) = settlement.forgets {
            self.clear_failed_children(&step, forgets);
        }
        if let Some(outcome) = settlement.failed.filter(|outcome| reports(settlement, &step.before, *outcome))
        {
            let mut failed = FailedRun::new(outcome, &step.before);
            failed.at = step.last_event;
            failed.rollback_failure.clone_from(&settlement.rollback_failure);
            failed.step = settlement.step.clone().filter(|_| outcome == FailedOutcome::RollbackFailed);
            if let Some(failure) = &settlement.failure {
                failed.failure.clone_from(failure);
            }
            step.started.extend(self.send_failed(&failed));
        }
        Some(SettleResult { ready_handlers: step.started.into_iter().collect(), ..settled })
    }

    /// Publishes a launched message, with a run for each handler that is registered at this moment.
    fn deliver_emission(&mut self, step: &mut SettleStep<'_>, emission: &EmissionRow) {
        let now = self.now();
        let root = emission.detached_root.unwrap_or(step.settlement.root);
        self.publish(root, emission.id, &emission.topic, emission.payload.value.clone());
        let above = emission.detached_root.map_or_else(|| step.before.lineage.clone(), Lineage::root);
        let undoing = step.undoing && emission.detached_root.is_none();
        let counts = |deadline: &OffsetDateTime| !undoing || *deadline > now;
        let give_up_at = emission.deadlines.iter().copied().filter(counts).min();
        for (handler, topic) in self.listening(&emission.topic) {
            step.started.insert(handler.to_string());
            let mut row = WorkingRow::new(child_of(&above), emission.id, topic, handler, step.last_event);
            row.parent = emission.detached_root.is_none().then(|| step.before.id());
            row.ready_at =
                min_deadline(emission.due.unwrap_or_else(|| now + microseconds(emission.at)), give_up_at)
                    .max(now);
            row.context = emission.context.clone().unwrap_or_else(|| step.knows.clone());
            row.rollback_since = undoing.then_some(now);
            row.give_up_at = give_up_at;
            step.waits |= row.parent.is_some();
            self.insert(row);
        }
    }

    /// Requests the rollback of a message's finished runs that have not begun to roll back.
    fn request_rollback(&mut self, step: &mut SettleStep<'_>, request: &RollbackRequestRow) {
        let now = self.now();
        let Some(hierarchy) = self.hierarchy(step.settlement.root) else {
            return;
        };
        let (record, message) = (&hierarchy.record, request.message_id);
        let seen = record.of_message(message, EventKind::Seen);
        let mut rows = vec![];
        for (seen, handler) in seen.filter_map(|seen| Some((seen, seen.handler.clone()?))) {
            if record.of_handler(message, EventKind::RollingBack, &handler).is_some() {
                continue;
            }
            step.started.insert(handler.to_string());
            let own = record.of_handler(message, EventKind::Committed, &handler);
            let own = own.map(|committed| committed.context.clone()).unwrap_or_default();
            let topic = record.topic_of(message);
            let mut row = WorkingRow::new(seen.lineage.clone(), message, topic, handler, step.last_event);
            row.parent = Some(step.before.id());
            row.ready_at = now + microseconds(request.at);
            (row.rolling_back, row.rollback_requested) = (true, true);
            // A repeated request has the recorded reason.
            let on_record = record.of_message(message, EventKind::RollbackEmitted).next();
            let on_record = on_record
                .filter(|_| step.before.rollback_failure.is_some())
                .and_then(|event| event.exception.clone());
            row.failure = on_record.or_else(|| step.settlement.rollback_cause.clone());
            row.rollback_since = Some(now);
            // Higher than any forward epoch, to fence out old owners.
            (row.epoch, row.unclaimed_epoch) = (micros(step.last_event), micros(step.last_event));
            // Its own last context, overlaid with the parent's current one.
            row.context = own.overlaid_by(&step.knows);
            rows.push(row);
        }
        step.waits |= !rows.is_empty();
        rows.into_iter().for_each(|row| self.insert(row));
    }

    fn update_row(&mut self, step: &SettleStep<'_>) -> SettleResult {
        let (now, settlement, before) = (self.now(), step.settlement, &step.before);
        let run = (before.root(), before.id());
        let settled = |state: RowState, give_up_at: Option<OffsetDateTime>| SettleResult {
            state,
            overdue: give_up_at.is_some_and(|at| at <= now),
            last_event_at: step.last_event,
            ready_handlers: vec![],
        };
        // The parent may have gone on without it since its claim.
        let is_unnoted = before.parent.is_none() && settlement.ends == Some(Ending::Noted);
        if settlement.ends == Some(Ending::Unnoted) || is_unnoted {
            self.change(run, |row| row.ends_as(step));
            self.add_end(run, step.outcome());
            self.remove(run);
            return settled(RowState::Ended, before.give_up_at);
        }
        if settlement.ends == Some(Ending::Failed) {
            self.change(run, |row| row.fails_as(step, now));
            return settled(RowState::Failed, None);
        }
        let wait = settlement.wait.as_ref();
        let undecided = wait.filter(|wait| wait.is_undecided());
        let state = match (settlement.ends, step.waits, wait) {
            (Some(_), ..) => RowState::Ended,
            (None, ..) if undecided.is_some() => RowState::Running,
            (None, true, _) => RowState::Waiting,
            (None, false, Some(_)) => RowState::Ready,
            (None, false, None) => RowState::Running,
        };
        let (wait, undecided) = (wait.filter(|_| undecided.is_none()), undecided.cloned());
        let began_rollback = settlement.begins_rollback.then_some(now);
        let since = began_rollback.or(before.rollback_since);
        let counts = |deadline: &OffsetDateTime| since.is_none_or(|since| *deadline > since);
        let give_up_at = settlement.deadlines.iter().copied().filter(counts).min();
        // Not in the past: claims may have gone on from there.
        let wakes_at = wait.map(|wait| min_deadline(wait.time(), give_up_at).max(now));
        self.change(run, |row| {
            row.state = state;
            row.ready_at = wakes_at.unwrap_or(row.ready_at);
            (row.signal, row.signalled_by) = (wait.and_then(|wait| wait.signal().cloned()), None);
            row.wait = undecided;
            row.owner = row.owner.filter(|_| state == RowState::Running);
            row.epoch += 1;
            row.step.clone_from(&settlement.step);
            row.jump.clone_from(&settlement.jump);
            row.definition = settlement.definition;
            row.iteration = settlement.iteration;
            row.handler_iteration = settlement.handler_iteration;
            row.suspensions = settlement.suspensions;
            row.completions.clone_from(&settlement.completions);
            row.outputs.clone_from(&settlement.outputs);
            row.rolling_back = settlement.rolling_back;
            row.failure.clone_from(&settlement.failure);
            row.context = step.knows.clone();
            row.replied = settlement.replied;
            row.giving_up &= !settlement.begins_rollback;
            row.give_up_at = give_up_at;
            row.rollback_since = since;
            row.last_event_at = step.last_event;
            if let Some(as_new) = &settlement.as_new {
                (row.execution, row.execution_since) = (as_new.number, Some(step.last_event));
                row.payload_of = Some(as_new.message);
                // A new execution may be of another definition.
                row.reserved_for = 0;
            } else if settlement.rolling_back {
                (row.execution, row.execution_since, row.payload_of) = (0, None, None);
            }
            (row.attempts, row.retries, row.reason) = (0, 0, None);
        });
        if state == RowState::Ended {
            self.add_end(run, step.outcome());
        }
        settled(state, give_up_at)
    }

    /// Records the events: a microsecond apart and in order, since readers order events by time.
    fn write(&mut self, step: &SettleStep<'_>) {
        let SettleStep { settlement, identifier, before, .. } = step;
        for row in &settlement.events {
            let at = step.last_event - microseconds(row.until_last);
            let Some(mut event) = row.to_event(before, settlement, at) else {
                continue;
            };
            if row.context.is_none() {
                event.context = step.knows.clone();
            }
            event.identifier = event.handler.is_some().then(|| Arc::clone(identifier));
            if let Some(as_new) = settlement.as_new.as_ref().filter(|_| event.kind == EventKind::Suspended) {
                let suspensions = u32::try_from(settlement.suspensions).unwrap_or(0);
                event.begins =
                    Some(RecordedExecution { number: as_new.number, message: as_new.message, suspensions });
            }
            // A client may have requested the rollback of a part of the hierarchy before.
            let twice = event.kind == EventKind::RollbackEmitted
                && self.hierarchy(before.root()).is_some_and(|hierarchy| !hierarchy.record.admits(&event));
            if !twice {
                self.append(event);
            }
        }
        let record = self.hierarchies.get_mut(&before.root()).map(|hierarchy| &mut hierarchy.record);
        if let Some(record) = record.filter(|_| !settlement.return_values.is_empty()) {
            let values =
                settlement.return_values.iter().map(|value| (value.name.clone(), value.value.clone()));
            record.values.entry(before.id()).or_default().extend(values);
        }
    }

    /// Deletes the children that did not succeed and that the run has taken note of. Those whose failed rollback it accepts rest without
    /// it.
    fn clear_failed_children(&mut self, step: &SettleStep<'_>, forgotten: ForgottenChildren) {
        let run = (step.before.root(), step.before.id());
        let of_state = |state: &Self, ends: RowState| -> Vec<_> {
            state.children(run).filter(|child| child.state == ends).map(WorkingRow::id).collect()
        };
        for child in of_state(self, RowState::Ended) {
            self.remove((run.0, child));
        }
        if forgotten == ForgottenChildren::All {
            for child in of_state(self, RowState::Failed) {
                self.detach((run.0, child));
            }
        }
    }
}

/// Whether the failed end of a run is reported: not if a run waits for it; nor of one without which its launcher has gone on, since it
/// was cancelled then.
fn reports(settlement: &Settlement, before: &WorkingRow, outcome: FailedOutcome) -> bool {
    let gave_up = settlement.failure.as_ref().is_some_and(|failure| failure.kind == "GaveUpException");
    let is_below = before.lineage.ids().len() > 2 && !before.rollback_requested;
    before.parent.is_none() && !(outcome == FailedOutcome::RolledBack && is_below && gave_up)
}

impl EventRow {
    /// The event as it is recorded, without the identifier of the worker.
    fn to_event(&self, before: &WorkingRow, settlement: &Settlement, at: OffsetDateTime) -> Option<Event> {
        let kind = EventKind::from_name(self.kind)?;
        let lineage = self.detached_root.map_or_else(|| before.lineage.clone(), Lineage::root);
        let exception = match kind {
            EventKind::RollbackEmitted => settlement.rollback_cause.clone(),
            _ => self.exception.clone(),
        };
        Some(Event {
            handler: self.detached_root.is_none().then(|| before.handler.clone()),
            step: self.step.clone(),
            exception,
            context: self.context.clone().unwrap_or_default(),
            next_step: self.next_step,
            jump: self.jump.clone(),
            definition: self.definition,
            handling: self.handler_iteration,
            wait: self.wait.clone(),
            ..Event::new(kind, self.message_id, lineage, at)
        })
    }
}

/// This number of microseconds.
fn microseconds(at: usize) -> Duration {
    Duration::microseconds(i64::try_from(at).unwrap_or(i64::MAX))
}
