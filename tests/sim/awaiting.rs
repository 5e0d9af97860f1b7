//! A simulation of signals: early, late and repeated ones, from clients and from steps, to several runs with one key;
//! limits, cancellations, deadlines and rollbacks meanwhile; and processes that fail, die and are replaced.
//!
//! The reference model checks each delivery and each end of a wait. Here is checked what the record does not have: which
//! signals exist, what the code got, and that no run waits although a signal with its key is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use scoop::prelude::*;
use scoop::{Builder, EventKind, Handle, LoggedEvent, Outcome};
use scoop_runtime::simulation;
use uuid::Uuid;

use crate::crew::{Crew, Fate, Small};
use crate::judge::small_log;

/// The number of events from outside.
const DEEDS: u32 = 24;

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "signals.order")]
struct Order {
    key: u32,
    /// How many signals it awaits, one after the other.
    rounds: u32,
    fails: bool,
}

/// An order whose waits have a limit.
#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "signals.hurry")]
struct Hurry {
    order: Order,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "signals.cash")]
struct Cash {
    key: u32,
    number: u32,
    /// The step that sends the signal fails, or a later one.
    fails: [bool; 2],
}

#[derive(Clone, Copy, Debug, Signal, Serialize, Deserialize)]
#[signal(name = "signals.paid", retention = "7 days")]
struct Paid {
    number: u32,
}

/// How many signals a run has awaited.
#[derive(ContextKey, Serialize, Deserialize)]
struct Awaited(u32);

/// What the code of each run got, in its newest attempts: the numbers by round.
type Got = Arc<Mutex<BTreeMap<(Uuid, u32), Option<u32>>>>;

/// Counts a round and notes its signal. Returns whether it is the last one.
fn note(got: &Got, scope: &mut Scope<'_>, paid: Option<&Paid>, rounds: u32) -> Result<bool> {
    let before = scope.get::<Awaited>()?.map_or(0, |awaited| awaited.0);
    scope.set(Awaited(before + 1))?;
    let place = (scope.lineage().id(), before);
    got.lock().unwrap_or_else(PoisonError::into_inner).insert(place, paid.map(|paid| paid.number));
    Ok(before + 1 >= rounds)
}

fn failure(fails: bool) -> Result<()> {
    if fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
}

#[derive(Clone)]
struct Patient(Got);

#[saga(name = "signals-patient")]
#[subscribes(Order)]
impl Patient {
    #[step(rollback = release)]
    async fn reserve(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }

    #[step(awaits(Paid, by = key), rollback = refund)]
    async fn pay(&self, scope: &mut Scope<'_>, order: &Order, paid: &Paid) -> Result<Next<PatientStep>> {
        let is_last = note(&self.0, scope, Some(paid), order.rounds)?;
        Ok(if is_last { Next::Continue } else { Next::GoTo(PatientStep::Pay) })
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        failure(order.fails)
    }

    async fn key(&self, _: &mut Scope<'_>, order: &Order) -> Result<String> {
        Ok(order.key.to_string())
    }

    async fn release(&self, _: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
        Ok(())
    }

    async fn refund(&self, scope: &mut Scope<'_>, _: &Order, paid: &Paid, _: &Failure) -> Result<()> {
        let got = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let run = scope.lineage().id();
        let mut of_run = got.range((run, 0)..=(run, u32::MAX));
        let is_own = of_run.any(|(_, number)| *number == Some(paid.number));
        if is_own { Ok(()) } else { Err(Error::msg("the signal is another one")) }
    }
}

#[derive(Clone)]
struct Hasty(Got);

#[saga(name = "signals-hasty")]
#[subscribes(Hurry)]
impl Hasty {
    #[step(awaits(Paid, by = key, within = "120ms"))]
    async fn pay(
        &self,
        scope: &mut Scope<'_>,
        hurry: &Hurry,
        paid: Option<&Paid>,
    ) -> Result<Next<HastyStep>> {
        let is_last = note(&self.0, scope, paid, hurry.order.rounds)?;
        Ok(if is_last { Next::Continue } else { Next::GoTo(HastyStep::Pay) })
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, hurry: &Hurry) -> Result<()> {
        failure(hurry.order.fails)
    }

    async fn key(&self, _: &mut Scope<'_>, hurry: &Hurry) -> Result<String> {
        Ok(hurry.order.key.to_string())
    }
}

#[derive(Default)]
struct Till;

#[saga(name = "signals-till")]
#[subscribes(Cash)]
impl Till {
    #[step]
    async fn take(&self, scope: &mut Scope<'_>, cash: &Cash) -> Result<()> {
        scope.signal(Paid { number: cash.number }, cash.key.to_string())?;
        failure(cash.fails[0])
    }

    #[step]
    async fn count(&self, _: &mut Scope<'_>, cash: &Cash) -> Result<()> {
        failure(cash.fails[1])
    }
}

/// A run that was launched from outside.
struct Launched {
    handle: Handle,
    fails: bool,
    /// It may be cancelled, or have a deadline.
    may_give_up: bool,
    /// It sends a signal.
    is_till: bool,
}

struct World {
    crew: Crew,
    got: Got,
    launched: Vec<Launched>,
    /// The signals sent by clients, with their ids, and by steps that succeed.
    sent: BTreeMap<u32, Option<Uuid>>,
    next: u32,
}

impl World {
    fn program(&self) -> impl Fn(Builder) -> Builder + Send + 'static {
        let (patient, hasty) = (Patient(self.got.clone()), Hasty(self.got.clone()));
        move |builder: Builder| {
            let builder = builder.only::<Patient>().only::<Hasty>().only::<Till>();
            builder.provide(patient.clone()).provide(hasty.clone())
        }
    }

    fn start(&mut self, fate: Fate) {
        let program = self.program();
        self.crew.start(fate, program);
    }

    async fn play(mut self) -> Result<Vec<String>> {
        self.crew.register(self.program()).await?;
        self.start(Fate::Lives);
        let client = self.crew.client().await?;
        let mut wrong = vec![];
        for _ in 0..DEEDS {
            if self.crew.dice.percent(20) {
                let fate = self.crew.fate();
                self.start(fate);
            }
            self.crew.pause(50).await;
            self.act(&client).await?;
            if self.crew.dice.percent(10) {
                wrong.extend(self.crew.violations());
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.crew.heal();
        self.start(Fate::Lives);
        // Longer than some sweeps.
        tokio::time::sleep(Duration::from_secs(8)).await;
        wrong.extend(self.held_up());
        wrong.extend(self.crew.violations());
        for launched in &self.launched {
            client.cancel(launched.handle.id(), crate::act::PLANNED).await?;
        }
        wrong.extend(self.outcomes().await?);
        wrong.extend(self.signals());
        let log = small_log(&self.crew.database);
        let definitions = [Patient::DEFINITION, Hasty::DEFINITION, Till::DEFINITION];
        wrong.extend(crate::judge::audited(&log, &definitions));
        Ok(wrong)
    }

    /// An event from outside.
    async fn act(&mut self, client: &Scoop) -> Result<()> {
        let dice = &mut self.crew.dice;
        let key = dice.below(3);
        match dice.below(20) {
            0..=7 => {
                let order = Order { key, rounds: dice.between(1, 3), fails: dice.percent(20) };
                let (hurries, overdue) = (dice.percent(40), dice.percent(10));
                let deadline = Duration::from_millis(dice.between(20, 600).into());
                let handle = if hurries {
                    client.launch(Hurry { order }).await?
                } else if overdue {
                    client.launch(order).deadline(deadline).await?
                } else {
                    client.launch(order).await?
                };
                let may_give_up = !hurries && overdue;
                self.launched.push(Launched { handle, fails: order.fails, may_give_up, is_till: false });
            }
            8..=13 => {
                let number = self.next_number();
                let id = self.crew.dice.percent(50).then(|| Uuid::from_u128(u128::from(number)));
                self.sent.insert(number, id);
                send(client, number, id, key).await?;
            }
            14..=15 => {
                let repeated = self.sent.iter().filter_map(|(number, id)| Some((*number, (*id)?)));
                let repeated: Vec<_> = repeated.collect();
                let nth = self.crew.dice.below(u32::try_from(repeated.len()).unwrap_or(0));
                if let Some((number, id)) = repeated.get(nth as usize) {
                    send(client, *number, Some(*id), key).await?;
                }
            }
            16..=18 => {
                let number = self.next_number();
                let dice = &mut self.crew.dice;
                let cash = Cash { key, number, fails: [dice.percent(30), dice.percent(20)] };
                if !cash.fails[0] {
                    self.sent.insert(number, None);
                }
                let (handle, fails) = (client.launch(cash).await?, cash.fails != [false; 2]);
                self.launched.push(Launched { handle, fails, may_give_up: false, is_till: true });
            }
            _ => {
                let count = u32::try_from(self.launched.len()).unwrap_or(0);
                let nth = self.crew.dice.below(count) as usize;
                // The signal of a till is to be sent.
                if let Some(launched) = self.launched.get_mut(nth).filter(|it| !it.is_till) {
                    launched.may_give_up = true;
                    client.cancel(launched.handle.id(), crate::act::PLANNED).await?;
                }
            }
        }
        Ok(())
    }

    fn next_number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Runs that wait although a signal with their key is kept, and unfinished runs that await none.
    fn held_up(&self) -> Vec<String> {
        let tables = simulation::tables(&self.crew.database);
        let kept = tables.signals.iter().filter(|signal| signal.delivered_at.is_none());
        let kept: BTreeSet<_> = kept.map(|signal| &signal.to).collect();
        let log = self.crew.database.event_log();
        let newest =
            |run: Uuid| log.iter().rfind(|event| event.handler.is_some() && event.lineage.id() == run);
        let held_up = self.crew.database.working_set().into_iter().filter_map(|run| {
            let awaits = newest(run.lineage.id()).and_then(|event: &LoggedEvent| event.awaits.clone());
            match awaits {
                Some(awaits) if !kept.contains(&awaits) => None,
                awaits => Some(format!(
                    "I7: {} {} is {}, and awaits {awaits:?}",
                    run.handler, run.lineage, run.state
                )),
            }
        });
        held_up.collect()
    }

    /// Waits for the end of everything. Returns unexpected outcomes.
    async fn outcomes(&self) -> Result<Vec<String>> {
        let mut wrong = vec![];
        for Launched { handle, fails, may_give_up, .. } in &self.launched {
            let Ok(outcome) = tokio::time::timeout(Duration::from_secs(600), handle.wait()).await else {
                wrong.push(format!("I7: hierarchy {} does not end", handle.id()));
                break;
            };
            let outcome = outcome?;
            let is_expected = match &outcome {
                Outcome::Committed => !fails,
                // Those that await a signal to the end are cancelled then.
                Outcome::RolledBack(why) => *fails || *may_give_up || gave_up(why),
                _ => false,
            };
            if !is_expected {
                wrong.push(format!("outcome: hierarchy {} ends with {outcome}", handle.id()));
            }
        }
        Ok(wrong)
    }

    /// Each signal that was sent exists once, and no other one; and each run got each signal at most once.
    fn signals(&self) -> Vec<String> {
        let mut wrong = vec![];
        let tables = simulation::tables(&self.crew.database);
        let mut numbers: Vec<_> = tables.signals.iter().map(|signal| number(&signal.payload)).collect();
        numbers.sort_unstable();
        let sent: Vec<_> = self.sent.keys().copied().collect();
        if numbers != sent {
            wrong.push(format!("signals: {numbers:?} exist, {sent:?} were sent"));
        }
        let mut received = BTreeMap::<u32, BTreeSet<Uuid>>::new();
        for output in tables.outputs.iter().filter(|output| output.step.contains("waiting for signal")) {
            if !received.entry(number(&output.value)).or_default().insert(output.run) {
                wrong.push(format!("signals: {output:?} came twice"));
            }
        }
        for signal in &tables.signals {
            let runs = received.get(&number(&signal.payload)).map_or(0, BTreeSet::len) as u64;
            if runs != signal.reached {
                wrong.push(format!("signals: {signal:?} is the value of {runs} runs"));
            }
        }
        wrong.extend(self.codes());
        wrong
    }

    /// In a committed run the code of each round got a signal of its own.
    fn codes(&self) -> Vec<String> {
        let log = self.crew.database.event_log();
        let got = self.got.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let committed = log.iter().filter(|event| event.kind == EventKind::Committed);
        let twice = committed.filter_map(|event| {
            let run = event.lineage.id();
            let of_run = got.range((run, 0)..=(run, u32::MAX)).filter_map(|(_, number)| *number);
            let (all, different) = (of_run.clone().count(), of_run.collect::<BTreeSet<_>>().len());
            (all != different).then(|| format!("signals: the code of run {run} got one twice"))
        });
        twice.collect()
    }
}

fn gave_up(why: &Failure) -> bool {
    why.root_causes().iter().any(|cause| cause.kind == "CancellationRequestedException")
}

async fn send(client: &Scoop, number: u32, id: Option<Uuid>, key: u32) -> Result<()> {
    // A repetition has the key of the first one.
    let key = if id.is_some() { number % 3 } else { key };
    let signal = client.signal(Paid { number }, key.to_string());
    match id {
        Some(id) => signal.id(id).await?,
        None => signal.await?,
    };
    Ok(())
}

fn number(payload: &serde_json::Value) -> u32 {
    payload["number"].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(u32::MAX)
}

pub(crate) const AWAITING: Small = Small {
    name: "awaiting",
    play: |crew| {
        let (launched, sent) = (vec![], BTreeMap::new());
        World { crew, got: Got::default(), launched, sent, next: 0 }.play().boxed()
    },
};
