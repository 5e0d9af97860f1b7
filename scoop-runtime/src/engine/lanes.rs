//! Persists a conclusion: in the transaction of the step if it opened one (the transactional lane), otherwise batched
//! with other runs (the batched lane).

use std::collections::BTreeSet;

use scoop_core::{Conclusion, Context, Continuation, Failure, Fate, Frame, Run, Tried};
use sqlx::{Postgres, Transaction};

use super::call::{conclude_failed, undo};
use super::connections::MARKED;
use super::execute::{Halt, Job, next, reasons_to_give_up};
use super::outcome::Outcome;
use super::recall::recall;
use super::settle::Unsettled;
use super::shares::Seat;
use super::wake::End;
use super::{Engine, Opened};
use crate::error::{is_cancelled, is_rolled_back, is_transient_in_step, is_transient_within_step};
use crate::registry::RunnableSaga;
use crate::store::{FailedPart, Parent, Settled, Settlement};
use crate::telemetry;
use crate::unhandled::Unhandled;

/// The number of events that are coalesced at most.
const GATHERED_EVENTS_MAX: usize = 100;

/// Persists the conclusion: in the transaction of the step, if it opened one.
pub(super) async fn settle(
    engine: &Engine,
    job: &mut Job,
    conclusion: Conclusion,
    opened: Option<Opened>,
) -> Result<(), Halt> {
    if let Some(rehearsal) = &engine.settings.rehearsal {
        job.rehearsed = rehearsal.commits(&job.saga.definition.saga, job.key.id, &conclusion);
        if job.rehearsed.is_none() {
            undo(opened).await;
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

/// The batched lane.
async fn settle_batched(engine: &Engine, job: &mut Job, conclusion: Conclusion) -> Result<(), Halt> {
    if let Fate::FailedAgain { part, handler_iteration, failure } = conclusion.fate {
        return Err(Halt::FailedAgain(Box::new(FailedPart { part, handler_iteration, failure })));
    }
    let conclusion = gather(engine, &job.saga, conclusion).await;
    let after = After::of(&job.run, &conclusion);
    let settlement = settlement(engine, job, conclusion);
    let definition = settlement.definition();
    let sets_a_time = settlement.sets_a_time();
    match engine.settler.settle(settlement).await {
        Ok(settled) => proceed(engine, job, settled, After { definition, ..after }, sets_a_time),
        Err(Unsettled::TakenOver) => refused(engine, job, after, false).await,
        Err(Unsettled::Refused(error)) => {
            Err(Halt::Stuck(format!("the result of the step cannot be written: {error}").into()))
        }
        Err(Unsettled::Stopped) => {
            job.undecided = after.outcome;
            Err(Halt::InDoubt("the engine stopped".into()))
        }
        Err(Unsettled::Unhandled(unhandled)) => fail_unhandled(engine, job, after.context, unhandled).await,
    }
}

/// The transactional lane: the conclusion is written in the transaction of the step.
async fn settle_within(
    engine: &Engine,
    job: &mut Job,
    conclusion: Conclusion,
    opened: Opened,
) -> Result<(), Halt> {
    let conclusion = gather(engine, &job.saga, conclusion).await;
    let after = After::of(&job.run, &conclusion);
    // A failure is recorded even if the writes of the cleanup are not.
    let failing = (after.backward && !job.run.is_backward()).then(|| conclusion.clone());
    let settlement = settlement(engine, job, conclusion);
    let definition = settlement.definition();
    let sets_a_time = settlement.sets_a_time();
    match commit_with(engine, settlement, opened).await {
        Ok(settled) => proceed(engine, job, settled, After { definition, ..after }, sets_a_time),
        Err(Uncommitted::Halt(Halt::TakenOver)) => refused(engine, job, after, true).await,
        Err(Uncommitted::Halt(halt)) => {
            job.undecided = after.outcome;
            Err(halt)
        }
        Err(Uncommitted::Unhandled(unhandled)) => fail_unhandled(engine, job, after.context, unhandled).await,
        Err(Uncommitted::Failed(why)) => match failing {
            Some(conclusion) => {
                telemetry::cleanup_lost(job.at(&job.step()), &why);
                settle_batched(engine, job, conclusion).await
            }
            None => {
                let failure = Failure::new("TransactionError", why, &job.run.source);
                fail(engine, job, after.context, failure).await
            }
        },
    }
}

/// The conclusion was not written, since another worker has the run, or since the run has to give up.
async fn refused(engine: &Engine, job: &mut Job, after: After, in_transaction: bool) -> Result<(), Halt> {
    let reasons = reasons_to_give_up(engine, job).await?;
    if reasons.is_empty() {
        // The writes of the step are rolled back, so if the run is still held, the step has caused that.
        if in_transaction && engine.store.is_held(job.key).await.unwrap_or(false) {
            let failure = Failure::new("TransactionError", OWN_RUN, &job.run.source);
            return fail(engine, job, after.context, failure).await;
        }
        job.undecided = after.outcome;
        return Err(Halt::TakenOver);
    }
    // Changes of the context by the step outlive it.
    job.run.context = after.context;
    job.reasons = reasons;
    Ok(())
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

/// Why the transaction of a step was not committed.
enum Uncommitted {
    /// The execution of the run ends.
    Halt(Halt),
    /// The step has caused it.
    Failed(String),
    /// A message of the step requires a handler, and there is none.
    Unhandled(Unhandled),
}

/// Writes the conclusion into the transaction of the step, and commits it.
async fn commit_with(
    engine: &Engine,
    settlement: Settlement,
    mut opened: Opened,
) -> Result<Settled, Uncommitted> {
    if opened.is_nested() {
        undo(Some(opened)).await;
        return Err(Uncommitted::Failed(NESTED.into()));
    }
    let settled =
        engine.store.settle_within(&mut opened.transaction, &engine.identifier, &settlement, MARKED).await;
    let settled = settled.map_err(not_written)?;
    let Some(mut settled) = settled else {
        return Err(match is_open(&mut opened.transaction).await {
            Ok(true) => {
                undo(Some(opened)).await;
                Uncommitted::Halt(Halt::TakenOver)
            }
            Ok(false) => Uncommitted::Failed(SELF_ENDED.into()),
            Err(error) => not_written(error),
        });
    };
    let started = std::mem::take(&mut opened.started);
    let Some(connections) = &engine.connections else {
        return Err(Uncommitted::Failed("there is no database in which a step could have written".into()));
    };
    let goes_on = settled.goes_on.then_some(settlement.id().0);
    match connections.commit(opened, goes_on).await {
        Ok(()) => {
            settled.started.extend(started);
            Ok(settled)
        }
        Err(error) if is_rolled_back(&error) => {
            Err(Uncommitted::Halt(Halt::Infrastructure(error.to_string().into())))
        }
        // What was cancelled may have been the next transaction, which begins in the same message.
        Err(error) if is_transient_in_step(&error) || is_cancelled(&error) => {
            Err(Uncommitted::Halt(Halt::InDoubt(error.to_string())))
        }
        Err(error) => {
            let why = format!("the transaction of the step could not be committed: {error}");
            Err(Uncommitted::Failed(why))
        }
    }
}

const SELF_ENDED: &str = "the step ended its transaction itself, or reset the settings of it: the mark of the engine \
    in it is gone. Statements that do that: COMMIT, END, ROLLBACK, ABORT, PREPARE TRANSACTION, RESET ALL, RESET \
    scoop_run.claim. Use nested transactions and SET LOCAL, and leave the outer transaction to the engine";

const NESTED: &str = "the step left a nested transaction open, which it neither committed nor dropped \
    (`std::mem::forget`?), so that its effects belong to no transaction that could be committed";

const OWN_RUN: &str = "the step changed or deleted its own row in the table `run` of the engine";

const WENT_ON: &str = "a statement of the step failed, and the step went on as if it had not; pass its \
    error on, or guard it with a nested transaction";

const IN_FAILED_TRANSACTION: &str = "25P02";

/// Classifies the error of a commit.
fn not_written(error: sqlx::Error) -> Uncommitted {
    if let Some(unhandled) = Unhandled::of(&error) {
        return Uncommitted::Unhandled(unhandled.clone());
    }
    if is_transient_within_step(&error) {
        // The server answered, so the result is known.
        let answered = error.as_database_error().is_some();
        let why = error.to_string();
        return Uncommitted::Halt(if answered {
            Halt::Infrastructure(why.into())
        } else {
            Halt::InDoubt(why)
        });
    }
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    match &*code {
        IN_FAILED_TRANSACTION => Uncommitted::Failed(WENT_ON.into()),
        _ => Uncommitted::Failed(format!("what follows from the step could not be written: {error}")),
    }
}

/// Concludes that the step, whose code succeeded and left this context behind, has failed after all.
async fn fail(engine: &Engine, job: &mut Job, context: Context, failure: Failure) -> Result<(), Halt> {
    let (conclusion, opened) = match next(job)? {
        Continuation::Call(call) => conclude_failed(engine, job, call, context, failure).await?,
        Continuation::Record(record) => (record.conclude(), None),
    };
    // Recurses at most once: a failure is persisted even when its transaction cannot be.
    Box::pin(settle(engine, job, conclusion, opened)).await
}

/// The same, since a message that it launched requires a handler, and there is none.
async fn fail_unhandled(
    engine: &Engine,
    job: &mut Job,
    context: Context,
    unhandled: Unhandled,
) -> Result<(), Halt> {
    let text = unhandled.explained(&engine.store).await.to_string();
    let mut failure = Failure::new("NoHandler", text, &job.run.source);
    failure.stack_trace.extend(unhandled.at.map(Frame::from));
    fail(engine, job, context, failure).await
}

/// Whether the transaction is still the one that the engine began.
async fn is_open(transaction: &mut Transaction<'static, Postgres>) -> sqlx::Result<bool> {
    let current: Option<String> =
        sqlx::query_scalar("SELECT pg_catalog.current_setting('scoop_run.claim', true)")
            .fetch_one(&mut **transaction)
            .await?;
    Ok(current.as_deref() == Some(MARKED))
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
                let slot = job.seat.take().and_then(Seat::into_slot);
                engine.wakeups.child_ended(Parent { root, id, at: settled.last_event_at }, slot);
            }
            _ => {
                let committed = after.run.is_none() && !after.backward;
                engine.waiters.root_ended(job.key.root, if committed { End::Committed } else { End::Other });
            }
        }
    }
    match after.run {
        Some(run) if settled.goes_on => {
            job.surroundings.undoing |= run.is_backward();
            job.stored = run.context.clone();
            (job.run, job.definition) = (run, after.definition);
            job.key.epoch += 1;
            job.seat.iter_mut().for_each(Seat::clear_suspicion);
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
