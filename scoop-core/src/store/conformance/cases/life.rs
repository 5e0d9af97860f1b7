//! An order from its beginning to its end, and each call on the way that can fail.

use std::collections::BTreeSet;

use super::atomicity::at_each_call;
use crate::store::conformance::support::{ENOUGH, Kept, Turns, Wrong, ensure, mute, nothing, stream};
use crate::store::conformance::{Fault, World};
use crate::store::{Dequeued, Round, Rounds};

/// How many sequences of deaths there are.
const SEEDS: u64 = 12;

/// All items that there are.
const DONE: [&str; 6] = ["bake", "brew", "cut", "order", "serve brew", "serve cut"];

/// How it begins.
fn order() -> Round {
    Round::new().append("log", "order", mute()).append("same", "order", mute()).enqueue("order", mute())
}

/// What follows from an item.
fn what_follows(of: &Dequeued) -> Round {
    let key = &*of.item.key;
    let done = Round::new().append("log", format!("{key} done"), mute());
    let done = done.append("done", key, mute()).append("same", format!("{key} done"), mute());
    let round = match key {
        "order" => done.enqueue("brew", mute()).enqueue("bake", mute()),
        // Whoever comes first.
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

/// Does what there is to do, until there is nothing more, as one life of a process. Stops if there
/// is no end of it.
async fn live<S: Rounds>(store: &S, holder: &str) -> Result<(), S::Error> {
    // It does not know whether somebody has begun before.
    let _ = store.commit(&order()).await?;
    store.take_over().await?;
    for _ in 0..ENOUGH {
        let Some(dequeued) = store.dequeue(holder).await? else { break };
        let _ = store.commit(&what_follows(&dequeued)).await?;
    }
    Ok(())
}

/// The streams `log` and `same` have the same entries, in whatever order rounds come.
async fn no_round_is_half_done(store: &impl Rounds) -> Kept {
    let (log, same) = (stream(store, "log").await?, stream(store, "same").await?);
    let sets = [&log, &same].map(|stream| stream.iter().collect::<BTreeSet<_>>());
    ensure!(sets[0] == sets[1], "half a round is on record: {log:?}, but {same:?}");
    ensure!(sets[0].len() == log.len() && sets[1].len() == same.len(), "an entry is there twice: {log:?}");
    Ok(())
}

/// All was done, and nothing is left.
async fn all_is_done<W: World>(world: &W, holder: &str) -> Kept {
    let store = world.open().await;
    no_round_is_half_done(&store).await?;
    let mut done = stream(&store, "done").await?;
    done.sort_unstable();
    ensure!(done == DONE, "in the end this was done: {done:?}");
    let log = stream(&store, "log").await?;
    ensure!(log.len() == DONE.len() + 2, "in the end this is on record: {log:?}");
    world.kill(holder).await;
    store.take_over().await?;
    nothing(&store, "afterwards", "everything was acknowledged").await
}

/// What became of a life.
struct Ended {
    /// There was nothing more to do.
    in_peace: bool,
    /// A call failed that was to fail.
    struck: bool,
}

/// One life, with a call that is to fail, or none. Whoever dies leaves nothing half done, and is taken over.
async fn one_life<W: World>(world: &W, holder: &str, fault: Option<(Fault, usize)>) -> Kept<Ended> {
    if let Some((fault, nth)) = fault {
        world.faults().arm(fault, nth);
    }
    let lived = live(&world.open().await, holder).await;
    let struck = world.faults().disarm();
    let in_peace = lived.is_ok();
    lived.map_err(Wrong::from).or_else(|wrong| if struck { Ok(()) } else { Err(wrong) })?;
    let store = world.open().await;
    no_round_is_half_done(&store).await?;
    if !in_peace {
        world.kill(holder).await;
        store.take_over().await?;
    }
    Ok(Ended { in_peace, struck })
}

/// A life in which nothing fails, and what has to be there after that.
async fn last_life<W: World>(world: &W) -> Kept {
    one_life(world, "the last", None).await?;
    all_is_done(world, "the last").await
}

pub(in super::super) async fn crashes<W: World>(make: impl AsyncFn() -> W) -> Kept {
    at_each_call(&[Fault::Crash, Fault::LastWords], async |fault, nth| {
        let world = make().await;
        let ended = one_life(&world, "the first", Some((fault, nth))).await?;
        last_life(&world).await?;
        Ok(ended.struck)
    })
    .await?;
    for seed in 0..SEEDS {
        let world = make().await;
        many_deaths(&world, &mut Turns::new(seed))
            .await
            .map_err(|wrong| wrong.during(format_args!("the deaths of seed {seed}")))?;
    }
    Ok(())
}

async fn many_deaths<W: World>(world: &W, turns: &mut Turns) -> Kept {
    for death in 0..8 {
        let fault = (Fault::ALL[turns.below(Fault::ALL.len())], 1 + turns.below(15));
        if one_life(world, &format!("life {death}"), Some(fault)).await?.in_peace {
            break;
        }
    }
    last_life(world).await
}

pub(in super::super) async fn lost_answers<W: World>(make: impl AsyncFn() -> W) -> Kept {
    at_each_call(&[Fault::Request, Fault::Answer], async |fault, nth| {
        let world = make().await;
        let store = world.open().await;
        world.faults().arm(fault, nth);
        let lived = live_on(&store, "the first").await;
        let struck = world.faults().disarm();
        lived?;
        no_round_is_half_done(&store).await?;
        // It may hold something without knowing it.
        world.kill("the first").await;
        store.take_over().await?;
        last_life(&world).await?;
        Ok(struck)
    })
    .await
}

/// A life of one who repeats what has failed.
async fn live_on(store: &impl Rounds, holder: &str) -> Kept {
    let _ = until_it_answers(async || store.commit(&order()).await).await?;
    for _ in 0..ENOUGH {
        let Some(dequeued) = until_it_answers(async || store.dequeue(holder).await).await? else { break };
        let _ = until_it_answers(async || store.commit(&what_follows(&dequeued)).await).await?;
    }
    Ok(())
}

/// The second time nothing is to fail any more.
async fn until_it_answers<T, E: std::error::Error>(call: impl AsyncFn() -> Result<T, E>) -> Kept<T> {
    match call().await {
        Ok(answer) => Ok(answer),
        Err(_) => Ok(call().await?),
    }
}
