//! Starts runs in slots of this process without a separate claim: runs of messages that it launches, runs that its
//! signals reach, and parents whose last child has ended here. The statement that launches, reaches or wakes them claims
//! them, and they start when it has answered.
//!
//! The id of each run that is launched or woken is known before the statement is sent, and is registered as in flight. So
//! reconciliation does not take it for lost: it waits for statements that assign runs to this worker, blocks new ones, and
//! only then lists what is in flight (see [`super::claim`]). If the answer is lost, the run is not in flight any more, and
//! reconciliation finds it. The runs that a signal reaches are not known before: reconciliation waits until no signal is
//! under way that may claim any, and a signal that is sent meanwhile claims none.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::claim;
use super::execution::InFlightGuard;
use super::shared::Engine;
use super::slots::{CountGuard, Slot, SlotLease};
use super::wakeups::{Delivery, ParentCheck};
use crate::completion::{RunEnd, StartedAs};
use crate::error::{is_contended, is_transient};
use crate::store::Unhandled;
use crate::store::{
    ClaimKey, CommittedParent, LaunchResult, NewMessage, NewSignal, ParentRef, SignalClaimer, SignalSent,
    WakeOptions, is_bulky, mark_maybe_launched,
};
use crate::telemetry::{self, metrics};
use crate::util::detached::run_to_completion;
use crate::util::retries::Attempt;

/// A slot for one run of a launch.
struct LocalStart {
    message: usize,
    key: ClaimKey,
    handler: String,
    flight: InFlightGuard,
    count: CountGuard,
    slot: Slot,
}

/// Launches messages in a transaction of their own, and starts as many of their runs as there are slots. Notifies
/// workers of the handlers of the other runs. Returns how each message has started.
///
/// After an attempt whose answer was lost, [`Attempt::Repeat`] skips the messages launched by it. The runs that it
/// claimed are no longer in flight, so reconciliation finds them.
pub(crate) async fn launch(
    engine: &Arc<Engine>,
    messages: &mut Arc<Vec<NewMessage>>,
    attempt: Attempt,
) -> sqlx::Result<Vec<StartedAs>> {
    // They are registered twice only if the task of an earlier attempt was stopped.
    let own = Arc::get_mut(messages).ok_or(sqlx::Error::WorkerCrashed)?;
    mark_maybe_launched(own, attempt);
    // Read first: by the number of an earlier topology than that of the starts, nothing is claimed.
    let topology = engine.topology.queues().topology;
    let starts = reserve_local_starts(engine, own);
    let launched = if starts.is_empty() {
        let launch = engine.store.launch_in_own_transaction(messages).await?;
        notify_launch(engine, messages, &launch, vec![]);
        vec![launch.started_as(messages, attempt); messages.len()]
    } else {
        // Claimed runs have to start.
        run_to_completion(launch_and_start(engine.clone(), topology, messages.clone(), starts, attempt))
            .await?
    };
    if attempt == Attempt::Repeat {
        // Messages launched by an earlier attempt have not been announced.
        engine.wake_tasks();
        engine.wakeups.others.notify_one();
    }
    Ok(launched)
}

/// A slot for each run that will want one now, as long as there are any.
fn reserve_local_starts(engine: &Arc<Engine>, messages: &mut [NewMessage]) -> Vec<LocalStart> {
    let (mut starts, sagas) = (vec![], engine.sagas());
    // A large launch takes a while, for which the worker would be locked.
    if engine.stopping.is_cancelled() || is_bulky(messages) {
        return starts;
    }
    // A claim checks due times and deadlines.
    let at_once = messages.iter_mut().enumerate().filter(|(_, message)| !message.has_timer());
    for (at, message) in at_once {
        let topic = message.topic.clone();
        let own = sagas.handlers_of(&topic);
        let topology = &engine.topology;
        let is_elsewhere = |handler: &str| {
            topology.is_superseded(&topic, handler)
                || topology.is_paused_for_new(&topic, handler)
                || topology.is_limited(handler)
        };
        for handler in own.filter(|handler| !is_elsewhere(handler)) {
            let common = engine.slots.clone().try_acquire_owned().ok().map(Slot::Shared);
            let Some(slot) = common.or_else(|| engine.reserved.take(&engine.running_counts, handler)) else {
                continue;
            };
            let key = message.reserve_local_run(handler);
            let (flight, count) =
                (InFlightGuard::begin(engine.clone(), key), engine.running_counts.take(handler));
            starts.push(LocalStart { message: at, key, handler: handler.to_owned(), flight, count, slot });
        }
    }
    starts
}

/// Launches, and starts the claimed runs.
async fn launch_and_start(
    engine: Arc<Engine>,
    topology: i64,
    messages: Arc<Vec<NewMessage>>,
    starts: Vec<LocalStart>,
    attempt: Attempt,
) -> sqlx::Result<Vec<StartedAs>> {
    let launch = match engine.store.launch_and_claim(engine.claimer(), topology, &messages).await {
        Ok(launch) => launch,
        Err(error) => {
            // From here on runs that may have been claimed anyway are not in flight.
            drop(starts);
            let refused = error.as_database_error().is_some() || Unhandled::find_in(&error).is_some();
            if is_transient(&error) || !refused {
                telemetry::launch_unknown(engine.worker, &error);
                engine.mark_in_doubt();
            }
            return Err(error);
        }
    };
    let (mut begun, mut started) = (vec![], vec![vec![]; messages.len()]);
    for LocalStart { message, key, handler, flight, count, slot } in starts {
        // Not if its message existed, or its handler is not subscribed any more.
        if launch.claimed.contains(&key.id) {
            begun.push(handler.clone());
            started[message].push((key.id, handler.clone()));
            let claimed = messages[message].claimed(key, handler, &engine.identifier);
            claim::spawn_run(&engine, flight, claimed, SlotLease::new(count, slot));
        }
    }
    notify_launch(&engine, &messages, &launch, begun);
    let otherwise = launch.started_as(&messages, attempt);
    // A run that did not start is of another message if its handler is the one that started.
    let is_only = |started: &String| launch.handlers.iter().all(|other| other == started);
    let started = started.iter().map(|runs| match &runs[..] {
        [(run, handler)] if is_only(handler) => StartedAs::SingleLocalRun(*run),
        _ => otherwise,
    });
    Ok(started.collect())
}

/// Notifies workers of runs that do not start here. The runs of the handlers in `begun` have started.
fn notify_launch(engine: &Engine, messages: &[NewMessage], launch: &LaunchResult, begun: Vec<String>) {
    if launch.launched > 0 {
        let handlers = [begun, launch.handlers.clone()].concat();
        engine.unhandled.launched(messages.iter().map(|message| &*message.topic), &handlers);
    }
    engine.notify_ready(&launch.handlers);
    if messages.iter().any(NewMessage::has_timer) {
        engine.reschedule_timer();
    }
}

/// The maximum number of runs that a signal starts in the process that sends it. Most keys are those of one run.
const SIGNALLED_MAX: u32 = 4;

/// Sends a signal, and starts as many of the runs that it reaches as there are slots. Notifies workers of the handlers of
/// the others. Returns how many runs it has reached.
pub(crate) async fn send_signal(engine: &Arc<Engine>, signal: &NewSignal) -> sqlx::Result<u64> {
    let claims = engine.signal_claims.try_read().ok().filter(|_| !engine.stopping.is_cancelled());
    let most = u32::try_from(engine.slots.available_permits()).unwrap_or(u32::MAX).min(SIGNALLED_MAX);
    let slots =
        engine.slots.clone().try_acquire_many_owned(most).ok().filter(|_| most > 0 && claims.is_some());
    let queues = engine.topology.queues();
    let claimer = slots.as_ref().map(|slots| SignalClaimer {
        claimer: engine.claimer(),
        queues: &queues,
        slots: slots.num_permits(),
    });
    let is_claiming = claimer.is_some();
    let sent = engine.store.send_signal(signal, claimer).await;
    let SignalSent { reached, handlers, claimed } = sent.inspect_err(|error| {
        // A statement that waited too long for a lock has done nothing.
        if is_claiming && !is_contended(error) {
            engine.mark_in_doubt();
        }
    })?;
    if let Some(mut slots) = slots {
        claim::start_claimed(engine, claimed, &mut slots).await;
    }
    drop(claims);
    engine.notify_ready(&handlers);
    Ok(reached)
}

/// Wakes those of these parents that have no child left. As many as there are slots continue here, regardless of turns:
/// they finish work that has begun. Workers of the handlers of the others are notified. `slots` come from their
/// children.
///
/// A parent without a step left and without a failed child commits in the same statement; returns the parents of these.
///
/// After an error it is to be called with [`Attempt::Repeat`]: if the first call claimed runs and only the answer was
/// lost, nothing must count as in flight; and if the database refused a commit, that concerns only its run.
pub(super) async fn wake(
    engine: &Arc<Engine>,
    parents: &[ParentRef],
    slots: Option<OwnedSemaphorePermit>,
    attempt: Attempt,
) -> sqlx::Result<Vec<ParentCheck>> {
    let mut slots = if attempt == Attempt::First && !engine.stopping.is_cancelled() {
        slots_for_parents(engine, parents.len(), slots)
    } else {
        None
    };
    let slots_free = slots.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    // Their epochs are unknown. A parent that does not wake stays as it is: an execution of it has it in flight under
    // the epoch of that execution.
    let claimable = parents.iter().take(slots_free);
    let expected: Vec<_> = claimable
        .map(|parent| InFlightGuard::begin_at_unknown_epoch(engine.clone(), parent.root, parent.id))
        .collect();
    let queues = engine.topology.queues();
    // A rehearsal has each run settle for itself.
    let commits = attempt == Attempt::First && engine.settings.rehearsal.is_none();
    let options = WakeOptions { slots: slots_free, commits };
    let woken = match engine.store.wake_and_claim(parents, engine.claimer(), &queues, options).await {
        Ok(woken) => woken,
        Err(error) => {
            // From here on runs that may have been claimed anyway are not in flight.
            drop(expected);
            // A run that may have committed anyway has a parent that is not notified.
            if slots_free > 0 || commits {
                engine.mark_in_doubt();
            }
            return Err(error);
        }
    };
    if let Some(slots) = &mut slots {
        claim::start_claimed(engine, woken.claimed, slots).await;
    }
    let checks = split_committed(engine, woken.committed, slots.as_mut());
    drop((expected, slots));
    engine.notify_ready(&woken.handlers);
    if woken.sleeps {
        engine.reschedule_timer();
    }
    woken.awaited.into_iter().for_each(|to| engine.wakeups.deliver(Delivery::To(to)));
    Ok(checks)
}

/// Notifies clients of roots that have committed. Returns the parents of the others, each with one of these slots, as
/// far as there are any.
fn split_committed(
    engine: &Engine,
    committed: Vec<CommittedParent>,
    mut slots: Option<&mut OwnedSemaphorePermit>,
) -> Vec<ParentCheck> {
    let mut checks = vec![];
    for CommittedParent { root, parent, is_first, handler, duration } in committed {
        metrics::run_seconds(&handler, "committed").record(duration.as_seconds_f64());
        match parent {
            Some(parent) => checks.push((parent, slots.as_mut().and_then(|slots| slots.split(1)))),
            None if is_first => {
                metrics::root_runs("committed", 1);
                engine.completions.notify(root, RunEnd::Committed);
            }
            None => engine.completions.notify(root, RunEnd::Unknown),
        }
    }
    checks
}

/// A slot for each of so many runs, as far as there are any: those that are left to them, and free ones.
fn slots_for_parents(
    engine: &Engine,
    runs: usize,
    left: Option<OwnedSemaphorePermit>,
) -> Option<OwnedSemaphorePermit> {
    let more = runs.saturating_sub(left.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
    let more = u32::try_from(more.min(engine.slots.available_permits())).unwrap_or(u32::MAX);
    let free = engine.slots.clone().try_acquire_many_owned(more).ok().filter(|_| more > 0);
    match (left, free) {
        (Some(mut left), Some(free)) => {
            left.merge(free);
            Some(left)
        }
        (left, free) => left.or(free),
    }
}
