//! A simulation of launches with strategies: of handlers that fail, take long or are cancelled, in processes that fail, die and are
//! replaced between a verdict and what follows from it.

use std::time::Duration;

use futures_util::FutureExt;
use scoop::prelude::*;
use scoop::wait::{
    AtLeast, ChildState, Only, Registered, Verdict, WaitFacts, WaitPlan, WaitStrategy, Window, Without,
};
use scoop::{Builder, Handle, Outcome};

use crate::crew::{Crew, Fate, Small};
use crate::dice::Dice;
use crate::judge::{audited, small_log};

/// The number of messages from outside.
const ASKED: u32 = 14;

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "strategies.ask")]
struct Ask {
    quotes: Vec<(Plan, Quote)>,
    /// Whether a message without a strategy is launched, too.
    notes: bool,
    /// Whether failures of children are accepted.
    accepts: bool,
    /// Whether the last step fails.
    fails: bool,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Plan {
    Registered,
    AtLeast { count: usize, leaves: bool, within: Option<Duration> },
    Only(usize),
    Without(usize),
    Majority,
    Window(Duration),
}

/// How long the two steps of each handler take, in ms, and whether one of them fails.
#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "strategies.quote")]
struct Quote {
    takes: [[u32; 2]; 3],
    fails: [Option<usize>; 3],
    /// Whether handlers launch something themselves.
    asks_on: bool,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "strategies.note")]
struct Note;

const NAMES: [&str; 3] = ["strategies-first", "strategies-second", "strategies-third"];

/// Waits for a majority of the handlers.
#[derive(Serialize, Deserialize)]
struct Majority;

impl WaitStrategy for Majority {
    const NAME: &'static str = "sim.majority";

    fn decide(&self, facts: &WaitFacts) -> Verdict {
        let (all, committed) = (facts.children.len(), facts.count(ChildState::Committed));
        match () {
            () if committed * 2 > all => Verdict::GoOn,
            () if (committed + facts.unfinished()) * 2 <= all => {
                Verdict::GiveUp("no majority is left".into())
            }
            () => Verdict::WaitUntil(facts.now + Duration::from_secs(5)),
        }
    }

    fn describe(&self) -> String {
        "a majority of the handlers".into()
    }
}

scoop::wait_strategy!(Majority);

impl Plan {
    fn of(dice: &mut Dice) -> Self {
        match dice.below(10) {
            0 => Self::Registered,
            1 => Self::Only(dice.below(3) as usize),
            2 => Self::Without(dice.below(3) as usize),
            3 => Self::Majority,
            4 => Self::Window(Duration::from_millis(dice.between(5, 2_500).into())),
            _ => Self::AtLeast {
                count: dice.between(1, 3) as usize,
                leaves: dice.percent(50),
                within: dice.percent(40).then(|| Duration::from_millis(dice.between(5, 150).into())),
            },
        }
    }

    fn wait(self) -> WaitPlan {
        match self {
            Self::Registered => Registered.into(),
            Self::AtLeast { count, leaves, within } => {
                let plan = WaitPlan::from(AtLeast(count));
                let plan = if leaves { plan.leave_others() } else { plan };
                within.map_or(plan.clone(), |limit| plan.within(limit))
            }
            Self::Only(name) => Only::these([NAMES[name]]).into(),
            Self::Without(name) => Without::these([NAMES[name]]).into(),
            Self::Majority => Majority.into(),
            Self::Window(length) => Window::of(length).into(),
        }
    }
}

impl Quote {
    fn of(dice: &mut Dice) -> Self {
        let mut takes = [[0; 2]; 3];
        takes
            .iter_mut()
            .flatten()
            .for_each(|takes| *takes = if dice.percent(50) { 0 } else { dice.below(90) });
        let fails = [(); 3].map(|()| dice.percent(25).then(|| dice.below(2) as usize));
        Self { takes, fails, asks_on: dice.percent(30) }
    }

    async fn acts(&self, handler: usize, step: usize) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(self.takes[handler][step].into())).await;
        match self.fails[handler] {
            Some(failing) if failing == step => Err(Error::msg(crate::act::PLANNED)),
            _ => Ok(()),
        }
    }
}

#[derive(Default)]
struct Asker;

#[saga(name = "strategies-asker")]
#[subscribes(Ask)]
impl Asker {
    #[step(rollback = withdraw, on_child_failure = decide)]
    async fn ask(&self, scope: &mut Scope<'_>, ask: &Ask) -> Result<()> {
        if ask.notes {
            scope.launch(Note).await?;
        }
        for (plan, quote) in &ask.quotes {
            scope.launch(*quote).wait(plan.wait()).await?;
        }
        Ok(())
    }

    async fn withdraw(&self, _: &mut Scope<'_>, _: &Ask, _: &Failure) -> Result<()> {
        Ok(())
    }

    async fn decide(&self, _: &mut Scope<'_>, ask: &Ask, failure: &Failure) -> Result<()> {
        if ask.accepts { Ok(()) } else { Err(failure.clone().into()) }
    }

    #[step(rollback = reject)]
    async fn choose(&self, _: &mut Scope<'_>, ask: &Ask) -> Result<()> {
        if ask.fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
    }

    async fn reject(&self, _: &mut Scope<'_>, _: &Ask, _: &Failure) -> Result<()> {
        Ok(())
    }
}

macro_rules! handlers {
    ($($ty:ident $name:literal $number:literal;)*) => {
        $(
            #[derive(Default)]
            struct $ty;

            #[saga(name = $name)]
            #[subscribes(Quote)]
            impl $ty {
                #[step(rollback = withdraw)]
                async fn answer(&self, scope: &mut Scope<'_>, quote: &Quote) -> Result<()> {
                    if quote.asks_on {
                        scope.launch(Note).await?;
                    }
                    quote.acts($number, 0).await
                }

                async fn withdraw(&self, _: &mut Scope<'_>, _: &Quote, _: &Failure) -> Result<()> {
                    Ok(())
                }

                #[step(rollback = reopen)]
                async fn close(&self, _: &mut Scope<'_>, quote: &Quote) -> Result<()> {
                    quote.acts($number, 1).await
                }

                async fn reopen(&self, _: &mut Scope<'_>, _: &Quote, _: &Failure) -> Result<()> {
                    Ok(())
                }
            }
        )*
    };
}

handlers! {
    First "strategies-first" 0;
    Second "strategies-second" 1;
    Third "strategies-third" 2;
}

#[derive(Default)]
struct Noted;

#[saga(name = "strategies-noted")]
#[subscribes(Note)]
impl Noted {
    #[step(rollback = forget)]
    async fn note(&self, _: &mut Scope<'_>, _: &Note) -> Result<()> {
        Ok(())
    }

    async fn forget(&self, _: &mut Scope<'_>, _: &Note, _: &Failure) -> Result<()> {
        Ok(())
    }
}

/// A handler of quotes that registers later.
#[derive(Default)]
struct Latecomer;

#[saga(name = "strategies-latecomer")]
#[subscribes(Quote)]
impl Latecomer {
    #[step(rollback = withdraw)]
    async fn answer(&self, _: &mut Scope<'_>, quote: &Quote) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(quote.takes[0][0].into())).await;
        Ok(())
    }

    async fn withdraw(&self, _: &mut Scope<'_>, _: &Quote, _: &Failure) -> Result<()> {
        Ok(())
    }
}

fn late(builder: Builder) -> Builder {
    builder.only::<Latecomer>()
}

fn program(builder: Builder) -> Builder {
    builder.only::<Asker>().only::<First>().only::<Second>().only::<Third>().only::<Noted>()
}

/// Plays one seed. Returns what is wrong.
async fn play(mut crew: Crew) -> Result<Vec<String>> {
    crew.register(program).await?;
    crew.start(Fate::Lives, program);
    let client = crew.client().await?;
    let (mut asked, mut wrong) = (vec![], vec![]);
    let late_from = crew.dice.below(2 * ASKED);
    for nth in 0..ASKED {
        if nth == late_from {
            let fate = crew.fate();
            crew.start(fate, late);
        }
        if crew.dice.percent(40) {
            let fate = crew.fate();
            crew.start(fate, program);
        }
        crew.pause(60).await;
        let dice = &mut crew.dice;
        let quotes = (0..dice.between(1, 3)).map(|_| (Plan::of(dice), Quote::of(dice))).collect();
        let ask = Ask { quotes, notes: dice.percent(30), accepts: dice.percent(30), fails: dice.percent(25) };
        let launch = client.launch(ask);
        let launch = if dice.percent(20) {
            launch.deadline(Duration::from_millis(dice.between(5, 300).into()))
        } else {
            launch
        };
        let handle = launch.await?;
        if crew.dice.percent(15) {
            crew.pause(80).await;
            client.cancel(handle.id(), "enough").await?;
        }
        asked.push(handle);
        if crew.dice.percent(10) {
            wrong.extend(crew.violations());
        }
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    crew.heal();
    crew.start(Fate::Lives, program);
    crew.start(Fate::Lives, late);
    for handle in &asked {
        wrong.extend(ends(handle).await?);
    }
    // What was left under way ends, too.
    for _ in 0..600 {
        if crew.database.working_set().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let left = crew.database.working_set();
    wrong.extend(
        left.iter().map(|run| format!("I7: the run {} of `{}` does not end", run.lineage, run.handler)),
    );
    wrong.extend(crew.violations());
    let definitions = [
        Asker::DEFINITION,
        First::DEFINITION,
        Second::DEFINITION,
        Third::DEFINITION,
        Noted::DEFINITION,
        Latecomer::DEFINITION,
    ];
    wrong.extend(audited(&small_log(&crew.database), &definitions));
    Ok(wrong)
}

/// Waits for the end. Returns what is wrong with it.
async fn ends(handle: &Handle) -> Result<Option<String>> {
    let Ok(outcome) = tokio::time::timeout(Duration::from_secs(600), handle.wait()).await else {
        return Ok(Some(format!("I7: hierarchy {} does not end", handle.id())));
    };
    let is_expected = matches!(outcome?, Outcome::Committed | Outcome::RolledBack(_));
    Ok((!is_expected).then(|| format!("strategies: hierarchy {} ends otherwise", handle.id())))
}

pub(crate) const STRATEGIES: Small = Small { name: "strategies", play: |crew| play(crew).boxed() };
