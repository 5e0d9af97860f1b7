//! Decides commands: many in one transaction, each against the version of its entity that its event changes.
//!
//! A run at its decision hands it to one task, and waits for the answer. The task takes all queued decisions, locks their
//! entities, decides in the order of arrival, and settles the runs, all in one transaction. The code of users that runs
//! under these locks is that of `decide`, `undo` and the applications of events: it neither waits nor sees a connection.
//! Entities in tables of the user have a task of their own ([`table`]), whose code has a connection.
//!
//! * **All or nothing.** If a settlement does not apply, the transaction is rolled back, and the others are decided again
//!   without it. So an event exists exactly if its run was settled.
//! * **No deadlock.** Rows are locked in the order of their names and keys, and missing rows are made after that, in the
//!   same order.
//! * **A panic changes nothing.** All of the batch is decided again, with the state written as JSON after each event and
//!   read from there.
//! * A command is authorized before its first move, before any lock. The decision is stored once, as the reply of the run;
//!   its event is a message, to which `entity_event` refers.
//!
//! `tests/model/command.rs` visits all states of this protocol.

mod batch;
mod locked_entities;
pub(super) mod queue;
pub(super) mod sql_entity;

use std::sync::Arc;
use std::time::Duration;

use scoop_core::{Action, Call, Failure, StepKind, refused_key};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::batch::decide_all;
use self::locked_entities::LockedEntities;
use super::execution::{Execution, Exit, next, unread};
use super::handover::{IfRefused, hand_to_another};
use super::settle::queue::SettleError;
use super::settle::{SettleOutcome, StepFailed, settled};
use super::shared::Engine;
use super::user_code::authorize::unauthorized;
use super::user_code::{injected_failure, message_of};
use crate::completion::RunEnd;
use crate::engine::decisions::queue::OutcomeIfCommitted;
use crate::engine::decisions::queue::{DecisionOutcome, Inbox, Pending, Settles, ToDecide, Undecided};
use crate::error::is_transient;
use crate::saga::command::{FETCH, decision_name};
use crate::store::entity::DecisionsSettled;
use crate::store::{EntityId, Unhandled};
use crate::telemetry::metrics::{CodeEnd, StepTimer};
use crate::telemetry::trace::with_trace;
use crate::telemetry::{self, Code};
use crate::util::panic_boundary::{self, DropGuarded};

/// About how many decisions one transaction takes at most; see [`LockedEntities::take`].
const BATCH_MAX: usize = 200;

/// The time that the code of a batch may take while the entities are locked, if its transaction then fails. The server
/// ends a session that idles in a transaction for 10 s.
const SLOW_CODE: Duration = Duration::from_secs(5);

/// Whether the move is a decision about an entity, which has no user code outside of that.
pub(super) fn is_decision(execution: &Execution, call: &Call<'_>) -> bool {
    let step = match call.action() {
        Action::Invoke { step, .. } | Action::Compensate { step, .. } => *step,
        Action::HandleChildFailure { .. } => return false,
    };
    execution.saga.definition.steps[step].kind == StepKind::Decide
}

/// Makes the decision that is the next move of the run, or undoes it, and settles it.
pub(super) async fn decide(engine: &Engine, execution: &mut Execution) -> SettleOutcome {
    let step = execution.step();
    let mut undecided = match prepare(engine, execution).await? {
        Ok(undecided) => undecided,
        Err(failure) => return Ok(Err(failed(execution, failure))),
    };
    let code = if execution.run.is_backward() { Code::Compensation } else { Code::Step };
    let span = execution.span.step(execution.at(&step), code, None);
    let position = execution.saga.definition.steps.iter().position(|it| it.kind == StepKind::Decide);
    let timer = StepTimer::begin(execution.timed(position.unwrap_or(0)), code, &span);
    let bytes_max = engine.settings.limits.context_bytes_max;
    undecided.event_context = with_trace(undecided.event_context, span.trace().as_ref(), bytes_max);
    let outcome = span.around(engine.decisions.decide(undecided)).await;
    timer.end(match &outcome {
        DecisionOutcome::Settled(_, Ok(_)) => CodeEnd::Succeeded,
        DecisionOutcome::Failed(_) => CodeEnd::Failed,
        _ => CodeEnd::Stopped,
    });
    match outcome {
        DecisionOutcome::Settled(settles, answer) => {
            let Settles { after, commit_token, sets_a_time, .. } = *settles;
            execution.commit_token = commit_token;
            if answer.is_ok() {
                // Readable from now on, although messages of it may have handlers that have not finished.
                engine.completions.notify(execution.key.root, RunEnd::Decided);
            }
            settled(engine, execution, answer, after, sets_a_time).await
        }
        DecisionOutcome::Failed(failure) => Ok(Err(failed(execution, failure))),
        DecisionOutcome::Unfit(why) => {
            let saga = &execution.saga.definition.saga;
            let set =
                hand_to_another(engine, execution.key, saga, &why.recorded, IfRefused::Retain, None).await;
            if set == crate::store::HandOver::HandedOver {
                execution.handed_over(&step, &why);
                return Err(Exit::Settled);
            }
            let failure = Failure::new("EntityMismatch", why.recorded, &execution.run.source);
            Ok(Err(failed(execution, failure)))
        }
        DecisionOutcome::Unread(why) => Err(Exit::Stuck(why)),
        DecisionOutcome::Again(why) => Err(Exit::Infrastructure(why)),
        DecisionOutcome::InDoubt(why) => Err(Exit::InDoubt(why)),
        DecisionOutcome::Crashed => {
            Err(Exit::InDoubt("the process crashes before the commit, as it was to".into()))
        }
        DecisionOutcome::Stopped => Err(Exit::InDoubt("the engine stopped".into())),
    }
}

fn failed(execution: &Execution, failure: Failure) -> StepFailed {
    StepFailed { context: execution.run.context.clone(), failure }
}

async fn prepare(engine: &Engine, execution: &mut Execution) -> Result<Result<Undecided, Failure>, Exit> {
    let source = execution.run.source.clone();
    let decisions = execution.saga.handler.decisions();
    let decisions =
        decisions.ok_or_else(|| Exit::Stuck("its saga is no command any more".to_owned().into()))?;
    let step = execution.step();
    let message = match message_of(engine, execution, &step).await? {
        Ok(message) => message,
        Err(failure) => return Ok(Err(failure)),
    };
    if let scoop_core::Continuation::Call(call) = next(execution)?
        && let Some(failure) = unauthorized(execution, &call, message)
    {
        return Ok(Err(failure));
    }
    let name = decisions.entity.name();
    let key = match panic_boundary::run(&source, || (decisions.key)(message)) {
        Ok(key) => key,
        Err(panic) => {
            return Ok(Err(panic_boundary::named(format!(
                "`key` of saga `{}`",
                execution.saga.definition.saga
            ))(panic)));
        }
    };
    let table_key = decisions.table.map(|(_, table_key)| panic_boundary::run(&source, || table_key(message)));
    let table_key = match table_key.transpose() {
        Ok(table_key) => table_key.map(DropGuarded::new),
        Err(panic) => return Ok(Err(panic)),
    };
    if let Some(why) = refused_key(&key) {
        let text = format!("the key of the entity `{name}` {why}");
        return Ok(Err(Failure::new("EntityKey", text, &source)));
    }
    let task = match next(execution)? {
        scoop_core::Continuation::Call(call) if matches!(call.action(), Action::Compensate { .. }) => {
            let decision = engine
                .store
                .command_decision(execution.run.message, decision_name(), Some(execution.key.id))
                .await;
            match decision.map_err(|error| unread("the decision to undo could not be read", &error))? {
                Some(decision) => ToDecide::Undo { decision },
                None => return Ok(Err(Failure::new("NoDecision", "its decision is not recorded", &source))),
            }
        }
        scoop_core::Continuation::Call(call) => {
            if let Some(error) = injected_failure(engine, execution, &call) {
                return Ok(Err(error.to_failure(&source)));
            }
            ToDecide::Decide { fetched: execution.run.outputs.get(FETCH).cloned() }
        }
        scoop_core::Continuation::Record(_) => unreachable!("the next move is a decision"),
    };
    let message = execution.message.take().expect("it was decoded above");
    let saga = execution.saga.clone();
    Ok(Ok(Undecided {
        entity: EntityId { name, key },
        decisions,
        message,
        table_key,
        is_repeated: execution.attempt() > 0,
        task,
        at_hand: engine.topology.number_of(&saga.definition.saga),
        saga,
        key: execution.key,
        flags: execution.flags,
        run: execution.run.clone(),
        stored_context: execution.stored_context.clone(),
        event_context: execution.run.context.clone(),
        recorded: execution.definition,
    }))
}

/// Decides until it is drained, without waiting for more.
pub(super) async fn serve(engine: Arc<Engine>, mut queue: Inbox, drained: CancellationToken) {
    let (mut arrived, mut locked_entities) = (vec![], LockedEntities::default());
    loop {
        let batch = tokio::select! {
            biased;
            () = locked_entities.due() => locked_entities.take(BATCH_MAX),
            _ = queue.recv_many(&mut arrived, BATCH_MAX) => locked_entities.admit(std::mem::take(&mut arrived)),
            () = drained.cancelled() => return,
        };
        let left_out = decide_batch(&engine, batch).await;
        locked_entities.put_back(left_out);
        if engine.stopping.is_cancelled() {
            locked_entities.drain().for_each(|pending| pending.send(DecisionOutcome::Stopped));
        }
    }
}

/// Decides a batch. Those whose settlements do not apply are left out of a further transaction; if the database refuses
/// one, each is decided by itself, so that only the one at fault fails. Returns those whose entity another transaction has
/// locked.
async fn decide_batch(engine: &Engine, mut batch: Vec<Pending>) -> Vec<Pending> {
    let mut attempts = 0;
    while !batch.is_empty() {
        let mut entities: Vec<_> = batch.iter().map(|pending| pending.undecided.entity.clone()).collect();
        entities.sort_unstable();
        entities.dedup();
        let (mut outcomes, mut elapsed) = (vec![], Duration::ZERO);
        let result = engine.store.decide(&engine.identifier, &entities, |at_hand| {
            let began = Instant::now();
            let (decisions, decided) = decide_all(engine, &batch, &entities, at_hand);
            (outcomes, elapsed) = (decided, began.elapsed());
            decisions
        });
        let error = match result.await {
            Ok(DecisionsSettled::All(mut results)) => {
                let mut left_out = vec![];
                for (pending, outcome) in batch.into_iter().zip(outcomes) {
                    match outcome {
                        OutcomeIfCommitted::Busy => left_out.push(pending),
                        _ => pending.answer(outcome, |id| results.remove(&id).ok_or(SettleError::TakenOver)),
                    }
                }
                return left_out;
            }
            Ok(DecisionsSettled::Void(void)) => {
                let mut left = vec![];
                for (pending, outcome) in batch.into_iter().zip(outcomes) {
                    match outcome.settlement() {
                        Some(id) if void.contains(&id) => {
                            pending.answer(outcome, |_| Err(SettleError::TakenOver))
                        }
                        // A failure may follow from a state that never was: one with the void decisions.
                        Some(_) | None => left.push(pending),
                    }
                }
                batch = left;
                continue;
            }
            Err(error) => error,
        };
        attempts += 1;
        let stopping = engine.stopping.is_cancelled();
        let (several, is_slow) = (batch.len() > 1, elapsed > SLOW_CODE);
        // An error that the server repeats may be the fault of one of many. So may a session that was ended while code
        // ran in its transaction.
        let is_repeated = error.as_database_error().is_some() && attempts >= 3;
        let split = several && (!is_transient(&error) || is_repeated || is_slow);
        if is_transient(&error) && stopping {
            telemetry::operation_abandoned(engine.worker, "decision", &error);
            batch.into_iter().for_each(|pending| pending.send(DecisionOutcome::Stopped));
            return vec![];
        } else if split {
            let mut left_out = vec![];
            for pending in batch {
                left_out.extend(Box::pin(decide_batch(engine, vec![pending])).await);
            }
            return left_out;
        } else if is_slow {
            for pending in batch {
                let failure = too_slow(&pending.undecided, elapsed);
                pending.answer(OutcomeIfCommitted::Failed(failure), |_| Err(SettleError::Stopped));
            }
            return vec![];
        } else if !is_transient(&error) {
            for pending in batch {
                if contradicts_events(&error) {
                    let failure = not_after_its_events(&pending.undecided);
                    pending.answer(OutcomeIfCommitted::Failed(failure), |_| Err(SettleError::Stopped));
                    continue;
                }
                let why = match Unhandled::find_in(&error) {
                    Some(unhandled) => SettleError::Unhandled(unhandled.clone()),
                    None => SettleError::Refused(error.to_string()),
                };
                // Without an outcome the entities could not be read.
                let outcome =
                    outcomes.pop().unwrap_or_else(|| OutcomeIfCommitted::Unread(error.to_string().into()));
                pending.answer(outcome, |_| Err(why));
            }
            return vec![];
        }
        telemetry::operation_failed(engine.worker, "decision", &error);
        let pause: Duration = engine.settings.backoff.pause(attempts);
        tokio::time::sleep(pause).await;
    }
    vec![]
}

/// Whether the event of a decision was recorded before: the version of its entity is older than its events.
fn contradicts_events(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.constraint() == Some("entity_event_pkey"))
}

/// The failure of a command about an entity whose row is lost or older than its events.
fn not_after_its_events(undecided: &Undecided) -> Failure {
    let EntityId { name, key } = &undecided.entity;
    let text = format!(
        "the version of the entity `{name}`, key `{key}`, does not follow from its events: its row in `entity` is missing or \
         older than its last row in `entity_event`; `operate().entities().rebuild` restores it"
    );
    Failure::new("EntityMismatch", text, &undecided.run.source)
}

/// The failure of a command whose code kept its entity locked until the server ended the session.
fn too_slow(undecided: &Undecided, elapsed: Duration) -> Failure {
    let Undecided { saga, run, .. } = undecided;
    let text = format!(
        "the decision of saga `{}` about {} took {elapsed:.1?}, while that was locked; get what is slow in `fetch`, before the \
         decision",
        saga.definition.saga,
        undecided.named_entity(),
    );
    Failure::new("DecisionTooSlow", text, &run.source)
}
