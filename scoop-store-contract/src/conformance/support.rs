//! Helpers of the cases.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};

use super::faults::yield_now;
use crate::{Dequeued, Round, Rounds, Token, Verdict};

/// More than the error of any clock, and less than any duration in the cases.
pub(super) const MARGIN: Duration = Duration::from_secs(120);

/// The unit of durations in the cases.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// The number of items after which a case assumes an endless loop.
pub(super) const ENOUGH: usize = 100;

/// The number of calls after which a case assumes an endless loop.
pub(super) const ENOUGH_CALLS: usize = 2_000;

/// A forbidden observation.
#[derive(Debug)]
pub(super) struct CaseFailure(pub(super) String);

pub(super) type CaseResult<T = ()> = Result<T, CaseFailure>;

/// A failed call without an injected fault.
impl<E: Error> From<E> for CaseFailure {
    fn from(error: E) -> Self {
        Self(format!("a call failed: {error}"))
    }
}

impl CaseFailure {
    /// Adds the circumstances.
    pub(super) fn during(self, what: impl std::fmt::Display) -> Self {
        Self(format!("{} ({what})", self.0))
    }
}

/// Fails the case unless this holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::conformance::support::CaseFailure(format!($($what)+)));
        }
    };
}
pub(super) use ensure;

/// Dequeues an item that must be the next one.
pub(super) async fn dequeued(store: &impl Rounds, holder: &str, key: &str) -> CaseResult<Dequeued> {
    match store.dequeue(holder).await? {
        Some(dequeued) if dequeued.item.key == key && dequeued.token.item == key => Ok(dequeued),
        Some(other) => Err(CaseFailure(format!("`{key}` was to be dequeued, not `{}`", other.item.key))),
        None => Err(CaseFailure(format!("`{key}` was to be dequeued, but there was nothing"))),
    }
}

/// Requires that there is nothing to dequeue.
pub(super) async fn nothing(store: &impl Rounds, holder: &str, because: &str) -> CaseResult {
    let dequeued = store.dequeue(holder).await?;
    let key = dequeued.map(|dequeued| dequeued.item.key);
    ensure!(key.is_none(), "`{}` was dequeued, although {because}", key.unwrap_or_default());
    Ok(())
}

/// Commits a round that must be carried out.
pub(super) async fn committed(store: &impl Rounds, round: &Round) -> CaseResult {
    let verdict = store.commit(round).await?;
    ensure!(verdict == Verdict::Committed, "a valid round was refused: {round:?}");
    Ok(())
}

/// Commits a round that must be refused.
pub(super) async fn refused(store: &impl Rounds, round: &Round, because: &str) -> CaseResult {
    let verdict = store.commit(round).await?;
    ensure!(verdict == Verdict::Refused, "a round was committed, although {because}");
    Ok(())
}

/// Dequeues all visible items, in their order; the holder keeps them.
pub(super) async fn all_dequeued(store: &impl Rounds, holder: &str) -> CaseResult<Vec<Dequeued>> {
    let mut all = vec![];
    while let Some(dequeued) = store.dequeue(holder).await? {
        let key = dequeued.item.key.clone();
        all.push(dequeued);
        ensure!(all.len() < ENOUGH, "the queue hands out items endlessly: `{key}`");
    }
    Ok(all)
}

/// The keys of items, sorted.
pub(super) fn keys(dequeued: &[Dequeued]) -> Vec<&str> {
    let mut keys: Vec<_> = dequeued.iter().map(|dequeued| &*dequeued.item.key).collect();
    keys.sort_unstable();
    keys
}

/// The keys of a stream, in its order.
pub(super) async fn stream(store: &impl Rounds, stream: &str) -> CaseResult<Vec<String>> {
    let entries = store.read(stream).await?;
    ensure!(
        entries.iter().all(|entry| entry.stream == stream),
        "`{stream}` has entries of others: {entries:?}"
    );
    Ok(entries.into_iter().map(|entry| entry.key).collect())
}

/// A round with entries of two streams and two items.
pub(super) fn full_round(token: Option<Token>) -> Round {
    let mut round = Round::new()
        .append("a", "1", json!({ "says": "first" }))
        .append("b", "1", json!(null))
        .append("a", "2", json!({ "says": "second" }))
        .enqueue("next 1", json!([1]))
        .enqueue("next 2", json!([2]));
    round.acknowledge = token;
    round
}

/// The items that [`full_round`] enqueues.
pub(super) const NEXT: [&str; 2] = ["next 1", "next 2"];

/// Whether the entries of [`full_round`] are recorded. Fails if only some of them are.
pub(super) async fn is_on_record(store: &impl Rounds) -> CaseResult<bool> {
    let (a, b) = (store.read("a").await?, store.read("b").await?);
    let round = full_round(None);
    let of = |stream: &str| {
        round.append.iter().filter(|entry| entry.stream == stream).cloned().collect::<Vec<_>>()
    };
    match (a == of("a"), b == of("b")) {
        (true, true) => Ok(true),
        _ if a.is_empty() && b.is_empty() => Ok(false),
        _ => Err(CaseFailure(format!("half a round is recorded: {a:?} and {b:?}"))),
    }
}

/// Deterministic pseudo-random numbers, for interleavings beyond hand-picked ones.
#[derive(Debug)]
pub(super) struct Turnstile(u64);

impl Turnstile {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let below = (mixed ^ (mixed >> 31)) % limit as u64;
        usize::try_from(below).expect("less than a usize")
    }

    /// Yields to other futures a few times.
    pub(super) async fn wait(&mut self) {
        for _ in 0..self.below(5) {
            yield_now().await;
        }
    }
}

/// The body of an item without content.
pub(super) fn mute() -> Value {
    Value::Null
}
