//! The rows of a script, converted for the audit.

use scoop_audit::{AwaitedSignal, Log, LoggedEvent, LoggedMessage, Subscription};
use scoop_core::{Definition, EventKind, Wait};
use time::{Duration, OffsetDateTime};

use super::script::{Saga, Script};
use super::world::World;

/// The definitions of the sagas, in all their versions.
pub(crate) fn definitions(script: &Script) -> Vec<Definition> {
    script.sagas.iter().map(Saga::definition).collect()
}

fn awaited(wait: &Wait) -> Option<AwaitedSignal> {
    Some(AwaitedSignal { to: wait.signal()?.clone(), until: wait.limit() })
}

/// All rows, with the positions of the driver's clock for times.
pub(crate) fn log(script: &Script, world: &World<'_>) -> Log {
    let time = |tick: u64| OffsetDateTime::UNIX_EPOCH + Duration::microseconds(tick.try_into().unwrap_or(0));
    let rows = world.rows.iter().map(|row| LoggedEvent {
        message: row.event.message,
        kind: row.event.kind,
        handler: row.handler.clone(),
        identifier: row.handler.as_ref().map(|_| "w".into()),
        step: row.event.step.clone(),
        lineage: row.lineage.clone(),
        at: time(row.created_at),
        exception: row.event.exception.clone(),
        next_step: row.event.next_step,
        handler_iteration: row.event.handler_iteration,
        context: row.event.context.clone(),
        continues_as_new: row.event.as_new.is_some(),
        waits_until: row.event.wait.as_ref().filter(|wait| wait.signal().is_none()).and_then(Wait::limit),
        awaits: row.event.wait.as_ref().and_then(awaited),
        strategies: vec![],
    });
    let emitted = world.rows.iter().filter(|row| row.event.kind == EventKind::Emitted);
    let messages = emitted.map(|row| {
        let id = row.event.message;
        LoggedMessage { id, topic: world.topic(id).to_owned() }
    });
    let subscriptions = script.sagas.iter().map(|saga| Subscription {
        topic: saga.topic.clone(),
        handler: saga.name.clone(),
        since: OffsetDateTime::UNIX_EPOCH,
        until: None,
        dropped: false,
    });
    let unfinished = world.unfinished().filter(|(_, _, set_aside)| *set_aside);
    let set_aside = unfinished.map(|(_, lineage, _)| lineage.id());
    Log {
        messages: messages.collect(),
        events: rows.collect(),
        subscriptions: subscriptions.collect(),
        set_aside: set_aside.collect(),
        ..Log::default()
    }
}
