//! A simulation of sagas that join messages: several processes that fail, die and are replaced; messages under the same
//! keys; and emitters that roll back before or after their set is complete.
//!
//! Each sale has a number and launches one message with it. In the end each message is in one set, or waits, or was
//! withdrawn.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use scoop::prelude::*;
use scoop::{EventKind, Handle, InMemory, Outcome};
use scoop_runtime::simulation::{self, Bug, FaultLink, Process, inject_bug};
use uuid::Uuid;

use crate::dice::Dice;

/// Number of seeds played by default.
const SEEDS: u64 = 200;

const SALES: u32 = 14;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "join.paid")]
struct Paid {
    key: u32,
    number: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "join.picked")]
struct Picked {
    key: u32,
    number: u32,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "join.sale")]
struct Sale {
    key: u32,
    number: u32,
    pays: bool,
    fails: bool,
}

#[derive(Default)]
struct Seller;

#[saga(name = "join-seller")]
#[subscribes(Sale)]
impl Seller {
    #[step]
    async fn sell(&self, scope: &mut Scope<'_>, sale: &Sale) -> Result<()> {
        let Sale { key, number, .. } = *sale;
        if sale.pays {
            scope.launch(Paid { key, number }).await?;
        } else {
            scope.launch(Picked { key, number }).await?;
        }
        Ok(())
    }

    #[step(sleep = "40ms")]
    async fn rest(&self, _: &mut Scope<'_>, _: &Sale) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, sale: &Sale) -> Result<()> {
        if sale.fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
    }
}

/// The numbers of the messages of a set, by its hierarchy.
type Sets = Arc<Mutex<BTreeMap<Uuid, [u32; 2]>>>;

struct Packer(Sets);

#[saga(name = "join-packer")]
#[subscribes(join(Paid, Picked, by = key))]
impl Packer {
    #[step]
    async fn pack(&self, scope: &mut Scope<'_>, set: &PackerMessage) -> Result<()> {
        let PackerMessage { paid, picked } = set;
        assert_eq!(paid.key, picked.key, "a set has one key");
        let root = scope.lineage().ids()[0];
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(root, [paid.number, picked.number]);
        Ok(())
    }
}

/// The link of one process. It fails at random until the healing.
pub(crate) struct Line {
    healed: Arc<AtomicBool>,
    dead: AtomicBool,
    dice: Mutex<Dice>,
}

impl Line {
    pub(crate) fn new(healed: Arc<AtomicBool>, seed: u64) -> Self {
        Self { healed, dead: AtomicBool::new(false), dice: Mutex::new(Dice::new(seed)) }
    }

    /// From now on nothing that was begun ends.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    fn roll<T>(&self, roll: impl FnOnce(&mut Dice) -> T) -> T {
        roll(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn suffer(&self) -> BoxFuture<'static, io::Result<()>> {
        if self.dead.load(Ordering::Relaxed) {
            return pending().boxed();
        }
        if self.healed.load(Ordering::Relaxed) {
            return async { Ok(()) }.boxed();
        }
        let (micros, fails) = self.roll(|dice| (dice.below(3_000), dice.percent(4)));
        async move {
            tokio::time::sleep(Duration::from_micros(micros.into())).await;
            if fails { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
        }
        .boxed()
    }
}

/// The link as the process has it.
pub(crate) struct Wire(pub(crate) Arc<Line>);

impl FaultLink for Wire {
    fn before(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
        self.0.suffer()
    }

    fn after(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
        self.0.suffer()
    }

    fn heard(&self) -> BoxFuture<'static, u32> {
        let lost = !self.0.healed.load(Ordering::Relaxed) && self.0.roll(|dice| dice.percent(20));
        std::future::ready(u32::from(!lost)).boxed()
    }
}

struct World {
    database: InMemory,
    healed: Arc<AtomicBool>,
    sets: Sets,
    dice: Dice,
}

impl World {
    /// Starts a process. It dies after a while, if it is to.
    fn start(&mut self, dies: bool) {
        let line = Arc::new(Line::new(self.healed.clone(), self.dice.roll()));
        let process = Process::new(&self.database, Arc::new(Wire(line.clone())));
        let (packer, lives) = (Packer(self.sets.clone()), self.dice.between(20, 400));
        tokio::spawn(async move {
            let builder = Scoop::builder().simulated_process(&process).only::<Seller>().only::<Packer>();
            let builder = builder.provide(packer).poll_interval(Duration::from_secs(1));
            if dies {
                let running = tokio::spawn(builder.start());
                tokio::time::sleep(Duration::from_millis(lives.into())).await;
                line.die();
                process.disconnect();
                running.abort();
                // What it has begun never ends.
                pending::<()>().await;
                return;
            }
            let _scoop = builder.start().await;
            pending::<()>().await;
        });
    }

    async fn play(mut self) -> Result<Vec<String>> {
        // Subscribed before the first launch, so that each message has its handlers.
        let builder = Scoop::builder().in_memory_database(&self.database).only::<Seller>().only::<Packer>();
        builder.provide(Packer(self.sets.clone())).start().await?.shutdown().await?;
        self.start(false);
        let client = Scoop::builder().in_memory_database(&self.database).client().await?;
        let mut sales = vec![];
        for number in 0..SALES {
            if self.dice.percent(30) {
                self.start(true);
            }
            let (key, pays, fails) = (self.dice.below(3), self.dice.percent(50), self.dice.percent(25));
            let sale = Sale { key, number, pays, fails };
            let pause = Duration::from_millis(self.dice.below(60).into());
            tokio::time::sleep(pause).await;
            sales.push((sale, client.launch(sale).await?));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.healed.store(true, Ordering::Relaxed);
        self.start(false);
        self.judge(&client, &sales).await
    }

    /// Waits for the end of everything. Returns what is wrong.
    async fn judge(&self, client: &Scoop, sales: &[(Sale, Handle)]) -> Result<Vec<String>> {
        let mut failed = BTreeSet::new();
        for (sale, root) in sales {
            let Ok(outcome) = tokio::time::timeout(Duration::from_secs(600), root.wait()).await else {
                return Ok(vec![format!("sale {} does not end", sale.number)]);
            };
            match outcome? {
                Outcome::Committed if !sale.fails => {}
                Outcome::RolledBack(_) if sale.fails => drop(failed.insert(sale.number)),
                other => return Ok(vec![format!("sale {} ends with {other}", sale.number)]),
            }
        }
        let mut wrong = vec![];
        let mut roots = BTreeSet::new();
        for event in self.database.event_log() {
            if event.kind == EventKind::Emitted && ["join.paid", "join.picked"].contains(&&*event.topic) {
                let joined = client.joined(event.message_id).await?;
                roots.extend(joined.into_iter().map(scoop::HierarchyId::uuid));
            }
        }
        let mut outcomes = BTreeMap::new();
        for root in &roots {
            let root = client.find(*root).await?;
            let Ok(outcome) = tokio::time::timeout(Duration::from_secs(600), root.wait()).await else {
                return Ok(vec![format!("set {} does not end", root.id())]);
            };
            outcomes.insert(root.id().uuid(), outcome?);
        }
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut used = BTreeSet::new();
        for (root, numbers) in &sets {
            for number in numbers {
                if !used.insert(*number) {
                    wrong.push(format!("message {number} is in two sets"));
                }
            }
            let undone = numbers.iter().any(|number| failed.contains(number));
            match outcomes.get(root) {
                Some(Outcome::Committed) if !undone => {}
                Some(Outcome::RolledBack(_)) if undone => {}
                other => wrong
                    .push(format!("set {numbers:?} ends with {other:?}, its emitters rolled back: {undone}")),
            }
        }
        // A set whose emitter rolled back at once may never have begun.
        let unseen = roots.iter().filter(|root| !sets.contains_key(root));
        let began = |root: &&Uuid| !matches!(outcomes.get(root), Some(Outcome::RolledBack(_)));
        wrong.extend(unseen.filter(began).map(|root| format!("set {root} ended without its step")));
        let waiting = client.waiting_members().await?;
        let topics: BTreeSet<_> = waiting.iter().map(|member| (&member.key, &member.topic)).collect();
        for (key, _) in topics.iter().filter(|(_, topic)| *topic == "join.paid") {
            if topics.contains(&(*key, &"join.picked".to_owned())) {
                wrong.push(format!("a set of key {key} is complete, but waits"));
            }
        }
        let alive = sales.iter().filter(|(sale, _)| !failed.contains(&sale.number)).count();
        let joined = used.iter().filter(|number| !failed.contains(number)).count();
        let lost = roots.iter().filter(|root| !sets.contains_key(root)).count();
        // The numbers of a set that was undone before its step are unknown.
        if alive > joined + waiting.len() + lost || alive < joined + waiting.len() {
            wrong.push(format!("of {alive} messages {joined} are joined and {} wait", waiting.len()));
        }
        Ok(wrong)
    }
}

/// Plays a seed. Returns what is wrong.
fn play_one(seed: u64) -> Vec<String> {
    simulation::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let new_year = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    let wrong = runtime.expect("a runtime starts").block_on(async {
        let (healed, sets) = (Arc::new(AtomicBool::new(false)), Sets::default());
        let world = World { database: InMemory::starting_at(new_year), healed, sets, dice: Dice::new(seed) };
        world.play().await.unwrap_or_else(|error| vec![error.to_string()])
    });
    simulation::seed(None);
    wrong
}

/// Plays all seeds. Returns whether nothing is wrong.
pub(crate) fn play() -> bool {
    let wrong = (0..SEEDS).filter_map(|seed| {
        let wrong = play_one(seed);
        wrong.first().map(|first| println!("joined: seed {seed}: {first}"))
    });
    let wrong = wrong.count();
    println!("joined: {SEEDS} seeds, {wrong} wrong");
    wrong == 0
}

/// The first of these seeds that finds the bug, and what it violates.
pub(crate) fn find(bug: Bug, seeds_max: u64) -> Option<(u64, BTreeSet<String>)> {
    inject_bug(bug);
    let found = (0..seeds_max).find(|seed| !play_one(*seed).is_empty());
    inject_bug(None);
    found.map(|seed| (seed, BTreeSet::from(["joined".to_owned()])))
}
