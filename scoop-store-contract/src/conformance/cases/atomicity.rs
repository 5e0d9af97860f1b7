//! One round, with a fault at each of its calls.

use crate::conformance::support::{
    CaseResult, ENOUGH_CALLS, NEXT, all_dequeued, committed, dequeued, ensure, full_round, is_on_record,
    keys, mute, nothing, refused,
};
use crate::conformance::{Fault, World};
use crate::{Dequeued, Round, Rounds, Verdict};

/// Attempts the case with each of these faults at each call, until no such call is left.
pub(super) async fn at_each_call(
    faults: &[Fault],
    attempt: impl AsyncFn(Fault, usize) -> CaseResult<bool>,
) -> CaseResult {
    for &fault in faults {
        for nth in 1.. {
            ensure!(nth < ENOUGH_CALLS, "a case makes an endless number of calls");
            let injected = attempt(fault, nth).await;
            if !injected.map_err(|wrong| wrong.during(format_args!("{fault:?} at call {nth}")))? {
                break;
            }
        }
    }
    Ok(())
}

pub(in crate::conformance) async fn with_item<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    at_each_call(&Fault::ALL, async |fault, nth| {
        let injected = round_with_item(&make().await, fault, nth, false).await?;
        Ok(round_with_item(&make().await, fault, nth, true).await? || injected)
    })
    .await
}

/// A round that fails, and then another process, which reads the entries, or dequeues before that.
async fn round_with_item<W: World>(world: &W, fault: Fault, nth: usize, dequeues: bool) -> CaseResult<bool> {
    let (store, other) = (world.open().await, world.open().await);
    committed(&store, &Round::new().enqueue("work", mute())).await?;
    let held = dequeued(&store, "first", "work").await?;

    world.faults().arm(fault, nth);
    let answer = store.commit(&full_round(Some(held.token.clone()))).await;
    let injected = world.faults().disarm();
    if dequeues {
        dequeued_at_once(&other).await?;
    }
    let done = is_on_record(&other).await?;
    match answer {
        Ok(Verdict::Committed) => ensure!(done, "a round was committed, and is not recorded"),
        Ok(Verdict::Refused) => ensure!(injected, "a valid round was refused"),
        Err(error) => ensure!(injected, "a call failed: {error}"),
    }

    world.kill("first").await;
    other.take_over().await?;
    let next = all_dequeued(&other, "second").await?;
    let acknowledged = match &next[..] {
        [again] if again.item.key == "work" => {
            ensure!(!done, "an item came again whose round is recorded");
            taken_over(world, &held, again).await?;
            all_dequeued(&other, "third").await?
        }
        _ => next,
    };
    ensure!(is_on_record(&other).await?, "an item is gone, and its round is not recorded");
    ensure!(keys(&acknowledged) == NEXT, "after a round, there was {:?} to do", keys(&acknowledged));
    // A commit that was still under way has no effect any more.
    let _ = store.commit(&full_round(Some(held.token))).await?;
    nothing(&other, "fourth", "all items are held or acknowledged").await?;
    ensure!(is_on_record(&other).await?, "a repeated round removes entries");
    Ok(injected)
}

/// While the item is still held, the queue offers nothing, or all items of its round.
async fn dequeued_at_once(store: &impl Rounds) -> CaseResult {
    let next = all_dequeued(store, "at once").await?;
    ensure!(next.is_empty() || keys(&next) == NEXT, "half a round is in the queue: {:?}", keys(&next));
    let there = !next.is_empty();
    for dequeued in next {
        store.abandon(&dequeued.token).await?;
    }
    ensure!(is_on_record(store).await? || !there, "half a round is visible: its items without its entries");
    Ok(())
}

/// Another holder finishes the item that the first one did not.
async fn taken_over<W: World>(world: &W, held: &Dequeued, again: &Dequeued) -> CaseResult {
    let other = world.open().await;
    ensure!(!is_on_record(&other).await?, "an item came again whose round is recorded");
    ensure!(again.token.epoch > held.token.epoch, "an item was taken over under no higher epoch");
    let because = "the item had been taken over from its holder";
    refused(&other, &full_round(Some(held.token.clone())), because).await?;
    ensure!(!is_on_record(&other).await?, "a round that was refused is recorded");
    committed(&other, &full_round(Some(again.token.clone()))).await
}

pub(in crate::conformance) async fn launch<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    at_each_call(&Fault::ALL, async |fault, nth| {
        let injected = round_without_item(&make().await, fault, nth, true).await?;
        Ok(round_without_item(&make().await, fault, nth, false).await? || injected)
    })
    .await
}

async fn round_without_item<W: World>(world: &W, fault: Fault, nth: usize, again: bool) -> CaseResult<bool> {
    let (store, other) = (world.open().await, world.open().await);
    world.faults().arm(fault, nth);
    let answer = store.commit(&full_round(None)).await;
    let injected = world.faults().disarm();
    let done = is_on_record(&other).await?;
    match answer {
        Ok(verdict) => {
            ensure!(verdict == Verdict::Committed, "a round was refused that acknowledges nothing");
            ensure!(done, "a round was committed, and is not recorded");
        }
        Err(error) => ensure!(injected, "a call failed: {error}"),
    }
    if again {
        committed(&other, &full_round(None)).await?;
        ensure!(is_on_record(&other).await?, "a round was committed, and is not recorded");
    }
    // Locks that were taken to carry it out may have to expire.
    let mut next = all_dequeued(&other, "first").await?;
    world.kill("unknown").await;
    other.take_over().await?;
    if next.is_empty() {
        next = all_dequeued(&other, "second").await?;
    }
    match is_on_record(&other).await? {
        true => ensure!(keys(&next) == NEXT, "after a round, there was {:?} to do", keys(&next)),
        false => {
            ensure!(!done && !again && next.is_empty(), "half a round is in the queue: {:?}", keys(&next))
        }
    }
    Ok(injected)
}
