//! Holders that die, are presumed dead, and return.

use crate::conformance::World;
use crate::conformance::support::{
    CaseResult, HOUR, MARGIN, all_dequeued, committed, dequeued, ensure, full_round, is_on_record, mute,
    nothing, refused, stream,
};
use crate::{Round, Rounds};

pub(in crate::conformance) async fn lock_expiry<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    let world = make().await;
    let (store, other) = (world.open().await, world.open().await);
    committed(&store, &Round::new().enqueue("one", mute())).await?;
    let held = dequeued(&store, "a", "one").await?;
    let Some(lock_time) = world.lock_time() else {
        world.advance(HOUR * 24 * 365).await;
        other.take_over().await?;
        nothing(&other, "b", "its holder lives, and locks do not expire").await?;
        return committed(&store, &Round::new().append("s", "1", mute()).acknowledge(held.token)).await;
    };

    ensure!(
        lock_time > MARGIN,
        "give the store a lock time of more than {MARGIN:?}: too little is known of clocks"
    );
    world.advance(lock_time - MARGIN).await;
    other.take_over().await?;
    nothing(&other, "b", "its lock has not expired").await?;
    world.advance(MARGIN).await;
    other.take_over().await?;
    let again = dequeued(&other, "b", "one").await?;
    ensure!(again.token.epoch > held.token.epoch, "an item was taken over under no higher epoch");
    refused(&store, &full_round(Some(held.token)), "its lock had expired, and another holder had the item")
        .await?;

    // The new lock lasts as long as the first.
    world.advance(lock_time - MARGIN).await;
    other.take_over().await?;
    nothing(&store, "a", "its second lock has not expired").await?;
    committed(&other, &full_round(Some(again.token))).await
}

pub(in crate::conformance) async fn fencing<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    let world = make().await;
    let (zombie, store) = (world.open().await, world.open().await);
    committed(&store, &Round::new().enqueue("one", mute())).await?;
    let lost = dequeued(&zombie, "a", "one").await?;
    store.take_over().await?;
    nothing(&store, "b", "its holder lives").await?;
    world.kill("a").await;
    store.take_over().await?;
    let held = dequeued(&store, "b", "one").await?;
    ensure!(held.token.epoch > lost.token.epoch, "an item was taken over under no higher epoch");
    ensure!(held.item == lost.item, "an item has other content when it is taken over: {:?}", held.item);

    let because = "the item had been taken over from its holder";
    let round_of_zombie = full_round(Some(lost.token.clone()));
    // Stores may have a shortcut for a round that only acknowledges.
    let no_more = Round::new().acknowledge(lost.token.clone());
    for round in [&round_of_zombie, &no_more, &round_of_zombie] {
        refused(&zombie, round, because)
            .await
            .map_err(|wrong| wrong.during("while another holds the item"))?;
        ensure!(!is_on_record(&store).await?, "a round that was refused is recorded");
        nothing(&store, "c", "the round that enqueues it was refused").await?;
    }
    zombie.abandon(&lost.token).await?;
    nothing(&store, "c", "the holder that abandoned it had lost it").await?;

    committed(&store, &Round::new().append("s", "by b", mute()).acknowledge(held.token.clone())).await?;
    for round in [&round_of_zombie, &no_more] {
        refused(&zombie, round, because)
            .await
            .map_err(|wrong| wrong.during("after another acknowledged it"))?;
    }
    zombie.abandon(&lost.token).await?;
    world.kill("b").await;
    store.take_over().await?;
    nothing(&zombie, "a", "it was acknowledged").await?;
    ensure!(!is_on_record(&store).await?, "a round that was refused is recorded");
    ensure!(stream(&store, "s").await? == ["by b"], "the round of the holder is not recorded");
    never_twice(&world).await
}

/// At most one round for an item counts. A holder presumed dead may still commit before the item is handed out again.
async fn never_twice<W: World>(world: &W) -> CaseResult {
    let (zombie, store) = (world.open().await, world.open().await);
    committed(&store, &Round::new().enqueue("two", mute())).await?;
    let lost = dequeued(&zombie, "c", "two").await?;
    world.kill("c").await;
    store.take_over().await?;
    let _ = zombie.commit(&Round::new().append("two", "by c", mute()).acknowledge(lost.token)).await?;
    for dequeued in all_dequeued(&store, "d").await? {
        committed(&store, &Round::new().append("two", "by d", mute()).acknowledge(dequeued.token)).await?;
    }
    let by = stream(&store, "two").await?;
    ensure!(by.len() == 1, "one item was acknowledged by {by:?}");
    Ok(())
}
