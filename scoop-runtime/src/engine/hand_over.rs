//! Hands the runs of messages that this process launches to its own free slots. They are claimed by
//! the very statement that launches them, and begin when that has answered.
//!
//! Each has its id from here, and counts as in flight before the statement is sent. So whoever looks
//! for runs that we own without working on them cannot take it for one: he waits until no
//! statement is under way that makes runs ours, keeps others off, and only then asks what is in flight
//! (see [`super::claim`]). If the answer is lost, the run is no longer in flight, and is found in
//! that way.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tracing::warn;

use super::execute::InFlight;
use super::shares::Share;
use super::{Engine, claim};
use crate::error::is_transient;
use crate::store::{Key, Launch, Launched};

/// Room for one run.
struct Room {
    /// The position of its message.
    message: usize,
    key: Key,
    handler: String,
    flight: InFlight,
    share: Share,
    slot: OwnedSemaphorePermit,
}

/// Launches messages in a transaction of their own, and begins with as many of their runs as there
/// are slots for. Of the rest, whoever has their handlers is told.
pub(super) async fn launch(engine: &Arc<Engine>, mut messages: Vec<Launched>) -> sqlx::Result<()> {
    let rooms = keep_rooms(engine, &mut messages);
    if rooms.is_empty() {
        let launch = engine.store.launch_alone(&messages).await?;
        tell(engine, &messages, &launch);
        return Ok(());
    }
    // In a task of its own, so that nobody can cancel it between the claim and the beginning.
    let launching = tokio::spawn(launch_here(engine.clone(), messages, rooms));
    launching.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

/// A slot for each run that will want one now, as long as there are any.
fn keep_rooms(engine: &Arc<Engine>, messages: &mut [Launched]) -> Vec<Room> {
    let mut rooms = vec![];
    if engine.stopping.is_cancelled() {
        return rooms;
    }
    // When something is due, or whether it has missed a deadline, the claim will see.
    let at_once = messages.iter_mut().enumerate().filter(|(_, message)| !message.sets_a_time());
    for (at, message) in at_once {
        for handler in engine.registry.handlers_of(message.topic) {
            let Ok(slot) = engine.slots.clone().try_acquire_owned() else {
                return rooms;
            };
            let key = message.run_here(handler);
            let (flight, share) = (InFlight::begin(engine.clone(), key), engine.shares.take(handler));
            rooms.push(Room { message: at, key, handler: handler.to_owned(), flight, share, slot });
        }
    }
    rooms
}

/// Launches, and begins with what was claimed.
async fn launch_here(engine: Arc<Engine>, messages: Vec<Launched>, rooms: Vec<Room>) -> sqlx::Result<()> {
    let launch = match engine.store.launch_here(engine.worker, &engine.identifier, &messages).await {
        Ok(launch) => launch,
        Err(error) => {
            // From here on what may have been claimed all the same is not in flight.
            drop(rooms);
            if is_transient(&error) || error.as_database_error().is_none() {
                warn!(%error, "whether messages were launched is not known; looking it up");
                engine.doubt();
            }
            return Err(error);
        }
    };
    for Room { message, key, handler, flight, share, slot } in rooms {
        // Not if its message was there before, or its handler is not listed any more.
        if launch.claimed.contains(&key.id) {
            let claimed = messages[message].claimed(key, handler, &engine.identifier);
            claim::begin(&engine, flight, claimed, (share, slot));
        }
    }
    tell(&engine, &messages, &launch);
    Ok(())
}

/// What does not begin here may begin elsewhere, or later.
fn tell(engine: &Engine, messages: &[Launched], launch: &Launch) {
    engine.announce(&launch.handlers);
    if messages.iter().any(Launched::sets_a_time) {
        engine.set_a_time();
    }
}
