//! A simulation of steps that run at most once: after any death, the code of such a step is called at most once for each
//! instance, and the step either is recorded as done or fails as interrupted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use scoop::prelude::*;
use scoop::{Builder, EventKind, Handle, Interrupted, Outcome};
use uuid::Uuid;

use crate::crew::{Crew, Fate, Small};
use crate::judge::{audited, small_log};

/// The number of messages from outside.
const BILLS: u32 = 16;

/// The values of the second step beyond which it does not fail.
const FAILS: u32 = 20;

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "once.bill")]
struct Bill {
    /// How often it is charged, one time after the other.
    rounds: u32,
    /// How long a charge takes, in ms.
    takes: u32,
    fails: bool,
    /// Whether a charge launches a message.
    launches: bool,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "once.receipt")]
struct Receipt;

/// How often the code of each instance was called: by the run and the iteration.
type Calls = Arc<Mutex<BTreeMap<(Uuid, u32), u32>>>;

#[derive(Clone)]
struct Payments(Calls);

#[saga(name = "once-payments")]
#[subscribes(Bill)]
impl Payments {
    #[step]
    async fn open(&self, _: &mut Scope<'_>, _: &Bill) -> Result<()> {
        Ok(())
    }

    #[step(delivery = "at_most_once", rollback = refund)]
    async fn charge(&self, scope: &mut Scope<'_>, bill: &Bill) -> Result<Next<PaymentsStep>> {
        let place = (scope.lineage().id(), scope.iteration());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default() += 1;
        tokio::time::sleep(Duration::from_millis(bill.takes.into())).await;
        if bill.launches {
            scope.launch(Receipt).await?;
        }
        let is_last = scope.iteration() + 1 >= bill.rounds;
        if is_last && bill.fails {
            return Err(Error::msg(crate::act::PLANNED));
        }
        Ok(if is_last { Next::Continue } else { Next::GoTo(PaymentsStep::Charge) })
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, _: &Bill) -> Result<()> {
        Ok(())
    }

    async fn refund(&self, _: &mut Scope<'_>, _: &Bill, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Receipts;

#[saga(name = "once-receipts")]
#[subscribes(Receipt)]
impl Receipts {
    #[step(delivery = "at_most_once", rollback = tear)]
    async fn print(&self, _: &mut Scope<'_>, _: &Receipt) -> Result<()> {
        Ok(())
    }

    async fn tear(&self, _: &mut Scope<'_>, _: &Receipt, _: &Failure) -> Result<()> {
        Ok(())
    }
}

struct World {
    crew: Crew,
    calls: Calls,
}

impl World {
    fn program(&self) -> impl Fn(Builder) -> Builder + Send + 'static {
        let payments = Payments(self.calls.clone());
        move |builder: Builder| builder.only::<Payments>().only::<Receipts>().provide(payments.clone())
    }

    fn start(&mut self, fate: Fate) {
        let program = self.program();
        self.crew.start(fate, program);
    }

    async fn play(mut self) -> Result<Vec<String>> {
        self.crew.register(self.program()).await?;
        self.start(Fate::Lives);
        let client = self.crew.client().await?;
        let (mut bills, mut wrong) = (vec![], vec![]);
        for _ in 0..BILLS {
            if self.crew.dice.percent(40) {
                let fate = self.crew.fate();
                self.start(fate);
            }
            self.crew.pause(60).await;
            let dice = &mut self.crew.dice;
            let takes = if dice.percent(50) { 0 } else { dice.below(60) };
            let (fails, launches) = (dice.percent(FAILS), dice.percent(50));
            let bill = Bill { rounds: dice.between(1, 3), takes, fails, launches };
            bills.push((bill, client.launch(bill).await?));
            if self.crew.dice.percent(10) {
                wrong.extend(self.crew.differences());
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.crew.heal();
        self.start(Fate::Lives);
        for (bill, handle) in &bills {
            wrong.extend(self.judge(bill, handle).await?);
        }
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let twice = calls.iter().filter(|(_, count)| **count > 1);
        wrong.extend(twice.map(|(place, count)| format!("once: {place:?} was called {count} times")));
        wrong.extend(self.crew.differences());
        wrong.extend(audited(&small_log(&self.crew.database), &[Payments::DEFINITION, Receipts::DEFINITION]));
        Ok(wrong)
    }

    /// Waits for the end. Returns what is wrong with it.
    async fn judge(&self, bill: &Bill, handle: &Handle) -> Result<Option<String>> {
        let Ok(outcome) = tokio::time::timeout(Duration::from_secs(600), handle.wait()).await else {
            return Ok(Some(format!("I7: hierarchy {} does not end", handle.id())));
        };
        let outcome = outcome?;
        let log = self.crew.database.event_log_of(handle.id().uuid());
        let done = log
            .iter()
            .filter(|event| event.kind == EventKind::Suspended && event.step.as_deref() == Some("charge"));
        let done = u32::try_from(done.count()).unwrap_or(u32::MAX);
        let is_expected = match &outcome {
            Outcome::Committed => !bill.fails && done == bill.rounds,
            Outcome::RolledBack(why) => {
                let interrupted = why.find::<Interrupted>().is_some();
                interrupted || bill.fails && done + 1 == bill.rounds
            }
            _ => false,
        };
        let what = || format!("once: hierarchy {} ends after {done} charges with {outcome}", handle.id());
        Ok((!is_expected).then(what))
    }
}

pub(crate) const ONCE: Small =
    Small { name: "once", play: |crew| World { crew, calls: Calls::default() }.play().boxed() };
