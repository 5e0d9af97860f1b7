//! A simulation of sagas that join messages: several processes that fail, die and are replaced; messages under the same
//! keys; and emitters that roll back before or after their set is complete.
//!
//! Each sale has a number and launches one message with it. In the end each message is in one set, or waits, or was
//! withdrawn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use scoop::prelude::*;
use scoop::simulation;
use scoop::{Builder, EventKind, Handle, Outcome};
use uuid::Uuid;

use crate::crew::{Crew, Fate, Small};

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

#[derive(Clone)]
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

struct World {
    crew: Crew,
    sets: Sets,
}

impl World {
    fn program(&self) -> impl Fn(Builder) -> Builder + Send + 'static {
        let packer = Packer(self.sets.clone());
        move |builder: Builder| builder.only::<Seller>().only::<Packer>().provide(packer.clone())
    }

    fn start(&mut self, fate: Fate) {
        let program = self.program();
        self.crew.start(fate, program);
    }

    async fn play(mut self) -> Result<Vec<String>> {
        // Subscribed before the first launch, so that each message has its handlers.
        self.crew.register(self.program()).await?;
        self.start(Fate::Lives);
        let client = Scoop::builder().in_memory_database(&self.crew.database).client().await?;
        let mut sales = vec![];
        for number in 0..SALES {
            if self.crew.dice.percent(30) {
                self.start(Fate::Dies);
            }
            let dice = &mut self.crew.dice;
            let (key, pays, fails) = (dice.below(3), dice.percent(50), dice.percent(25));
            let sale = Sale { key, number, pays, fails };
            self.crew.pause(60).await;
            sales.push((sale, client.launch(sale).await?));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.crew.heal();
        self.start(Fate::Lives);
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
        for event in self.crew.database.event_log() {
            if event.kind == EventKind::Emitted && ["join.paid", "join.picked"].contains(&&*event.topic) {
                let joined = client.operate().runs().joined(event.message_id).await?;
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
        let waiting = simulation::waiting_members(&self.crew.database);
        let topics: BTreeSet<_> = waiting.iter().map(|member| (&member.0, &member.1)).collect();
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

pub(crate) const JOINED: Small =
    Small { name: "joined", play: |crew| World { crew, sets: Sets::default() }.play().boxed() };
