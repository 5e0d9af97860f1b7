//! Admission of launches from outside to queues with a limit.
//!
//! A program counts the runs of the saga that wait for a worker, and adds its own launches under way. It then admits a part of the
//! room that is left without a further count, for a short time, so that most launches need no statement. Nothing is locked or
//! stored: programs that launch at once may exceed the limit together, by their launches under way and those parts.
//!
//! A program with sagas learns the topics with its topology. A client reads them before its first launch, and again while it
//! launches, a second after the last time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::Engine;
use crate::RuntimeError;
use crate::error::ErrorKind;
use crate::store::{LimitedTopics, NewMessage, QueueLength, Store};
use crate::telemetry::metrics;
use crate::util::ids;
use crate::util::retries::{GivenUp, Retries};
use crate::util::sync::{Mutex, lock};

/// The age of what a client knows of topics.
const TOPICS_AGE_MAX: Duration = Duration::from_secs(1);

/// For how long a part of the counted room is used.
const CAPACITY_AGE_MAX: Duration = Duration::from_millis(100);

/// The part of the room that is left for launches without a further count, and how many these are at most.
const PART: usize = 16;
const PART_MAX: usize = 1_000;

/// For how long a full queue is remembered: about as long as a count takes, within these bounds.
const FULL_MIN: Duration = Duration::from_millis(5);
const FULL_MAX: Duration = Duration::from_millis(100);

/// The delays between the looks of a launch that waits for room double from the first to the longest. Each is shortened by chance.
const DELAY_MIN: Duration = Duration::from_millis(10);
const DELAY_MAX: Duration = Duration::from_millis(500);

/// Admits the launches of a program.
pub(crate) struct Admission {
    store: Store,
    /// Knows the topics, if the process has one.
    engine: Option<Arc<Engine>>,
    retry_for: Duration,
    topics: Mutex<KnownTopics>,
    /// Held by the launch that reads the topics.
    reading: tokio::sync::Mutex<()>,
    queues: Mutex<BTreeMap<String, Arc<Queue>>>,
}

/// The topics, as a client has read them.
#[derive(Clone, Default)]
struct KnownTopics {
    read_at: Option<Instant>,
    topics: Arc<LimitedTopics>,
}

/// The queue of a saga.
#[derive(Default)]
struct Queue {
    capacity: Mutex<Capacity>,
    /// Held by the launch that counts.
    counting: tokio::sync::Mutex<()>,
}

/// What this program knows of the room in one queue.
#[derive(Debug, Default)]
struct Capacity {
    limit: u32,
    /// How many messages need no further count, until then.
    left: usize,
    left_until: Option<Instant>,
    /// From how many messages on a launch finds the queue full, until then.
    full: Option<(usize, Instant)>,
    /// The messages of launches under way.
    in_flight: usize,
}

/// What becomes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Yes,
    /// There was no room a moment ago.
    Full,
    /// The runs have to be counted.
    Unknown,
}

/// Messages of a launch under way, by the queue in which they count: until this is dropped, after the launch.
#[derive(Default)]
pub(crate) struct Admitted(Vec<(Arc<Queue>, usize)>);

/// A full queue.
struct Full {
    saga: String,
    topic: String,
    limit: u32,
}

/// How many messages of a launch the queue of one saga gets, and the topic of one of them.
struct Needed<'a> {
    topic: &'a str,
    messages: usize,
}

impl Admission {
    pub(crate) fn new(store: Store, engine: Option<Arc<Engine>>, retry_for: Duration) -> Self {
        let (topics, reading, queues) = Default::default();
        Self { store, engine, retry_for, topics, reading, queues }
    }

    /// Admits the launch of these messages. If a queue is full, waits for room for so long, if at all.
    pub(crate) async fn admit(
        &self,
        messages: &[NewMessage],
        within: Option<Duration>,
    ) -> Result<Admitted, RuntimeError> {
        let topics = match &self.engine {
            Some(engine) => engine.limited_topics(),
            None => self.topics().await?,
        };
        if !messages.iter().any(|message| topics.contains_key(&*message.topic)) {
            return Ok(Admitted::default());
        }
        self.admit_limited(&topics, messages, within).await
    }

    fn admit_limited<'a>(
        &'a self,
        topics: &'a LimitedTopics,
        messages: &'a [NewMessage],
        within: Option<Duration>,
    ) -> BoxFuture<'a, Result<Admitted, RuntimeError>> {
        async move {
            let mut needed: BTreeMap<&str, Needed<'_>> = BTreeMap::new();
            for message in messages {
                for saga in topics.get(&*message.topic).into_iter().flatten() {
                    needed.entry(saga).or_insert(Needed { topic: &message.topic, messages: 0 }).messages += 1;
                }
            }
            let (since, mut delay) = (Instant::now(), DELAY_MIN);
            loop {
                let Full { saga, topic, limit } = match self.try_admit(&needed).await? {
                    Ok(admitted) => return Ok(admitted),
                    Err(full) => full,
                };
                if self.is_known(messages).await? {
                    // Nothing new is stored.
                    return Ok(Admitted::default());
                }
                let waited = since.elapsed();
                let left = within.and_then(|within| within.checked_sub(waited)).unwrap_or_default();
                let count = needed.get(&*saga).map_or(0, |needed| needed.messages);
                if left.is_zero() || count > limit as usize {
                    metrics::refused_launches(&topic, &saga, count);
                    let waited = within.map(|_| waited);
                    return Err(RuntimeError::from(ErrorKind::QueueFull {
                        saga,
                        topic,
                        limit,
                        messages: count,
                        waited,
                    }));
                }
                tokio::time::sleep(shortened(delay).min(left)).await;
                delay = (delay * 2).min(DELAY_MAX);
            }
        }
        .boxed()
    }

    /// Admits messages to all of these queues, or to none.
    async fn try_admit(
        &self,
        needed: &BTreeMap<&str, Needed<'_>>,
    ) -> Result<Result<Admitted, Full>, RuntimeError> {
        let mut admitted = Admitted::default();
        for (saga, Needed { topic, messages }) in needed {
            let queue = lock(&self.queues).entry((*saga).to_owned()).or_default().clone();
            let taken = queue.take(self, saga, *messages).await;
            match taken.map_err(GivenUp::error("the queue of a saga was counted"))? {
                Some(Taken::Yes) => admitted.0.push((queue, *messages)),
                None => self.forget(saga),
                Some(_) => {
                    let limit = lock(&queue.capacity).limit;
                    return Ok(Err(Full { saga: (*saga).to_owned(), topic: (*topic).to_owned(), limit }));
                }
            }
        }
        Ok(Ok(admitted))
    }

    /// Whether this is the launch of a message with a key that exists already.
    async fn is_known(&self, messages: &[NewMessage]) -> Result<bool, RuntimeError> {
        let [NewMessage { id, root, is_unique: true, .. }] = messages else { return Ok(false) };
        let known = self.trial().run(|_| async {
            let launched = self.store.root_message(*root).await?.is_some();
            Ok(launched || self.store.key_valid_until(*id).await?.is_some())
        });
        known.await.map_err(GivenUp::error("a launched message was looked up"))
    }

    /// The topics whose sagas have queues with a limit, for a client. Without them a first launch could exceed a limit, so it waits.
    async fn topics(&self) -> Result<Arc<LimitedTopics>, RuntimeError> {
        let known = || lock(&self.topics).clone();
        if known().is_new() {
            return Ok(known().topics);
        }
        let trial = self.trial();
        // One launch reads. Others go on with what is known, or wait for it.
        let _guard = match (self.reading.try_lock(), known()) {
            (Ok(guard), _) => guard,
            (Err(_), KnownTopics { read_at: Some(_), topics }) => return Ok(topics),
            (Err(_), _) => {
                let guard = acquire(&self.reading, self.retry_for).await;
                guard.map_err(GivenUp::error("a message was launched"))?
            }
        };
        let before = known();
        if before.is_new() {
            return Ok(before.topics);
        }
        let trial = before.read_at.map_or(trial, |_| Retries::new(Duration::ZERO));
        let topics = match trial.run(|_| self.store.limited_topics()).await {
            Ok(topics) => Arc::new(topics),
            Err(_) if before.read_at.is_some() => before.topics,
            // The launch would meet the same obstacle. Nothing has happened yet.
            Err(given_up) => {
                return Err(GivenUp::error("a message was launched")(GivenUp {
                    in_doubt: false,
                    ..given_up
                }));
            }
        };
        *lock(&self.topics) = KnownTopics { read_at: Some(Instant::now()), topics: topics.clone() };
        let sagas = || topics.values().flatten();
        lock(&self.queues).retain(|saga, _| sagas().any(|it| it == saga));
        Ok(topics)
    }

    /// The queue of this saga has no limit any more.
    fn forget(&self, saga: &str) {
        lock(&self.topics).read_at = None;
        lock(&self.queues).remove(saga);
    }

    fn trial(&self) -> Retries {
        Retries::new(self.retry_for)
    }
}

impl KnownTopics {
    fn is_new(&self) -> bool {
        self.read_at.is_some_and(|at| at.elapsed() < TOPICS_AGE_MAX)
    }
}

impl Queue {
    /// Takes room for so many messages, and counts the runs if that is needed. `None` if the queue has no limit.
    async fn take(
        &self,
        admission: &Admission,
        saga: &str,
        messages: usize,
    ) -> Result<Option<Taken>, GivenUp> {
        let take = || {
            let taken = lock(&self.capacity).take(messages, Instant::now());
            (taken != Taken::Unknown).then_some(taken)
        };
        if let Some(taken) = take() {
            return Ok(Some(taken));
        }
        let trial = admission.trial();
        let _guard = acquire(&self.counting, admission.retry_for).await?;
        if let Some(taken) = take() {
            return Ok(Some(taken));
        }
        // Those that end meanwhile may count twice: as launches under way, and as waiting runs.
        let in_flight = lock(&self.capacity).begin_count();
        let names = [saga.to_owned()];
        let count = || async { admission.store.tables()?.queue_lengths(Some(&names)).await };
        let lengths = trial.run(|_| count()).await?;
        let counted = |length| lock(&self.capacity).counted(length, in_flight, messages, Instant::now());
        Ok(lengths.first().map(counted))
    }
}

impl Capacity {
    fn take(&mut self, messages: usize, now: Instant) -> Taken {
        if self.left >= messages && self.left_until.is_some_and(|until| now < until) {
            self.left -= messages;
            self.in_flight += messages;
            Taken::Yes
        } else if self.full.is_some_and(|(least, until)| messages >= least && now < until) {
            Taken::Full
        } else {
            Taken::Unknown
        }
    }

    /// Begins a count. Until it ends no launch begins. Returns how many messages are under way.
    fn begin_count(&mut self) -> usize {
        self.left = 0;
        self.in_flight
    }

    /// Takes room after a count.
    fn counted(&mut self, length: &QueueLength, in_flight: usize, messages: usize, now: Instant) -> Taken {
        self.limit = length.limit;
        let capacity = (length.limit as usize).saturating_sub(length.waiting + in_flight);
        let Some(rest) = capacity.checked_sub(messages) else {
            let full = Duration::from_micros(u64::from(length.limit) * 10).clamp(FULL_MIN, FULL_MAX);
            self.full = Some((capacity + 1, now + full));
            return Taken::Full;
        };
        self.full = None;
        (self.left, self.left_until) = (messages + (rest / PART).min(PART_MAX), Some(now + CAPACITY_AGE_MAX));
        self.take(messages, now)
    }
}

impl Admitted {
    /// Whether no queue of the launch has a limit.
    pub(crate) fn is_free(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        for (queue, messages) in &self.0 {
            lock(&queue.capacity).in_flight -= messages;
        }
    }
}

/// Waits for the launches before this one, which ask the database: for no longer than one of them retries.
async fn acquire(lock: &tokio::sync::Mutex<()>, retry_for: Duration) -> Result<MutexGuard<'_, ()>, GivenUp> {
    let guard = tokio::time::timeout(retry_for, lock.lock()).await;
    guard.map_err(|_| {
        let (waited, source) = (retry_for, sqlx::Error::PoolTimedOut);
        GivenUp { attempts: 1, waited, retry_for, in_doubt: false, source }
    })
}

/// Between half of a delay and all of it, by chance.
fn shortened(delay: Duration) -> Duration {
    let chance = ids::now_v7().as_bytes()[15];
    delay / 2 + delay / 2 * u32::from(chance) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(waiting: usize) -> QueueLength {
        QueueLength { saga: "s".into(), limit: 100, waiting }
    }

    fn count(capacity: &mut Capacity, waiting: usize, messages: usize, now: Instant) -> Taken {
        let in_flight = capacity.begin_count();
        capacity.counted(&length(waiting), in_flight, messages, now)
    }

    #[test]
    fn counted_room_is_used_for_a_part_and_a_short_time() {
        let (mut capacity, now) = (Capacity::default(), Instant::now());
        assert_eq!(capacity.take(1, now), Taken::Unknown);
        assert_eq!(count(&mut capacity, 67, 1, now), Taken::Yes);
        assert_eq!(
            [(); 3].map(|()| capacity.take(1, now)),
            [Taken::Yes, Taken::Yes, Taken::Unknown],
            "32 are left"
        );
        assert_eq!(count(&mut capacity, 67, 1, now), Taken::Yes);
        assert_eq!(capacity.take(1, now + CAPACITY_AGE_MAX), Taken::Unknown);
    }

    #[test]
    fn launch_under_way_counts_until_its_end() {
        let (queue, now) = (Arc::new(Queue::default()), Instant::now());
        assert_eq!(count(&mut lock(&queue.capacity), 40, 60, now), Taken::Yes);
        let admitted = Admitted(vec![(queue.clone(), 60)]);
        assert_eq!(count(&mut lock(&queue.capacity), 40, 1, now), Taken::Full);
        drop(admitted);
        assert_eq!(lock(&queue.capacity).in_flight, 0);
        assert_eq!(count(&mut lock(&queue.capacity), 40, 1, now), Taken::Yes);
    }

    #[tokio::test(start_paused = true)]
    async fn launches_that_wait_for_another_give_up_together() {
        let (lock, retry_for, began) = (tokio::sync::Mutex::new(()), Duration::from_secs(30), Instant::now());
        let _held = lock.lock().await;
        let (one, other) = tokio::join!(acquire(&lock, retry_for), acquire(&lock, retry_for));
        assert_eq!(began.elapsed(), retry_for);
        for given_up in [one, other] {
            let error = GivenUp::error("a message was launched")(given_up.unwrap_err());
            assert!(error.is_unavailable() && !error.may_have_happened(), "{error}");
        }
    }

    #[test]
    fn full_queue_is_remembered_for_a_moment() {
        let (mut capacity, now) = (Capacity::default(), Instant::now());
        assert_eq!(count(&mut capacity, 98, 4, now), Taken::Full);
        assert_eq!(capacity.take(3, now), Taken::Full);
        assert_eq!(capacity.take(2, now), Taken::Unknown, "there is room for a smaller launch");
        assert_eq!(capacity.take(3, now + FULL_MIN), Taken::Unknown);
        assert_eq!(count(&mut capacity, 98, 2, now), Taken::Yes);
    }
}
