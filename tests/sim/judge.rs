//! Checks of the state that a simulation left behind.

use std::collections::{BTreeMap, BTreeSet};

use scoop::{EventKind, Failure, InMemory, LoggedEvent};
use scoop_audit::{
    AwaitedSignal, BegunStep, Effect, EffectKind, EffectPlace, EndedRun, FailedRun, Log,
    LoggedEvent as Logged, LoggedExecution, LoggedMessage, LoggedOutput, LoggedSignal, LoggedStrategy,
    Quiescence, RunOutcome, Subscription, Tables, Violation, audit, audit_effects,
};
use scoop_runtime::simulation;
use time::Duration;
use uuid::Uuid;

use crate::act::{Attempt, PLANNED, script_of};
use crate::changes;
use crate::play::Played;
use crate::sagas;
use crate::scenario::Scenario;
use crate::world::{Call, Code};

/// A violation.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    /// The violated invariant. It identifies the mistake when a scenario is made smaller.
    pub(crate) id: String,
    pub(crate) hierarchy: Option<Uuid>,
    pub(crate) what: String,
}

impl Wrong {
    pub(crate) fn new(id: &str, hierarchy: Option<Uuid>, what: impl Into<String>) -> Self {
        Self { id: id.to_owned(), hierarchy, what: what.into() }
    }
}

impl Wrong {
    /// Whether this looks like the same mistake.
    pub(crate) fn is_like(&self, other: &Wrong) -> bool {
        let end = |wrong: &Wrong| {
            let words = wrong.what.split_whitespace().rev().filter(|word| !word.contains(['-', '[', '`']));
            words.take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        self.id == other.id && end(self) == end(other)
    }
}

/// All violations.
pub(crate) fn judge(scenario: &Scenario, played: &Played) -> Vec<Wrong> {
    let log = log(played);
    let definitions = sagas::definitions(scenario);
    let mut wrong = vec![];
    let at_rest = if played.at_rest { Quiescence::Yes } else { Quiescence::No };
    if !played.at_rest {
        let unfinished = played.unfinished.join(", ");
        wrong.push(Wrong::new("I7", None, format!("{unfinished}: it does not come to rest")));
    }
    let effects = effects(&played.notes.calls);
    let violations = audit(&log, &definitions, at_rest).into_iter();
    let violations = violations.chain(audit_effects(&log, &definitions, &effects));
    wrong.extend(violations.map(|it| wrong_of(&it)));
    wrong.extend(played.seen.iter().map(wrong_of));
    wrong.extend(complaints(played, &log));
    wrong.extend(unplanned(&log));
    wrong.extend(outcomes(played, &log));
    if scenario.changes() {
        wrong.extend(changes::judge(scenario, played, &log));
    }
    if is_calm(scenario) {
        wrong.extend(called_twice(&played.notes.calls));
    }
    wrong
}

fn wrong_of(it: &Violation) -> Wrong {
    Wrong::new(it.invariant.id(), Some(it.hierarchy), it.what.clone())
}

/// Violations noted during the simulation.
fn complaints(played: &Played, log: &Log) -> Vec<Wrong> {
    let counts = |call: &Option<usize>| {
        call.is_none_or(|call| log.events.iter().any(|row| attempt(row) == Some(call)))
    };
    let wrong = played.notes.wrong.iter().filter(|(call, _)| counts(call));
    let wrong = wrong.map(|(_, what)| {
        let (id, what) = what.split_once(": ").unwrap_or(("code", what));
        Wrong::new(id, None, what)
    });
    wrong.collect()
}

/// Whether the scenario has no faults, so that nothing may happen twice.
fn is_calm(scenario: &Scenario) -> bool {
    let mut lives = scenario.processes.iter().flat_map(|process| &process.lives);
    scenario.repairs.is_empty() && lives.all(|life| life.faults.is_empty() && life.stops == 0)
}

/// The log as the reference model reads it.
pub(crate) fn log(played: &Played) -> Log {
    let tables = Some(tables(played.tables.clone()));
    Log { repaired: played.repaired.clone(), tables, ..log_of(&played.log, &played.listed) }
}

fn log_of(events: &[LoggedEvent], listed: &[simulation::Subscription]) -> Log {
    let messages: BTreeMap<_, _> = events.iter().map(|row| (row.message_id, &row.topic)).collect();
    let messages = messages.into_iter().map(|(id, topic)| LoggedMessage { id, topic: topic.clone() });
    let subscriptions = listed.iter().map(|listed| Subscription {
        topic: listed.topic.clone(),
        handler: listed.handler.clone(),
        since: listed.since.into(),
        until: listed.until.map(|until| until.into()),
        dropped: listed.dropped,
    });
    Log {
        messages: messages.collect(),
        events: events.iter().map(logged).collect(),
        subscriptions: subscriptions.collect(),
        // A row gets a later time than the clock shows if its run already has an event of that time.
        tolerance: Duration::milliseconds(2),
        ..Log::default()
    }
}

/// The log of a small simulation, with the tables beside it.
pub(crate) fn small_log(database: &InMemory) -> Log {
    let events = database.event_log();
    let mut log = log_of(&events, &simulation::subscriptions(database));
    log.tables = Some(tables(simulation::tables(database)));
    log
}

/// What the reference model finds in the log of a small simulation, in which all has ended.
pub(crate) fn audited(log: &Log, definitions: &[scoop::Definition]) -> Vec<String> {
    described(&audit(log, definitions, Quiescence::Yes))
}

/// Violations in words.
pub(crate) fn described(violations: &[Violation]) -> Vec<String> {
    let violations = violations.iter();
    violations.map(|it| format!("{}: {} in {}", it.invariant.id(), it.what, it.hierarchy)).collect()
}

fn tables(tables: simulation::Tables) -> Tables {
    let signals = tables.signals.into_iter().map(|it| LoggedSignal {
        id: it.id,
        to: it.to,
        payload: it.payload,
        sent_at: it.sent_at.into(),
        kept_until: it.expires_at.into(),
        delivered_at: it.delivered_at.map(Into::into),
        reached: it.reached,
    });
    let outputs = tables.outputs.into_iter();
    let outputs =
        outputs.map(|it| LoggedOutput { run: it.run, step: it.step, number: it.number, value: it.value });
    let begun = tables.begun_steps.into_iter();
    let begun = begun.map(|it| BegunStep { run: it.run, step: it.step, number: it.number, at: it.at.into() });
    let executions = tables.executions.into_iter();
    let executions =
        executions.map(|it| LoggedExecution { run: it.run, number: it.number, began_at: it.began_at.into() });
    let failed = tables.failed_runs.into_iter();
    let failed = failed.map(|it| FailedRun { run: it.run, rests: it.rests, parent: it.parent });
    Tables {
        signals: signals.collect(),
        outputs: outputs.collect(),
        begun_steps: begun.collect(),
        executions: executions.collect(),
        failed_runs: failed.collect(),
        ended_runs: tables.ended_runs.into_iter().map(ended_run).collect(),
    }
}

fn ended_run(row: simulation::EndedRun) -> EndedRun {
    EndedRun {
        lineage: row.lineage,
        message: row.message_id,
        handler: row.handler,
        outcome: match row.outcome {
            simulation::RunOutcome::Committed => RunOutcome::Committed,
            simulation::RunOutcome::RolledBack => RunOutcome::RolledBack,
            simulation::RunOutcome::Dropped => RunOutcome::Dropped,
        },
        failure: row.failure,
        rollback_failure: row.rollback_failure,
        context: row.context,
        ended_at: row.ended_at.into(),
    }
}

fn logged(row: &LoggedEvent) -> Logged {
    Logged {
        message: row.message_id,
        kind: row.kind,
        handler: row.handler.clone(),
        identifier: row.worker.clone(),
        step: row.step.clone(),
        lineage: row.lineage.clone(),
        at: row.at.into(),
        exception: row.exception.clone(),
        next_step: row.next_step.and_then(|next| usize::try_from(next).ok()),
        handler_iteration: row.child_failure_handler_iteration.and_then(|it| u32::try_from(it).ok()),
        context: row.context.clone(),
        continues_as_new: row.continues_as_new,
        waits_until: row.waits_until.map(Into::into),
        awaits: row.awaits.clone().map(|to| AwaitedSignal { to, until: row.awaits_until.map(Into::into) }),
        strategies: LoggedStrategy::read_all(&row.wait),
    }
}

/// The effects that the code of steps and compensations noted.
fn effects(calls: &[Call]) -> Vec<Effect> {
    let effects = calls.iter().filter_map(|call| {
        let part = match call.code {
            Code::Step => EffectKind::Step,
            Code::Undo => EffectKind::Compensation,
            Code::OnChildFailure | Code::Finally => return None,
        };
        let (run, step, iteration) = (call.run, undone(&call.step).to_owned(), call.iteration);
        Some(Effect { run, step, part, iteration, place: EffectPlace::Outside })
    });
    effects.collect()
}

/// The step that a part of a rollback compensates. Any other step is returned unchanged.
fn undone(step: &str) -> &str {
    let part = step.strip_prefix("Rollback of ").and_then(|part| part.rsplit_once('['));
    part.map_or(step, |(step, _)| step)
}

/// Failures without a plan: a value that was lost, a payload that cannot be read, and the like.
fn unplanned(log: &Log) -> Vec<Wrong> {
    let known = |failure: &Failure| {
        // A step that succeeded in the end tells of attempts that failed for lack of the database.
        let asked = ["CancellationRequestedException", "RollbackRequestedException", "FailedAttempts"];
        failure.message.contains(PLANNED)
            || asked.contains(&&*failure.kind)
            || failure.kind.starts_with("Missed")
    };
    let mut wrong = vec![];
    for row in &log.events {
        let origins = row.exception.as_ref().map(Failure::root_causes).unwrap_or_default();
        if let Some(origin) = origins.into_iter().find(|origin| !known(origin)) {
            let root = row.lineage.root_id();
            wrong.push(Wrong::new("failure", Some(root), format!("unplanned failure: {origin}")));
        }
    }
    wrong
}

/// I6, I10: a recorded outcome and the messages emitted with it come from one call, which emitted all messages
/// of its script.
fn outcomes(played: &Played, log: &Log) -> Vec<Wrong> {
    let mut wrong = vec![];
    let mut used = BTreeSet::new();
    let mut emitted: BTreeMap<&scoop::Lineage, Vec<&Logged>> = BTreeMap::new();
    for row in log.events.iter().filter(|row| row.handler.is_some()) {
        if row.kind == EventKind::Emitted {
            emitted.entry(&row.lineage).or_default().push(row);
            continue;
        }
        let with = emitted.remove(&row.lineage).unwrap_or_default();
        let root = Some(row.lineage.root_id());
        if let Some(call) = executed(played, row) {
            if !used.insert((attempt(row), row.step.clone())) {
                wrong.push(Wrong::new("I10", root, format!("the outcome of {call:?} is recorded twice")));
            }
            let others = with.iter().find(|emitted| attempt(emitted) != attempt(row));
            if others.is_some() {
                wrong.push(Wrong::new("I6", root, format!("{call:?} emitted what another call has")));
            }
            let expected = expected(played, row, call);
            if let Some(expected) = expected.filter(|expected| *expected != with.len()) {
                let what = format!("{call:?} emitted {} messages instead of {expected}", with.len());
                wrong.push(Wrong::new("I6", root, what));
            }
        } else if own_outcome(row) {
            wrong.push(Wrong::new(
                "I6",
                root,
                format!("{:?} of {:?} was never called", row.step, row.handler),
            ));
        }
    }
    wrong
}

/// Whether the row is the outcome of the code of a step or of a compensation.
fn own_outcome(row: &Logged) -> bool {
    let step = row.step.as_deref().unwrap_or_default();
    let waits = step.ends_with(')') || step.ends_with(']');
    row.kind == EventKind::Suspended && row.handler_iteration.is_none() && !waits
}

pub(crate) fn attempt(row: &Logged) -> Option<usize> {
    row.context.get::<Attempt>().ok().flatten().map(|attempt| attempt.0)
}

/// The call of a step that has this row as its outcome.
pub(crate) fn executed<'a>(played: &'a Played, row: &Logged) -> Option<&'a Call> {
    if !own_outcome(row) {
        return None;
    }
    let call = played.notes.calls.get(attempt(row)?)?;
    let same =
        call.run == row.lineage.id() && Some(&*call.step) == row.step.as_deref() && call.code == Code::Step;
    same.then_some(call)
}

/// The number of messages that the call had to emit, without detached ones.
fn expected(played: &Played, row: &Logged, call: &Call) -> Option<usize> {
    let emit = played.notes.messages.get(&row.message)?;
    let step = script_of(emit, &call.handler).steps.get(call.number).cloned().unwrap_or_default();
    let turn = step.turns.get(call.iteration as usize).or(step.turns.last()).cloned().unwrap_or_default();
    Some(turn.emits.iter().filter(|emit| !emit.detached).count())
}

/// Without faults no attempt is made twice.
fn called_twice(calls: &[Call]) -> Vec<Wrong> {
    let mut known = BTreeSet::new();
    let twice = calls.iter().filter(|call| !known.insert((call.key, call.attempt, call.code)));
    let wrong = twice.map(|call| Wrong::new("I5", None, format!("{call:?} came twice, for no reason")));
    wrong.collect()
}
