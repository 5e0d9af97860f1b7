//! A simulation of steps that run at most once: after any death, the code of such a step is called at most once for each
//! instance, and the step either is recorded as done or fails as interrupted. Programs have different versions of the saga.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use scoop::prelude::*;
use scoop::{Builder, Definition, EventKind, Handle, Interrupted, Outcome};
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

/// How often the code of each instance was called: by the run and the idempotency key.
type Calls = Arc<Mutex<BTreeMap<(Uuid, Uuid), u32>>>;

/// Notes the call of an instance. Returns how many instances of the run were called so far.
fn called(calls: &Calls, scope: &Scope<'_>) -> u32 {
    let run = scope.lineage().id();
    let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    *calls.entry((run, scope.idempotency_key())).or_default() += 1;
    u32::try_from(calls.keys().filter(|(of, _)| *of == run).count()).unwrap_or(u32::MAX)
}

/// Whether the charge is the last one.
async fn charges(calls: &Calls, scope: &mut Scope<'_>, bill: &Bill) -> Result<bool> {
    let is_last = called(calls, scope) >= bill.rounds;
    tokio::time::sleep(Duration::from_millis(bill.takes.into())).await;
    if bill.launches {
        scope.launch(Receipt).await?;
    }
    if is_last && bill.fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(is_last) }
}

/// Declares versions of the saga: the steps before and behind the one that charges, and the settings of that.
macro_rules! versions {
    ($($number:literal $version:ident {
        $($before:ident [$($before_settings:tt)*];)*
        $(=> $charge:ident $variant:ident [$($settings:tt)*];)?
        $(+ $behind:ident;)*
        $(* { $($function:tt)* })?
    })*) => {
        $(mod $version {
            use super::*;

            pub(super) struct Payments(pub(super) Calls);

            #[saga(name = "once-payments")]
            #[subscribes(Bill)]
            impl Payments {
                $(
                    #[step($($before_settings)*)]
                    async fn $before(&self, _: &mut Scope<'_>, _: &Bill) -> Result<()> {
                        // Of a version without the step that charges, nothing else reads it.
                        let _ = &self.0;
                        Ok(())
                    }
                )*

                $(
                    #[step(delivery = "at_most_once", rollback = refund, $($settings)*)]
                    async fn $charge(&self, scope: &mut Scope<'_>, bill: &Bill) -> Result<Next<PaymentsStep>> {
                        let is_last = charges(&self.0, scope, bill).await?;
                        Ok(if is_last { Next::Continue } else { Next::GoTo(PaymentsStep::$variant) })
                    }

                    async fn refund(&self, _: &mut Scope<'_>, _: &Bill, _: &Failure) -> Result<()> {
                        Ok(())
                    }
                )?

                $(
                    #[step]
                    async fn $behind(&self, _: &mut Scope<'_>, _: &Bill) -> Result<()> {
                        Ok(())
                    }
                )*

                $($($function)*)?
            }
        })*

        /// How many versions there are.
        const VERSIONS: u32 = 0 $(+ { let _: u32 = $number; 1 })*;

        fn provide(builder: Builder, calls: &Calls, version: u32) -> Builder {
            match version {
                $($number => builder.only::<$version::Payments>().provide($version::Payments(calls.clone())),)*
                _ => unreachable!("there is no version {version}"),
            }
        }

        fn definitions() -> Vec<Definition> {
            vec![$($version::Payments::DEFINITION),*]
        }
    };
}

versions! {
    0 original { open []; => charge Charge []; + close; }
    1 inserted { open []; inspect []; => charge Charge []; + close; }
    2 moved { open []; close []; => charge Charge []; }
    3 timed {
        open [];
        => charge Charge [at = now];
        + close;
        * {
            async fn now(&self, _: &mut Scope<'_>, _: &Bill) -> Result<SystemTime> {
                Ok(SystemTime::UNIX_EPOCH)
            }
        }
    }
    4 tidied {
        open [finally = tidy];
        => charge Charge [];
        + close;
        * {
            async fn tidy(&self, _: &mut Scope<'_>, _: &Bill) -> Result<()> {
                Ok(())
            }
        }
    }
    5 removed { open []; close []; }
    6 renamed { open []; inspect []; => pay Pay [was = "charge"]; + close; }
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
    fn program(&self, version: u32) -> impl Fn(Builder) -> Builder + Send + 'static {
        let calls = self.calls.clone();
        move |builder: Builder| provide(builder.only::<Receipts>(), &calls, version)
    }

    fn start(&mut self, fate: Fate, version: u32) {
        let program = self.program(version);
        self.crew.start(fate, program);
    }

    /// A version for the next process: often the original one.
    fn version(&mut self) -> u32 {
        if self.crew.dice.percent(40) { 0 } else { self.crew.dice.below(VERSIONS) }
    }

    async fn play(mut self) -> Result<Vec<String>> {
        self.crew.register(self.program(0)).await?;
        self.start(Fate::Lives, 0);
        let client = self.crew.client().await?;
        let (mut bills, mut wrong) = (vec![], vec![]);
        for _ in 0..BILLS {
            if self.crew.dice.percent(40) {
                let (fate, version) = (self.crew.fate(), self.version());
                self.start(fate, version);
            }
            self.crew.pause(60).await;
            let dice = &mut self.crew.dice;
            let takes = if dice.percent(50) { 0 } else { dice.below(60) };
            let (fails, launches) = (dice.percent(FAILS), dice.percent(50));
            let bill = Bill { rounds: dice.between(1, 3), takes, fails, launches };
            bills.push((bill, client.launch(bill).await?));
            if self.crew.dice.percent(10) {
                wrong.extend(self.crew.violations());
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.crew.heal();
        // One of them can continue each run.
        for version in 0..VERSIONS {
            self.start(Fate::Lives, version);
        }
        for (bill, handle) in &bills {
            wrong.extend(self.judge(bill, handle).await?);
        }
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let twice = calls.iter().filter(|(_, count)| **count > 1);
        wrong.extend(twice.map(|(place, count)| format!("once: {place:?} was called {count} times")));
        wrong.extend(self.crew.violations());
        let definitions: Vec<_> = definitions().into_iter().chain([Receipts::DEFINITION]).collect();
        wrong.extend(audited(&small_log(&self.crew.database), &definitions));
        Ok(wrong)
    }

    /// Waits for the end. Returns what is wrong with it.
    async fn judge(&self, bill: &Bill, handle: &Handle) -> Result<Option<String>> {
        let Ok(outcome) = tokio::time::timeout(Duration::from_secs(600), handle.wait()).await else {
            return Ok(Some(format!("I7: hierarchy {} does not end", handle.id())));
        };
        let outcome = outcome?;
        let log = self.crew.database.event_log_of(handle.id().uuid());
        let is_charge = |step: &str| step == "charge" || step == "pay";
        let done = log.iter().filter(|event| {
            event.kind == EventKind::Suspended && event.step.as_deref().is_some_and(is_charge)
        });
        let done = done.count();
        let runs: BTreeSet<_> = log.iter().map(|event| event.lineage.id()).collect();
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let called = calls.keys().filter(|(run, _)| runs.contains(run)).count();
        drop(calls);
        // What was called is recorded, or the failure says so. A version without the step leaves charges out.
        let is_expected = match &outcome {
            Outcome::Committed => called == done,
            Outcome::RolledBack(why) => match why.find::<Interrupted>() {
                Some(_) => called <= done + 1,
                None => bill.fails && called == done + 1,
            },
            _ => false,
        };
        let what = || {
            format!("once: hierarchy {} ends after {done} of {called} charges with {outcome}", handle.id())
        };
        Ok((!is_expected).then(what))
    }
}

pub(crate) const ONCE: Small =
    Small { name: "once", play: |crew| World { crew, calls: Calls::default() }.play().boxed() };
