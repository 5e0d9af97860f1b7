//! Checks the engine's store against the suite of the core, by the operations that the engine uses.
//!
//! | in the suite | here |
//! | --- | --- |
//! | an item | a message on a topic with one handler, whose id follows from the key; in the queue as its run |
//! | an entry | a message on a topic without a handler, whose id follows from stream and key |
//! | dequeue | claim, of one run; after a claim that failed, disown first |
//! | a round without an acknowledgement | launch, of messages that there can be once |
//! | another round | settle: the run commits, and emits what is not there yet |
//! | abandon | release |
//! | a holder | a worker, with a session of its own that shows that it lives |
//! | kill, take over | the end of that session, reap |
//! | advance | the times of all runs are put back |
//!
//! *What does not fit.* A settlement has no keys: the engine generates the ids of its emissions, and fencing keeps a
//! settlement from being applied twice. So existing messages are looked up before the settlement. Two concurrent rounds
//! with the same new messages are not supported: the second fails as a whole.

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use scoop_core::{
    Conclusion, Context, ContextKey, Continuation, Definition, Emission, Fate, Lineage, Returned, Run,
    SleepUntil, StepDefinition,
};
use scoop_store_contract::conformance::{self, Fault, Faults, InjectedAt, World};
use scoop_store_contract::{Dequeued, Entry, Item, Round, Rounds, Token, Verdict};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::sync::Mutex;
use uuid::Uuid;

use self::world::{Outside, Server, Session};
use super::super::{ConnectionSettings, PostgresStore, Schema, Sessions, migrate};
use super::{database, done};
use crate::model::backoff::Backoff;
use crate::model::retention::Retention;
use crate::model::run::RowState;
use crate::model::subscribed_saga::SubscribedSaga;
use crate::store::{
    ClaimKey, ClaimQueues, ClaimedRun, Claimer, HierarchyFlags, MemoryStore, NewMessage, QueueCursors,
    Release, Settlement, Store, SuspectClaim,
};

const ITEMS: &str = "rounds.items";
const ENTRIES: &str = "rounds.entries";
static SAGA: Definition = Definition {
    saga: std::borrow::Cow::Borrowed("rounds"),
    topic: std::borrow::Cow::Borrowed(ITEMS),
    steps: std::borrow::Cow::Borrowed(&[StepDefinition::new("step")]),
};

/// The settling worker's identifier in events.
const IDENTIFIER: &str = "scoop-rs:rounds";

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("the answer was lost, as the suite wanted it")]
    Unanswered,
    #[error("the token is none of ours")]
    Token,
}

/// An entry, as the event of its message carries it, with its place in its round.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Noted {
    entry: Entry,
    round: Uuid,
    place: usize,
}

impl ContextKey for Noted {
    const KEY: &'static str = "NotedKey";
}

/// The identity of a run, as a settlement needs it.
#[derive(Serialize, Deserialize)]
struct Receipt {
    root: Uuid,
    run: Uuid,
    message: Uuid,
}

/// A store, and all that the suite does to it. Its handles share it.
struct Tested {
    store: Store,
    outside: Outside,
    faults: Faults,
    holders: Mutex<BTreeMap<String, Holder>>,
    /// How far the suite's clock is ahead of the store's.
    advanced: std::sync::Mutex<Duration>,
    /// A worker that is never enlisted: it only takes over.
    heir: Uuid,
    /// The order of the rounds in all streams: that in which readers see them first. The times of events would not do, since
    /// transactions become visible in another order than they write.
    order: Mutex<BTreeMap<Uuid, usize>>,
}

/// The suite knows no pauses.
const NO_PAUSE: Backoff = Backoff { first: Duration::ZERO, longest: Duration::ZERO };

/// A worker, as long as its session lasts.
struct Holder {
    worker: Uuid,
    session: Session,
    /// The runs that it knows to hold, each with its epoch.
    in_flight: Vec<(Uuid, i64)>,
    /// Whether it has lost an answer, and may hold more.
    unknown_attempts: bool,
}

impl Holder {
    fn ids(&self) -> Vec<Uuid> {
        self.in_flight.iter().map(|(run, _)| *run).collect()
    }
}

#[derive(Clone)]
struct Handle(Arc<Tested>);

fn launched(topic: &'static str, key: &str, payload: serde_json::Value, context: Context) -> NewMessage {
    NewMessage::new(topic, payload, 0).unique(key).with(context)
}

fn key_of(token: &Token) -> Result<(Receipt, ClaimKey), Error> {
    let receipt: Receipt = serde_json::from_str(&token.receipt).map_err(|_| Error::Token)?;
    let epoch = token.epoch.try_into().map_err(|_| Error::Token)?;
    let key = ClaimKey { root: receipt.root, id: receipt.run, epoch };
    Ok((receipt, key))
}

impl Tested {
    /// Executes an operation of the store. With a fault, the connection is lost before its end, or the answer after
    /// that.
    async fn call<T>(
        &self,
        locks: &str,
        operation: impl AsyncFnOnce(&Store) -> sqlx::Result<T>,
    ) -> Result<T, Error> {
        match self.faults.next() {
            InjectedAt::No => Ok(operation(&self.store).await?),
            InjectedAt::Before => Err(self.outside.interrupted(locks, operation(&self.store)).await),
            InjectedAt::After => {
                operation(&self.store).await?;
                Err(Error::Unanswered)
            }
        }
    }

    fn advanced(&self) -> Duration {
        *self.advanced.lock().unwrap()
    }

    fn messages(&self, round: &Round) -> Vec<NewMessage> {
        let (mut keys, number) = (BTreeSet::new(), Uuid::now_v7());
        let mut messages = vec![];
        for (place, entry) in round.append.iter().enumerate() {
            let key = format!("{}\n{}", entry.stream, entry.key);
            if keys.insert(key.clone()) {
                let mut context = Context::default();
                context.set(Noted { entry: entry.clone(), round: number, place }).unwrap();
                messages.push(launched(ENTRIES, &key, serde_json::Value::Null, context));
            }
        }
        let mut keys = BTreeSet::new();
        for item in round.enqueue.iter().filter(|item| keys.insert(&item.key)) {
            let mut context = Context::default();
            if let Some(at) = item.visible_at {
                context.set(SleepUntil::new(at - self.advanced())).unwrap();
            }
            messages.push(launched(ITEMS, &item.key, serde_json::to_value(item).unwrap(), context));
        }
        messages
    }

    /// The holder's worker, registered at its first use.
    async fn holder<T>(&self, name: &str, ask: impl FnOnce(&mut Holder) -> T) -> Result<T, Error> {
        let mut holders = self.holders.lock().await;
        if !holders.contains_key(name) {
            let worker = Uuid::now_v7();
            let session = self.outside.enlist(worker).await?;
            holders.insert(
                name.to_owned(),
                Holder { worker, session, in_flight: vec![], unknown_attempts: false },
            );
        }
        Ok(ask(holders.get_mut(name).expect("it is there by now")))
    }

    /// Reconciles after a lost answer: all runs but the known ones are released.
    async fn disown(&self, holder: &str) -> Result<(), Error> {
        let (worker, in_flight, unknown_attempts) =
            self.holder(holder, |holder| (holder.worker, holder.ids(), holder.unknown_attempts)).await?;
        if unknown_attempts {
            self.call("run", async |store| store.reconcile(worker, || in_flight.clone(), NO_PAUSE).await)
                .await?;
            self.holder(holder, |holder| holder.unknown_attempts = false).await?;
        }
        Ok(())
    }

    /// Removes this claim from the runs in flight of every holder.
    async fn forget(&self, key: ClaimKey) {
        for holder in self.holders.lock().await.values_mut() {
            holder.in_flight.retain(|held| *held != (key.id, key.epoch));
        }
    }

    async fn claim(&self, holder: &str) -> Result<Option<ClaimedRun>, Error> {
        let worker = self.holder(holder, |holder| holder.worker).await?;
        let (topics, handlers) = ([ITEMS.to_owned()], [SAGA.saga.to_string()]);
        let queues = ClaimQueues {
            topology: self.topology(worker).await?,
            ..ClaimQueues::unreserved(&topics, &handlers)
        };
        let claimer = Claimer { worker, identifier: IDENTIFIER };
        let nothing = BTreeMap::<String, usize>::new();
        let claim = async |store: &Store| {
            store.claim(claimer, &queues, 1, &nothing, &mut QueueCursors::default()).await
        };
        let mut claimed = self.call("run", claim).await?.pop();
        if claimed.is_none() {
            let claim_suspect = async |store: &Store| match store
                .next_due(&queues, worker, SuspectClaim::Allowed, &QueueCursors::default())
                .await?
                .suspect
            {
                Some(suspect) => store.claim_suspect(claimer, &queues, &suspect).await,
                None => Ok(None),
            };
            claimed = Box::pin(self.call("run", claim_suspect)).await?;
        }
        Ok(claimed.map(|claimed| claimed.expect("it was written by us")))
    }

    async fn topology(&self, worker: Uuid) -> Result<i64, Error> {
        // Without faults, since an engine reads it at another time.
        let topology = self.outside.store().read_topology(&[]).await?;
        Ok(topology.living.iter().find(|living| living.id == worker).map_or(0, |living| living.topology))
    }

    /// The messages that do not exist yet.
    async fn unknown(&self, mut messages: Vec<NewMessage>) -> Result<Vec<NewMessage>, Error> {
        let look = async |store: &Store| {
            let mut known = vec![];
            for message in &messages {
                known.push(store.status(message.root, message.id).await?.emitted);
            }
            Ok(known)
        };
        let mut known = self.call("run", look).await?.into_iter();
        messages.retain(|_| known.next() == Some(false));
        Ok(messages)
    }

    async fn settle(&self, token: &Token, round: &Round) -> Result<Verdict, Error> {
        let (receipt, key) = key_of(token)?;
        let messages = self.unknown(self.messages(round)).await?;
        let lineage = Lineage::root(receipt.root).child(receipt.run);
        let run = Run::new(lineage, receipt.message, format!("{}[{IDENTIFIER}]", SAGA.saga));
        let flags = HierarchyFlags { has_parent: false, in_rollback: false };
        let context = run.context.clone();
        let settlement = Settlement::new(key, &run, flags, &context, conclusion(&run, messages));
        let settlements = [settlement];
        let settled = self.call("message_event", async |store| store.settle(IDENTIFIER, &settlements).await);
        Ok(match settled.await?.get(&(key.id, key.epoch)) {
            Some(settled) => {
                assert!(
                    settled.state == RowState::Ended,
                    "a run of one step has ended after it: {settled:?}"
                );
                Verdict::Committed
            }
            None => Verdict::Refused,
        })
    }
}

/// The engine's conclusion when these messages are emitted by the only step of a run.
fn conclusion(run: &Run, messages: Vec<NewMessage>) -> Conclusion {
    let Ok(Continuation::Call(step)) = Continuation::of(&SAGA, run) else { unreachable!("it has a step") };
    let emission = |message: NewMessage| Emission {
        message: message.id,
        topic: message.topic.clone().into_owned(),
        detached_root: Some(message.root),
        context: message.context.clone(),
        payload: message.payload,
        required: None,
        wait: None,
        found_by: vec![],
    };
    let emissions = messages.into_iter().map(emission).collect();
    let returned = Returned { emissions, ..Returned::nothing() };
    let concluded = step.conclude(run.context.clone(), Ok(returned));
    let Fate::GoesOn(after) = &concluded.fate else { unreachable!("a step went well") };
    let Ok(Continuation::Record(commits)) = Continuation::of(&SAGA, after) else {
        unreachable!("it was the last step")
    };
    let commits = commits.conclude();
    concluded.followed_by(commits)
}

impl Rounds for Handle {
    type Error = Error;

    async fn now(&self) -> Result<OffsetDateTime, Error> {
        let now = self.0.call("run", async |store| store.now().await).await?;
        Ok(now.earliest + self.0.advanced())
    }

    async fn dequeue(&self, holder: &str) -> Result<Option<Dequeued>, Error> {
        self.0.disown(holder).await?;
        let claimed = match self.0.claim(holder).await {
            Ok(Some(claimed)) => claimed,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.0.holder(holder, |holder| holder.unknown_attempts = true).await?;
                return Err(error);
            }
        };
        let item: Item = serde_json::from_value(claimed.payload).expect("it was written by us");
        self.0.holder(holder, |holder| holder.in_flight.push((claimed.key.id, claimed.key.epoch))).await?;
        let receipt = Receipt { root: claimed.key.root, run: claimed.key.id, message: claimed.run.message };
        let receipt = serde_json::to_string(&receipt).expect("ids can be written as JSON");
        let epoch = claimed.key.epoch.try_into().expect("no epoch is negative");
        let token = Token { item: item.key.clone(), epoch, receipt };
        Ok(Some(Dequeued { item, token }))
    }

    async fn commit(&self, round: &Round) -> Result<Verdict, Error> {
        if let Some(token) = &round.acknowledge {
            return self.0.settle(token, round).await;
        }
        let messages = self.0.messages(round);
        self.0.call("message_event", async |store| store.launch_in_own_transaction(&messages).await).await?;
        Ok(Verdict::Committed)
    }

    async fn abandon(&self, token: &Token) -> Result<(), Error> {
        let (_, key) = key_of(token)?;
        self.0.forget(key).await;
        self.0.call("run", async |store| store.release(&[Release::at_once(key)]).await).await.map(drop)
    }

    async fn read(&self, stream: &str) -> Result<Vec<Entry>, Error> {
        // Locked before the look, so that each look sees all that an earlier one has seen.
        let mut order = self.0.order.lock().await;
        let mut noted = self.0.outside.noted().await?;
        for noted in &noted {
            let place = order.len();
            order.entry(noted.round).or_insert(place);
        }
        noted.retain(|noted| noted.entry.stream == stream);
        // The events of a launch have no order of their own.
        noted.sort_by_key(|noted| (order[&noted.round], noted.place));
        Ok(noted.into_iter().map(|noted| noted.entry).collect())
    }

    async fn take_over(&self) -> Result<u64, Error> {
        let reaped = self.0.call("run", async |store| store.reap(self.0.heir, NO_PAUSE).await).await?;
        Ok(reaped.freed.runs.try_into().unwrap_or(u64::MAX))
    }
}

impl World for Handle {
    type Store = Self;

    async fn open(&self) -> Self {
        self.clone()
    }

    async fn advance(&self, by: Duration) {
        let passed = self.0.outside.advance(by).await;
        *self.0.advanced.lock().unwrap() += by - passed;
    }

    async fn kill(&self, holder: &str) {
        let mut holders = self.0.holders.lock().await;
        if let Some(holder) = holders.get_mut(holder) {
            self.0.outside.end(&mut holder.session).await;
        }
    }

    fn faults(&self) -> &Faults {
        &self.0.faults
    }
}

fn tested(outside: Outside) -> Handle {
    let (faults, holders, advanced, order) = Default::default();
    let store = outside.store();
    Handle(Arc::new(Tested { store, outside, faults, holders, advanced, heir: Uuid::now_v7(), order }))
}

/// Registers the handler of items.
async fn list(store: &Store) {
    store
        .register(&SubscribedSaga::pairs(&[ITEMS.to_owned()], &[SAGA.saga.to_string()]), Retention::default())
        .await
        .unwrap();
}

/// A claim with a lost answer is released when its worker reconciles, not only when the worker is dead.
async fn a_lost_claim_is_disowned(world: &Handle) {
    assert_eq!(world.commit(&Round::new().enqueue("one", 1.into())).await.unwrap(), Verdict::Committed);
    world.faults().arm(Fault::Answer, 1);
    assert!(world.dequeue("a").await.is_err());
    assert!(world.faults().disarm());
    assert!(world.dequeue("b").await.unwrap().is_none(), "`a` holds it without knowing");
    let held = world.dequeue("a").await.unwrap().expect("it was disowned, and claimed again");
    assert_eq!((&*held.item.key, held.token.epoch), ("one", 2));
    assert_eq!(world.commit(&Round::new().acknowledge(held.token)).await.unwrap(), Verdict::Committed);
}

/// Checks the store of this world against the suite.
async fn conforms(make: impl AsyncFn() -> Handle) {
    Box::pin(a_lost_claim_is_disowned(&make().await)).await;
    // Not on the stack of the caller, which is small without optimisation.
    Box::pin(conformance::check(make)).await.unwrap_or_else(|violations| panic!("{violations}"));
}

#[tokio::test]
async fn the_store_on_postgresql_conforms() {
    let pool = database("rounds").await;
    // Connections are lost here, but not the server.
    let options = (*pool.connect_options()).clone().options([("synchronous_commit", "off")]);
    let pool = PgPool::connect_with(options).await.unwrap();
    let schema = Schema::new("scoop").unwrap();
    migrate(&pool, &schema).await.unwrap();
    let tables =
        Arc::new(PostgresStore::new(Sessions::new(&pool, 8, &ConnectionSettings::default()), &schema));
    Box::pin(list(&Store::Postgres(tables.clone()))).await;
    Box::pin(conforms(async || {
        let server = Server { pool: pool.clone(), tables: tables.clone() };
        Box::pin(server.empty()).await;
        tested(Outside::Postgres(server))
    }))
    .await;
    tables.sessions().close().await;
    done(pool).await;
}

#[tokio::test]
async fn the_store_in_memory_conforms() {
    Box::pin(conforms(async || {
        let memory = MemoryStore::new(OffsetDateTime::UNIX_EPOCH);
        Box::pin(list(&Store::Memory(memory.clone()))).await;
        tested(Outside::Memory(memory))
    }))
    .await;
}
