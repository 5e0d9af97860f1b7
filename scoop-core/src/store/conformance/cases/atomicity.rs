//! One round, and each call of it that can fail.

use crate::store::conformance::support::{
    ENOUGH_CALLS, Kept, NEXT, all_dequeued, committed, dequeued, ensure, full_round, is_on_record, keys,
    mute, nothing, refused,
};
use crate::store::conformance::{Fault, World};
use crate::store::{Dequeued, Round, Rounds, Verdict};

/// Goes through it with each of these faults at each call, until there is no such call any more.
pub(super) async fn at_each_call(
    faults: &[Fault],
    attempt: impl AsyncFn(Fault, usize) -> Kept<bool>,
) -> Kept {
    for &fault in faults {
        for nth in 1.. {
            ensure!(nth < ENOUGH_CALLS, "there is no end of calls");
            let struck = attempt(fault, nth).await;
            if !struck.map_err(|wrong| wrong.during(format_args!("{fault:?} at call {nth}")))? {
                break;
            }
        }
    }
    Ok(())
}

pub(in super::super) async fn with_item<W: World>(make: impl AsyncFn() -> W) -> Kept {
    at_each_call(&Fault::ALL, async |fault, nth| {
        let struck = round_with_item(&make().await, fault, nth, false).await?;
        Ok(round_with_item(&make().await, fault, nth, true).await? || struck)
    })
    .await
}

/// A round that fails, and whoever comes then: to read what is on record, or first for what there is to do.
async fn round_with_item<W: World>(world: &W, fault: Fault, nth: usize, dequeues: bool) -> Kept<bool> {
    let (store, other) = (world.open().await, world.open().await);
    committed(&store, &Round::new().enqueue("work", mute())).await?;
    let held = dequeued(&store, "first", "work").await?;

    world.faults().arm(fault, nth);
    let answer = store.commit(&full_round(Some(held.token.clone()))).await;
    let struck = world.faults().disarm();
    if dequeues {
        dequeued_at_once(&other).await?;
    }
    let done = is_on_record(&other).await?;
    match answer {
        Ok(Verdict::Committed) => ensure!(done, "a round was committed, and is not on record"),
        Ok(Verdict::Refused) => ensure!(struck, "a round was refused that nothing speaks against"),
        Err(error) => ensure!(struck, "a call failed: {error}"),
    }

    world.kill("first").await;
    other.take_over().await?;
    let next = all_dequeued(&other, "second").await?;
    let acknowledged = match &next[..] {
        [again] if again.item.key == "work" => {
            ensure!(!done, "an item came again whose round is on record");
            taken_over(world, &held, again).await?;
            all_dequeued(&other, "third").await?
        }
        _ => next,
    };
    ensure!(is_on_record(&other).await?, "an item is gone, and its round is not on record");
    ensure!(keys(&acknowledged) == NEXT, "after a round, there was {:?} to do", keys(&acknowledged));
    // Whatever was under way has no effect any more.
    let _ = store.commit(&full_round(Some(held.token))).await?;
    nothing(&other, "fourth", "all items are held or acknowledged").await?;
    ensure!(is_on_record(&other).await?, "a round that is sent again undoes something");
    Ok(struck)
}

/// While the item is still held there is nothing to do, or all that its round enqueues.
async fn dequeued_at_once(store: &impl Rounds) -> Kept {
    let next = all_dequeued(store, "at once").await?;
    ensure!(next.is_empty() || keys(&next) == NEXT, "half a round is in the queue: {:?}", keys(&next));
    let there = !next.is_empty();
    for dequeued in next {
        store.abandon(&dequeued.token).await?;
    }
    ensure!(is_on_record(store).await? || !there, "of half a round there are only the items");
    Ok(())
}

/// Another brings to an end what the first did not.
async fn taken_over<W: World>(world: &W, held: &Dequeued, again: &Dequeued) -> Kept {
    let other = world.open().await;
    ensure!(!is_on_record(&other).await?, "an item came again whose round is on record");
    ensure!(again.token.epoch > held.token.epoch, "an item was taken over under no higher epoch");
    let because = "the item had been taken over from its holder";
    refused(&other, &full_round(Some(held.token.clone())), because).await?;
    ensure!(!is_on_record(&other).await?, "a round that was refused is on record");
    committed(&other, &full_round(Some(again.token.clone()))).await
}

pub(in super::super) async fn launch<W: World>(make: impl AsyncFn() -> W) -> Kept {
    at_each_call(&Fault::ALL, async |fault, nth| {
        let struck = round_without_item(&make().await, fault, nth, true).await?;
        Ok(round_without_item(&make().await, fault, nth, false).await? || struck)
    })
    .await
}

async fn round_without_item<W: World>(world: &W, fault: Fault, nth: usize, again: bool) -> Kept<bool> {
    let (store, other) = (world.open().await, world.open().await);
    world.faults().arm(fault, nth);
    let answer = store.commit(&full_round(None)).await;
    let struck = world.faults().disarm();
    let done = is_on_record(&other).await?;
    match answer {
        Ok(verdict) => {
            ensure!(verdict == Verdict::Committed, "a round was refused that acknowledges nothing");
            ensure!(done, "a round was committed, and is not on record");
        }
        Err(error) => ensure!(struck, "a call failed: {error}"),
    }
    if again {
        committed(&other, &full_round(None)).await?;
        ensure!(is_on_record(&other).await?, "a round was committed, and is not on record");
    }
    // Locks that were taken to carry it out may have to run out.
    let mut next = all_dequeued(&other, "first").await?;
    world.kill("nobody").await;
    other.take_over().await?;
    if next.is_empty() {
        next = all_dequeued(&other, "second").await?;
    }
    match is_on_record(&other).await? {
        true => ensure!(keys(&next) == NEXT, "after a round, there was {:?} to do", keys(&next)),
        false => ensure!(!done && !again && next.is_empty(), "a round has left {:?} alone", keys(&next)),
    }
    Ok(struck)
}
