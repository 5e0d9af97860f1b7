//! An order from beginning to end, with a fault at each call.

use std::collections::BTreeSet;

use super::atomicity::at_each_call;
use crate::conformance::support::{
    CaseFailure, CaseResult, ENOUGH, Turnstile, ensure, mute, nothing, stream,
};
use crate::conformance::{Fault, World};
use crate::{Dequeued, Round, Rounds};

/// The number of pseudo-random sequences of deaths.
const SEEDS: u64 = 12;

/// The keys of all items.
const DONE: [&str; 6] = ["bake", "brew", "cut", "order", "serve brew", "serve cut"];

/// The launch of the order.
fn order() -> Round {
    Round::new().append("log", "order", mute()).append("same", "order", mute()).enqueue("order", mute())
}

/// The round that completes an item.
fn what_follows(of: &Dequeued) -> Round {
    let key = &*of.item.key;
    let done = Round::new().append("log", format!("{key} done"), mute());
    let done = done.append("done", key, mute()).append("same", format!("{key} done"), mute());
    let round = match key {
        "order" => done.enqueue("brew", mute()).enqueue("bake", mute()),
        // The first of the two enqueues it; for the second it is a duplicate.
        "brew" | "bake" => {
            done.enqueue("cut", mute()).append("log", "cutting", mute()).append("same", "cutting", mute())
        }
        _ => done,
    };
    let round = match key {
        "brew" | "cut" => round.enqueue(format!("serve {key}"), mute()),
        _ => round,
    };
    round.acknowledge(of.token.clone())
}

/// Works as one life of a process until the queue is empty. Stops after [`ENOUGH`] items.
async fn live<S: Rounds>(store: &S, holder: &str) -> Result<(), S::Error> {
    // The process does not know whether the order was launched before.
    let _ = store.commit(&order()).await?;
    store.take_over().await?;
    for _ in 0..ENOUGH {
        let Some(dequeued) = store.dequeue(holder).await? else { break };
        let _ = store.commit(&what_follows(&dequeued)).await?;
    }
    Ok(())
}

/// The streams `log` and `same` have the same entries, regardless of the order of rounds.
async fn no_round_is_half_done(store: &impl Rounds) -> CaseResult {
    let (log, same) = (stream(store, "log").await?, stream(store, "same").await?);
    let sets = [&log, &same].map(|stream| stream.iter().collect::<BTreeSet<_>>());
    ensure!(sets[0] == sets[1], "half a round is recorded: {log:?}, but {same:?}");
    ensure!(sets[0].len() == log.len() && sets[1].len() == same.len(), "an entry is there twice: {log:?}");
    Ok(())
}

/// All items are done, and the queue is empty.
async fn all_is_done<W: World>(world: &W, holder: &str) -> CaseResult {
    let store = world.open().await;
    no_round_is_half_done(&store).await?;
    let mut done = stream(&store, "done").await?;
    done.sort_unstable();
    ensure!(done == DONE, "in the end this was done: {done:?}");
    let log = stream(&store, "log").await?;
    ensure!(log.len() == DONE.len() + 2, "in the end this is recorded: {log:?}");
    world.kill(holder).await;
    store.take_over().await?;
    nothing(&store, "afterwards", "everything was acknowledged").await
}

/// The outcome of a life.
struct Ended {
    /// Whether the life ended without an error.
    in_peace: bool,
    /// Whether the injected fault occurred.
    injected: bool,
}

/// One life, with or without an injected fault. A death leaves no round half done, and its items are taken over.
async fn one_life<W: World>(world: &W, holder: &str, fault: Option<(Fault, usize)>) -> CaseResult<Ended> {
    if let Some((fault, nth)) = fault {
        world.faults().arm(fault, nth);
    }
    let lived = live(&world.open().await, holder).await;
    let injected = world.faults().disarm();
    let in_peace = lived.is_ok();
    lived.map_err(CaseFailure::from).or_else(|wrong| if injected { Ok(()) } else { Err(wrong) })?;
    let store = world.open().await;
    no_round_is_half_done(&store).await?;
    if !in_peace {
        world.kill(holder).await;
        store.take_over().await?;
    }
    Ok(Ended { in_peace, injected })
}

/// A life without faults, and the checks after it.
async fn last_life<W: World>(world: &W) -> CaseResult {
    one_life(world, "the last", None).await?;
    all_is_done(world, "the last").await
}

pub(in crate::conformance) async fn crashes<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    at_each_call(&[Fault::Crash, Fault::LastWords], async |fault, nth| {
        let world = make().await;
        let ended = one_life(&world, "the first", Some((fault, nth))).await?;
        last_life(&world).await?;
        Ok(ended.injected)
    })
    .await?;
    for seed in 0..SEEDS {
        let world = make().await;
        many_deaths(&world, &mut Turnstile::new(seed))
            .await
            .map_err(|wrong| wrong.during(format_args!("the deaths of seed {seed}")))?;
    }
    Ok(())
}

async fn many_deaths<W: World>(world: &W, turns: &mut Turnstile) -> CaseResult {
    for death in 0..8 {
        let fault = (Fault::ALL[turns.below(Fault::ALL.len())], 1 + turns.below(15));
        if one_life(world, &format!("life {death}"), Some(fault)).await?.in_peace {
            break;
        }
    }
    last_life(world).await
}

pub(in crate::conformance) async fn lost_answers<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    at_each_call(&[Fault::Request, Fault::Answer], async |fault, nth| {
        let world = make().await;
        let store = world.open().await;
        world.faults().arm(fault, nth);
        let lived = live_on(&store, "the first").await;
        let injected = world.faults().disarm();
        lived?;
        no_round_is_half_done(&store).await?;
        // It may hold an item without knowing of it.
        world.kill("the first").await;
        store.take_over().await?;
        last_life(&world).await?;
        Ok(injected)
    })
    .await
}

/// A life that repeats failed calls.
async fn live_on(store: &impl Rounds, holder: &str) -> CaseResult {
    let _ = until_it_answers(async || store.commit(&order()).await).await?;
    for _ in 0..ENOUGH {
        let Some(dequeued) = until_it_answers(async || store.dequeue(holder).await).await? else { break };
        let _ = until_it_answers(async || store.commit(&what_follows(&dequeued)).await).await?;
    }
    Ok(())
}

/// Calls again after a failure; the second call must succeed.
async fn until_it_answers<T, E: std::error::Error>(call: impl AsyncFn() -> Result<T, E>) -> CaseResult<T> {
    match call().await {
        Ok(answer) => Ok(answer),
        Err(_) => Ok(call().await?),
    }
}
