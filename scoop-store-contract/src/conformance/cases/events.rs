//! Events from outside, and instances that continue as new. Neither needs an operation of its own:
//!
//! * **An event** is a round without an acknowledgement. It records the event in a stream of its name, which also gets an
//!   entry for each wait, and enqueues an item that compares the two. So does the round that begins a wait. Whichever comes
//!   later sees both, in the one order of the stream: its first event goes to its first wait, and so on. An early event
//!   is kept, and a repeated one has the key of the first.
//! * **An execution** has a stream of its own. The round that ends one enqueues the beginning of the next, so there is no
//!   moment without either, and the next one has an empty history.

use std::collections::BTreeSet;

use futures_util::future::try_join4;
use serde_json::json;

use super::atomicity::at_each_call;
use crate::conformance::support::{
    CaseFailure, CaseResult, ENOUGH, Turnstile, ensure, mute, nothing, stream,
};
use crate::conformance::{Fault, World};
use crate::{Dequeued, Round, Rounds};

/// The number of pseudo-random interleavings.
const SEEDS: u64 = 10;

/// The stream of all events of one name, and of the waits for them.
const EVENTS: &str = "events";

/// The prefixes of the keys of entries and items.
const RAISED: &str = "raised ";
const AWAITED: &str = "awaited ";
const BEGIN: &str = "begin ";
const COMPARE: &str = "compare after ";
const GO_ON: &str = "go on ";

/// The stream of an execution.
fn history(execution: usize) -> String {
    format!("execution {execution}")
}

fn begin() -> Round {
    Round::new().enqueue(format!("{BEGIN}0"), mute())
}

fn raise(event: &str) -> Round {
    let key = format!("{RAISED}{event}");
    Round::new().append(EVENTS, &key, mute()).enqueue(format!("{COMPARE}{key}"), mute())
}

/// The events in a stream that have a wait, each with the execution that gets it.
fn pairs(events: &[String]) -> Vec<(usize, String)> {
    let raised = events.iter().filter_map(|key| key.strip_prefix(RAISED));
    let awaited = events.iter().filter_map(|key| key.strip_prefix(AWAITED)?.parse().ok());
    awaited.zip(raised.map(str::to_owned)).collect()
}

/// The round that completes an item, of an instance with so many executions.
async fn what_follows<S: Rounds>(store: &S, of: &Dequeued, executions: usize) -> Result<Round, S::Error> {
    let key = &*of.item.key;
    let round = Round::new();
    let round = if let Some(execution) = key.strip_prefix(BEGIN) {
        let awaited = format!("{AWAITED}{execution}");
        let round = round.append(format!("execution {execution}"), "begun", mute());
        round.append(EVENTS, &awaited, mute()).enqueue(format!("{COMPARE}{awaited}"), mute())
    } else if key.starts_with(COMPARE) {
        let events: Vec<_> = store.read(EVENTS).await?.into_iter().map(|entry| entry.key).collect();
        pairs(&events).into_iter().fold(round, |round, (execution, event)| {
            let round = round.append(history(execution), format!("got {event}"), mute());
            round.enqueue(format!("{GO_ON}{execution}"), json!(event))
        })
    } else if let Some(execution) =
        key.strip_prefix(GO_ON).and_then(|execution| execution.parse::<usize>().ok())
    {
        let round = round.append(history(execution), "ended", of.item.body.clone());
        match execution + 1 {
            next if next < executions => round.enqueue(format!("{BEGIN}{next}"), mute()),
            _ => round,
        }
    } else {
        round
    };
    Ok(round.acknowledge(of.token.clone()))
}

/// Works until the queue is empty. Stops after [`ENOUGH`] items.
async fn work<S: Rounds>(
    store: &S,
    holder: &str,
    executions: usize,
    turns: &mut Option<Turnstile>,
) -> Result<(), S::Error> {
    store.take_over().await?;
    for _ in 0..ENOUGH {
        let Some(dequeued) = store.dequeue(holder).await? else { break };
        if let Some(turns) = turns {
            turns.wait().await;
        }
        let round = what_follows(store, &dequeued, executions).await?;
        let _ = match store.commit(&round).await {
            // Two holders enqueue the same item at the same time. A store may fail one of them, which is repeated.
            Err(_) if turns.is_some() => store.commit(&round).await?,
            committed => committed?,
        };
    }
    Ok(())
}

/// Each execution has got the event that the stream says, exactly once, and began where the one before it ended.
async fn all_is_done<W: World>(world: &W, executions: usize) -> CaseResult<Vec<String>> {
    let store = world.open().await;
    work(&store, "the last", executions, &mut None).await?;
    let events = stream(&store, EVENTS).await?;
    let (pairs, distinct) = (pairs(&events), events.iter().collect::<BTreeSet<_>>());
    ensure!(distinct.len() == events.len(), "an event or a wait is recorded twice: {events:?}");
    // The first execution begins in any case, a later one after the one before it.
    for execution in 0..executions.min(pairs.len() + 1) {
        let found = stream(&store, &history(execution)).await?;
        let mut expected = vec!["begun".to_owned()];
        if let Some((_, event)) = pairs.get(execution) {
            expected.extend([format!("got {event}"), "ended".to_owned()]);
        }
        ensure!(found == expected, "execution {execution} is {found:?}, not {expected:?}, after {events:?}");
    }
    world.kill("the last").await;
    store.take_over().await?;
    nothing(&store, "afterwards", "everything was acknowledged").await?;
    Ok(pairs.into_iter().map(|(_, event)| event).collect())
}

/// What a process does in a case. Returns after the first failed call.
async fn live<S: Rounds>(store: &S, raised: &[[&str; 2]], executions: usize) -> Result<(), S::Error> {
    for [early, late] in raised {
        let _ = store.commit(&raise(early)).await?;
        let _ = store.commit(&begin()).await?;
        work(store, "the first", executions, &mut None).await?;
        let _ = store.commit(&raise(late)).await?;
        let _ = store.commit(&raise(late)).await?;
        work(store, "the first", executions, &mut None).await?;
    }
    Ok(())
}

/// A life with a fault at each of its calls. The last life repeats no event: one that is recorded is delivered.
async fn with_faults<W: World>(
    make: impl AsyncFn() -> W,
    raised: &[[&str; 2]],
    executions: usize,
) -> CaseResult {
    at_each_call(&[Fault::Crash, Fault::LastWords], async |fault, nth| {
        let world = make().await;
        world.faults().arm(fault, nth);
        let lived = live(&world.open().await, raised, executions).await;
        let injected = world.faults().disarm();
        lived.map_err(CaseFailure::from).or_else(|wrong| if injected { Ok(()) } else { Err(wrong) })?;
        world.kill("the first").await;
        let store = world.open().await;
        store.take_over().await?;
        let _ = store.commit(&begin()).await?;
        let got = all_is_done(&world, executions).await?;
        ensure!(injected || got.len() == executions, "without a fault only these events arrived: {got:?}");
        Ok(injected)
    })
    .await
}

pub(in crate::conformance) async fn external_events<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    with_faults(&make, &[["early", "late"]], 2).await?;
    for seed in 0..SEEDS {
        let world = make().await;
        raised_meanwhile(&world, seed).await.map_err(|wrong| wrong.during(format_args!("seed {seed}")))?;
    }
    Ok(())
}

/// Events are raised while two holders begin and end waits for them.
async fn raised_meanwhile<W: World>(world: &W, seed: u64) -> CaseResult {
    const EXECUTIONS: usize = 3;
    let turns = |number| Some(Turnstile::new(4 * seed + number));
    let (one, two, three, four) =
        (world.open().await, world.open().await, world.open().await, world.open().await);
    let _ = one.commit(&begin()).await?;
    let raising = async |store: &W::Store, events: [&str; 2], mut turns: Turnstile| {
        for event in events {
            turns.wait().await;
            let _ = store.commit(&raise(event)).await?;
        }
        Ok::<_, CaseFailure>(())
    };
    let working = async |store: &W::Store, holder: &str, mut turns: Option<Turnstile>| {
        work(store, holder, EXECUTIONS, &mut turns).await.map_err(CaseFailure::from)
    };
    try_join4(
        raising(&one, ["a", "b"], Turnstile::new(seed + 1_000)),
        raising(&two, ["c", "a"], Turnstile::new(seed + 2_000)),
        working(&three, "holder 1", turns(1)),
        working(&four, "holder 2", turns(2)),
    )
    .await?;
    let mut got = all_is_done(world, EXECUTIONS).await?;
    got.sort_unstable();
    ensure!(got == ["a", "b", "c"], "three events were raised, and these arrived: {got:?}");
    Ok(())
}

pub(in crate::conformance) async fn continue_as_new<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    with_faults(&make, &[["a", "b"], ["c", "d"]], 3).await
}
