//! Behaviour without faults.

use serde_json::json;

use crate::conformance::World;
use crate::conformance::support::{
    CaseResult, HOUR, MARGIN, all_dequeued, committed, dequeued, ensure, keys, mute, nothing, refused, stream,
};
use crate::{Entry, Round, Rounds};

pub(in crate::conformance) async fn held<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    let world = make().await;
    let (store, other) = (world.open().await, world.open().await);
    nothing(&store, "a", "no item was enqueued").await?;
    committed(&store, &Round::new().enqueue("one", json!({ "cups": [2, 0.5] })).enqueue("two", mute()))
        .await?;

    let first = store.dequeue("a").await?;
    let second = other.dequeue("b").await?;
    let both: Vec<_> = [first.clone(), second].into_iter().flatten().collect();
    ensure!(keys(&both) == ["one", "two"], "two holders of two items have {:?}", keys(&both));
    let one = both.iter().find(|dequeued| dequeued.item.key == "one").map(|dequeued| &dequeued.item.body);
    ensure!(one == Some(&json!({ "cups": [2, 0.5] })), "an item has other content than enqueued: {one:?}");
    for holder in ["a", "b", "c"] {
        nothing(&other, holder, "all items are held").await?;
    }

    let Some(first) = first else { return Ok(()) };
    let key = first.item.key.clone();
    store.abandon(&first.token).await?;
    let again = dequeued(&other, "c", &key).await?;
    ensure!(again.token.epoch > first.token.epoch, "an item was handed out again under no higher epoch");
    ensure!(again.item == first.item, "an item has other content when it comes again: {:?}", again.item);
    let late =
        Round::new().append("late", "1", mute()).enqueue("late", mute()).acknowledge(first.token.clone());
    refused(&store, &late, "its holder had abandoned the item").await?;
    store.abandon(&first.token).await?;
    nothing(&store, "a", "it was abandoned only by a holder that had lost it").await?;

    committed(&other, &Round::new().append("done", "1", mute()).acknowledge(again.token.clone())).await?;
    other.abandon(&again.token).await?;
    nothing(&store, "a", "the one item was acknowledged, and the other is held").await?;
    ensure!(stream(&store, "late").await?.is_empty(), "a round that was refused is recorded");

    let none_ready = abandoned_is_void(&world).await?;
    ensure!(none_ready, "an item was acknowledged by a round that came after it was abandoned");
    Ok(())
}

/// Whether an item that was acknowledged only after it was abandoned is still in the queue.
async fn abandoned_is_void<W: World>(world: &W) -> CaseResult<bool> {
    let store = world.open().await;
    committed(&store, &Round::new().enqueue("three", mute())).await?;
    let three = dequeued(&store, "d", "three").await?;
    store.abandon(&three.token).await?;
    let late = Round::new().append("late", "2", mute()).acknowledge(three.token);
    refused(&store, &late, "its holder had abandoned the item").await?;
    Ok(store.dequeue("e").await?.is_some_and(|dequeued| dequeued.item.key == "three"))
}

pub(in crate::conformance) async fn idempotence<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    let world = make().await;
    let (store, other) = (world.open().await, world.open().await);
    let first = Round::new()
        .append("s", "k", json!(1))
        .append("s", "k", json!(2))
        .append("t", "k", json!(3))
        .enqueue("i", json!(1))
        .enqueue("i", json!(2));
    committed(&store, &first).await?;
    committed(&store, &first).await?;
    committed(
        &other,
        &Round::new().append("s", "l", json!(4)).append("s", "k", json!(5)).enqueue("i", json!(3)),
    )
    .await?;
    let entry = |key: &str, body| Entry { stream: "s".to_owned(), key: key.to_owned(), body };
    let s = store.read("s").await?;
    ensure!(s == [entry("k", json!(1)), entry("l", json!(4))], "entries of equal keys left {s:?}");
    ensure!(stream(&other, "t").await? == ["k"], "a key counts in its stream only");

    let all = all_dequeued(&store, "a").await?;
    ensure!(keys(&all) == ["i"], "items of equal keys left {:?}", keys(&all));
    ensure!(all[0].item.body == json!(1), "the second of two items of one key counted: {:?}", all[0].item);
    committed(&other, &Round::new().enqueue("i", json!(4))).await?;
    nothing(&other, "b", "an item of this key is held").await?;

    let round = Round::new().append("s", "k", json!(6)).append("s", "m", json!(7)).enqueue("i", json!(5));
    let round = round.enqueue("j", json!(8)).acknowledge(all[0].token.clone());
    committed(&store, &round).await?;
    // The repeated round has no further effect, regardless of its verdict.
    let _ = store.commit(&round).await?;
    committed(&other, &Round::new().enqueue("i", json!(9)).enqueue("j", json!(9))).await?;
    let all = all_dequeued(&other, "b").await?;
    ensure!(
        keys(&all) == ["j"],
        "after `i` was acknowledged, and enqueued again with `j`, there is {:?}",
        keys(&all)
    );
    ensure!(
        stream(&store, "s").await? == ["k", "l", "m"],
        "a repeated round left {:?}",
        stream(&store, "s").await?
    );
    Ok(())
}

pub(in crate::conformance) async fn ordering<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    let world = make().await;
    let store = world.open().await;
    let mut expected = vec![];
    for number in (0..5).rev() {
        let mut round = Round::new();
        for part in ["x", "c", "m"] {
            let key = format!("{number}{part}");
            round = round.append("s", &key, mute()).append(format!("only {number}"), part, mute());
            expected.push(key);
        }
        committed(&store, &round).await?;
        let so_far = stream(&store, "s").await?;
        ensure!(so_far == expected, "entries appended as {expected:?} are read as {so_far:?}");
    }

    let now = store.now().await?;
    let at = |minutes: u32| now + MARGIN * minutes;
    for (minutes, key) in [(3, "third"), (1, "first"), (4, "fourth"), (2, "second")] {
        committed(&store, &Round::new().enqueue_at(at(minutes), key, mute())).await?;
    }
    world.advance(MARGIN * 5).await;
    for key in ["first", "second", "third", "fourth"] {
        dequeued(&world.open().await, "a", key).await?;
    }
    Ok(())
}

pub(in crate::conformance) async fn visibility<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    let world = make().await;
    let store = world.open().await;
    let now = store.now().await?;
    let later = |times: u32| Round::new().enqueue_at(now + HOUR * times, format!("in {times}"), mute());
    committed(&store, &later(1)).await?;
    committed(&store, &later(3)).await?;
    let past = Round::new().enqueue_at(now - HOUR, "an hour ago", mute()).enqueue("at once", mute());
    committed(&store, &past).await?;
    let all = all_dequeued(&store, "a").await?;
    ensure!(keys(&all) == ["an hour ago", "at once"], "of all items, {:?} were visible at once", keys(&all));
    for dequeued in all {
        committed(&store, &Round::new().acknowledge(dequeued.token)).await?;
    }

    world.advance(HOUR - MARGIN).await;
    nothing(&store, "a", "its time has not come").await?;
    world.advance(MARGIN).await;
    let first = dequeued(&store, "a", "in 1").await?;
    nothing(&store, "a", "its time has not come").await?;
    committed(&store, &Round::new().acknowledge(first.token)).await?;
    // An item is deduplicated by key: another time does not change the existing item.
    committed(&store, &Round::new().enqueue("in 3", mute())).await?;
    nothing(&store, "a", "it was enqueued for a later time before").await?;
    world.advance(HOUR + HOUR).await;
    dequeued(&store, "a", "in 3").await?;
    let passed = store.now().await? - now;
    ensure!(passed >= HOUR * 3 && passed < HOUR * 3 + MARGIN, "the clock says {passed} after three hours");
    Ok(())
}
