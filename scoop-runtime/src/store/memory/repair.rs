//! The operations for operators.

use scoop_core::{EventKind, Lineage, OPERATOR, SignalKey};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::error_queue::FailedRun;
use super::event_log::{Event, EventLog, InterventionRow};
use super::row::{RowState, RunOutcome, WorkingRow};
use super::state::{Hierarchy, Registration, RowKey, State, after, later};
use crate::find::{BLOCKING_MAX, BlockingRuns, DecisionWait, FAILED_BELOW_READ};
use crate::repair::{
    Decision, FailedCompensation, FailedRollback, FailedRollbacks, Intervention, OperatorEvent,
    OtherDescendants, Presence, Refusal, RepairAction, RepairStatus, RestoredRun, SIGNAL, StuckRun,
    WAITING_FOR_OPERATOR, failed_again_reason, no_program,
};
use crate::store::types::UNKNOWN_MAX;
use crate::store::{
    ClaimKey, FailedRollbackPart, InterventionSubject, Page, ParentRef, RepairRequest, RepairResult,
    RepairStorage, RequestTarget, Requester,
};
use crate::tree::Extent;
use crate::util::format::system_time;
use crate::util::stored_time::StoredTime;
use crate::{FailedBelow, FailedOutcome, RunPhase, RunSummary, WaitKind};

impl RepairStorage for MemoryStore {
    async fn mark_awaiting_operator(
        &self,
        key: ClaimKey,
        worker: &str,
        failed: &FailedRollbackPart,
    ) -> sqlx::Result<bool> {
        self.run("mark_awaiting_operator", |state| {
            if state.claimed_under(key).is_none() {
                return Ok(false);
            }
            let (now, run) = (state.now(), (key.root, key.id));
            state.change(run, |row| {
                row.free(now);
                (row.state, row.reason) = (RowState::Stuck, Some(failed_again_reason(&failed.failure)));
                row.last_event_at = later(now, row.last_event_at);
                (row.awaits_operator, row.giving_up, row.give_up_at) = (true, false, None);
                (row.attempts, row.retries) = (0, 0);
            });
            state.mark_waiting_for(run, now);
            state.record_failure(run, worker, failed);
            if let Some(row) = state.row(run) {
                let failed = FailedRun {
                    step: Some(failed.part.clone()),
                    rollback_failure: Some(failed.failure.clone()),
                    ..FailedRun::new(FailedOutcome::RollbackFailed, row)
                };
                state.send_failed(&failed);
            }
            // The run has taken note of its failed children.
            let noted = state.children(run).filter(|child| child.state == RowState::Ended);
            let noted: Vec<_> = noted.map(WorkingRow::id).collect();
            noted.into_iter().for_each(|child| drop(state.remove((key.root, child))));
            Ok(true)
        })
        .await
    }

    async fn repair(
        &self,
        target: &RequestTarget,
        asked: &RepairRequest<'_>,
    ) -> sqlx::Result<Result<RepairResult, Refusal>> {
        self.run("repair", |state| Ok(state.repair(target, asked))).await
    }

    async fn record_signal(
        &self,
        target: &RequestTarget,
        requester: Requester<'_>,
    ) -> sqlx::Result<Option<SignalKey>> {
        self.run("record_signal", |state| {
            let (run, now) = ((target.lineage.root_id(), target.lineage.id()), state.now());
            let waits =
                |row: &&WorkingRow| row.state == RowState::Ready && !row.giving_up && row.ready_at > now;
            let Some(row) = state.row(run).filter(waits) else { return Ok(None) };
            let Some(to) = row.signal.clone() else { return Ok(None) };
            let handler = row.handler.to_string();
            if !requester.asked.is_dry_run && !state.requests.contains(&requester.asked.id) {
                let subject = InterventionSubject { target, handler: &handler, kind: SIGNAL, decision: None };
                state.intervene(subject, requester, now);
            }
            Ok(Some(to))
        })
        .await
    }

    async fn failed_compensations(&self, page: Page) -> sqlx::Result<Vec<FailedCompensation>> {
        self.run("failed_compensations", |state| {
            let is_after = |failed: &Event| {
                let place = (StoredTime::from(failed.at), failed.lineage.id());
                page.after.is_none_or(|after| place < after)
            };
            let listed = state.unsettled().rev().filter(|(_, failed)| is_after(failed));
            let listed = listed.take(usize::try_from(page.limit).unwrap_or(usize::MAX));
            let topology = &state.topology;
            Ok(listed.map(|(hierarchy, failed)| hierarchy.failed_compensation(failed, topology)).collect())
        })
        .await
    }

    async fn stuck_runs(&self, page: Page) -> sqlx::Result<Vec<StuckRun>> {
        self.run("stuck_runs", |state| {
            let is_after = |at: OffsetDateTime, id| page.after.is_none_or(|after| (at.into(), id) > after);
            let later = state.stuck.iter().filter(|(at, id, _)| is_after(*at, *id));
            let rows = later.filter_map(|(_, id, root)| state.row((*root, *id)));
            let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
            let stuck = rows.filter(|row| row.is_stuck()).take(limit);
            let abandoned = state.abandoned().filter(|row| is_after(row.ready_at, row.id()));
            let mut rows: Vec<_> = stuck.chain(abandoned).collect();
            rows.sort_by_key(|row| (row.ready_at, row.id()));
            Ok(rows.into_iter().take(limit).map(|row| row.stuck(state.phase_of(row))).collect())
        })
        .await
    }

    async fn interventions(&self, root: Uuid) -> sqlx::Result<Vec<Intervention>> {
        self.run("interventions", |state| {
            let done =
                state.hierarchy(root).into_iter().flat_map(|hierarchy| &hierarchy.record.interventions);
            let mut done: Vec<_> = done.collect();
            done.sort_by_key(|done| done.order());
            Ok(done.into_iter().map(InterventionRow::to_intervention).collect())
        })
        .await
    }

    async fn interventions_of(
        &self,
        root: Uuid,
        runs: Option<&[Uuid]>,
        extent: Extent,
    ) -> sqlx::Result<Vec<(Intervention, usize)>> {
        self.run("interventions_of", |state| {
            let mut read = vec![];
            if let Some(hierarchy) = state.hierarchy(root) {
                let record = &hierarchy.record;
                for run in runs.map_or_else(|| record.runs_with_interventions(), <[Uuid]>::to_vec) {
                    let (done, left_out) = record.limited_interventions(run, extent.events_of(run));
                    read.extend(done.into_iter().map(|done| (done, left_out)));
                }
            }
            read.sort_by_key(|(done, _)| done.order());
            Ok(read.into_iter().map(|(done, left_out)| (done.to_intervention(), left_out)).collect())
        })
        .await
    }
}

impl State {
    fn repair(&mut self, target: &RequestTarget, asked: &RepairRequest<'_>) -> Result<RepairResult, Refusal> {
        let (root, id) = (target.lineage.root_id(), target.lineage.id());
        let hierarchy = self.hierarchy(root).ok_or(Refusal::NotFailed)?;
        let failed_rollbacks = hierarchy.failed_rollbacks(&self.topology);
        let newest = failed_rollbacks.iter().map(|(newest, _)| after(*newest)).max();
        let now = newest.map_or(self.now(), |newest| newest.max(self.now()));
        if self.requests.contains(&asked.requester.asked.id) {
            return Ok(RepairResult::before(target, now));
        }
        let failed_rollbacks = FailedRollbacks::new(failed_rollbacks.into_iter().map(|(_, run)| run));
        let known = failed_rollbacks.ids();
        let is_below = |row: &&WorkingRow| row.lineage.ids().starts_with(target.lineage.ids());
        let mut below = hierarchy.rows.values().filter(is_below);
        let others = match below.any(|row| row.id() != id && !known.contains(&row.id())) {
            true => OtherDescendants::Unfinished,
            false => OtherDescendants::None,
        };
        if hierarchy.rows.get(&id).is_some_and(WorkingRow::is_stuck) {
            return match asked.action {
                RepairAction::Retry => self.give_a_chance(target, asked.requester).ok_or(Refusal::Busy),
                _ => Err(Refusal::Stuck),
            };
        }
        let decision = failed_rollbacks.decide(asked.action, id, others)?;
        let handler = failed_rollbacks.get(id).ok_or(Refusal::NotFailed)?.handler.clone();
        if asked.requester.asked.is_dry_run {
            return Ok(RepairResult::checked());
        }
        let (kind, decided) = (asked.action.as_str(), Some(&decision));
        let subject = InterventionSubject { target, handler: &handler, kind, decision: decided };
        self.intervene(subject, asked.requester, now);
        self.carry_out(root, &decision, now);
        let parent = decision.parent.map(|id| ParentRef { root, id, at: now });
        let ready = decision.revived.into_iter().filter(|run| run.state == RowState::Ready);
        Ok(RepairResult { handlers: ready.map(|run| run.handler).collect(), parent })
    }

    /// Gives a stuck run another chance.
    fn give_a_chance(&mut self, target: &RequestTarget, requester: Requester<'_>) -> Option<RepairResult> {
        let (now, run) = (self.now(), (target.lineage.root_id(), target.lineage.id()));
        if requester.asked.is_dry_run {
            return Some(RepairResult::checked());
        }
        let row = self.change(run, |row| {
            row.retry(now);
            (row.reason, row.reserved_for, row.refused_by) = (None, 0, vec![]);
            row.doubts = row.doubts.min(UNKNOWN_MAX - 3);
        })?;
        let handler = row.handler.to_string();
        self.mark_unawaited(&handler);
        let kind = RepairAction::Retry.as_str();
        self.intervene(
            InterventionSubject { target, handler: &handler, kind, decision: None },
            requester,
            now,
        );
        Some(RepairResult { handlers: vec![handler], parent: None })
    }

    /// Records an intervention.
    fn intervene(&mut self, subject: InterventionSubject<'_>, requester: Requester<'_>, at: OffsetDateTime) {
        let InterventionSubject { target, handler, kind, decision } = subject;
        self.requests.insert(requester.asked.id);
        let hierarchy = self.hierarchies.entry(target.lineage.root_id()).or_default();
        hierarchy.record.intervene(InterventionRow {
            id: requester.asked.id,
            run: target.lineage.id(),
            handler: handler.to_owned(),
            message: target.message,
            part: decision.map(|decision| decision.part.clone()),
            kind,
            reruns_part: decision.is_some_and(|decision| decision.repeats),
            note: Some(requester.note.replace('\0', "")).filter(|note| !note.is_empty()),
            source: requester.source.replace('\0', ""),
            at,
        });
    }

    fn carry_out(&mut self, root: Uuid, decision: &Decision, now: OffsetDateTime) {
        for id in &decision.dropped {
            self.drop_run((root, *id));
        }
        for event in decision.events.iter().filter_map(|written| written.event(now)) {
            let ended = self.hierarchies.get_mut(&root).map(|hierarchy| &mut hierarchy.ended);
            let ended = ended.and_then(|ended| ended.get_mut(&event.lineage.id()));
            if let Some(ended) = ended.filter(|_| event.kind == EventKind::RolledBack) {
                (ended.outcome, ended.last.rollback_failure) = (RunOutcome::RolledBack, None);
                (ended.last.context, ended.last.last_event_at) = (event.context.clone(), now);
            }
            self.append(event);
        }
        decision.revived.iter().for_each(|revived| self.revive(root, revived, now));
        for id in &decision.cleared {
            self.change((root, *id), |row| {
                (row.awaits_operator, row.reason) = (false, None);
                row.last_event_at = row.last_event_at.max(now);
            });
        }
    }

    /// Brings a run into the working set, or revives one that is there already.
    fn revive(&mut self, root: Uuid, revived: &RestoredRun, now: OffsetDateTime) {
        let epoch = self.fresh_epoch();
        let fresh = self.hierarchy(root).and_then(|hierarchy| hierarchy.record.revived(revived, epoch, now));
        let Some(fresh) = fresh else {
            return;
        };
        let run = (root, revived.id);
        self.hierarchies.entry(root).or_default().ended.remove(&revived.id);
        if self.row(run).is_none() {
            self.insert(fresh);
            return;
        }
        self.change(run, |row| {
            row.free(now);
            row.state = fresh.state;
            row.epoch += 1;
            row.context = fresh.context;
            row.give_up_at = fresh.give_up_at;
            row.rollback_since = fresh.rollback_since;
            row.giving_up = false;
            row.last_event_at = row.last_event_at.max(now);
            row.reason = fresh.reason;
            row.rollback_failure = None;
            (row.attempts, row.retries) = (0, 0);
            row.awaits_operator = fresh.awaits_operator;
        });
    }
}

fn signed(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn unsigned(count: i32) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

impl OperatorEvent {
    fn event(&self, at: OffsetDateTime) -> Option<Event> {
        let lineage = Lineage::from_ids(self.lineage.clone())?;
        Some(Event {
            handler: Some(self.handler.as_str().into()),
            identifier: Some(OPERATOR.into()),
            step: Some(self.part.clone()),
            handling: self.handling.map(signed),
            context: self.context.clone(),
            ..Event::new(EventKind::from_name(self.kind)?, self.message_id, lineage, at)
        })
    }
}

impl EventLog {
    fn revived(&self, revived: &RestoredRun, epoch: i64, now: OffsetDateTime) -> Option<WorkingRow> {
        let lineage = Lineage::from_ids(revived.lineage.clone())?;
        let turned = self.of_handler(revived.message_id, EventKind::RollingBack, &revived.handler)?;
        let (topic, handler) = (self.topic_of(revived.message_id), revived.handler.as_str().into());
        let mut row = WorkingRow::new(lineage, revived.message_id, topic, handler, now);
        row.parent = revived.parent;
        row.state = revived.state;
        (row.epoch, row.rolling_back, row.rollback_requested, row.rollback_failed_before) =
            (epoch, true, revived.rollback_requested, true);
        let forward = self.of_run(revived.id).filter(|event| event.kind == EventKind::Suspended);
        row.suspensions =
            i32::try_from(forward.filter(|event| event.at < turned.at).count()).unwrap_or(i32::MAX);
        row.context = revived.context.clone();
        row.replied = !revived.rollback_requested && self.has_replied(revived.id);
        // A missed deadline has had its effect, and a run that awaits an operator has none.
        let counts = |deadline: &OffsetDateTime| *deadline > now && row.state != RowState::Stuck;
        let give_up_at = revived.deadlines.iter().copied().filter(counts).min();
        row.give_up_at = give_up_at;
        row.rollback_since = Some(now);
        row.failure = turned.exception.clone();
        row.rollback_started_at = Some(turned.at);
        row.reason = revived.reason.map(str::to_owned);
        row.awaits_operator = revived.awaits_operator;
        Some(row)
    }

    /// Whether a run has replied to the launcher of its message.
    pub(super) fn has_replied(&self, run: Uuid) -> bool {
        let mut names = self.values.get(&run).into_iter().flat_map(|values| values.keys());
        names.any(|name| !name.starts_with("Output of "))
    }

    /// Whether a handler has not begun what this part of a rollback launched, or the rollback that it requested. A part
    /// that an operator has skipped leaves nothing behind.
    fn leaves_behind(&self, part: &Event, topology: &[Registration]) -> bool {
        if part.identifier.as_deref() == Some(OPERATOR) {
            return false;
        }
        let mut sent = self.of_run(part.lineage.id()).filter(|event| {
            event.handler == part.handler && event.step == part.step && event.lineage == part.lineage
        });
        sent.any(|sent| match sent.kind {
            EventKind::Emitted => {
                let topic = self.topic_of(sent.message);
                let mut listened = topology.iter().filter(|listed| {
                    let ended = listed.dropped || listed.until.is_some_and(|until| until <= sent.at);
                    listed.topic == topic && listed.since <= sent.at && !ended
                });
                listened.any(|it| self.of_handler(sent.message, EventKind::Seen, &it.handler).is_none())
            }
            EventKind::RollbackEmitted => self.of_message(sent.message, EventKind::Seen).any(|seen| {
                let handler = seen.handler.as_deref().unwrap_or_default();
                self.of_handler(sent.message, EventKind::RollingBack, handler).is_none()
            }),
            _ => false,
        })
    }

    /// Whether the parent run launched this message during its rollback.
    fn compensates(&self, message: Uuid) -> bool {
        let emitted = self.of_message(message, EventKind::Emitted).next();
        emitted.is_some_and(|emitted| {
            let mut above = self.of_run(emitted.lineage.id());
            let turned =
                above.find(|event| event.kind == EventKind::RollingBack && event.handler == emitted.handler);
            turned.is_some_and(|turned| emitted.at > turned.at)
        })
    }
}

impl Hierarchy {
    /// The failed rollbacks that no operator has settled, as input of decisions, each with the time of its newest event.
    fn failed_rollbacks(&self, topology: &[Registration]) -> Vec<(OffsetDateTime, FailedRollback)> {
        self.record.unsettled().filter_map(|failed| self.unrolled_run(failed, topology)).collect()
    }

    /// The failed rollbacks that no operator has settled.
    fn unsettled_rollbacks(&self, topology: &[Registration]) -> FailedRollbacks {
        FailedRollbacks::new(self.failed_rollbacks(topology).into_iter().map(|(_, failed)| failed))
    }

    /// The failed rollbacks on which an operator has to decide before this run goes on.
    pub(super) fn undecided(&self, run: Uuid, topology: &[Registration]) -> Vec<Uuid> {
        self.unsettled_rollbacks(topology).undecided(run)
    }

    /// The failure to show of a run whose rollback failed; `failed` is its first one. It is the latest one of the run. But if the
    /// run waits for one that awaits an operator, its own failure is from before a repair. Then it is the latest failure of
    /// `first_undecided`, the first of [`undecided`](Self::undecided). As `scoop.shown_rollback_failure`.
    pub(super) fn shown_rollback_failure<'a>(
        &'a self,
        failed: &'a Event,
        first_undecided: impl FnOnce() -> Option<Uuid>,
    ) -> &'a Event {
        let row = self.rows.get(&failed.lineage.id());
        let waits = row.is_some_and(WorkingRow::waits_for_operator);
        let below = waits.then(first_undecided).flatten().and_then(|run| self.record.unsettled_of(run));
        self.record.newest_failure(below.unwrap_or(failed))
    }

    /// The runs that come before this one.
    pub(super) fn blocking_runs(&self, run: &RunSummary, topology: &[Registration]) -> BlockingRuns {
        let id = run.run.uuid();
        let undecided = match run.waits_for {
            Some(WaitKind::Operator) => self.named_rollbacks(self.undecided(id, topology)),
            _ => vec![],
        };
        let waits = self.decision_waits(&undecided, topology);
        let mut blocking = BlockingRuns::new(run, undecided, &waits);
        if blocking.may_be_in_repair {
            blocking.in_progress = self.named_rollbacks(self.unsettled_rollbacks(topology).in_repair(id));
        }
        blocking
    }

    /// The reasons for which decisions about these undecided rollbacks are refused now.
    fn decision_waits(&self, undecided: &[FailedBelow], topology: &[Registration]) -> Vec<DecisionWait> {
        if undecided.is_empty() {
            return vec![];
        }
        let failed = self.unsettled_rollbacks(topology);
        let mut waits = vec![];
        for run in undecided.iter().map(|undecided| undecided.run.uuid()) {
            let below = self.rows.values().filter(|row| {
                row.id() != run && row.lineage.ids().contains(&run) && failed.get(row.id()).is_none()
            });
            let below = below.take(FAILED_BELOW_READ);
            let below = below.map(|row| Some(FailedBelow::new(row.id(), &*row.handler, None)));
            let unrecorded = failed.is_unrecorded_above(run).then_some(None);
            waits.extend(below.chain(unrecorded).map(|below| DecisionWait { failed: run, below }));
        }
        waits
    }

    /// These failed rollbacks, with their latest failures: as many as are shown, and one more.
    fn named_rollbacks(&self, runs: Vec<Uuid>) -> Vec<FailedBelow> {
        let named = runs.into_iter().take(FAILED_BELOW_READ).filter_map(|run| {
            let failed = self.record.unsettled_of(run)?;
            let latest = self.record.newest_failure(failed).exception.as_ref();
            Some(FailedBelow::new(run, failed.handler.as_deref().unwrap_or_default(), latest))
        });
        named.collect()
    }

    fn unrolled_run(
        &self,
        failed: &Event,
        topology: &[Registration],
    ) -> Option<(OffsetDateTime, FailedRollback)> {
        let (record, id) = (&self.record, failed.lineage.id());
        let again = record.newest_failure(failed);
        let handler = failed.handler.as_deref()?;
        let turned = record.of_handler(failed.message, EventKind::RollingBack, handler)?;
        let row = self.rows.get(&id);
        let held = row.is_some_and(|row| row.awaits_operator);
        let presence = Presence::of(row.map(|row| row.state), held);
        let suspended = record.suspended(id);
        let backward = suspended.filter(|suspended| suspended.at > turned.at);
        let gave_up = again.exception.as_ref().is_some_and(|it| it.kind.ends_with("GaveUpException"));
        let mut own = record.of_run(id).rev();
        let newest = own.find(|event| event.message == failed.message && event.handler == failed.handler)?;
        let run = FailedRollback {
            lineage: failed.lineage.clone(),
            message: failed.message,
            handler: handler.to_owned(),
            failed_at: failed.at,
            part: again.step.clone(),
            handling: again.handling.map(unsigned),
            presence,
            suspended_at: suspended.map(|suspended| suspended.at),
            suspended_part: backward.and_then(|suspended| suspended.step.clone()),
            suspended_handling: backward.and_then(|suspended| suspended.handling).map(unsigned),
            leaves_behind: gave_up
                && backward.is_some_and(|suspended| record.leaves_behind(suspended, topology)),
            context: Some(newest.context.clone()),
            compensates: record.compensates(failed.message),
        };
        let known_at = newest.at.max(again.at);
        Some((row.map_or(known_at, |row| row.last_event_at.max(known_at)), run))
    }

    fn failed_compensation(&self, failed: &Event, topology: &[Registration]) -> FailedCompensation {
        let run = failed.lineage.id();
        let mut undecided = self.undecided(run, topology);
        undecided.truncate(BLOCKING_MAX);
        let (status, failed_below) = RepairStatus::from_undecided(run, &undecided);
        let newest = self.record.newest_failure(failed);
        let shown = self.shown_rollback_failure(failed, || undecided.first().copied());
        FailedCompensation {
            lineage: failed.lineage.clone(),
            handler: failed.handler.as_deref().unwrap_or_default().to_owned(),
            topic: self.record.topic_of(failed.message).to_string(),
            message_id: failed.message,
            step: newest.step.clone().unwrap_or_default(),
            failure: super::status::failure_of(Some(shown)),
            failure_at: system_time(shown.at),
            at: system_time(failed.at),
            status,
            failed_below,
            stored_at: failed.at.into(),
        }
    }
}

impl WorkingRow {
    fn stuck(&self, phase: RunPhase) -> StuckRun {
        StuckRun {
            lineage: self.lineage.clone(),
            phase,
            handler: self.handler.to_string(),
            topic: self.topic.to_string(),
            message_id: self.message_id,
            step: self.step.clone(),
            rolling_back: self.rolling_back,
            reason: match phase {
                RunPhase::Stuck => self.reason.clone().unwrap_or_default(),
                _ => no_program(&self.handler),
            },
            since: system_time(self.ready_at),
            giving_up: self.giving_up,
            can_give_up: self.can_give_up(),
            needs_retry: phase == RunPhase::Stuck && self.doubts >= UNKNOWN_MAX,
            stored_since: self.ready_at.into(),
        }
    }
}

impl InterventionRow {
    fn to_intervention(&self) -> Intervention {
        Intervention {
            run: self.run.into(),
            handler: self.handler.clone(),
            step: self.part.clone(),
            kind: self.kind.to_owned(),
            note: self.note.clone(),
            source: self.source.clone(),
            at: system_time(self.at),
        }
    }
}

impl State {
    /// Records of the runs above that wait for this one that they await an operator.
    fn mark_waiting_for(&mut self, (root, run): RowKey, now: OffsetDateTime) {
        let mut below = run;
        while let Some(above) = self.row((root, below)).and_then(|row| row.parent) {
            let waits = |row: &&WorkingRow| {
                row.state == RowState::Waiting && row.rollback_failed_before && !row.awaits_operator
            };
            if self.row((root, above)).filter(waits).is_none() {
                return;
            }
            self.change((root, above), |row| {
                (row.awaits_operator, row.reason) = (true, Some(WAITING_FOR_OPERATOR.to_owned()));
                row.ready_at = row.ready_at.max(now);
            });
            below = above;
        }
    }

    /// Records another failure of a rollback, as an event of this worker.
    fn record_failure(&mut self, run: RowKey, worker: &str, failed: &FailedRollbackPart) {
        let Some(row) = self.row(run) else {
            return;
        };
        let event = Event {
            handler: Some(row.handler.clone()),
            identifier: Some(worker.into()),
            step: Some(failed.part.clone()),
            exception: Some(failed.failure.clone()),
            context: row.context.clone(),
            handling: failed.handler_iteration.map(|count| i32::try_from(count).unwrap_or(i32::MAX)),
            ..Event::new(EventKind::RollbackFailed, row.message_id, row.lineage.clone(), row.last_event_at)
        };
        self.append_repeated_failure(event);
    }
}
