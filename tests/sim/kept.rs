//! A simulation of the deletion of finished hierarchies: of some that commit, roll back, fail to, and join messages, while
//! operators and clients request, the clock is put forward, and processes fail, die and are replaced.
//!
//! Here is checked that each deleted hierarchy was at rest for its time, that all of it is deleted, that none is that still has
//! a use, and that in the end all others are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use scoop::prelude::*;
use scoop::retention::Retention;
use scoop::{Builder, EventKind, Handle, Lineage};
use uuid::Uuid;

use crate::crew::{Crew, Fate, Small};

/// The number of events from outside.
const DEEDS: u32 = 40;

/// For how long hierarchies are kept that committed, and others.
const COMMITTED: Duration = Duration::from_secs(60 * 60);
const ROLLED_BACK: Duration = Duration::from_secs(2 * 60 * 60);

/// The number of hours after which all is deleted that has ended.
const HOURS_MAX: u32 = 40;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kept.paid")]
struct Paid {
    key: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kept.picked")]
struct Picked {
    key: u32,
}

/// A sale, which launches one of the messages.
#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "kept.sale")]
struct Sale {
    key: u32,
    pays: bool,
    fails: bool,
    cannot_be_undone: bool,
}

#[derive(Default)]
struct Sellers;

#[saga(name = "kept-sellers")]
#[subscribes(Sale)]
impl Sellers {
    #[step(rollback = undo)]
    async fn sell(&self, scope: &mut Scope<'_>, sale: &Sale) -> Result<()> {
        let key = sale.key;
        if sale.pays {
            scope.launch(Paid { key }).await?;
        } else {
            scope.launch(Picked { key }).await?;
        }
        Ok(())
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, sale: &Sale) -> Result<()> {
        if sale.fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
    }

    async fn undo(&self, _: &mut Scope<'_>, sale: &Sale, _: &Failure) -> Result<()> {
        if sale.cannot_be_undone { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
    }
}

#[derive(Default)]
struct Packers;

#[saga(name = "kept-packers")]
#[subscribes(join(Paid, Picked, by = key))]
impl Packers {
    #[step]
    async fn pack(&self, _: &mut Scope<'_>, set: &PackersMessage) -> Result<()> {
        assert_eq!(set.paid.key, set.picked.key, "a set has one key");
        Ok(())
    }
}

fn program(builder: Builder) -> Builder {
    let keep = Retention::default().committed(COMMITTED).rolled_back(ROLLED_BACK);
    builder.retention(keep.every(Duration::from_millis(100))).only::<Sellers>().only::<Packers>()
}

/// A hierarchy at a moment.
#[derive(Debug)]
struct Seen {
    events: usize,
    last_at: SystemTime,
    /// For how long it is kept after its last event.
    time: Duration,
    /// Whether a run is unfinished or awaits an operator.
    is_open: bool,
}

/// All hierarchies at a moment, by their roots.
type Snapshot = BTreeMap<Uuid, Seen>;

struct World {
    crew: Crew,
    /// Reads and requests without faults.
    client: Scoop,
    launched: Vec<Handle>,
    before: Snapshot,
    wrong: Vec<String>,
}

impl World {
    async fn new(crew: Crew) -> Result<Self> {
        let client = Scoop::builder().in_memory_database(&crew.database).client().await?;
        Ok(Self { crew, client, launched: vec![], before: Snapshot::new(), wrong: vec![] })
    }

    async fn play(mut self) -> Result<Vec<String>> {
        self.crew.register(program).await?;
        self.crew.start(Fate::Lives, program);
        for _ in 0..DEEDS {
            if self.crew.dice.percent(20) {
                let fate = self.crew.fate();
                self.crew.start(fate, program);
            }
            self.crew.pause(120).await;
            self.look().await?;
            self.act().await?;
        }
        self.crew.heal();
        self.crew.start(Fate::Lives, program);
        self.end().await?;
        self.wrong.extend(self.crew.violations());
        Ok(self.wrong)
    }

    /// An event from outside.
    async fn act(&mut self) -> Result<()> {
        let dice = &mut self.crew.dice;
        match dice.below(20) {
            0..=9 => {
                let (key, pays) = (dice.below(4), dice.percent(50));
                let fails = dice.percent(30);
                let sale = Sale { key, pays, fails, cannot_be_undone: dice.percent(40) };
                self.launched.push(self.client.launch(sale).await?);
            }
            10..=15 => {
                let minutes = dice.between(15, 55);
                self.crew.database.advance(Duration::from_secs(u64::from(minutes) * 60));
            }
            16 => self.settle(1).await?,
            asked => {
                let count = u32::try_from(self.launched.len()).unwrap_or(0);
                let nth = self.crew.dice.below(count) as usize;
                if let Some(handle) = self.launched.get(nth) {
                    let (id, reason) = (handle.id(), crate::act::PLANNED);
                    // It may be deleted.
                    if asked == 17 {
                        drop(self.client.cancel(id, reason).await);
                    } else {
                        drop(self.client.rollback(id, reason).await);
                    }
                }
            }
        }
        Ok(())
    }

    /// An operator settles failed rollbacks.
    async fn settle(&self, count: usize) -> Result<()> {
        for failed in self.client.failed_rollbacks().await?.into_iter().take(count) {
            self.client.resolve(failed.lineage.id(), crate::act::PLANNED).await?;
        }
        Ok(())
    }

    /// Compares the record with that of the last look.
    async fn look(&mut self) -> Result<()> {
        let failed = self.client.failed_rollbacks().await?;
        let waiting = self.client.waiting_members().await?;
        let log = self.crew.database.event_log();
        let running = self.crew.database.working_set();
        let open = running.iter().map(|run| &run.lineage).chain(failed.iter().map(|run| &run.lineage));
        let open: BTreeSet<_> = open.map(Lineage::root_id).collect();
        let now = self.crew.database.now();
        let mut seen = Snapshot::new();
        for event in &log {
            let root = event.lineage.root_id();
            let is_open = open.contains(&root);
            let it =
                seen.entry(root).or_insert(Seen { events: 0, last_at: event.at, time: COMMITTED, is_open });
            it.events += 1;
            it.last_at = it.last_at.max(event.at);
            if event.kind == EventKind::RolledBack {
                it.time = ROLLED_BACK;
            }
        }
        for (root, was) in &self.before {
            match seen.get(root) {
                Some(is) if is.events < was.events => {
                    self.wrong.push(format!("whole: a part of {root} is deleted"))
                }
                Some(_) => {}
                None if was.is_open => self.wrong.push(format!("open: {root} is deleted, which was {was:?}")),
                None if was.last_at + was.time > now => {
                    self.wrong.push(format!("early: {root} is deleted, which was {was:?}"));
                }
                None => {}
            }
        }
        let recorded: BTreeSet<_> = log.iter().map(|event| event.message_id).collect();
        let lost = waiting.iter().filter(|member| !recorded.contains(&member.message));
        let lost = lost.map(|member| format!("needed: {} is deleted, which waits", member.message));
        self.wrong.extend(lost);
        for event in &log {
            let is_member = event.kind == EventKind::Emitted && event.topic != "kept.sale";
            if !is_member {
                continue;
            }
            for set in self.client.joined(event.message_id).await.unwrap_or_default() {
                // Looked at again, since both may be deleted by now.
                let is_recorded = |id: Uuid| !self.crew.database.event_log_of(id).is_empty();
                if !is_recorded(set.uuid()) && is_recorded(event.lineage.root_id()) {
                    self.wrong.push(format!("needed: {set} is deleted, which joins {}", event.message_id));
                }
            }
        }
        self.before = seen;
        Ok(())
    }

    /// Lets the time go by until all is deleted but the hierarchies of messages that wait to be joined.
    async fn end(&mut self) -> Result<()> {
        let mut left = BTreeSet::new();
        for _ in 0..HOURS_MAX {
            tokio::time::sleep(Duration::from_secs(3)).await;
            self.settle(usize::MAX).await?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            self.look().await?;
            let waiting = self.client.waiting_members().await?;
            let waiting: BTreeSet<_> = waiting.into_iter().map(|member| member.message).collect();
            let log = self.crew.database.event_log();
            let needed = log.iter().filter(|event| waiting.contains(&event.message_id));
            let needed: BTreeSet<_> = needed.map(|event| event.lineage.root_id()).collect();
            left = self.before.keys().filter(|root| !needed.contains(root)).copied().collect();
            if left.is_empty() {
                return Ok(());
            }
            self.crew.database.advance(Duration::from_secs(58 * 60));
        }
        let left =
            left.iter().map(|root| format!("forgotten: {root} is not deleted: {:?}", self.before[root]));
        self.wrong.extend(left);
        Ok(())
    }
}

pub(crate) const KEPT: Small =
    Small { name: "kept", play: |crew| async { World::new(crew).await?.play().await }.boxed() };
