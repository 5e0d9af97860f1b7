//! Hands runs to slots of this process without a claim of their own: those of messages that it launches,
//! and those that wait no longer, since their last child has ended here. They are claimed by the very
//! statement that launches or wakes them, and go on when that has answered.
//!
//! The id of each is known here, and it counts as in flight before the statement is sent. So whoever looks
//! for runs that we own without working on them cannot take it for one: he waits until no
//! statement is under way that makes runs ours, keeps others off, and only then asks what is in flight
//! (see [`super::claim`]). If the answer is lost, the run is no longer in flight, and is found in
//! that way.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::execute::InFlight;
use super::shares::{Seat, Share, Slot};
use super::wake::{Bereft, End};
use super::{Engine, claim};
use crate::error::is_transient;
use crate::store::{Claimer, Committed, Key, Launch, Launched, Parent, is_bulky, known_before};
use crate::telemetry;
use crate::unhandled::Unhandled;
use crate::uninterrupted::uninterrupted;

/// Room for one run.
struct Room {
    /// The position of its message.
    message: usize,
    key: Key,
    handler: String,
    flight: InFlight,
    share: Share,
    slot: Slot,
}

/// How a launch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With one run, in this process, and there is no other: no other handler was listed. When that has committed,
    /// all that was launched has.
    LoneRunHere,
    Otherwise,
}

/// Launches messages in a transaction of their own, and begins with as many of their runs as there
/// are slots for. Of the rest, whoever has their handlers is told.
///
/// After an attempt whose answer was lost, `again` skips the messages launched by it. The runs that it claimed are
/// no longer in flight, and are found by that.
pub(super) async fn launch(
    engine: &Arc<Engine>,
    messages: &mut Arc<Vec<Launched>>,
    again: bool,
) -> sqlx::Result<Start> {
    // They are registered twice only if the task of an earlier attempt was stopped.
    let own = Arc::get_mut(messages).ok_or(sqlx::Error::WorkerCrashed)?;
    known_before(own, again);
    let rooms = keep_rooms(engine, own);
    let launched = if rooms.is_empty() {
        let launch = engine.store.launch_alone(messages).await?;
        tell(engine, messages, &launch, vec![]);
        Start::Otherwise
    } else {
        // What is claimed has to begin.
        uninterrupted(launch_here(engine.clone(), messages.clone(), rooms)).await?
    };
    if again {
        // Messages launched by an earlier attempt have not been announced.
        engine.look_up();
        engine.wakeups.others.notify_one();
    }
    Ok(launched)
}

/// A slot for each run that will want one now, as long as there are any.
fn keep_rooms(engine: &Arc<Engine>, messages: &mut [Launched]) -> Vec<Room> {
    let (mut rooms, sagas) = (vec![], engine.sagas());
    // A large launch takes a while, for which the worker would be locked.
    if engine.stopping.is_cancelled() || is_bulky(messages) {
        return rooms;
    }
    // When something is due, or whether it has missed a deadline, the claim will see.
    let at_once = messages.iter_mut().enumerate().filter(|(_, message)| !message.sets_a_time());
    for (at, message) in at_once {
        let own = sagas.handlers_of(message.topic);
        for handler in own.filter(|handler| !engine.definitions.is_superseded(handler)) {
            let common = engine.slots.clone().try_acquire_owned().ok().map(Slot::Common);
            let Some(slot) = common.or_else(|| engine.spare.take(&engine.shares, handler)) else {
                continue;
            };
            let key = message.run_here(handler);
            let (flight, share) = (InFlight::begin(engine.clone(), key), engine.shares.take(handler));
            rooms.push(Room { message: at, key, handler: handler.to_owned(), flight, share, slot });
        }
    }
    rooms
}

/// Launches, and begins with what was claimed.
async fn launch_here(
    engine: Arc<Engine>,
    messages: Arc<Vec<Launched>>,
    rooms: Vec<Room>,
) -> sqlx::Result<Start> {
    let (worker, topology) = (engine.worker, engine.definitions.lanes().topology);
    let claimer = Claimer { worker, identifier: &engine.identifier, topology };
    let launch = match engine.store.launch_here(claimer, &messages).await {
        Ok(launch) => launch,
        Err(error) => {
            // From here on what may have been claimed all the same is not in flight.
            drop(rooms);
            let refused = error.as_database_error().is_some() || Unhandled::of(&error).is_some();
            if is_transient(&error) || !refused {
                telemetry::launch_unknown(engine.worker, &error);
                engine.doubt();
            }
            return Err(error);
        }
    };
    let mut begun = vec![];
    for Room { message, key, handler, flight, share, slot } in rooms {
        // Not if its message was there before, or its handler is not listed any more.
        if launch.claimed.contains(&key.id) {
            begun.push(handler.clone());
            let claimed = messages[message].claimed(key, handler, &engine.identifier);
            claim::begin(&engine, flight, claimed, Seat::new(share, slot));
        }
    }
    tell(&engine, &messages, &launch, begun);
    let lone = launch.launched == 1 && launch.claimed.len() == 1 && launch.handlers.is_empty();
    Ok(if lone { Start::LoneRunHere } else { Start::Otherwise })
}

/// Notifies other workers of runs that do not begin here. The runs of the handlers in `begun` have begun.
fn tell(engine: &Engine, messages: &[Launched], launch: &Launch, begun: Vec<String>) {
    if launch.launched > 0 {
        let handlers = [begun, launch.handlers.clone()].concat();
        engine.unhandled.launched(messages.iter().map(|message| message.topic), &handlers);
    }
    engine.announce(&launch.handlers);
    if messages.iter().any(Launched::sets_a_time) {
        engine.set_a_time();
    }
}

/// Wakes those of these parents that wait for nobody any more. As many as there are slots for go on here,
/// whatever their turn is: they finish what was begun. Of the rest, whoever has their handlers is
/// told. `slots` are those that their children have left them.
///
/// Those that have no step left, and no child that failed, commit at once; returns their own parents, who have lost a
/// child with that.
///
/// After an error it is to be called without `anything_new`: if the claims of the first call were carried out
/// and only the answer was lost, nothing must look as if it were in flight; and if it was an end that the
/// database refuses, that is its run's own affair.
pub(super) async fn wake(
    engine: &Arc<Engine>,
    parents: &[Parent],
    slots: Option<OwnedSemaphorePermit>,
    anything_new: bool,
) -> sqlx::Result<Vec<Bereft>> {
    let mut slots = if anything_new && !engine.stopping.is_cancelled() {
        slots_for(engine, parents.len(), slots)
    } else {
        None
    };
    let room = slots.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    // Under which epochs is not known. Those that do not wake are not touched by it: whoever works
    // on one of them has it in flight under his own.
    let room_for = parents.iter().take(room);
    let expected: Vec<_> =
        room_for.map(|parent| InFlight::expect(engine.clone(), parent.root, parent.id)).collect();
    let lanes = engine.definitions.lanes();
    // A rehearsal has each run settle for itself.
    let commits = anything_new && engine.settings.rehearsal.is_none();
    let woken =
        engine.store.wake_here(parents, engine.worker, &engine.identifier, &lanes, (room, commits)).await;
    let woken = match woken {
        Ok(woken) => woken,
        Err(error) => {
            // From here on what may have been claimed all the same is not in flight.
            drop(expected);
            // Who may have committed all the same has a parent that nobody tells.
            if room > 0 || commits {
                engine.doubt();
            }
            return Err(error);
        }
    };
    if let Some(slots) = &mut slots {
        claim::start_all(engine, woken.claimed, slots).await;
    }
    let bereft = pass_on(engine, woken.committed, slots.as_mut());
    drop((expected, slots));
    engine.announce(&woken.handlers);
    Ok(bereft)
}

/// Tells who waits for roots that have committed. Returns the parents of the others, each with one of these slots, as
/// far as there are any.
fn pass_on(
    engine: &Engine,
    committed: Vec<Committed>,
    mut slots: Option<&mut OwnedSemaphorePermit>,
) -> Vec<Bereft> {
    let mut bereft = vec![];
    for Committed { root, parent } in committed {
        match parent {
            Some(parent) => bereft.push((parent, slots.as_mut().and_then(|slots| slots.split(1)))),
            None => engine.waiters.root_ended(root, End::Committed),
        }
    }
    bereft
}

/// A slot for each of so many runs, as far as there are any: those that are left to them, and free ones.
fn slots_for(
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
