//! Persists a conclusion: in the transaction of the step if it opened one ([`in_step`]), otherwise batched with other
//! runs ([`batched`]).

pub(super) mod batched;
mod in_step;
pub(super) mod queue;

use std::collections::BTreeSet;

use scoop_core::{Conclusion, Context, Continuation, Failure, Fate, Frame, Run, Tried};

use self::in_step::{Uncommitted, commit_with};
use self::queue::Unsettled;
use super::execution::{Halt, Job, reasons_to_give_up};
use super::outcome::Outcome;
use super::rollback_history::recall;
use super::shared::Engine;
use super::slots::SlotLease;
use crate::completion::RunEnd;
use crate::saga::registry::RunnableSaga;
use crate::store::Unhandled;
use crate::store::{FailedPart, Parent, Settled, Settlement, StepTransaction, roll_back};
use crate::telemetry;

/// The number of events that are coalesced at most.
const GATHERED_EVENTS_MAX: usize = 100;

/// The failure of a step whose code succeeded, and the context that the code left behind.
pub(super) struct StepFailed {
    pub(super) context: Context,
    pub(super) failure: Failure,
}

/// The result of a settlement: the run continues, or its step has failed after all.
type Persisted = Result<Result<(), StepFailed>, Halt>;

/// Persists the conclusion: in the transaction of the step, if it opened one. A step fails after all if what follows
/// from it cannot be written.
pub(super) async fn settle(
    engine: &Engine,
    job: &mut Job,
    conclusion: Conclusion,
    opened: Option<StepTransaction>,
) -> Persisted {
    if let Some(rehearsal) = &engine.settings.rehearsal {
        job.rehearsed = rehearsal.commits(&job.saga.definition.saga, job.key.id, &conclusion);
        if job.rehearsed.is_none() {
            roll_back(opened).await;
            return Err(Halt::InDoubt("the process crashes before the commit, as it was to".into()));
        }
    }
    match opened {
        None => settle_batched(engine, job, conclusion).await,
        Some(opened) => settle_within(engine, job, conclusion, opened).await,
    }
}

/// Coalesces moves without user code, so that they need no commit of their own: the COMMITTED after a last step, and
/// parts of a rollback that undo nothing.
async fn gather(engine: &Engine, saga: &RunnableSaga, mut conclusion: Conclusion) -> Conclusion {
    while !conclusion.involves_others() && conclusion.events.len() < GATHERED_EVENTS_MAX {
        let Fate::GoesOn(run) = &mut conclusion.fate else {
            break;
        };
        // A record that cannot be read now is read in the next turn.
        if recall(engine, saga, run).await.is_err() {
            break;
        }
        let Ok(Continuation::Record(record)) = Continuation::of(&saga.definition, run) else {
            break;
        };
        let following = record.conclude();
        conclusion = conclusion.followed_by(following);
    }
    conclusion
}

fn settlement(engine: &Engine, job: &Job, conclusion: Conclusion) -> Settlement {
    let settlement = Settlement::new(job.key, &job.run, (job.surroundings, &job.stored), conclusion);
    settlement.under(engine.definitions.number_of(&job.saga.definition.saga), job.definition)
}

/// Persists it together with conclusions of other runs.
async fn settle_batched(engine: &Engine, job: &mut Job, conclusion: Conclusion) -> Persisted {
    if let Fate::FailedAgain { part, handler_iteration, failure } = conclusion.fate {
        return Err(Halt::FailedAgain(Box::new(FailedPart { part, handler_iteration, failure })));
    }
    let conclusion = gather(engine, &job.saga, conclusion).await;
    let after = After::of(&job.run, &conclusion);
    let settlement = settlement(engine, job, conclusion);
    let definition = settlement.definition();
    let sets_a_time = settlement.sets_a_time();
    match engine.settler.settle(settlement).await {
        Ok(settled) => proceed(engine, job, settled, After { definition, ..after }, sets_a_time).map(Ok),
        Err(Unsettled::TakenOver) => refused(engine, job, after, false).await,
        Err(Unsettled::Refused(error)) => {
            Err(Halt::Stuck(format!("the result of the step cannot be written: {error}").into()))
        }
        Err(Unsettled::Stopped) => {
            job.undecided = after.outcome;
            Err(Halt::InDoubt("the engine stopped".into()))
        }
        Err(Unsettled::Unhandled(unhandled)) => {
            Ok(Err(without_handler(engine, job, after.context, unhandled).await))
        }
    }
}

/// Persists it in the transaction of the step.
async fn settle_within(
    engine: &Engine,
    job: &mut Job,
    conclusion: Conclusion,
    opened: StepTransaction,
) -> Persisted {
    let conclusion = gather(engine, &job.saga, conclusion).await;
    let after = After::of(&job.run, &conclusion);
    // A failure is recorded even if the writes of the cleanup are not.
    let failing = (after.backward && !job.run.is_backward()).then(|| conclusion.clone());
    let settlement = settlement(engine, job, conclusion);
    let definition = settlement.definition();
    let sets_a_time = settlement.sets_a_time();
    match commit_with(engine, settlement, opened).await {
        Ok(settled) => proceed(engine, job, settled, After { definition, ..after }, sets_a_time).map(Ok),
        Err(Uncommitted::Halt(Halt::TakenOver)) => refused(engine, job, after, true).await,
        Err(Uncommitted::Halt(halt)) => {
            job.undecided = after.outcome;
            Err(halt)
        }
        Err(Uncommitted::Unhandled(unhandled)) => {
            Ok(Err(without_handler(engine, job, after.context, unhandled).await))
        }
        Err(Uncommitted::Failed(why)) => match failing {
            Some(conclusion) => {
                telemetry::cleanup_lost(job.at(&job.step()), &why);
                settle_batched(engine, job, conclusion).await
            }
            None => {
                let failure = Failure::new("TransactionError", why, &job.run.source);
                Ok(Err(StepFailed { context: after.context, failure }))
            }
        },
    }
}

/// The conclusion was not written, since another worker has the run, or since the run has to give up.
async fn refused(engine: &Engine, job: &mut Job, after: After, in_transaction: bool) -> Persisted {
    let reasons = reasons_to_give_up(engine, job).await?;
    if reasons.is_empty() {
        // The writes of the step are rolled back, so if the run is still held, the step has caused that.
        if in_transaction && engine.store.is_held(job.key).await.unwrap_or(false) {
            let failure = Failure::new("TransactionError", OWN_RUN, &job.run.source);
            return Ok(Err(StepFailed { context: after.context, failure }));
        }
        job.undecided = after.outcome;
        return Err(Halt::TakenOver);
    }
    // Changes of the context by the step outlive it.
    job.run.context = after.context;
    job.reasons = reasons;
    Ok(Ok(()))
}

/// The part of a conclusion that is needed after it has been written.
struct After {
    /// The state of the run, if it continues.
    run: Option<Run>,
    backward: bool,
    context: Context,
    /// The definition under which its newest step completed.
    definition: Option<i32>,
    /// The outcome to report.
    outcome: Option<Box<Outcome>>,
    /// The topics of the messages that were launched.
    topics: Vec<String>,
}

impl After {
    fn of(before: &Run, conclusion: &Conclusion) -> Self {
        let context = conclusion.context().cloned().unwrap_or_default();
        let outcome = Outcome::of(before, conclusion);
        let topics: BTreeSet<_> = conclusion.emissions.iter().map(|emission| &*emission.topic).collect();
        let topics = topics.into_iter().map(str::to_owned).collect();
        let (run, backward) = match &conclusion.fate {
            Fate::GoesOn(run) => (Some(run.clone()), run.is_backward()),
            Fate::Committed => (None, false),
            Fate::RolledBack { .. } | Fate::RollbackFailed { .. } | Fate::FailedAgain { .. } => (None, true),
        };
        Self { run, backward, context, definition: None, outcome, topics }
    }
}

const OWN_RUN: &str = "the step changed or deleted its own row in the table `run` of the engine";

/// The failure of a step that launched a message which requires a handler, and there is none.
async fn without_handler(engine: &Engine, job: &Job, context: Context, unhandled: Unhandled) -> StepFailed {
    let text = unhandled.explained(&engine.store).await.to_string();
    let mut failure = Failure::new("NoHandler", text, &job.run.source);
    failure.stack_trace.extend(unhandled.at.map(Frame::from));
    StepFailed { context, failure }
}

/// Applies a committed settlement: notifies parents and clients, and the run continues if it can.
fn proceed(
    engine: &Engine,
    job: &mut Job,
    settled: Settled,
    after: After,
    sets_a_time: bool,
) -> Result<(), Halt> {
    if let (Some(rehearsal), Some(commit)) = (&engine.settings.rehearsal, job.rehearsed.take())
        && rehearsal.committed(commit)
    {
        return Err(Halt::InDoubt("the process crashes after the commit, as it was to".into()));
    }
    if let Some(outcome) = after.outcome {
        outcome.report(job);
    }
    if !after.topics.is_empty() {
        engine.unhandled.launched(after.topics.iter().map(String::as_str), &settled.started);
    }
    engine.announce(&settled.started);
    if sets_a_time {
        engine.set_a_time();
    }
    if settled.ended {
        match job.run.lineage.parent() {
            Some(parent) if job.surroundings.has_parent => {
                let (root, id) = (parent.root_id(), parent.id());
                let slot = job.seat.take().and_then(SlotLease::into_slot);
                engine.wakeups.child_ended(Parent { root, id, at: settled.last_event_at }, slot);
            }
            _ => {
                let committed = after.run.is_none() && !after.backward;
                engine
                    .waiters
                    .root_ended(job.key.root, if committed { RunEnd::Committed } else { RunEnd::Unknown });
            }
        }
    }
    match after.run {
        Some(run) if settled.goes_on => {
            job.surroundings.undoing |= run.is_backward();
            job.stored = run.context.clone();
            (job.run, job.definition) = (run, after.definition);
            job.key.epoch += 1;
            job.attempts = 0;
            job.retries = 0;
            job.tried = Tried::default();
            job.overdue = settled.overdue;
            Ok(())
        }
        _ => {
            let newest = job.run.last.as_ref().map_or("", |last| &last.step);
            telemetry::left(job.at(newest), settled.ended);
            Err(Halt::Settled)
        }
    }
}
