//! Whether a history keeps the invariants: a reference model that recomputes everything from the log.
//!
//! It is written independently of the rest of this crate, and as naively as possible: it knows nothing
//! but events, in their order, and asks of each whether it may stand there. So it finds the mistakes of
//! whoever wrote the log, whatever code that was. Simulations and tests that break things use it.
//!
//! It knows what may look wrong and is not: failures that a handler accepted, rollbacks that failed for a
//! reason on record, runs that give up, deliveries that end with their emitter, operators' repairs.

mod backward;
mod effects;
mod failures;
mod history;
mod log;
mod order;
mod times;
mod waiting;

use std::fmt;

use uuid::Uuid;

pub use self::log::{AtRest, Effect, Listing, Log, LoggedEvent, LoggedMessage, Part, Place, Redelivery};
use crate::{Definition, Escaped};

/// What must hold of every history. [`Invariant::id`] is how documents cite it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// I1: no step starts before every handler of every message of the previous step, as listed at the
    /// emission, has ended; and nobody else is delivered to.
    Waits,
    /// I2: a child's lineage is its parent's and one more id.
    Lineage,
    /// I3: one SEEN, one COMMITTED, one rollback result for each handler and message, and every run's
    /// events in an order that makes sense.
    Once,
    /// I4: compensations in exactly the reverse order of what was executed, children first.
    Reverse,
    /// I5: each compensation takes effect once.
    CompensatedOnce,
    /// I6: what a step did in its transaction exists exactly if its outcome is on record.
    Atomic,
    /// I7: what is ready is executed.
    Progress,
    /// I8: the failures of all children reach the parent.
    Failures,
    /// I9: at rest a hierarchy is committed, rolled back, or has its ROLLBACK_FAILED on record.
    Whole,
    /// I10: of one step in one iteration, the effects of one execution at most are committed.
    ExecutedOnce,
    /// I11: the working set is what a rebuild from the record gives. To be checked by whoever has both.
    Rebuilt,
    /// T1: times rise strictly within a run, and from a run to its children and back.
    Time,
    /// T2: nobody begins before the time that its message names.
    NotBefore,
    /// T3: who was asked to give up, or missed a deadline, does so at its next step.
    GivesUp,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// In which hierarchy: the first id of its lineages.
    pub hierarchy: Uuid,
    /// What is wrong.
    pub what: String,
}

impl Invariant {
    /// As documents cite it: `I1` and so on.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Waits => "I1",
            Self::Lineage => "I2",
            Self::Once => "I3",
            Self::Reverse => "I4",
            Self::CompensatedOnce => "I5",
            Self::Atomic => "I6",
            Self::Progress => "I7",
            Self::Failures => "I8",
            Self::Whole => "I9",
            Self::ExecutedOnce => "I10",
            Self::Rebuilt => "I11",
            Self::Time => "T1",
            Self::NotBefore => "T2",
            Self::GivesUp => "T3",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in hierarchy {}: {}", self.invariant.id(), self.hierarchy, Escaped(&self.what))
    }
}

/// All that is wrong with the history. `definitions` are those of the sagas in it, in all versions that
/// wrote it; of a saga that is not among them only what follows from its events is checked.
pub fn audit(log: &Log, definitions: &[Definition], at_rest: AtRest) -> Vec<Violation> {
    let mut findings = vec![];
    for hierarchy in history::hierarchies(log, definitions, at_rest) {
        order::check(&hierarchy, &mut findings);
        waiting::check(&hierarchy, &mut findings);
        backward::check(&hierarchy, &mut findings);
        failures::check(&hierarchy, &mut findings);
        times::check(&hierarchy, &mut findings);
    }
    findings
}

/// Whether the effects that user code noted are those that the log tells of: I5, I6 and I10. Every
/// step and every compensation of the sagas in `definitions` must note one effect in each place that
/// occurs in `effects`, whenever it runs.
pub fn audit_effects(log: &Log, definitions: &[Definition], effects: &[Effect]) -> Vec<Violation> {
    let mut findings = vec![];
    effects::check(log, definitions, effects, &mut findings);
    findings
}
