//! The operations for operators.

use scoop_core::{EventKind, Lineage, OPERATOR};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::{Event, EventLog, InterventionRow};
use super::row::{RunOutcome, WorkingRow};
use super::state::{Hierarchy, Registration, State, after};
use crate::model::format::system_time;
use crate::model::run::RowState;
use crate::repair::{
    ConcernedRun, Decision, FailedRun, Intervention, OperatorEvent, Refusal, RepairAction, RepairedRun,
};
use crate::store::types::UNKNOWN_MAX;
use crate::store::{
    InterventionSubject, ParentRef, RepairRequest, RepairResult, RepairStorage, RequestTarget, Requester,
};
use crate::tree::TreeBounds;

impl RepairStorage for MemoryStore {
    async fn repair(
        &self,
        target: &RequestTarget,
        asked: &RepairRequest<'_>,
    ) -> sqlx::Result<Result<RepairResult, Refusal>> {
        self.run("repair", |state| Ok(state.repair(target, asked))).await
    }

    async fn interventions_of(
        &self,
        root: Uuid,
        runs: Option<&[Uuid]>,
        extent: TreeBounds,
    ) -> sqlx::Result<Vec<(Intervention, usize)>> {
        self.run("interventions_of", |state| {
            let mut read = vec![];
            if let Some(hierarchy) = state.hierarchy(root) {
                let record = &hierarchy.record;
                for run in runs.map_or_else(|| record.runs_with_interventions(), <[Uuid]>::to_vec) {
                    let (interventions, left_out) = record.limited_interventions(run, extent.events_of(run));
                    read.extend(interventions.into_iter().map(|it| (it, left_out)));
                }
            }
            read.sort_by_key(|(it, _)| it.order());
            Ok(read.into_iter().map(|(it, left_out)| (it.to_intervention(), left_out)).collect())
        })
        .await
    }
}

impl State {
    fn repair(&mut self, target: &RequestTarget, asked: &RepairRequest<'_>) -> Result<RepairResult, Refusal> {
        let (root, id) = (target.lineage.root_id(), target.lineage.id());
        let hierarchy = self.hierarchy(root).ok_or(Refusal::NotFailed)?;
        let concerned = hierarchy.concerned_by(target, &self.topology);
        let newest = concerned.iter().map(|run| run.lineage.id()).filter_map(|run| hierarchy.rows.get(&run));
        let newest = newest.map(|row| after(row.last_event_at)).max();
        let now = newest.map_or(self.now(), |newest| newest.max(self.now()));
        if self.requests.contains(&asked.requester.asked.id) {
            return Ok(RepairResult::before(target, now));
        }
        let failed = match FailedRun::find(id, concerned) {
            Err(Refusal::Stuck) if asked.action == RepairAction::Retry => {
                return self.give_a_chance(target, asked.requester).ok_or(Refusal::Busy);
            }
            failed => failed?,
        };
        let decision = failed.decide(asked.action)?;
        if asked.requester.asked.is_dry_run {
            return Ok(RepairResult::checked());
        }
        let (kind, decided) = (asked.action.as_str(), Some(&decision));
        let subject = InterventionSubject { target, handler: failed.handler(), kind, decision: decided };
        self.intervene(subject, asked.requester, now);
        self.carry_out(root, &decision, now);
        let parent = decision.parent.map(|id| ParentRef { root, id, at: now });
        let ready = decision.repaired.into_iter().filter(|run| run.state == RowState::Ready);
        Ok(RepairResult { handlers: ready.map(|run| run.handler).collect(), parent })
    }

    fn give_a_chance(&mut self, target: &RequestTarget, requester: Requester<'_>) -> Option<RepairResult> {
        let (now, run) = (self.now(), (target.lineage.root_id(), target.lineage.id()));
        if requester.asked.is_dry_run {
            return Some(RepairResult::checked());
        }
        let row = self.change(run, |row| {
            row.retry(now);
            (row.reason, row.reserved_for, row.refused_by) = (None, 0, vec![]);
            row.unknown_attempts = row.unknown_attempts.min(UNKNOWN_MAX - 3);
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

    fn intervene(&mut self, subject: InterventionSubject<'_>, requester: Requester<'_>, at: OffsetDateTime) {
        let InterventionSubject { target, handler, kind, decision } = subject;
        self.requests.insert(requester.asked.id);
        let hierarchy = self.hierarchies.entry(target.lineage.root_id()).or_default();
        hierarchy.record.intervene(InterventionRow {
            id: requester.asked.id,
            run: target.lineage.id(),
            handler: handler.to_owned(),
            part: decision.map(|decision| decision.part.clone()),
            kind,
            reruns_part: decision.is_some_and(|decision| decision.repeats),
            note: Some(requester.note.replace('\0', "")).filter(|note| !note.is_empty()),
            source: requester.source.replace('\0', ""),
            at,
        });
    }

    fn carry_out(&mut self, root: Uuid, decision: &Decision, now: OffsetDateTime) {
        for event in decision.events.iter().filter_map(|written| written.event(now)) {
            let run = (root, event.lineage.id());
            if event.kind == EventKind::RolledBack {
                self.change(run, |row| row.last_event_at = now);
                self.add_end(run, RunOutcome::RolledBack);
                self.remove(run);
            }
            self.append(event);
        }
        for repaired in &decision.repaired {
            self.change((root, repaired.id), |row| row.repair(repaired, now));
        }
        if let Some(run) = decision.waits_above {
            self.change((root, run), |row| row.epoch += 1);
        }
        if let Some(run) = decision.accepts_below {
            let failed = self.children((root, run)).filter(|child| child.state == RowState::Failed);
            let failed: Vec<_> = failed.map(WorkingRow::id).collect();
            failed.into_iter().for_each(|child| self.detach((root, child)));
        }
    }
}

impl State {}

impl WorkingRow {
    /// Continues it after the decision of an operator.
    fn repair(&mut self, repaired: &RepairedRun, now: OffsetDateTime) {
        self.free(now);
        (self.state, self.rollback_requested) = (repaired.state, repaired.rollback_requested);
        self.epoch += 1;
        (self.step, self.handler_iteration) = (None, None);
        self.replied &= !repaired.rollback_requested;
        // A missed deadline has had its effect.
        self.give_up_at = repaired.deadlines.iter().copied().filter(|deadline| *deadline > now).min();
        (self.rollback_since, self.last_event_at) = (Some(now), self.last_event_at.max(now));
        (self.reserved_for, self.refused_by) = (0, vec![]);
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
                let mut subscribed = topology.iter().filter(|entry| {
                    let ended = entry.dropped || entry.until.is_some_and(|until| until <= sent.at);
                    entry.topic == topic && entry.since <= sent.at && !ended
                });
                subscribed.any(|it| self.of_handler(sent.message, EventKind::Seen, &it.handler).is_none())
            }
            EventKind::RollbackEmitted => self.of_message(sent.message, EventKind::Seen).any(|seen| {
                let handler = seen.handler.as_deref().unwrap_or_default();
                self.of_handler(sent.message, EventKind::RollingBack, handler).is_none()
            }),
            _ => false,
        })
    }

    fn compensates(&self, message: Uuid) -> bool {
        let emitted = self.of_message(message, EventKind::Emitted).next();
        emitted.is_some_and(|emitted| self.is_of_rollback(emitted))
    }

    /// Whether this event of a run is of its rollback.
    fn is_of_rollback(&self, event: &Event) -> bool {
        let mut of_run = self.of_run(event.lineage.id());
        let began = of_run.find(|it| it.kind == EventKind::RollingBack && it.handler == event.handler);
        began.is_some_and(|began| event.at > began.at)
    }
}

impl Hierarchy {
    /// The runs that a decision about this one concerns, as `run_read_repair.sql`.
    fn concerned_by(&self, target: &RequestTarget, topology: &[Registration]) -> Vec<ConcernedRun> {
        let mut runs = target.lineage.ids().to_vec();
        let mut at = runs.len().saturating_sub(1);
        while let Some(run) = runs.get(at).copied() {
            let is_failed =
                |run| self.rows.get(&run).is_some_and(|row: &WorkingRow| row.state == RowState::Failed);
            if run == target.lineage.id() || is_failed(run) {
                runs.extend(self.children_of(run));
            }
            at += 1;
        }
        let rows = runs.into_iter().filter_map(|run| self.rows.get(&run));
        rows.map(|row| self.concerned(row, topology)).collect()
    }

    fn concerned(&self, row: &WorkingRow, topology: &[Registration]) -> ConcernedRun {
        let record = &self.record;
        let suspended = record.suspended(row.id()).filter(|it| record.is_of_rollback(it));
        let gave_up = row.rollback_failure.as_ref().is_some_and(|it| it.kind.ends_with("GaveUpException"));
        ConcernedRun {
            lineage: row.lineage.clone(),
            parent: row.parent,
            message: row.message_id,
            handler: row.handler.to_string(),
            state: row.state,
            rolling_back: row.rolling_back,
            has_failed: row.rollback_failure.is_some(),
            part: row.step.clone(),
            handling: row.handler_iteration.map(unsigned),
            context: Some(row.context.clone()),
            compensates: record.compensates(row.message_id),
            is_part_complete: suspended.is_some_and(|it| it.step.is_some() && it.step == row.step),
            leaves_behind: gave_up && suspended.is_some_and(|it| record.leaves_behind(it, topology)),
        }
    }
}

impl WorkingRow {}

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
