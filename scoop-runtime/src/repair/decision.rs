//! What follows from the decision of an operator on a run that could not be undone: a pure function of
//! what of its hierarchy could not be undone.
//!
//! A run that fails to be undone takes those above it along: each is told of the failure of the one
//! below, and fails because of it. So what is decided on one of them concerns those above it, which go
//! on as soon as nothing below is in their way; and what else is in their way comes into the working
//! set, too, to be waited for until an operator has seen to it.

use std::collections::BTreeMap;

use scoop_core::{Context, Lineage};
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

/// What an operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    Retry,
    Skip,
    Resolve,
}

impl Remedy {
    /// As it is stored.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::Resolve => "resolve",
        }
    }
}

/// Why nothing follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The run is none of those that could not be undone.
    NotFailed,
    /// Somebody has seen to it already, or is about to learn of it.
    Busy,
    /// It failed because of others, which come first.
    FailedBelow,
    /// It waits for a program that can continue it.
    Stuck,
}

/// How far a run is in the working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It has left it.
    Absent,
    /// It waits for an operator.
    Held,
    /// It waits for those below it.
    Waiting,
    /// Anything else.
    Busy,
}

/// A run that could not be undone.
#[derive(Clone, Debug)]
pub(crate) struct Unrolled {
    pub(crate) lineage: Lineage,
    pub(crate) message: Uuid,
    pub(crate) handler: String,
    pub(crate) failed_at: OffsetDateTime,
    /// The part of the rollback that failed, and how often its children's failures had been handled
    /// before, if they were the reason.
    pub(crate) part: String,
    pub(crate) handling: Option<u32>,
    pub(crate) presence: Presence,
    /// Its newest suspension.
    pub(crate) suspended_at: Option<OffsetDateTime>,
    /// The same, if that was on the way back.
    pub(crate) suspended_part: Option<String>,
    pub(crate) suspended_handling: Option<u32>,
    pub(crate) context: Context,
    /// Whether the run above launched its message while that was on its way back: whoever wants it
    /// undone has no use for its failure.
    pub(crate) compensates: bool,
}

/// All of a hierarchy that could not be undone.
pub(crate) struct Unrolleds(BTreeMap<Uuid, Unrolled>);

/// What is to be written.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// The part of the rollback that it is about.
    pub(crate) part: String,
    /// Whether that is to run again although it is suspended.
    pub(crate) repeats: bool,
    pub(crate) events: Vec<Written>,
    /// The runs that come into the working set, or change there.
    pub(crate) revived: Vec<Revived>,
    /// The runs that leave it.
    pub(crate) dropped: Vec<Uuid>,
    /// Who may wait for nobody any more.
    pub(crate) parent: Option<Uuid>,
}

/// An event that an operator is answerable for.
#[derive(Debug, Serialize)]
pub(crate) struct Written {
    pub(crate) message_id: Uuid,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) handler: String,
    pub(crate) part: String,
    pub(crate) lineage: Vec<Uuid>,
    pub(crate) handling: Option<u32>,
    pub(crate) context: Context,
}

/// A run in the working set.
#[derive(Debug, Serialize)]
pub(crate) struct Revived {
    pub(crate) id: Uuid,
    pub(crate) parent: Option<Uuid>,
    pub(crate) lineage: Vec<Uuid>,
    pub(crate) message_id: Uuid,
    pub(crate) handler: String,
    pub(crate) state: &'static str,
    pub(crate) told: bool,
    pub(crate) context: Context,
    #[serde(serialize_with = "crate::store::timestamps")]
    pub(crate) deadlines: Vec<OffsetDateTime>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) part: Option<String>,
    pub(crate) handling: Option<u32>,
}

/// Why a run is set aside that nobody has seen to.
pub(crate) const HELD: &str = "it could not be undone; retry, skip or resolve it";

impl Unrolled {
    fn id(&self) -> Uuid {
        self.lineage.id()
    }

    /// Whether it failed since runs below it had: what is next is their handling.
    fn failed_with_children(&self) -> bool {
        self.handling.is_some() && self.handling == Some(self.suspended_handling.map_or(0, |count| count + 1))
    }

    fn written(&self, kind: &'static str) -> Written {
        Written {
            message_id: self.message,
            kind,
            handler: self.handler.clone(),
            part: self.part.clone(),
            lineage: self.lineage.ids().to_vec(),
            handling: self.handling,
            context: self.context.clone(),
        }
    }

    fn revived(&self, state: &'static str, parent: Option<Uuid>) -> Revived {
        let held = state == "stuck";
        Revived {
            id: self.id(),
            parent,
            lineage: self.lineage.ids().to_vec(),
            message_id: self.message,
            handler: self.handler.clone(),
            state,
            told: parent.is_none() || !self.compensates,
            context: self.context.clone(),
            deadlines: self.context.give_up_at(true),
            reason: held.then_some(HELD),
            part: held.then(|| self.part.clone()),
            handling: self.handling.filter(|_| held),
        }
    }
}

impl Unrolleds {
    pub(crate) fn new(runs: impl IntoIterator<Item = Unrolled>) -> Self {
        Self(runs.into_iter().map(|run| (run.id(), run)).collect())
    }

    pub(crate) fn get(&self, run: Uuid) -> Option<&Unrolled> {
        self.0.get(&run)
    }

    pub(crate) fn ids(&self) -> Vec<Uuid> {
        self.0.keys().copied().collect()
    }

    /// What follows. `others` says whether there is anybody else in the working set below the run.
    pub(crate) fn decide(&self, remedy: Remedy, run: Uuid, others: bool) -> Result<Decision, Refusal> {
        let target = self.get(run).ok_or(Refusal::NotFailed)?;
        let in_the_way = self.all_in_the_way_of(target);
        let above = self.above(target);
        let mut at_or_below = in_the_way.iter().chain([&target]);
        let busy_above = above.iter().any(|run| run.presence == Presence::Busy);
        if others || busy_above || at_or_below.any(|run| self.is_busy(run)) {
            return Err(Refusal::Busy);
        }
        let mut decision = Decision { part: target.part.clone(), ..Decision::default() };
        match remedy {
            Remedy::Retry if !in_the_way.is_empty() => return Err(Refusal::FailedBelow),
            Remedy::Retry => {
                decision.repeats =
                    target.failed_with_children() && target.suspended_part.as_ref() == Some(&target.part);
            }
            Remedy::Skip => decision.events.push(target.written("SUSPENDED")),
            Remedy::Resolve => {
                let settled = in_the_way.iter().rev().chain([&target]);
                decision.events.extend(settled.map(|run| run.written("ROLLED_BACK")));
                decision.dropped.push(run);
            }
        }
        decision.dropped.extend(in_the_way.iter().map(|run| run.id()));
        self.revive_above(target, &above, &mut decision.revived);
        let parent = above.first().map(|run| run.id());
        match remedy {
            Remedy::Resolve => decision.parent = parent,
            Remedy::Retry | Remedy::Skip => decision.revived.push(target.revived("ready", parent)),
        }
        Ok(decision)
    }

    /// Whether the run is at work, or may be at any moment: it waits, but for nothing that is held.
    fn is_busy(&self, run: &Unrolled) -> bool {
        match run.presence {
            Presence::Absent | Presence::Held => false,
            Presence::Waiting => self.in_the_way_of(run).is_empty(),
            Presence::Busy => true,
        }
    }

    /// Those above have to wait for the run, and for what else is in their way.
    fn revive_above(&self, target: &Unrolled, above: &[&Unrolled], revived: &mut Vec<Revived>) {
        let mut below = target;
        for (at, run) in above.iter().enumerate() {
            let parent = above.get(at + 1).map(|above| above.id());
            let state = if run.failed_with_children() { "waiting" } else { "stuck" };
            match run.presence {
                Presence::Absent => revived.push(run.revived(state, parent)),
                Presence::Held if state == "waiting" => revived.push(run.revived(state, parent)),
                _ => {}
            }
            let absent = |other: &&&Unrolled| other.presence == Presence::Absent && other.id() != below.id();
            let others = self.in_the_way_of(run);
            revived.extend(others.iter().filter(absent).map(|other| other.revived("stuck", Some(run.id()))));
            below = run;
        }
    }

    /// The runs above that failed because of this one, the nearest first.
    fn above(&self, run: &Unrolled) -> Vec<&Unrolled> {
        let mut above: Vec<&Unrolled> = vec![];
        let mut below = run;
        while let Some(parent) = below.lineage.parent().and_then(|parent| self.get(parent.id())) {
            if !is_in_the_way(below, parent) {
                break;
            }
            above.push(parent);
            below = parent;
        }
        above
    }

    /// The runs that this one waited for, and that could not be undone.
    fn in_the_way_of(&self, run: &Unrolled) -> Vec<&Unrolled> {
        let children = self.0.values().filter(|child| {
            child.lineage.parent().is_some_and(|parent| parent.id() == run.id()) && is_in_the_way(child, run)
        });
        children.collect()
    }

    /// The same, and those in their way, each before those below it.
    fn all_in_the_way_of(&self, run: &Unrolled) -> Vec<&Unrolled> {
        let mut all = self.in_the_way_of(run);
        let mut at = 0;
        while let Some(next) = all.get(at) {
            all.extend(self.in_the_way_of(next));
            at += 1;
        }
        all
    }
}

/// Whether the run was still waiting for this child when that failed. What it had accepted before is
/// in nobody's way.
fn is_in_the_way(child: &Unrolled, run: &Unrolled) -> bool {
    run.suspended_at.is_some_and(|suspended| child.failed_at > suspended)
}
