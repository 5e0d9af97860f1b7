//! The audit of histories: a reference model that checks all invariants on the log.
//!
//! It shares no decision with the protocol and is as naive as possible: it knows only the events in their order, and
//! checks whether each may stand at its position. So it finds mistakes in any log, regardless of the code that wrote
//! it. Simulations and fault injection tests use it.
//!
//! It accepts deviations that are allowed: failures that a handler accepted, rollbacks that failed for a recorded
//! reason, runs that give up, deliveries that end with their emitter, operators' repairs.
//!
//! [`Invariant`] states each property. Which function checks which:
//!
//! * [`audit`], on the events: I1 runs wait, I2 lineages, I3 once, I4 reverse order, I6 the emissions of a step exist with
//!   its outcome, I7 progress, as far as a log at rest shows, I8 failures reach the parent, I9 whole hierarchies, T1 times
//!   rise, T2 nothing begins too early, T3 a cancelled or overdue run gives up.
//! * [`audit`], if the log has [`Tables`]: I11 failed rollbacks rest, I12 signals, I13 steps that run at most once, I14
//!   executions, I15 rows of ended runs.
//! * [`audit_rows`], at any moment: I11 and I15.
//! * [`audit_effects`], on the effects that user code noted: I5 a compensation once, I6 effects exist with the outcome, I10
//!   a step once.
//!
//! The input is what the record has, and no code of the engine. Tests on PostgreSQL audit all logs that they read, the
//! simulation all that it produces.

mod children;
mod effects;
mod ended;
mod executions;
mod failed_rollbacks;
mod failures;
mod history;
mod log;
mod once;
mod order;
mod rollback;
mod signals;
mod strategies;
mod timing;

use std::fmt;

use scoop_core::{Definition, Escaped};
use uuid::Uuid;

pub use self::log::{
    AwaitedSignal, BegunStep, Effect, EffectKind, EffectPlace, EndedRun, FailedRun, Log, LoggedEvent,
    LoggedExecution, LoggedMessage, LoggedOutput, LoggedSignal, LoggedStrategy, Quiescence, Redelivery,
    RunOutcome, Subscription, Tables,
};

/// A property that every history must have. Documents cite it by [`Invariant::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// I1: no step starts before every handler of every message of the previous step, as subscribed at the emission,
    /// has ended. No other handler gets the message. With a strategy, a step starts when that allows it.
    Waits,
    /// I2: a child's lineage is its parent's and one more id, and the message of each event exists.
    Lineage,
    /// I3: one SEEN, one COMMITTED, one ROLLED_BACK for each handler and message, and every run's events in an
    /// allowed order.
    Once,
    /// I4: compensations in exactly the reverse order of the executed steps, children first.
    Reverse,
    /// I5: each compensation takes effect once.
    CompensatedOnce,
    /// I6: the effects of a step in its transaction exist exactly if its outcome is recorded.
    Atomic,
    /// I7: every ready run is executed.
    Progress,
    /// I8: the failures of all children reach the parent.
    Failures,
    /// I9: at rest a hierarchy is committed, rolled back, or has a recorded ROLLBACK_FAILED.
    Whole,
    /// I10: at most one execution of a step in an iteration has committed effects.
    ExecutedOnce,
    /// I11: the row of a run rests as failed from its ROLLBACK_FAILED until a decision about it, and the run above waits for it, unless
    /// that has gone on since.
    FailedRollbacks,
    /// I12: a signal reaches every run that awaits it at its delivery, and no other; and a wait for a signal ends by it,
    /// by its limit, or since the run gives up.
    Signals,
    /// I13: a step that runs at most once has an outcome only if its beginning is recorded, and a begun one ends with an
    /// outcome or a failure.
    AtMostOnce,
    /// I14: the executions of a run have the numbers from 1 on, and each begins with the step that ends the one before.
    Executions,
    /// I15: a run is among the ended ones from its end on, with what its events say of it.
    Ended,
    /// T1: times rise strictly within a run, and from a run to its children and back.
    Time,
    /// T2: no run begins before the time that its message names.
    NotBefore,
    /// T3: a run that was cancelled or missed a deadline gives up at its next step.
    GivesUp,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// The hierarchy: the first id of its lineages.
    pub hierarchy: Uuid,
    /// A description of the violation.
    pub what: String,
}

impl Invariant {
    /// The id by which documents cite it: `I1` and so on.
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
            Self::FailedRollbacks => "I11",
            Self::Signals => "I12",
            Self::AtMostOnce => "I13",
            Self::Executions => "I14",
            Self::Ended => "I15",
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

/// All violations in the history. `definitions` are those of its sagas, in all versions that wrote it. Of a saga
/// without a definition only the properties of its events are checked.
pub fn audit(log: &Log, definitions: &[Definition], at_rest: Quiescence) -> Vec<Violation> {
    let mut findings = vec![];
    order::messages_exist(log, &mut findings);
    let hierarchies = history::hierarchies(log, definitions, at_rest);
    for hierarchy in &hierarchies {
        order::check(hierarchy, &mut findings);
        children::check(hierarchy, &mut findings);
        strategies::check(hierarchy, &mut findings);
        rollback::check(hierarchy, &mut findings);
        failures::check(hierarchy, &mut findings);
        timing::check(hierarchy, &mut findings);
    }
    if let Some(tables) = &log.tables {
        signals::check(&hierarchies, tables, &mut findings);
        once::check(&hierarchies, tables, &mut findings);
        executions::check(&hierarchies, tables, &mut findings);
        rows(&hierarchies, tables, &mut findings);
    }
    findings
}

/// The violations of I11 and I15: rows that do not say what the log says. They hold at any moment, so that changes of rows
/// can be checked while they go on.
pub fn audit_rows(log: &Log) -> Vec<Violation> {
    let mut findings = vec![];
    let hierarchies = history::hierarchies(log, &[], Quiescence::No);
    if let Some(tables) = &log.tables {
        rows(&hierarchies, tables, &mut findings);
    }
    findings
}

fn rows(hierarchies: &[history::Hierarchy<'_>], tables: &Tables, findings: &mut history::Findings) {
    failed_rollbacks::check(hierarchies, tables, findings);
    ended::check(hierarchies, tables, findings);
}

/// All differences between the effects that user code noted and the log: I5, I6 and I10. Every step and every
/// compensation of the sagas in `definitions` must note one effect in each place that occurs in `effects`, whenever it
/// runs.
pub fn audit_effects(log: &Log, definitions: &[Definition], effects: &[Effect]) -> Vec<Violation> {
    let mut findings = vec![];
    effects::check(log, definitions, effects, &mut findings);
    findings
}
