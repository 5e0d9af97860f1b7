//! Admission of launches from outside to queues with a limit.
//!
//! A launch on a topic of such a saga needs a place in its queue. A program leases places from the database: as many as its
//! launches need, and a part of those that are left. So most launches find a place without a statement. The database counts the
//! runs that wait for a worker together with the places of all programs, so a launch with a place does not exceed the limit.
//!
//! A place is used once: when the launch is committed, its run counts. Free places are used for a part of the lease only, by a
//! monotonic clock; the rest is for launches under way to be committed. Those of unknown outcome, and those in a transaction of the
//! caller, keep their places until their messages are seen, for some seconds.
//!
//! A program with sagas learns the topics with its topology. A client reads them before its first launch, and again while it
//! launches, a second after the last time.

mod places;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::time::Instant;
use uuid::Uuid;

use self::places::{Places, Taken};
use crate::RuntimeError;
use crate::engine::Engine;
use crate::store::{LimitedTopics, NewMessage, Store};
use crate::telemetry::metrics;
use crate::util::detached::run_to_completion;
use crate::util::ids;
use crate::util::retries::{GivenUp, Retries};
use crate::util::sync::{Mutex, lock};

/// The age of what a client knows of topics.
const TOPICS_AGE_MAX: Duration = Duration::from_secs(1);

/// The time for which free places are kept for a further launch while the queue is nearly full.
const KEPT_FOR: Duration = Duration::from_millis(50);

/// How often a launch asks for places that it does not get although there is room.
const ASKED_MAX: u32 = 3;

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
    /// Held for writing by the launch that reads the topics, and for reading by those that wait for it.
    reading: tokio::sync::RwLock<()>,
    queues: Mutex<BTreeMap<String, Arc<Queue>>>,
}

/// The topics, as a client has read them.
#[derive(Default)]
struct KnownTopics {
    read_at: Option<Instant>,
    topics: Arc<LimitedTopics>,
}

/// The queue of a saga.
struct Queue {
    saga: String,
    places: Mutex<Places>,
    /// Held by the launch that asks the database.
    asking: tokio::sync::Mutex<()>,
}

/// The places of one launch. Dropped after it.
pub(crate) struct Admitted {
    store: Store,
    places: Vec<HeldPlaces>,
}

/// The places of one launch in one queue, each for a message.
struct HeldPlaces {
    queue: Arc<Queue>,
    messages: Vec<Uuid>,
}

/// A full queue.
struct Full {
    saga: String,
    topic: String,
    limit: u32,
}

/// The messages of a launch that need places in the queue of one saga, and the topic of one of them.
struct Needed<'a> {
    topic: &'a str,
    messages: Vec<Uuid>,
}

impl Admission {
    pub(crate) fn new(store: Store, engine: Option<Arc<Engine>>, retry_for: Duration) -> Self {
        let (topics, reading, queues) = Default::default();
        Self { store, engine, retry_for, topics, reading, queues }
    }

    /// Takes places for the launch of these messages. If a queue is full, waits for room for so long, if at all.
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
            return Ok(Admitted { store: self.store.clone(), places: vec![] });
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
                    let new = || Needed { topic: &message.topic, messages: vec![] };
                    needed.entry(saga).or_insert_with(new).messages.push(message.id);
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
                    return Ok(Admitted { store: self.store.clone(), places: vec![] });
                }
                let waited = since.elapsed();
                let left = within.and_then(|within| within.checked_sub(waited)).unwrap_or_default();
                let count = needed.get(&*saga).map_or(0, |needed| needed.messages.len());
                if left.is_zero() || count > limit as usize {
                    metrics::refused_launches(&topic, &saga, count);
                    let waited = within.map(|_| waited);
                    return Err(RuntimeError::QueueFull { saga, topic, limit, messages: count, waited });
                }
                tokio::time::sleep(shortened(delay).min(left)).await;
                delay = (delay * 2).min(DELAY_MAX);
            }
        }
        .boxed()
    }

    /// Takes places in all of these queues, or in none.
    async fn try_admit(
        &self,
        needed: &BTreeMap<&str, Needed<'_>>,
    ) -> Result<Result<Admitted, Full>, RuntimeError> {
        let mut admitted = Admitted { store: self.store.clone(), places: vec![] };
        // In the order of their names.
        for (saga, Needed { topic, messages }) in needed {
            let queue = self.queue(saga);
            match queue.take(self, messages.len()).await {
                Ok(Some(Taken::Yes)) => {
                    admitted.places.push(HeldPlaces { queue, messages: messages.clone() });
                }
                Ok(None) => self.forget(saga),
                Ok(Some(_)) => {
                    // A part of the places that it needs is of no use to it.
                    queue.return_unused(&self.store, Duration::ZERO);
                    let limit = lock(&queue.places).most();
                    admitted.put_back();
                    return Ok(Err(Full { saga: (*saga).to_owned(), topic: (*topic).to_owned(), limit }));
                }
                Err(given_up) => {
                    admitted.put_back();
                    return Err(GivenUp::error("the queue of a saga was looked at")(given_up));
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

    /// The topics on which launches need a place, for a client. Without them a first launch could exceed a limit, so it waits.
    async fn topics(&self) -> Result<Arc<LimitedTopics>, RuntimeError> {
        let known = || {
            let KnownTopics { read_at, topics } = &*lock(&self.topics);
            (read_at.is_some(), read_at.is_some_and(|at| at.elapsed() < TOPICS_AGE_MAX), topics.clone())
        };
        let (is_read, is_new, topics) = known();
        if is_new {
            return Ok(topics);
        }
        // One launch reads. Others go on with what is known, or wait, and then go on at once, so that they share a commit.
        let since = Instant::now();
        let left = || self.retry_for.saturating_sub(since.elapsed());
        let _turn = loop {
            if let Ok(turn) = self.reading.try_write() {
                break Some(turn);
            }
            if is_read {
                return Ok(topics);
            }
            if tokio::time::timeout(left(), self.reading.read()).await.is_err() {
                break None;
            }
            let (_, is_new, topics) = known();
            if is_new {
                return Ok(topics);
            }
        };
        let (_, is_new, topics) = known();
        if is_new {
            return Ok(topics);
        }
        let trial = Retries::new(if is_read { Duration::ZERO } else { left() });
        let topics = match trial.run(|_| self.store.limited_topics()).await {
            Ok(topics) => Arc::new(topics),
            // The launch goes on with what was read before.
            Err(_) if is_read => topics,
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

    fn queue(&self, saga: &str) -> Arc<Queue> {
        let new = || {
            let (places, asking) = (Mutex::new(Places::new()), tokio::sync::Mutex::default());
            Arc::new(Queue { saga: saga.to_owned(), places, asking })
        };
        lock(&self.queues).entry(saga.to_owned()).or_insert_with(new).clone()
    }

    fn trial(&self) -> Retries {
        Retries::new(self.retry_for)
    }
}

impl Queue {
    /// Takes so many places, and asks the database if this program does not have them. `None` if the queue has no limit.
    async fn take(self: &Arc<Self>, admission: &Admission, count: usize) -> Result<Option<Taken>, GivenUp> {
        let taken = lock(&self.places).take(count, Instant::now());
        if taken != Taken::Unknown {
            return Ok(Some(taken));
        }
        let _waiting = Waiting::new(self, count);
        for _ in 0..ASKED_MAX {
            let (queue, store) = (self.clone(), admission.store.clone());
            let ask = admission.trial().run(|_| {
                let (queue, store) = (queue.clone(), store.clone());
                // Of a dropped launch, too, the answer says which places this program holds.
                run_to_completion(async move { queue.ask(&store, count).await })
            });
            if !ask.await? {
                return Ok(None);
            }
            // The answer may be late, or other launches may have taken the places.
            let taken = lock(&self.places).take(count, Instant::now());
            if taken != Taken::Unknown {
                return Ok(Some(taken));
            }
        }
        Ok(Some(Taken::Full))
    }

    /// Asks the database for the places that launches need, unless the answer to another launch has so many. Returns whether the
    /// queue has a limit.
    async fn ask(self: &Arc<Self>, store: &Store, count: usize) -> sqlx::Result<bool> {
        let _turn = self.asking.lock().await;
        if lock(&self.places).would_take(count, Instant::now()) != Taken::Unknown {
            return Ok(true);
        }
        let sent = Instant::now();
        let asked = lock(&self.places).request(&self.saga, sent);
        let Some(lease) = store.tables()?.lease_places(&asked).await? else { return Ok(false) };
        lock(&self.places).leased(&asked, &lease, sent, Instant::now());
        self.return_unused(store, Duration::ZERO);
        Ok(true)
    }

    /// Gives the places of this program back if nothing uses them for so long and the queue is nearly full.
    fn return_unused(self: &Arc<Self>, store: &Store, kept_for: Duration) {
        let mut places = lock(&self.places);
        if places.is_returning || !places.has_to_return() {
            return;
        }
        // Without a runtime the lease ends by itself.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        places.is_returning = true;
        let has_free = places.has_free();
        drop(places);
        let (queue, store) = (self.clone(), store.clone());
        runtime.spawn(async move {
            if has_free {
                tokio::time::sleep(kept_for).await;
            }
            let _turn = queue.asking.lock().await;
            let returned = {
                let mut places = lock(&queue.places);
                places.is_returning = false;
                places.has_to_return().then(|| places.give_back(&queue.saga))
            };
            if let Some(returned) = returned {
                // If it fails, the lease ends by itself.
                let _ = Retries::new(Duration::ZERO)
                    .run(|_| async { store.tables()?.lease_places(&returned).await })
                    .await;
            }
        });
    }
}

/// A launch that waits for the answer of the database.
struct Waiting<'a> {
    queue: &'a Queue,
    count: usize,
}

impl<'a> Waiting<'a> {
    fn new(queue: &'a Queue, count: usize) -> Self {
        lock(&queue.places).wait_for(count);
        Self { queue, count }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.queue.places).waited_for(self.count);
    }
}

impl Admitted {
    /// Whether the launch needs no place.
    pub(crate) fn is_free(&self) -> bool {
        self.places.is_empty()
    }

    /// The launch may be committed later, or never.
    pub(crate) fn doubt(mut self) {
        for HeldPlaces { queue, messages } in self.places.drain(..) {
            lock(&queue.places).doubt(&messages, Instant::now());
        }
    }

    /// The launch does not begin.
    fn put_back(mut self) {
        for HeldPlaces { queue, messages } in self.places.drain(..) {
            lock(&queue.places).put_back(messages.len());
            queue.return_unused(&self.store, KEPT_FOR);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        for HeldPlaces { queue, messages } in self.places.drain(..) {
            lock(&queue.places).end(messages.len());
            queue.return_unused(&self.store, KEPT_FOR);
        }
    }
}

/// Between half of a delay and all of it, by chance.
fn shortened(delay: Duration) -> Duration {
    let chance = ids::now_v7().as_bytes()[15];
    delay / 2 + delay / 2 * u32::from(chance) / 255
}
