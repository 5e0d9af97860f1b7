//! A simulation of commands: several processes that fail, die, are replaced or wrongly presumed dead; clients and sagas
//! that send commands for few stocks; senders that roll back, and commands that are cancelled or come too late.
//!
//! Each command has a number, which its events and its rejection carry with the version that they were decided on. In
//! the end the recorded events, the states and the answers have to tell one and the same history.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::pending;
use scoop::entities::{CommandHandle, CommandState};
use scoop::prelude::*;
use scoop::retention::Retention;
use scoop::{Decider, Handle, InMemory, Outcome};
use scoop_runtime::simulation::{self, EntityEvent, Process};

use crate::act::PLANNED;
use crate::crew::{Line, Wire, supervised};
use crate::dice::Dice;

/// The seeds played by default.
pub(crate) const SEEDS: Range<u64> = 0..200;

const STOCKS: u32 = 3;

const SENDINGS: u32 = 16;

/// How long a hierarchy may take after the healing, in virtual time.
const RETRY_FOR: Duration = Duration::from_secs(600);

/// A change of a stock by an event.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Change {
    number: u32,
    units: i64,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Stock {
    units: i64,
    history: Vec<Change>,
}

#[entity(name = "sim-stock", key = u32)]
impl Stock {
    fn put(&mut self, event: &WasPut) {
        self.change(event.number, event.units);
    }

    fn taken(&mut self, event: &WasTaken) {
        self.change(event.number, -event.units);
        assert!(!event.is_poison, "{PLANNED} the stock cannot hand it out");
    }

    fn returned(&mut self, event: &WasReturned) {
        self.change(event.number, event.units);
    }
}

impl Stock {
    fn change(&mut self, number: u32, units: i64) {
        self.units += units;
        self.history.push(Change { number, units });
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "sim.put")]
struct WasPut {
    number: u32,
    units: i64,
    /// The version that was decided on.
    seen: usize,
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "sim.taken")]
struct WasTaken {
    number: u32,
    units: i64,
    seen: usize,
    is_poison: bool,
    fails: bool,
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "sim.returned")]
struct WasReturned {
    number: u32,
    units: i64,
    seen: usize,
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "sim.refused")]
struct Refused {
    seen: usize,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Put {
    stock: u32,
    number: u32,
    units: i64,
}

#[command(entity = Stock, name = "sim-put")]
impl Put {
    fn key(&self) -> u32 {
        self.stock
    }

    fn decide(&self, stock: &Stock) -> Decision<WasPut> {
        let Self { number, units, .. } = *self;
        Decision::Accepted(WasPut { number, units, seen: stock.history.len() })
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Take {
    stock: u32,
    number: u32,
    units: i64,
    /// The application of its event panics.
    is_poison: bool,
    /// The handler of its event fails.
    fails: bool,
}

#[command(entity = Stock, name = "sim-take")]
impl Take {
    fn key(&self) -> u32 {
        self.stock
    }

    #[step]
    async fn fetch(&self, _: &mut Scope<'_>) -> Result<i64> {
        Ok(self.units)
    }

    fn decide(&self, stock: &Stock, units: &i64) -> Decision<WasTaken, Refused> {
        let (Self { number, is_poison, fails, .. }, seen) = (*self, stock.history.len());
        if *units > stock.units {
            return Decision::Rejected(Refused { seen });
        }
        Decision::Accepted(WasTaken { number, units: *units, seen, is_poison, fails })
    }

    fn undo(&self, stock: &Stock, taken: &WasTaken) -> Option<WasReturned> {
        Some(WasReturned { number: self.number, units: taken.units, seen: stock.history.len() })
    }
}

/// The handler of what was taken.
#[derive(Default)]
struct Shipping;

#[saga(name = "sim-shipping")]
#[subscribes(WasTaken)]
impl Shipping {
    #[step]
    async fn pack(&self, _: &mut Scope<'_>, _: &WasTaken) -> Result<()> {
        Ok(())
    }

    #[step(sleep = "15ms")]
    async fn rest(&self, _: &mut Scope<'_>, _: &WasTaken) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn ship(&self, _: &mut Scope<'_>, taken: &WasTaken) -> Result<()> {
        if taken.fails { Err(Error::msg(PLANNED)) } else { Ok(()) }
    }
}

/// Several commands of one sender.
#[derive(Clone, Debug, Message, Serialize, Deserialize)]
#[message(topic = "sim.purchase")]
struct Purchase {
    takes: Vec<Take>,
    fails: bool,
}

/// The decisions that steps have read, by the number of the command. None was repeated with another value.
type Told = Arc<Mutex<BTreeMap<u32, Decision<WasTaken, Refused>>>>;

#[derive(Clone)]
struct Buyer(Told);

#[saga(name = "sim-buyer")]
#[subscribes(Purchase)]
impl Buyer {
    #[step]
    async fn buy(&self, scope: &mut Scope<'_>, purchase: &Purchase) -> Result<()> {
        for take in &purchase.takes {
            scope.launch(*take).await?;
        }
        Ok(())
    }

    #[step]
    async fn read(&self, scope: &mut Scope<'_>, purchase: &Purchase) -> Result<()> {
        let replies = scope.replies::<Take>().await?;
        assert_eq!(replies.len(), purchase.takes.len(), "each command has one decision");
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (take, reply) in purchase.takes.iter().zip(replies) {
            let known = told.insert(take.number, reply.value.clone());
            assert!(known.is_none_or(|known| known == reply.value), "a decision stays");
        }
        Ok(())
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, purchase: &Purchase) -> Result<()> {
        if purchase.fails { Err(Error::msg(PLANNED)) } else { Ok(()) }
    }
}

/// What a client has sent.
enum Sent {
    Put(Put, CommandHandle<Put>),
    Take(Take, CommandHandle<Take>),
    Purchase(Purchase, Handle),
}

struct World {
    database: InMemory,
    healed: Arc<AtomicBool>,
    told: Told,
    dice: Dice,
    next: u32,
}

impl World {
    /// Starts a process. If it is to, it dies after a while; otherwise it may be presumed dead for a moment.
    fn start(&mut self, dies: bool) {
        let line = Arc::new(Line::new(self.healed.clone(), self.dice.roll()));
        let process = Process::new(&self.database, Arc::new(Wire(line.clone())));
        let (buyer, lives) = (Buyer(self.told.clone()), self.dice.between(10, 300));
        let is_cut = self.dice.percent(50);
        tokio::spawn(async move {
            let started = process.clone();
            let running = tokio::spawn(supervised(move || {
                let builder = Scoop::builder().simulated_process(&started).retention(Retention::forever());
                let builder = builder.only::<Buyer>().only::<Shipping>();
                let builder = builder.only::<Decider<Put>>().only::<Decider<Take>>();
                builder.provide(buyer.clone()).poll_interval(Duration::from_secs(1))
            }));
            tokio::time::sleep(Duration::from_millis(lives.into())).await;
            if dies {
                line.die();
                process.disconnect();
                running.abort();
            } else if is_cut {
                process.disconnect();
            }
            // What it has begun never ends.
            pending::<()>().await;
        });
    }

    fn take(&mut self) -> Take {
        self.next += 1;
        let (stock, units) = (self.dice.below(STOCKS), self.dice.between(1, 6).into());
        let (is_poison, fails) = (self.dice.percent(10), self.dice.percent(15));
        Take { stock, number: self.next, units, is_poison, fails }
    }

    /// Sends something, from a client.
    async fn send(&mut self, client: &Scoop) -> Result<Sent> {
        let sort = self.dice.below(10);
        if sort < 3 {
            self.next += 1;
            let (stock, units) = (self.dice.below(STOCKS), self.dice.between(1, 8).into());
            let put = Put { stock, number: self.next, units };
            return Ok(Sent::Put(put, client.send(put).await?));
        }
        if sort < 8 {
            let take = self.take();
            let sent = if self.dice.percent(20) {
                let until = self.database.now() + Duration::from_millis(self.dice.below(40).into());
                client.send(take).deadline(until).await?
            } else {
                client.send(take).await?
            };
            if self.dice.percent(20) {
                tokio::time::sleep(Duration::from_millis(self.dice.below(40).into())).await;
                client.cancel(sent.id(), format!("{PLANNED} cancelled")).await?;
            }
            return Ok(Sent::Take(take, sent));
        }
        let takes = (0..self.dice.between(1, 3)).map(|_| self.take()).collect();
        let purchase = Purchase { takes, fails: self.dice.percent(40) };
        let sent = client.launch(purchase.clone()).await?;
        Ok(Sent::Purchase(purchase, sent))
    }

    async fn play(mut self) -> Result<(Vec<String>, Tally)> {
        // Subscribed before the first launch, so that each message has its handlers.
        let builder = Scoop::builder()
            .in_memory_database(&self.database)
            .retention(Retention::forever())
            .only::<Buyer>()
            .only::<Shipping>();
        let builder = builder.only::<Decider<Put>>().only::<Decider<Take>>();
        builder.provide(Buyer(self.told.clone())).start().await?.shutdown().await?;
        self.start(false);
        let client = Scoop::builder().in_memory_database(&self.database).client().await?;
        let mut all = vec![];
        for _ in 0..SENDINGS {
            if self.dice.percent(30) {
                let dies = self.dice.percent(80);
                self.start(dies);
            }
            // Half of the time together with the one before.
            if self.dice.percent(50) {
                tokio::time::sleep(Duration::from_millis(self.dice.below(40).into())).await;
            }
            all.push(self.send(&client).await?);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.healed.store(true, Ordering::Relaxed);
        self.start(false);
        let mut judge = Judge::default();
        for sent in &all {
            let handle: &Handle = match sent {
                Sent::Put(_, handle) => handle,
                Sent::Take(_, handle) => handle,
                Sent::Purchase(_, handle) => handle,
            };
            judge.end(handle, &format!("hierarchy {}", handle.id())).await?;
        }
        judge.read_stocks(&self.database, &client).await?;
        for sent in &all {
            judge.judge(&client, sent, &self.told).await?;
        }
        let (rest, open) = (judge.changes.len(), self.database.working_set());
        judge.says(rest == 0, || format!("{rest} commands changed a stock, and were not sent"));
        judge.says(open.is_empty(), || format!("all have ended, but for {open:?}"));
        Ok((judge.wrong, judge.tally))
    }
}

/// The changes of stocks by one command.
#[derive(Clone, Debug, Default)]
struct Changes {
    put: Vec<WasPut>,
    taken: Vec<WasTaken>,
    returned: Vec<WasReturned>,
}

/// What became of commands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    accepted: u32,
    rejected: u32,
    undone: u32,
    undecided: u32,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
        self.undone += other.undone;
        self.undecided += other.undecided;
    }

    /// Whether each of the ends occurred.
    fn has_all(self) -> bool {
        [self.accepted, self.rejected, self.undone, self.undecided].iter().all(|count| *count > 0)
    }
}

/// Compares what was told with what was recorded.
#[derive(Default)]
struct Judge {
    tally: Tally,
    /// The units of each stock, by version.
    levels: Vec<Vec<i64>>,
    /// By the number of the command.
    changes: BTreeMap<u32, Changes>,
    wrong: Vec<String>,
}

impl Judge {
    fn says(&mut self, is_well: bool, what: impl FnOnce() -> String) {
        if !is_well {
            self.wrong.push(what());
        }
    }

    /// Waits for the end of a hierarchy. Returns whether it was rolled back, and why.
    async fn end(&mut self, handle: &Handle, what: &str) -> Result<Option<String>> {
        let Ok(outcome) = tokio::time::timeout(RETRY_FOR, handle.wait()).await else {
            return Err(Error::msg(format!("{what} does not end")));
        };
        match outcome? {
            Outcome::Committed => Ok(None),
            Outcome::RolledBack(failure) => Ok(Some(failure.report())),
            other => Err(Error::msg(format!("{what} ends with {other}"))),
        }
    }

    /// Reads events and states: versions without gaps, each decided on the one before, and states that follow from them.
    async fn read_stocks(&mut self, database: &InMemory, client: &Scoop) -> Result<()> {
        let events = simulation::entity_events(database);
        let messages: BTreeSet<_> = events.iter().map(|event| event.message_id).collect();
        self.says(messages.len() == events.len(), || "a message is the event of two versions".to_owned());
        for stock in 0..STOCKS {
            let state = client.entity::<Stock>(stock).await?;
            let own = events.iter().filter(|event| event.key == stock.to_string());
            let (mut history, mut levels) = (vec![], vec![0]);
            for event in own {
                let (at, number) = (history.len(), event.payload["number"].as_u64().unwrap_or_default());
                let version = i64::try_from(at + 1).unwrap_or_default();
                self.says(event.version == version, || {
                    format!("stock {stock} has version {} after {at} events", event.version)
                });
                let seen = event.payload["seen"].as_u64();
                self.says(seen == u64::try_from(at).ok(), || {
                    format!("version {version} of stock {stock} was decided on version {seen:?}")
                });
                let units = self.note(event)?;
                history.push(Change { number: u32::try_from(number).unwrap_or_default(), units });
                levels.push(levels[at] + units);
            }
            self.says(levels.iter().all(|level| *level >= 0), || format!("stock {stock} had {levels:?}"));
            let (version, units) = (state.version, state.state.units);
            self.says(version == u64::try_from(history.len()).unwrap_or_default(), || {
                format!("stock {stock} is at version {version} after {} events", history.len())
            });
            self.says(state.state.history == history && Some(&units) == levels.last(), || {
                format!("stock {stock} is {:?}, and its events are {history:?}", state.state)
            });
            self.levels.push(levels);
        }
        Ok(())
    }

    /// Notes an event with its command. Returns the change.
    fn note(&mut self, event: &EntityEvent) -> Result<i64> {
        let read = |error| Error::msg(format!("the event {event:?} cannot be read: {error}"));
        let payload = event.payload.clone();
        match event.topic.as_deref() {
            Some(WasPut::TOPIC) => {
                let put: WasPut = serde_json::from_value(payload).map_err(read)?;
                let units = put.units;
                self.changes.entry(put.number).or_default().put.push(put);
                Ok(units)
            }
            Some(WasTaken::TOPIC) => {
                let taken: WasTaken = serde_json::from_value(payload).map_err(read)?;
                let units = taken.units;
                self.changes.entry(taken.number).or_default().taken.push(taken);
                Ok(-units)
            }
            Some(WasReturned::TOPIC) => {
                let returned: WasReturned = serde_json::from_value(payload).map_err(read)?;
                let units = returned.units;
                self.changes.entry(returned.number).or_default().returned.push(returned);
                Ok(units)
            }
            other => Err(Error::msg(format!("an entity has an event on topic {other:?}"))),
        }
    }

    /// Compares a decision with the changes that its command has made.
    fn compare(&mut self, take: &Take, told: Option<&Decision<WasTaken, Refused>>, rolled_back: bool) {
        let changes = self.changes.remove(&take.number).unwrap_or_default();
        let (taken, returned) = (changes.taken, changes.returned.len());
        let count = match told {
            Some(Decision::Accepted(_)) if rolled_back => &mut self.tally.undone,
            Some(Decision::Accepted(_)) => &mut self.tally.accepted,
            Some(Decision::Rejected(_)) => &mut self.tally.rejected,
            None => &mut self.tally.undecided,
        };
        *count += 1;
        let is_right = match told {
            Some(Decision::Accepted(event)) => {
                taken == [event.clone()] && returned == usize::from(rolled_back) && !event.is_poison
            }
            Some(Decision::Rejected(refused)) => {
                let level = self.levels[take.stock as usize].get(refused.seen);
                level.is_some_and(|level| take.units > *level) && taken.is_empty() && returned == 0
            }
            None => rolled_back && taken.is_empty() && returned == 0,
        };
        self.says(is_right, || {
            let fate = if rolled_back { "rolled back" } else { "committed" };
            format!("{take:?}, {fate}, was told {told:?}, has taken {taken:?} and returned {returned} times")
        });
    }

    async fn judge(&mut self, client: &Scoop, sent: &Sent, told: &Told) -> Result<()> {
        match sent {
            Sent::Put(put, handle) => {
                let rolled_back = self.end(handle, &format!("put {}", put.number)).await?;
                self.says(rolled_back.is_none(), || {
                    format!("put {} was rolled back: {rolled_back:?}", put.number)
                });
                let changes = self.changes.remove(&put.number).unwrap_or_default();
                let units: Vec<_> = changes.put.iter().map(|event| event.units).collect();
                self.says(units == [put.units], || format!("put {} has put {units:?}", put.number));
            }
            Sent::Take(take, handle) => {
                let rolled_back = self.end(handle, &format!("{take:?}")).await?;
                let decision = handle.decision().await.ok();
                let state = client.find(handle.id()).await?.command_state().await?;
                let expected = decision.as_ref().map(|decision| match decision {
                    Decision::Accepted(_) => CommandState::Accepted,
                    Decision::Rejected(_) => CommandState::Rejected,
                });
                self.says(state == expected, || format!("{take:?} is {state:?}, and told {decision:?}"));
                self.says(handle.replies::<Take>().await?.len() <= 1, || format!("{take:?} replies twice"));
                self.compare(take, decision.as_ref(), rolled_back.is_some());
                let is_planned = |why: &String| why.contains(PLANNED) || why.contains("deadline");
                self.says(rolled_back.as_ref().is_none_or(is_planned), || {
                    format!("{take:?} was rolled back: {rolled_back:?}")
                });
            }
            Sent::Purchase(purchase, handle) => {
                let rolled_back = self.end(handle, &format!("{purchase:?}")).await?.is_some();
                let fails = purchase.fails || purchase.takes.iter().any(|take| take.fails || take.is_poison);
                self.says(rolled_back || !purchase.fails, || format!("{purchase:?} was committed"));
                self.says(!rolled_back || fails, || format!("{purchase:?} was rolled back"));
                for take in &purchase.takes {
                    let told = told.lock().unwrap_or_else(PoisonError::into_inner).get(&take.number).cloned();
                    // Its sender may have failed before it read the decision.
                    let taken = self.changes.get(&take.number).and_then(|it| it.taken.first()).cloned();
                    self.compare(take, told.or(taken.map(Decision::Accepted)).as_ref(), rolled_back);
                }
            }
        }
        Ok(())
    }
}

/// Plays a seed. Returns what is wrong, and what became of the commands of `Take`.
pub(crate) fn play_one(seed: u64) -> (Vec<String>, Tally) {
    simulation::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let new_year = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    let played = runtime.expect("a runtime starts").block_on(async {
        let (healed, told) = (Arc::new(AtomicBool::new(false)), Told::default());
        let (database, dice) = (InMemory::starting_at(new_year), Dice::new(seed));
        let world = World { database, healed, told, dice, next: 0 };
        world.play().await.unwrap_or_else(|error| (vec![error.to_string()], Tally::default()))
    });
    simulation::seed(None);
    played
}

/// Plays these seeds. Returns whether nothing is wrong.
pub(crate) fn play(seeds: Range<u64>) -> bool {
    let (mut count, mut failed, mut tally) = (0, 0, Tally::default());
    for seed in seeds {
        let (wrong, played) = play_one(seed);
        count += 1;
        tally.add(played);
        if let Some(first) = wrong.first() {
            failed += 1;
            println!("commands: seed {seed}: {first}");
        }
    }
    let Tally { accepted, rejected, undone, undecided } = tally;
    println!(
        "commands: {count} seeds, {failed} wrong; {accepted} accepted, {rejected} rejected, {undone} accepted and \
         undone, {undecided} not decided"
    );
    failed == 0 && tally.has_all()
}
