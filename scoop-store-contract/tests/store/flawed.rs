//! A store with one selectable flaw. Without a flaw it conforms.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use scoop_store_contract::conformance::{Faults, FaultyError, InjectedAt, World};
use scoop_store_contract::{Dequeued, Entry, Item, Round, Rounds, Token, Verdict};
use time::OffsetDateTime;

type Result<T> = std::result::Result<T, FaultyError>;

/// The flaw of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// A round can be interrupted between its parts.
    TornCommit,
    /// Readers see the parts of a round one by one, although it is never interrupted.
    SeenHalfDone,
    /// A dequeued item is gone.
    DestructiveDequeue,
    /// The token is not checked.
    NoFence,
    /// The token is checked after the rest of the round.
    FenceComesLast,
    /// Only the existence of a holder is checked, not the epoch.
    FenceByName,
    /// A holder's death is ignored.
    NeverTakesOver,
    /// Living holders are presumed dead.
    TakesFromTheLiving,
    /// An item that is handed out again keeps the old epoch.
    SameEpoch,
    /// An acknowledged item stays.
    NeverGone,
    /// An abandoned item stays held.
    AbandonDoesNothing,
    /// An abandoned item is lost.
    AbandonLoses,
    /// A holder that has lost an item can abandon it.
    AbandonByAnybody,
    /// An item that is held is handed to others, too.
    HeldByMany,
    /// Two concurrent dequeues get the same item.
    RacyDequeue,
    AppendsTwice,
    EnqueuesTwice,
    /// The key of an item counts only until the item is acknowledged.
    ForgetsKeys,
    /// The key of an entry counts in its round only.
    KeysOfRound,
    /// The last body of a key counts.
    Overwrites,
    /// The key of an entry counts in all streams.
    OneKeySpace,
    IgnoresVisibility,
    NewestFirst,
    /// The newest entry comes first.
    EntriesBackwards,
    /// A lock expires after half its time.
    ShortLocks,
    /// A lock never expires.
    EndlessLocks,
    /// The body of an item is lost when it is handed out again.
    ForgetsBody,
    /// A reader does not see the newest entry of a stream.
    StaleReads,
}

/// The lock time: `None` unless the flaw concerns lock expiry.
fn lock_time(flaw: Flaw) -> Option<Duration> {
    matches!(flaw, Flaw::ShortLocks | Flaw::EndlessLocks).then_some(Duration::from_secs(1_800))
}

#[derive(Clone)]
pub(crate) struct Flawed {
    flaw: Flaw,
    tables: Arc<Mutex<Tables>>,
    faults: Faults,
}

struct Tables {
    now: OffsetDateTime,
    entries: Vec<Entry>,
    slots: Vec<Slot>,
    dead: BTreeSet<String>,
    bodies: BTreeMap<String, u64>,
}

struct Slot {
    item: Item,
    visible_at: OffsetDateTime,
    epoch: u64,
    holder: Option<String>,
    locked_at: OffsetDateTime,
    gone: bool,
}

/// Lets other holders run.
async fn turn() {
    tokio::task::yield_now().await;
}

impl Flawed {
    pub(crate) fn new(flaw: Flaw) -> Self {
        let now = OffsetDateTime::UNIX_EPOCH;
        let (entries, slots, dead, bodies) = Default::default();
        let tables = Tables { now, entries, slots, dead, bodies };
        Self { flaw, tables: Arc::new(Mutex::new(tables)), faults: Faults::default() }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap()
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// One call of the store, subject to the injected faults.
    async fn call<T>(&self, work: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
        turn().await;
        match self.faults.next() {
            InjectedAt::No => work().await,
            InjectedAt::Before => Err(FaultyError::Wanted),
            InjectedAt::After => work().await.and(Err(FaultyError::Wanted)),
        }
    }

    /// The point between two parts of a round, where the flaw takes effect.
    async fn between(&self) -> Result<()> {
        match self.flaw {
            Flaw::TornCommit => match self.faults.next() {
                InjectedAt::No => Ok(()),
                InjectedAt::Before | InjectedAt::After => Err(FaultyError::Wanted),
            },
            Flaw::SeenHalfDone => {
                turn().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn append(&self, entry: &Entry, nth: usize) {
        let mut tables = self.tables();
        let same = |known: &&mut Entry| {
            known.key == entry.key && (known.stream == entry.stream || self.is(Flaw::OneKeySpace))
        };
        let new = tables.entries.iter_mut().find(same);
        match new {
            _ if self.is(Flaw::AppendsTwice) || (self.is(Flaw::KeysOfRound) && nth == 0) => {}
            Some(known) if self.is(Flaw::Overwrites) => return known.body = entry.body.clone(),
            Some(_) => return,
            None => {}
        }
        tables.entries.push(entry.clone());
    }

    fn enqueue(&self, item: &Item) {
        let mut tables = self.tables();
        let now = tables.now;
        let forgets = self.is(Flaw::ForgetsKeys);
        let known = |slot: &Slot| slot.item.key == item.key && !(forgets && slot.gone);
        if tables.slots.iter().any(known) && !self.is(Flaw::EnqueuesTwice) {
            return;
        }
        let visible_at = item.visible_at.filter(|_| !self.is(Flaw::IgnoresVisibility)).unwrap_or(now);
        let (item, epoch) = (item.clone(), 0);
        tables.slots.push(Slot { item, visible_at, epoch, holder: None, locked_at: now, gone: false });
    }

    fn holds(&self, token: &Token) -> bool {
        let mut tables = self.tables();
        let held = tables.held(token);
        held.is_some_and(|slot| match self.flaw {
            Flaw::NoFence | Flaw::FenceComesLast => true,
            Flaw::FenceByName => slot.holder.is_some(),
            _ => slot.holder.is_some() && slot.epoch == token.epoch,
        })
    }

    fn acknowledge(&self, token: &Token) {
        let never = self.is(Flaw::NeverGone);
        if let Some(slot) = self.tables().held(token) {
            slot.gone = !never;
            slot.holder = None;
        }
    }

    async fn carry_out(&self, round: &Round) -> Result<Verdict> {
        let holds = |token: &Token| self.is(Flaw::DestructiveDequeue) || self.holds(token);
        if round.acknowledge.as_ref().is_some_and(|token| !holds(token)) {
            return Ok(Verdict::Refused);
        }
        for (nth, entry) in round.append.iter().enumerate() {
            self.append(entry, nth);
            self.between().await?;
        }
        round.enqueue.iter().for_each(|item| self.enqueue(item));
        self.between().await?;
        if let Some(token) = &round.acknowledge {
            let late = self.tables().held(token).is_some_and(|slot| slot.epoch != token.epoch);
            if self.is(Flaw::FenceComesLast) && late {
                return Ok(Verdict::Refused);
            }
            self.acknowledge(token);
        }
        Ok(Verdict::Committed)
    }
}

impl Tables {
    fn held(&mut self, token: &Token) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.item.key == token.item && !slot.gone)
    }

    /// The position of the next item.
    fn next(&self, flaw: Flaw) -> Option<usize> {
        let free = |slot: &Slot| slot.holder.is_none() || flaw == Flaw::HeldByMany;
        let fits = |slot: &Slot| !slot.gone && free(slot) && slot.visible_at <= self.now;
        let mut fitting = self.slots.iter().enumerate().filter(|(_, slot)| fits(slot));
        let next = match flaw {
            Flaw::NewestFirst => fitting.next_back(),
            _ => fitting.min_by_key(|(_, slot)| slot.visible_at),
        };
        next.map(|(place, _)| place)
    }
}

impl Rounds for Flawed {
    type Error = FaultyError;

    async fn now(&self) -> Result<OffsetDateTime> {
        self.call(async || Ok(self.tables().now)).await
    }

    async fn dequeue(&self, holder: &str) -> Result<Option<Dequeued>> {
        self.call(async || {
            let next = self.tables().next(self.flaw);
            let Some(place) = next else { return Ok(None) };
            if self.is(Flaw::RacyDequeue) {
                turn().await;
            }
            let mut tables = self.tables();
            let now = tables.now;
            let slot = &mut tables.slots[place];
            slot.epoch += u64::from(!self.is(Flaw::SameEpoch) || slot.epoch == 0);
            slot.holder = Some(holder.to_owned());
            slot.locked_at = now;
            slot.gone |= self.is(Flaw::DestructiveDequeue);
            let mut item = slot.item.clone();
            let token = Token { item: item.key.clone(), epoch: slot.epoch, receipt: holder.to_owned() };
            let times = tables.bodies.entry(item.key.clone()).or_default();
            *times += 1;
            if self.is(Flaw::ForgetsBody) && *times > 1 {
                item.body = serde_json::Value::String("?".to_owned());
            }
            Ok(Some(Dequeued { item, token }))
        })
        .await
    }

    async fn commit(&self, round: &Round) -> Result<Verdict> {
        self.call(async || self.carry_out(round).await).await
    }

    async fn abandon(&self, token: &Token) -> Result<()> {
        self.call(async || {
            let mut tables = self.tables();
            let anybody = self.is(Flaw::AbandonByAnybody);
            let held = tables.held(token).filter(|slot| slot.epoch == token.epoch || anybody);
            if let Some(slot) = held.filter(|_| !self.is(Flaw::AbandonDoesNothing)) {
                slot.holder = None;
                slot.gone |= self.is(Flaw::AbandonLoses);
            }
            Ok(())
        })
        .await
    }

    async fn read(&self, stream: &str) -> Result<Vec<Entry>> {
        self.call(async || {
            let tables = self.tables();
            let entries = tables.entries.iter().filter(|entry| entry.stream == stream).cloned();
            let mut entries: Vec<_> = entries.collect();
            match self.flaw {
                Flaw::EntriesBackwards => entries.reverse(),
                Flaw::StaleReads => drop(entries.pop()),
                _ => {}
            }
            Ok(entries)
        })
        .await
    }

    async fn take_over(&self) -> Result<u64> {
        self.call(async || {
            let mut tables = self.tables();
            let (now, flaw) = (tables.now, self.flaw);
            let dead = std::mem::take(&mut tables.dead);
            let mut freed = 0;
            for slot in &mut tables.slots {
                let Some(holder) = &slot.holder else { continue };
                let lasts =
                    lock_time(flaw).map(|time| if flaw == Flaw::ShortLocks { time / 2 } else { time });
                let expired = lasts.is_some_and(|lasts| slot.locked_at + lasts <= now);
                let free = match flaw {
                    Flaw::NeverTakesOver => false,
                    Flaw::TakesFromTheLiving => true,
                    Flaw::EndlessLocks => dead.contains(holder),
                    _ => expired || dead.contains(holder),
                };
                if free {
                    slot.holder = None;
                    freed += 1;
                }
            }
            Ok(freed)
        })
        .await
    }
}

impl World for Flawed {
    type Store = Self;

    async fn open(&self) -> Self {
        self.clone()
    }

    async fn advance(&self, by: Duration) {
        self.tables().now += by;
    }

    async fn kill(&self, holder: &str) {
        self.tables().dead.insert(holder.to_owned());
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }

    fn lock_time(&self) -> Option<Duration> {
        lock_time(self.flaw)
    }
}
