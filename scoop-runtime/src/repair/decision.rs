//! The consequences of an operator's decision on a failed rollback: a pure function of the failed rollbacks of the
//! hierarchy.
//!
//! A failed rollback makes the rollbacks of the ancestors fail: each parent gets the failure of its child, and fails
//! because of it. So a decision on one run concerns its ancestors, which continue as soon as no descendant blocks
//! them. Other failed descendants that block them come into the working set, too, where the ancestors wait for them
//! until an operator has repaired them.

use std::collections::BTreeMap;

use scoop_core::{Context, Direction, Failure, Lineage};
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::find::FailureSummary;
use crate::store::RowState;

/// The kind of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepairAction {
    Retry,
    Skip,
    Resolve,
}

impl RepairAction {
    /// The stored name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::Resolve => "resolve",
        }
    }
}

/// The reason for refusing a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The run has no failed rollback.
    NotFailed,
    /// A repair is in progress, or the parent has not yet recorded the failure.
    Busy,
    /// The run failed because of descendants, which have to be repaired first.
    FailedBelow,
    /// The run waits for a program that can continue it.
    Stuck,
    /// The record of the failed rollback of this run is damaged: of the run itself, or of one that it concerns.
    Damaged(Uuid, Damage),
}

/// What is damaged in the record of a failed rollback, so that it cannot be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The event of the failure names no step.
    Step,
    /// The context of the newest event cannot be decoded.
    Context,
}

impl Damage {
    /// The damage in words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Step => "its event ROLLBACK_FAILED names no step",
            Self::Context => "the context of its newest event cannot be decoded",
        }
    }
}

/// The state of a run in the working set, as far as repairs need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It is not in the working set.
    Absent,
    /// It waits for an operator.
    AwaitsOperator,
    /// It waits for its children. Whether one of them awaits an operator, or waits for a run that does.
    Waiting { awaits_operator: bool },
    /// Any other state.
    Busy,
}

impl Presence {
    /// Of a run with a row in this state, or without one.
    pub(crate) fn of(state: Option<RowState>, awaits_operator: bool) -> Self {
        match state {
            None => Self::Absent,
            Some(RowState::Stuck) if awaits_operator => Self::AwaitsOperator,
            Some(RowState::Waiting) => Self::Waiting { awaits_operator },
            Some(_) => Self::Busy,
        }
    }
}

/// A run whose rollback failed.
#[derive(Clone, Debug)]
pub(crate) struct FailedRollback {
    pub(crate) lineage: Lineage,
    pub(crate) message: Uuid,
    pub(crate) handler: String,
    /// Time of the first failure. An ancestor was waiting if its newest suspension is older.
    pub(crate) failed_at: OffsetDateTime,
    /// The part of the rollback that failed, in the latest failure; none if the record is damaged. `handling` is the number
    /// of earlier calls of the child failure handler, if the failures of children were the reason.
    pub(crate) part: Option<String>,
    pub(crate) handling: Option<u32>,
    pub(crate) presence: Presence,
    /// The time of its newest suspension.
    pub(crate) suspended_at: Option<OffsetDateTime>,
    /// Part and handling of its newest suspension, if that was during the rollback.
    pub(crate) suspended_part: Option<String>,
    pub(crate) suspended_handling: Option<u32>,
    /// Whether the run gave up waiting for a child of that part: one whose rollback it had requested, or a handler of
    /// a message that it had launched.
    pub(crate) leaves_behind: bool,
    /// None if it cannot be decoded.
    pub(crate) context: Option<Context>,
    /// Whether the message was launched during the parent's rollback. Otherwise the parent requested this rollback
    /// and ignores its failure.
    pub(crate) compensates: bool,
}

/// All failed rollbacks of a hierarchy.
pub(crate) struct FailedRollbacks {
    runs: BTreeMap<Uuid, FailedRollback>,
    /// The blocking children of each blocked run, in the order of their ids.
    blockers: BTreeMap<Uuid, Vec<Uuid>>,
}

/// The changes to be written.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// The part of the rollback that the decision concerns.
    pub(crate) part: String,
    /// Whether that part is to be repeated although it is suspended.
    pub(crate) repeats: bool,
    pub(crate) events: Vec<OperatorEvent>,
    /// The runs that are added to the working set, or change there.
    pub(crate) revived: Vec<RestoredRun>,
    /// The runs above that wait already, and for no run any more that awaits an operator.
    pub(crate) cleared: Vec<Uuid>,
    /// The runs that are removed from the working set.
    pub(crate) dropped: Vec<Uuid>,
    /// The parent run, which may not wait for any child any more.
    pub(crate) parent: Option<Uuid>,
}

/// An event that is written because of an intervention.
#[derive(Debug, Serialize)]
pub(crate) struct OperatorEvent {
    pub(crate) message_id: Uuid,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) handler: String,
    pub(crate) part: String,
    pub(crate) lineage: Vec<Uuid>,
    pub(crate) handling: Option<u32>,
    pub(crate) context: Context,
}

/// The descendants of a repaired run in the working set, apart from those with a failed rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherDescendants {
    None,
    Unfinished,
}

/// A run to be written to the working set.
#[derive(Debug, Serialize)]
pub(crate) struct RestoredRun {
    pub(crate) id: Uuid,
    pub(crate) parent: Option<Uuid>,
    pub(crate) lineage: Vec<Uuid>,
    pub(crate) message_id: Uuid,
    pub(crate) handler: String,
    pub(crate) state: RowState,
    pub(crate) rollback_requested: bool,
    pub(crate) context: Context,
    #[serde(serialize_with = "crate::store::timestamps")]
    pub(crate) deadlines: Vec<OffsetDateTime>,
    pub(crate) reason: Option<&'static str>,
    /// Whether an operator has to decide about it, or about a run for which it waits.
    pub(crate) awaits_operator: bool,
}

impl RestoredRun {
    /// Makes a run that waits await an operator, if one below it does.
    fn held(mut self, awaits_operator: bool) -> Self {
        if self.state == RowState::Waiting && awaits_operator {
            (self.awaits_operator, self.reason) = (true, Some(WAITING_FOR_OPERATOR));
        }
        self
    }
}

/// The reason of a run that awaits an operator.
pub(crate) const AWAITING_OPERATOR: &str = "its rollback failed; retry, skip or resolve it";

/// The reason of a run that waits for one that awaits an operator.
pub(crate) const WAITING_FOR_OPERATOR: &str = "it waits for a run whose rollback failed; repair that run";

/// The reason of a run that awaits an operator again after a failed repair.
pub(crate) fn failed_again_reason(failure: &Failure) -> String {
    format!("its rollback failed again: {}", FailureSummary::of_rollback(failure)).replace('\0', "")
}

impl FailedRollback {
    fn id(&self) -> Uuid {
        self.lineage.id()
    }

    /// Whether an operator has to decide about this run, or about one for which it waits, when a run above it is back. If it is
    /// not in the working set, it is revived so.
    fn will_await_operator(&self) -> bool {
        match self.presence {
            Presence::Absent | Presence::AwaitsOperator => true,
            Presence::Waiting { awaits_operator } => awaits_operator,
            Presence::Busy => false,
        }
    }

    /// Whether it failed because of its children: it failed at the next handling of their failures.
    fn failed_with_children(&self) -> bool {
        self.handling.is_some() && self.handling == Some(self.suspended_handling.map_or(0, |count| count + 1))
    }

    fn part(&self) -> Result<&str, Refusal> {
        self.part.as_deref().ok_or(Refusal::Damaged(self.id(), Damage::Step))
    }

    fn context(&self) -> Result<&Context, Refusal> {
        self.context.as_ref().ok_or(Refusal::Damaged(self.id(), Damage::Context))
    }

    fn written(&self, kind: &'static str) -> Result<OperatorEvent, Refusal> {
        Ok(OperatorEvent {
            message_id: self.message,
            kind,
            handler: self.handler.clone(),
            part: self.part()?.to_owned(),
            lineage: self.lineage.ids().to_vec(),
            handling: self.handling,
            context: self.context()?.clone(),
        })
    }

    fn revived(&self, state: RowState, parent: Option<Uuid>) -> Result<RestoredRun, Refusal> {
        let awaits_operator = state == RowState::Stuck;
        let context = match awaits_operator {
            // Its repair reads the context again.
            true => self.context.clone().unwrap_or_default(),
            false => self.context()?.clone(),
        };
        Ok(RestoredRun {
            id: self.id(),
            parent,
            lineage: self.lineage.ids().to_vec(),
            message_id: self.message,
            handler: self.handler.clone(),
            state,
            rollback_requested: parent.is_none() || !self.compensates,
            deadlines: context.give_up_at(Direction::Backward),
            context,
            reason: awaits_operator.then_some(AWAITING_OPERATOR),
            awaits_operator,
        })
    }
}

impl FailedRollbacks {
    pub(crate) fn new(runs: impl IntoIterator<Item = FailedRollback>) -> Self {
        let runs: BTreeMap<_, _> = runs.into_iter().map(|run| (run.id(), run)).collect();
        let mut blockers: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, child) in &runs {
            if let Some(above) = parent_in(&runs, child).filter(|above| blocks(child, above)) {
                blockers.entry(above.id()).or_default().push(*id);
            }
        }
        Self { runs, blockers }
    }

    pub(crate) fn get(&self, run: Uuid) -> Option<&FailedRollback> {
        self.runs.get(&run)
    }

    pub(crate) fn ids(&self) -> Vec<Uuid> {
        self.runs.keys().copied().collect()
    }

    /// The failed rollbacks on which an operator has to decide before this run goes on. These are its own, or those of descendants
    /// that block it. None of these is blocked itself, or in repair. The nearest first, and on each level the oldest failure first.
    /// As `scoop.blocking_rollbacks`.
    #[cfg(any(test, feature = "in-memory"))]
    pub(crate) fn undecided(&self, run: Uuid) -> Vec<Uuid> {
        self.unblocked(run, |run| !self.is_busy(run))
    }

    /// The failed rollbacks in repair that have to end before this run goes on, or whose failure the parent has not recorded yet.
    /// None of these is blocked itself. In the same order.
    #[cfg(any(test, feature = "in-memory"))]
    pub(crate) fn in_repair(&self, run: Uuid) -> Vec<Uuid> {
        self.unblocked(run, |run| self.is_busy(run))
    }

    /// Whether runs above this one, which failed because of it, have not recorded that yet. Decisions about it are refused until then.
    #[cfg(any(test, feature = "in-memory"))]
    pub(crate) fn is_unrecorded_above(&self, run: Uuid) -> bool {
        let above = self.get(run).map_or_else(Vec::new, |run| self.blocked_ancestors(run));
        above.iter().any(|run| run.presence == Presence::Busy)
    }

    /// Those of the failed rollbacks at or below this run that block it, are not blocked themselves, and meet the condition.
    #[cfg(any(test, feature = "in-memory"))]
    fn unblocked(&self, run: Uuid, is_met: impl Fn(&FailedRollback) -> bool) -> Vec<Uuid> {
        let (mut found, mut level) = (vec![], Vec::from_iter(self.get(run)));
        while !level.is_empty() {
            level.sort_by_key(|run| (run.failed_at, run.id()));
            let met = level.iter().filter(|run| !self.is_blocked(run.id()) && is_met(run));
            found.extend(met.map(|run| run.id()));
            level = level.iter().flat_map(|run| self.blockers(run.id())).collect();
        }
        found
    }

    /// Decides on a repair.
    pub(crate) fn decide(
        &self,
        action: RepairAction,
        run: Uuid,
        others: OtherDescendants,
    ) -> Result<Decision, Refusal> {
        let target = self.get(run).ok_or(Refusal::NotFailed)?;
        let in_the_way = self.all_blockers(target);
        let above = self.blocked_ancestors(target);
        let busy_above = above.iter().any(|run| run.presence == Presence::Busy);
        if others == OtherDescendants::Unfinished || busy_above || self.is_busy(target) {
            return Err(Refusal::Busy);
        }
        let needs_decision = |run: &&FailedRollback| !self.is_blocked(run.id()) && !self.is_busy(run);
        if action == RepairAction::Retry && in_the_way.iter().any(needs_decision) {
            return Err(Refusal::FailedBelow);
        }
        if in_the_way.iter().any(|run| self.is_busy(run)) {
            return Err(Refusal::Busy);
        }
        let part = target.part()?.to_owned();
        let mut decision = Decision { part, ..Decision::default() };
        match action {
            RepairAction::Retry => {
                let failed_there = target.failed_with_children() && target.suspended_part == target.part;
                decision.repeats = failed_there || target.leaves_behind;
            }
            RepairAction::Skip => decision.events.push(target.written("SUSPENDED")?),
            RepairAction::Resolve => {
                let settled = in_the_way.iter().rev().chain([&target]);
                decision.events = settled.map(|run| run.written("ROLLED_BACK")).collect::<Result<_, _>>()?;
                decision.dropped.push(run);
            }
        }
        decision.dropped.extend(in_the_way.iter().map(|run| run.id()));
        self.revive_above(target, &above, &mut decision)?;
        let parent = above.first().map(|run| run.id());
        let waits = above.first().filter(|run| run.failed_with_children()).map(|run| run.id());
        match action {
            RepairAction::Resolve => decision.parent = parent,
            RepairAction::Retry | RepairAction::Skip => {
                decision.revived.push(target.revived(RowState::Ready, waits)?)
            }
        }
        Ok(decision)
    }

    /// Whether the run is executing, or may be at any moment: it waits, but not for a run that awaits an operator.
    fn is_busy(&self, run: &FailedRollback) -> bool {
        match run.presence {
            Presence::Absent | Presence::AwaitsOperator => false,
            Presence::Waiting { .. } => !self.is_blocked(run.id()),
            Presence::Busy => true,
        }
    }

    /// Revives the ancestors. They wait for the run, and for the other failed runs that block them. An ancestor that
    /// did not fail because of its children waits only for an operator, and is not notified when they end.
    fn revive_above(
        &self,
        target: &FailedRollback,
        above: &[&FailedRollback],
        decision: &mut Decision,
    ) -> Result<(), Refusal> {
        let mut below = target;
        let mut below_awaits_operator = false;
        for (at, run) in above.iter().enumerate() {
            let waits = above.get(at + 1).filter(|above| above.failed_with_children());
            let parent = waits.map(|above| above.id());
            let state = if run.failed_with_children() { RowState::Waiting } else { RowState::Stuck };
            let others = || self.blockers(run.id()).filter(|other| other.id() != below.id());
            let is_waiting = matches!(run.presence, Presence::Waiting { .. });
            let awaits_operator = (state == RowState::Stuck && !is_waiting)
                || below_awaits_operator
                || others().any(|other| other.will_await_operator());
            match run.presence {
                Presence::Absent => decision.revived.push(run.revived(state, parent)?.held(awaits_operator)),
                Presence::AwaitsOperator if state == RowState::Waiting => {
                    decision.revived.push(run.revived(state, parent)?.held(awaits_operator));
                }
                // A run that awaits an operator has set it already in the runs that wait for it.
                Presence::Waiting { .. } => decision.cleared.extend((!awaits_operator).then(|| run.id())),
                Presence::AwaitsOperator | Presence::Busy => {}
            }
            let waits = Some(run.id()).filter(|_| state == RowState::Waiting);
            for other in others().filter(|other| other.presence == Presence::Absent) {
                decision.revived.push(other.revived(RowState::Stuck, waits)?);
            }
            (below, below_awaits_operator) = (run, awaits_operator);
        }
        Ok(())
    }

    /// The ancestors that failed because of this run, the nearest first.
    fn blocked_ancestors(&self, run: &FailedRollback) -> Vec<&FailedRollback> {
        let mut above: Vec<&FailedRollback> = vec![];
        let mut below = run;
        while let Some(parent) = parent_in(&self.runs, below) {
            if !blocks(below, parent) {
                break;
            }
            above.push(parent);
            below = parent;
        }
        above
    }

    /// The children with a failed rollback that block this run: it was waiting for them.
    fn blockers(&self, run: Uuid) -> impl Iterator<Item = &FailedRollback> {
        self.blockers.get(&run).into_iter().flatten().filter_map(|child| self.get(*child))
    }

    fn is_blocked(&self, run: Uuid) -> bool {
        self.blockers.contains_key(&run)
    }

    /// The descendants with a failed rollback that block this run, parents before their children.
    fn all_blockers(&self, run: &FailedRollback) -> Vec<&FailedRollback> {
        let mut all: Vec<_> = self.blockers(run.id()).collect();
        let mut at = 0;
        while let Some(next) = all.get(at) {
            all.extend(self.blockers(next.id()));
            at += 1;
        }
        all
    }
}

/// The parent of a run, if its rollback failed, too. Its whole lineage has to fit: forged runs may name each other as parents.
fn parent_in<'a>(
    runs: &'a BTreeMap<Uuid, FailedRollback>,
    run: &FailedRollback,
) -> Option<&'a FailedRollback> {
    let lineage = run.lineage.parent()?;
    runs.get(&lineage.id()).filter(|parent| parent.lineage == lineage)
}

/// Whether the run was still waiting for this child when it failed. A failure that the run accepted before does not
/// block it.
fn blocks(child: &FailedRollback, run: &FailedRollback) -> bool {
    run.suspended_at.is_some_and(|suspended| child.failed_at > suspended)
}

#[cfg(test)]
mod tests;
