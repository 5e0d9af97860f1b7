//! Several holders at once.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::{try_join_all, try_join4};

use crate::conformance::World;
use crate::conformance::faults::yield_now;
use crate::conformance::support::{
    CaseResult, ENOUGH, Turnstile, all_dequeued, committed, ensure, mute, nothing, stream,
};
use crate::{Round, Rounds, Token, Verdict};

/// The number of pseudo-random interleavings.
const SEEDS: u64 = 10;

const HOLDERS: u64 = 4;
const ITEMS: usize = 12;
const ROUNDS: usize = 6;

pub(in crate::conformance) async fn concurrency<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    for seed in 0..SEEDS {
        let world = make().await;
        many_holders(&world, seed).await.map_err(|wrong| wrong.during(format_args!("seed {seed}")))?;
    }
    Ok(())
}

/// The held and acknowledged items, as the holders see them.
#[derive(Default)]
struct Ledger {
    held: RefCell<BTreeSet<String>>,
    acknowledged: RefCell<BTreeMap<String, usize>>,
}

async fn many_holders<W: World>(world: &W, seed: u64) -> CaseResult {
    let store = world.open().await;
    for item in 0..ITEMS {
        committed(&store, &Round::new().enqueue(format!("{item:02}"), mute())).await?;
    }
    let books = Ledger::default();
    let holders = (0..HOLDERS).map(async |holder| {
        let (store, mut turns) = (world.open().await, Turnstile::new(seed * HOLDERS + holder));
        one_of_many(&store, &format!("holder {holder}"), &books, &mut turns).await
    });
    try_join_all(holders).await?;
    // A concurrent dequeue may find nothing although an item is left.
    one_of_many(&store, "the last", &books, &mut Turnstile::new(seed)).await?;

    let expected: Vec<_> = (0..ITEMS).map(|item| format!("{item:02}")).collect();
    let acknowledged = books.acknowledged.into_inner();
    ensure!(
        acknowledged.keys().eq(&expected) && acknowledged.values().all(|times| *times == 1),
        "these items were acknowledged so many times: {acknowledged:?}"
    );
    let mut log = stream(&store, "log").await?;
    log.sort_unstable();
    ensure!(log == expected, "many holders recorded this: {log:?}");
    nothing(&store, "afterwards", "all items were acknowledged").await
}

async fn one_of_many(store: &impl Rounds, holder: &str, books: &Ledger, turns: &mut Turnstile) -> CaseResult {
    for _ in 0..ENOUGH {
        turns.wait().await;
        let Some(dequeued) = store.dequeue(holder).await? else { return Ok(()) };
        let key = dequeued.item.key;
        ensure!(books.held.borrow_mut().insert(key.clone()), "two holders have `{key}` at a time");
        turns.wait().await;
        if turns.below(4) == 0 {
            books.held.borrow_mut().remove(&key);
            store.abandon(&dequeued.token).await?;
            continue;
        }
        let round = Round::new().append("log", &key, mute()).acknowledge(dequeued.token);
        let verdict = store.commit(&round).await?;
        books.held.borrow_mut().remove(&key);
        ensure!(verdict == Verdict::Committed, "the round of the one holder of `{key}` was refused");
        *books.acknowledged.borrow_mut().entry(key).or_default() += 1;
    }
    ensure!(false, "the queue hands out items endlessly");
    Ok(())
}

pub(in crate::conformance) async fn half_rounds<W: World>(make: impl AsyncFn() -> W) -> CaseResult {
    for seed in 0..SEEDS {
        let world = make().await;
        while_others_look(&world, seed).await.map_err(|wrong| wrong.during(format_args!("seed {seed}")))?;
    }
    Ok(())
}

/// One process commits while others read and dequeue.
async fn while_others_look<W: World>(world: &W, seed: u64) -> CaseResult {
    let (store, over) = (world.open().await, Cell::new(false));
    for number in 0..ROUNDS / 2 {
        committed(&store, &Round::new().enqueue(format!("tick {number}"), mute())).await?;
    }
    let tokens: Vec<_> =
        all_dequeued(&store, "committer").await?.into_iter().map(|dequeued| dequeued.token).collect();
    let writing = async {
        let written = write(&store, tokens, &mut Turnstile::new(seed)).await;
        over.set(true);
        written
    };
    let (one, two, three) = (world.open().await, world.open().await, world.open().await);
    try_join4(
        writing,
        look(&one, ["a", "b"], &over, Turnstile::new(seed + 100)),
        look(&two, ["b", "a"], &over, Turnstile::new(seed + 200)),
        dequeue(&three, &over, Turnstile::new(seed + 300)),
    )
    .await?;
    let (a, b) = (stream(&store, "a").await?, stream(&store, "b").await?);
    ensure!(a.len() == 2 * ROUNDS && b.len() == ROUNDS, "in the end there is {a:?} and {b:?}");
    Ok(())
}

/// The key of a round, and of its entries and items.
fn name(number: usize) -> String {
    format!("round {number}")
}

/// Commits rounds, of which some acknowledge an item.
async fn write(store: &impl Rounds, tokens: Vec<Token>, turns: &mut Turnstile) -> CaseResult {
    let mut tokens = tokens.into_iter();
    for number in 0..ROUNDS {
        turns.wait().await;
        let key = name(number);
        let mut round = Round::new()
            .append("a", &key, mute())
            .append("b", &key, mute())
            .append("a", format!("{key} again"), mute())
            .enqueue(&key, mute())
            .enqueue(format!("{key} again"), mute());
        round.acknowledge = if number % 2 == 0 { tokens.next() } else { None };
        committed(store, &round).await?;
    }
    Ok(())
}

/// The rounds that have entries in a stream.
fn rounds_of(entries: &[String]) -> BTreeSet<&str> {
    entries.iter().map(|key| key.trim_end_matches(" again")).collect()
}

/// Every round in one stream is in the other when that is read later, and entries once read keep their position.
async fn look(
    store: &impl Rounds,
    streams: [&str; 2],
    over: &Cell<bool>,
    mut turns: Turnstile,
) -> CaseResult {
    let mut before = [vec![], vec![]];
    loop {
        let last = over.get();
        let first = stream(store, streams[0]).await?;
        turns.wait().await;
        let second = stream(store, streams[1]).await?;
        let (seen, then) = (rounds_of(&first), rounds_of(&second));
        ensure!(
            seen.is_subset(&then),
            "`{}` contains {seen:?}, but then `{}` contains {then:?}",
            streams[0],
            streams[1]
        );
        for stream in [&first, &second] {
            let again = stream.iter().filter(|key| key.ends_with("again")).count();
            let once = stream.len() - again;
            ensure!(again == 0 || again == once, "half a round was read: {stream:?}");
        }
        for (before, now) in before.iter_mut().zip([first, second]) {
            ensure!(now.starts_with(before), "after {before:?} was read, this was: {now:?}");
            *before = now;
        }
        if last {
            return Ok(());
        }
        yield_now().await;
    }
}

/// The holder of an item finds the entries of its round recorded, and the other item of its round in the queue.
async fn dequeue(store: &impl Rounds, over: &Cell<bool>, mut turns: Turnstile) -> CaseResult {
    let mut all = BTreeSet::new();
    loop {
        let last = over.get();
        turns.wait().await;
        if let Some(dequeued) = store.dequeue("reader").await? {
            let key = dequeued.item.key;
            let round = key.trim_end_matches(" again");
            for name in ["a", "b"] {
                let entries = stream(store, name).await?;
                let there = entries.iter().any(|entry| entry == round);
                ensure!(there, "`{key}` was dequeued, but in `{name}` there is {entries:?}");
            }
            ensure!(all.insert(key.clone()), "`{key}` was dequeued by one holder twice");
            continue;
        }
        let rounds: BTreeSet<_> = all.iter().map(|key| key.trim_end_matches(" again")).collect();
        ensure!(all.len() == 2 * rounds.len(), "only one of two items of a round was in the queue: {all:?}");
        if last {
            ensure!(rounds.len() == ROUNDS, "in the end these were dequeued: {all:?}");
            return Ok(());
        }
        yield_now().await;
    }
}
