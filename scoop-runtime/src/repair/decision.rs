//! The consequences of an operator's decision on a failed run: a pure function of the rows that it concerns.
//!
//! A failed rollback makes the rollbacks of the ancestors fail: each parent gets the failure of its child, and fails
//! because of it, unless it accepts that. All of them rest as failed. So a decision on one run also has those above it wait
//! again which failed because of it. They go on as after any other end of a child: if another child is still failed, they fail
//! again because of that one.

use std::collections::BTreeMap;

use scoop_core::{Context, Direction, Lineage};
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::run::RowState;

/// The kind of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairAction {
    /// The part that failed runs again.
    Retry,
    /// The rollback goes on after it.
    Skip,
    /// The run counts as rolled back.
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
    /// The row names no step.
    Step,
    /// The context cannot be decoded.
    Context,
}

impl Damage {
    /// The damage in words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Step => "its row names no step",
            Self::Context => "its context cannot be decoded",
        }
    }
}

/// A run that a decision may concern: the run itself, one above it, or one below it for which it waits.
#[derive(Clone, Debug)]
pub(crate) struct ConcernedRun {
    pub(crate) lineage: Lineage,
    /// The run that waits for it.
    pub(crate) parent: Option<Uuid>,
    pub(crate) message: Uuid,
    pub(crate) handler: String,
    pub(crate) state: RowState,
    pub(crate) rolling_back: bool,
    /// Whether its rollback has failed, now or before a repair.
    pub(crate) has_failed: bool,
    /// The part of its rollback that failed; none if the row is damaged.
    pub(crate) part: Option<String>,
    /// The number of earlier calls of the child failure handler, if the failures of children were the reason.
    pub(crate) handling: Option<u32>,
    /// Its context; none if the row is damaged.
    pub(crate) context: Option<Context>,
    /// Whether the run above launched its message during its rollback. Otherwise that run knows of the failure that led to this
    /// rollback, and ignores that it was rolled back.
    pub(crate) compensates: bool,
    /// Whether the part that failed is done, so that it was not the part itself that failed, but its children.
    pub(crate) is_part_complete: bool,
    /// Whether it gave up while runs that this part launched, or whose rollback it requested, had not begun.
    pub(crate) leaves_behind: bool,
}

/// A failed run, with the runs that a decision about it concerns.
pub(crate) struct FailedRun {
    run: ConcernedRun,
    others: BTreeMap<Uuid, ConcernedRun>,
}

/// The changes to be written.
#[derive(Debug)]
pub(crate) struct Decision {
    /// The part of the rollback that the decision concerns.
    pub(crate) part: String,
    /// Whether that part is to be repeated although it is suspended.
    pub(crate) repeats: bool,
    pub(crate) events: Vec<OperatorEvent>,
    /// The failed runs that go on: the run itself, and those above it that wait for it.
    pub(crate) repaired: Vec<RepairedRun>,
    /// The run above that waits already, if there is one: a wake-up of it that is under way does not count.
    pub(crate) waits_above: Option<Uuid>,
    /// The run whose failed children are accepted.
    pub(crate) accepts_below: Option<Uuid>,
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

/// A failed run that goes on.
#[derive(Debug, Serialize)]
pub(crate) struct RepairedRun {
    pub(crate) id: Uuid,
    #[serde(skip)]
    pub(crate) handler: String,
    pub(crate) state: RowState,
    pub(crate) rollback_requested: bool,
    #[serde(serialize_with = "crate::store::timestamps")]
    pub(crate) deadlines: Vec<OffsetDateTime>,
}

impl ConcernedRun {
    fn id(&self) -> Uuid {
        self.lineage.id()
    }

    /// Whether it failed because of its children, and goes on when these do.
    fn failed_with_children(&self) -> bool {
        self.state == RowState::Failed && self.handling.is_some()
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
}

impl FailedRun {
    /// The run of this id among the concerned ones.
    ///
    /// # Errors
    ///
    /// It is not failed.
    pub(crate) fn find(
        run: Uuid,
        concerned: impl IntoIterator<Item = ConcernedRun>,
    ) -> Result<Self, Refusal> {
        let mut others: BTreeMap<_, _> = concerned.into_iter().map(|run| (run.id(), run)).collect();
        let run = others.remove(&run).ok_or(Refusal::NotFailed)?;
        match run.state {
            RowState::Failed => Ok(Self { run, others }),
            RowState::Stuck => Err(Refusal::Stuck),
            _ if run.has_failed => Err(Refusal::Busy),
            _ => Err(Refusal::NotFailed),
        }
    }

    /// Its saga.
    pub(crate) fn handler(&self) -> &str {
        &self.run.handler
    }

    /// Decides on a repair.
    ///
    /// # Errors
    ///
    /// The repair is refused, or the row of a run is damaged.
    pub(crate) fn decide(&self, action: RepairAction) -> Result<Decision, Refusal> {
        let (below, (above, waits_above)) = (self.below(), self.above()?);
        if below.iter().any(|run| !run.state.has_ended()) {
            return Err(Refusal::Busy);
        }
        if action == RepairAction::Retry && below.iter().any(|run| run.state == RowState::Failed) {
            return Err(Refusal::FailedBelow);
        }
        let waiting = above.iter().map(|run| self.repaired(run, RowState::Waiting));
        let mut decision = Decision {
            part: self.run.part()?.to_owned(),
            repeats: false,
            events: vec![],
            repaired: waiting.collect::<Result<_, _>>()?,
            waits_above,
            accepts_below: None,
            parent: None,
        };
        match action {
            RepairAction::Retry => {
                let failed_there = self.run.handling.is_some() && self.run.is_part_complete;
                decision.repeats = failed_there || self.run.leaves_behind;
                decision.repaired.push(self.repaired(&self.run, RowState::Ready)?);
            }
            RepairAction::Skip => {
                decision.events.push(self.run.written("SUSPENDED")?);
                decision.accepts_below = Some(self.run.id());
                decision.repaired.push(self.repaired(&self.run, RowState::Ready)?);
            }
            RepairAction::Resolve => {
                let failed = below.iter().rev().filter(|run| run.state == RowState::Failed);
                let settled = failed.copied().chain([&self.run]);
                decision.events = settled.map(|run| run.written("ROLLED_BACK")).collect::<Result<_, _>>()?;
                decision.parent = self.run.parent;
            }
        }
        Ok(decision)
    }

    /// The runs above that failed because of this one, the nearest first: they wait for it again. And the one above these that waits
    /// already, if there is one.
    ///
    /// # Errors
    ///
    /// A run above has not recorded the failure yet.
    fn above(&self) -> Result<(Vec<&ConcernedRun>, Option<Uuid>), Refusal> {
        let mut above = vec![];
        let mut below = &self.run;
        while let Some(parent) = self.parent_of(below) {
            match parent.state {
                RowState::Failed if parent.failed_with_children() => above.push(parent),
                // It failed by itself, and only an operator has it go on.
                RowState::Failed => break,
                RowState::Waiting if parent.rolling_back => return Ok((above, Some(parent.id()))),
                _ => return Err(Refusal::Busy),
            }
            below = parent;
        }
        Ok((above, None))
    }

    /// The run that waits for this one. The whole lineage has to fit: forged runs may name each other as parents.
    fn parent_of(&self, run: &ConcernedRun) -> Option<&ConcernedRun> {
        let parent = self.others.get(&run.parent?)?;
        (run.lineage.parent().as_ref() == Some(&parent.lineage)).then_some(parent)
    }

    fn repaired(&self, run: &ConcernedRun, state: RowState) -> Result<RepairedRun, Refusal> {
        let waits =
            |parent: &ConcernedRun| parent.state == RowState::Waiting || parent.failed_with_children();
        let is_awaited = self.parent_of(run).is_some_and(waits);
        Ok(RepairedRun {
            id: run.id(),
            handler: run.handler.clone(),
            state,
            rollback_requested: !(is_awaited && run.compensates),
            deadlines: run.context()?.give_up_at(Direction::Backward),
        })
    }

    /// The runs below for which it waits, parents before their children.
    fn below(&self) -> Vec<&ConcernedRun> {
        let mut children: BTreeMap<_, Vec<&ConcernedRun>> = BTreeMap::new();
        for run in self.others.values().filter(|run| run.lineage.ids().starts_with(self.run.lineage.ids())) {
            if let Some(parent) = run.parent {
                children.entry(parent).or_default().push(run);
            }
        }
        let mut below = children.remove(&self.run.id()).unwrap_or_default();
        let mut at = 0;
        while let Some(run) = below.get(at) {
            let next = children.remove(&run.id()).unwrap_or_default();
            below.extend(next);
            at += 1;
        }
        below
    }
}

#[cfg(test)]
mod tests;
