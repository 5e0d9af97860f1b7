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
    /// It waits for its children.
    Waiting,
    /// Any other state.
    Busy,
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
}

/// The reason of a run that awaits an operator.
pub(crate) const AWAITING_OPERATOR: &str = "its rollback failed; retry, skip or resolve it";

/// The reason of a run that awaits an operator again after a failed repair.
pub(crate) fn failed_again_reason(failure: &Failure) -> String {
    format!("its rollback failed again: {}", FailureSummary::of(failure)).replace('\0', "")
}

impl FailedRollback {
    fn id(&self) -> Uuid {
        self.lineage.id()
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
        let mut at_or_below = in_the_way.iter().chain([&target]);
        let busy_above = above.iter().any(|run| run.presence == Presence::Busy);
        if others == OtherDescendants::Unfinished || busy_above || at_or_below.any(|run| self.is_busy(run)) {
            return Err(Refusal::Busy);
        }
        let part = target.part()?.to_owned();
        let mut decision = Decision { part, ..Decision::default() };
        match action {
            RepairAction::Retry if !in_the_way.is_empty() => return Err(Refusal::FailedBelow),
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
        self.revive_above(target, &above, &mut decision.revived)?;
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
            Presence::Waiting => !self.is_blocked(run.id()),
            Presence::Busy => true,
        }
    }

    /// Revives the ancestors. They wait for the run, and for the other failed runs that block them. An ancestor that
    /// did not fail because of its children waits only for an operator, and is not notified when they end.
    fn revive_above(
        &self,
        target: &FailedRollback,
        above: &[&FailedRollback],
        revived: &mut Vec<RestoredRun>,
    ) -> Result<(), Refusal> {
        let mut below = target;
        for (at, run) in above.iter().enumerate() {
            let waits = above.get(at + 1).filter(|above| above.failed_with_children());
            let parent = waits.map(|above| above.id());
            let state = if run.failed_with_children() { RowState::Waiting } else { RowState::Stuck };
            match run.presence {
                Presence::Absent => revived.push(run.revived(state, parent)?),
                Presence::AwaitsOperator if state == RowState::Waiting => {
                    revived.push(run.revived(state, parent)?);
                }
                _ => {}
            }
            let absent =
                |other: &&FailedRollback| other.presence == Presence::Absent && other.id() != below.id();
            let others = self.blockers(run.id());
            let waits = Some(run.id()).filter(|_| state == RowState::Waiting);
            for other in others.filter(absent) {
                revived.push(other.revived(RowState::Stuck, waits)?);
            }
            below = run;
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
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    /// A run at this place of the hierarchy 1 that failed at this second, not because of its children.
    fn failed(place: &[u128], second: i64) -> FailedRollback {
        let ids = [1].iter().chain(place).copied().map(Uuid::from_u128).collect();
        FailedRollback {
            lineage: Lineage::from_ids(ids).unwrap(),
            message: Uuid::from_u128(100 + place[place.len() - 1]),
            handler: format!("h{}", place[place.len() - 1]),
            failed_at: at(second),
            part: Some("Rollback of a[0,]".into()),
            handling: None,
            presence: Presence::Absent,
            suspended_at: Some(at(0)),
            suspended_part: None,
            suspended_handling: None,
            leaves_behind: false,
            context: Some(Context::default()),
            compensates: false,
        }
    }

    /// A run as in [`failed`], but because of its children.
    fn failed_with_children(place: &[u128], second: i64) -> FailedRollback {
        FailedRollback { handling: Some(0), ..failed(place, second) }
    }

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(second)
    }

    fn id(run: u128) -> Uuid {
        Uuid::from_u128(run)
    }

    /// Run 2 failed because of 3 and 4; run 3 failed because of 5.
    fn family() -> [FailedRollback; 4] {
        [
            failed_with_children(&[2], 9),
            failed_with_children(&[2, 3], 8),
            failed(&[2, 4], 7),
            failed(&[2, 3, 5], 6),
        ]
    }

    fn decide(
        runs: impl IntoIterator<Item = FailedRollback>,
        action: RepairAction,
        run: u128,
    ) -> Result<Decision, Refusal> {
        FailedRollbacks::new(runs).decide(action, id(run), OtherDescendants::None)
    }

    /// The runs that are added to the working set, with their states and the runs that wait for them.
    fn revived(decision: &Decision) -> Vec<(u128, RowState, Option<u128>)> {
        let revived = decision.revived.iter();
        revived.map(|run| (run.id.as_u128(), run.state, run.parent.map(|above| above.as_u128()))).collect()
    }

    fn dropped(decision: &Decision) -> Vec<u128> {
        let mut dropped: Vec<_> = decision.dropped.iter().map(Uuid::as_u128).collect();
        dropped.sort_unstable();
        dropped
    }

    fn events(decision: &Decision) -> Vec<(&str, &str)> {
        decision.events.iter().map(|event| (event.kind, &*event.handler)).collect()
    }

    #[test]
    fn retry_of_a_failure_without_ancestors_revives_only_the_run() {
        let decision = decide([failed(&[2], 5)], RepairAction::Retry, 2).unwrap();
        assert_eq!(revived(&decision), [(2, RowState::Ready, None)]);
        assert_eq!((decision.part.as_str(), decision.repeats), ("Rollback of a[0,]", false));
        assert!(decision.events.is_empty() && decision.dropped.is_empty() && decision.parent.is_none());
        let [run] = &*decision.revived else { panic!() };
        assert!(run.rollback_requested && run.reason.is_none());
        assert_eq!(decide([failed(&[2], 5)], RepairAction::Retry, 3).unwrap_err(), Refusal::NotFailed);
    }

    #[test]
    fn retry_revives_the_ancestors_and_the_other_runs_that_block_them() {
        let decision = decide(family(), RepairAction::Retry, 5).unwrap();
        let expected = [
            (3, RowState::Waiting, Some(2)),
            (2, RowState::Waiting, None),
            (4, RowState::Stuck, Some(2)),
            (5, RowState::Ready, Some(3)),
        ];
        assert_eq!(revived(&decision), expected);
        let held = decision.revived.iter().find(|run| run.state == RowState::Stuck).unwrap();
        assert_eq!(held.reason, Some(AWAITING_OPERATOR));
        assert!(dropped(&decision).is_empty() && decision.parent.is_none());
    }

    #[test]
    fn run_that_failed_because_of_children_can_be_skipped_and_resolved_but_not_retried() {
        assert_eq!(decide(family(), RepairAction::Retry, 2).unwrap_err(), Refusal::FailedBelow);
        let skipped = decide(family(), RepairAction::Skip, 3).unwrap();
        assert_eq!(events(&skipped), [("SUSPENDED", "h3")]);
        assert_eq!(dropped(&skipped), [5]);
        let expected =
            [(2, RowState::Waiting, None), (4, RowState::Stuck, Some(2)), (3, RowState::Ready, Some(2))];
        assert_eq!(revived(&skipped), expected);

        let resolved = decide(family(), RepairAction::Resolve, 2).unwrap();
        let rolled_back: Vec<_> = events(&resolved);
        assert_eq!(rolled_back.last(), Some(&("ROLLED_BACK", "h2")));
        let place =
            |handler| rolled_back.iter().position(|event| *event == ("ROLLED_BACK", handler)).unwrap();
        assert!(place("h5") < place("h3") && place("h4") < place("h2") && rolled_back.len() == 4);
        assert_eq!(dropped(&resolved), [2, 3, 4, 5]);
        assert!(resolved.revived.is_empty() && resolved.parent.is_none());
        let below = decide(family(), RepairAction::Resolve, 3).unwrap();
        assert_eq!((below.parent, revived(&below)[0]), (Some(id(2)), (2, RowState::Waiting, None)));
    }

    #[test]
    fn decision_on_a_run_with_many_failed_children_looks_at_each_child_once() {
        const CHILDREN: u128 = 20_000;
        let children = (3..3 + CHILDREN).map(|child| failed(&[2, child], 5));
        let failed = FailedRollbacks::new(children.chain([failed_with_children(&[2], 9)]));
        let begin = Instant::now();
        let below = failed.undecided(id(2));
        assert!(below.iter().copied().eq((3..3 + CHILDREN).map(id)), "in the order of their ids");
        let decide = |action, run| failed.decide(action, id(run), OtherDescendants::None).unwrap();
        let resolved = decide(RepairAction::Resolve, 2);
        assert_eq!((resolved.events.len(), resolved.dropped.len()), (20_001, 20_001));
        assert_eq!(decide(RepairAction::Skip, 2).dropped.len(), 20_000);
        let retried = decide(RepairAction::Retry, 3);
        assert_eq!(retried.revived.len(), 20_001, "the run, the parent and the other children");
        // With a look at all of them for each, it takes minutes.
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }

    #[test]
    fn runs_that_name_each_other_as_parents_block_neither() {
        let [one, other] = [&[2, 3][..], &[3, 2][..]].map(|path| failed_with_children(path, 5));
        let failed = FailedRollbacks::new([one, other]);
        for run in [2, 3] {
            assert_eq!(failed.undecided(id(run)), [id(run)]);
            let decided = failed.decide(RepairAction::Retry, id(run), OtherDescendants::None);
            assert_eq!(decided.unwrap().revived.len(), 1, "only the run itself");
        }
    }

    #[test]
    fn run_that_failed_again_is_undecided_for_all_runs_above_and_one_in_repair_for_none() {
        let failed = |five: Presence, four: Presence| {
            let mut runs = family();
            (runs[0].presence, runs[1].presence) = (Presence::Waiting, Presence::Waiting);
            (runs[2].presence, runs[3].presence) = (four, five);
            FailedRollbacks::new(runs)
        };
        let numbers = |runs: Vec<Uuid>| runs.iter().map(Uuid::as_u128).collect::<Vec<_>>();
        let undecided = |five, four| {
            let failed = failed(five, four);
            [2, 3, 4, 5].map(|run| numbers(failed.undecided(id(run))))
        };
        let in_repair = |five, four| {
            let failed = failed(five, four);
            [2, 3, 4, 5].map(|run| numbers(failed.in_repair(id(run))))
        };
        let (held, busy, gone) = (Presence::AwaitsOperator, Presence::Busy, Presence::Absent);
        assert_eq!(in_repair(held, gone), [vec![], vec![], vec![], vec![]]);
        assert_eq!(in_repair(busy, held), [vec![5], vec![5], vec![], vec![5]]);
        assert_eq!(in_repair(busy, busy), [vec![4, 5], vec![5], vec![4], vec![5]]);
        assert_eq!(undecided(held, gone), [vec![4, 5], vec![5], vec![4], vec![5]]);
        assert_eq!(undecided(busy, held), [vec![4], vec![], vec![4], vec![]]);
        assert_eq!(undecided(busy, busy), [vec![], vec![], vec![], vec![]]);
    }

    #[test]
    fn undecided_runs_come_the_nearest_first_and_on_each_level_the_oldest_failure_first() {
        let failed = FailedRollbacks::new([
            failed_with_children(&[2], 20),
            failed_with_children(&[2, 3], 10),
            failed_with_children(&[2, 4], 11),
            failed(&[2, 3, 5], 8),
            failed(&[2, 3, 6], 6),
            failed(&[2, 4, 7], 7),
            failed(&[2, 8], 12),
        ]);
        assert_eq!(failed.undecided(id(2)), [8, 6, 7, 5].map(id));
    }

    #[test]
    fn accepted_failure_blocks_no_ancestor() {
        let mut runs = family();
        runs[0].suspended_at = Some(at(7));
        let decision = decide(runs.clone(), RepairAction::Retry, 5).unwrap();
        assert_eq!(
            revived(&decision),
            [(3, RowState::Waiting, Some(2)), (2, RowState::Waiting, None), (5, RowState::Ready, Some(3))]
        );
        assert_eq!(
            revived(&decide(runs.clone(), RepairAction::Retry, 4).unwrap()),
            [(4, RowState::Ready, None)]
        );
        runs[0].suspended_at = None;
        assert_eq!(revived(&decide(runs, RepairAction::Retry, 4).unwrap()), [(4, RowState::Ready, None)]);
    }

    #[test]
    fn busy_run_or_relative_refuses_the_repair() {
        let with = |at: usize, presence| {
            let mut runs = family();
            runs[at].presence = presence;
            move |action, run| decide(runs.clone(), action, run).map(|_| ())
        };
        for at in [0, 1, 3] {
            assert_eq!(with(at, Presence::Busy)(RepairAction::Retry, 5), Err(Refusal::Busy), "run {at}");
        }
        assert_eq!(with(2, Presence::Busy)(RepairAction::Retry, 5), Ok(()), "run 4 is a sibling of run 3");
        assert_eq!(with(3, Presence::Busy)(RepairAction::Resolve, 2), Err(Refusal::Busy));
        assert_eq!(
            with(3, Presence::Waiting)(RepairAction::Retry, 5),
            Err(Refusal::Busy),
            "run 5 waits for a run that does not await an operator"
        );
        assert_eq!(with(1, Presence::Waiting)(RepairAction::Skip, 3), Ok(()));
        assert_eq!(with(3, Presence::AwaitsOperator)(RepairAction::Retry, 5), Ok(()));
        let others =
            FailedRollbacks::new(family()).decide(RepairAction::Retry, id(5), OtherDescendants::Unfinished);
        assert_eq!(others.map(|_| ()), Err(Refusal::Busy));
    }

    #[test]
    fn damaged_record_refuses_the_repairs_that_need_it_and_no_other() {
        let damaged = |at: usize, damage| {
            let mut runs = family();
            match damage {
                Damage::Step => runs[at].part = None,
                Damage::Context => runs[at].context = None,
            }
            move |action, run| decide(runs.clone(), action, run).map(|_| ())
        };
        let all = [RepairAction::Retry, RepairAction::Skip, RepairAction::Resolve];
        for damage in [Damage::Step, Damage::Context] {
            let (own, refused) = (damaged(3, damage), Err(Refusal::Damaged(id(5), damage)));
            for action in all {
                assert_eq!(own(action, 5), refused, "{action:?}");
                assert_eq!(own(action, 4), Ok(()), "{action:?} of a run of another branch");
            }
            assert_eq!(own(RepairAction::Skip, 3), Ok(()), "run 5 is left as it is");
            assert_eq!(own(RepairAction::Resolve, 3), refused, "run 5 is resolved, too");
            assert_eq!(damaged(2, damage)(RepairAction::Retry, 5), Ok(()), "run 4 awaits an operator");
        }
        let above = |damage| damaged(1, damage)(RepairAction::Retry, 5);
        assert_eq!(above(Damage::Step), Ok(()));
        assert_eq!(above(Damage::Context), Err(Refusal::Damaged(id(3), Damage::Context)), "run 3 goes on");
    }

    #[test]
    fn run_in_the_working_set_stays_unless_it_awaits_an_operator() {
        let mut runs = family();
        (runs[0].presence, runs[1].presence, runs[2].presence) =
            (Presence::Waiting, Presence::AwaitsOperator, Presence::AwaitsOperator);
        let decision = decide(runs.clone(), RepairAction::Retry, 5).unwrap();
        assert_eq!(revived(&decision), [(3, RowState::Waiting, Some(2)), (5, RowState::Ready, Some(3))]);
        // Run 3 did not fail because of its children, so it awaits an operator itself.
        runs[1].handling = None;
        // It waits for no child, so run 5 gets no parent: an end passed to run 3 would never be consumed.
        assert_eq!(
            revived(&decide(runs.clone(), RepairAction::Retry, 5).unwrap()),
            [(5, RowState::Ready, None)]
        );
        runs[1].presence = Presence::Absent;
        let decision = decide(runs, RepairAction::Retry, 5).unwrap();
        assert_eq!(revived(&decision), [(3, RowState::Stuck, Some(2)), (5, RowState::Ready, None)]);
    }

    #[test]
    fn part_that_stopped_waiting_for_children_runs_again() {
        let run = |leaves_behind, action| {
            let run = FailedRollback {
                leaves_behind,
                suspended_part: Some("Rollback of b[0,]".into()),
                ..failed(&[2], 5)
            };
            decide([run], action, 2).unwrap().repeats
        };
        assert!(run(true, RepairAction::Retry) && !run(false, RepairAction::Retry));
        assert!(!run(true, RepairAction::Skip), "a skip leaves the children unchanged");
    }

    #[test]
    fn reason_of_a_repeated_failure_is_its_main_cause_without_nul() {
        let failure = Failure { kind: "Err\0or".into(), ..Failure::new("", "no\nmore", "s[worker]") };
        let above = Failure::new("ChildRollbackFailedException", "", "s").caused_by([failure]);
        let reason = failed_again_reason(&above);
        assert!(
            reason.starts_with("its rollback failed again: Err") && reason.ends_with("or: no"),
            "{reason}"
        );
        assert!(!reason.contains('\0'), "the database accepts it");
    }

    #[test]
    fn suspended_part_runs_again_if_it_failed_because_of_its_children() {
        let run = |handling, suspended: (&str, Option<u32>)| {
            let mut run = failed(&[2], 5);
            (run.handling, run.suspended_part) = (handling, Some(suspended.0.into()));
            run.suspended_handling = suspended.1;
            decide([run], RepairAction::Retry, 2).unwrap().repeats
        };
        assert!(run(Some(0), ("Rollback of a[0,]", None)));
        assert!(run(Some(2), ("Rollback of a[0,]", Some(1))));
        assert!(!run(Some(1), ("Rollback of a[0,]", Some(1))), "the handling itself is retried");
        assert!(!run(None, ("Rollback of a[0,]", None)));
        assert!(!run(Some(0), ("Rollback of b[0,]", None)));
    }

    #[test]
    fn child_of_a_compensation_counts_as_requested_only_without_a_waiting_parent() {
        let mut runs = family();
        runs[3].compensates = true;
        let rollback_requested = |decision: Decision| decision.revived.last().unwrap().rollback_requested;
        assert!(!rollback_requested(decide(runs.clone(), RepairAction::Retry, 5).unwrap()));
        runs[1].suspended_at = Some(at(6));
        assert!(
            rollback_requested(decide(runs, RepairAction::Retry, 5).unwrap()),
            "no run waits for it any more"
        );
    }

    #[test]
    fn written_event_names_the_run_and_its_part() {
        let mut run = failed_with_children(&[2], 5);
        run.context = serde_json::from_value(json!({
            "Note": 7, "RollbackPathDeadlineKey": { "deadline": "2026-01-01T00:00:00Z", "source": "a" },
        }))
        .map(Some)
        .unwrap();
        let skipped = decide([run], RepairAction::Skip, 2).unwrap();
        let event = serde_json::to_value(&skipped.events[0]).unwrap();
        let lineage = json!([id(1), id(2)]);
        let expected = json!({
            "message_id": id(102), "type": "SUSPENDED", "handler": "h2", "part": "Rollback of a[0,]",
            "lineage": lineage, "handling": 0, "context": event["context"],
        });
        assert_eq!((&event, &event["context"]["Note"]), (&expected, &json!(7)));
        let run = serde_json::to_value(&skipped.revived[0]).unwrap();
        assert_eq!(run["deadlines"], json!(["2026-01-01T00:00:00Z"]));
        assert_eq!((&run["lineage"], &run["message_id"]), (&lineage, &json!(id(102))));
    }

    #[test]
    fn remedies_have_their_stored_names() {
        let names =
            [RepairAction::Retry, RepairAction::Skip, RepairAction::Resolve].map(RepairAction::as_str);
        assert_eq!(names, ["retry", "skip", "resolve"]);
        let mut ids = FailedRollbacks::new(family()).ids();
        ids.sort_unstable();
        assert_eq!(ids, [2, 3, 4, 5].map(id));
    }
}
