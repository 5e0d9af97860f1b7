//! A simulation of limits: of a saga that launches and of its children, while runs fail, roll back and are cancelled, and
//! processes fail, die and are replaced.
//!
//! Here is checked that at no time more runs are in execution than the limit admits, that no more begin within a period than the
//! rate admits, that a serial run begins only after the end of the one before, and that each comes to its end.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use scoop::prelude::*;
use scoop::{Builder, EventKind, Handle, Outcome, RowState, WorkingRun};

use crate::crew::{Crew, Fate, Small};
use crate::judge::{audited, small_log};

/// The number of events from outside.
const DEEDS: u32 = 30;

/// The names of the sagas with limits that are not by key, and how many runs of each are executed at once.
const LIMITS: [(&str, usize); 3] = [("limited-orders", 1), ("limited-parcels", 2), ("limited-copies", 2)];

/// The names of the sagas with rates of which all runs count together, how many of their runs begin within a period, and that
/// period.
const RATES: [(&str, usize, Duration); 2] =
    [("limited-notices", 4, Duration::from_millis(100)), ("limited-copies", 3, Duration::from_millis(100))];

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "limited.order")]
struct Order {
    parcels: u32,
    /// How long a step takes, in ms.
    takes: u32,
    fails: bool,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "limited.parcel")]
struct Parcel {
    takes: u32,
    fails: bool,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "limited.letter")]
struct Letter {
    house: u32,
    takes: u32,
    fails: bool,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "limited.notice")]
struct Notice {
    takes: u32,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "limited.task")]
struct Task {
    takes: u32,
}

async fn work(millis: u32) {
    tokio::time::sleep(Duration::from_millis(millis.into())).await;
}

#[derive(Default)]
struct Orders;

#[saga(name = "limited-orders", concurrency = 1)]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = undo)]
    async fn pack(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        work(order.takes).await;
        for nth in 0..order.parcels {
            scope.launch(Parcel { takes: order.takes, fails: order.fails && nth == 0 }).await?;
            scope
                .launch(Letter { house: order.takes % 3, takes: order.takes, fails: order.fails && nth == 1 })
                .await?;
            scope.launch(Notice { takes: order.takes }).await?;
        }
        Ok(())
    }

    #[step]
    async fn bill(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        work(order.takes).await;
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        work(order.takes).await;
        Ok(())
    }
}

#[derive(Default)]
struct Parcels;

#[saga(name = "limited-parcels", concurrency = 2)]
#[subscribes(Parcel)]
impl Parcels {
    #[step(rollback = undo)]
    async fn load(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        work(parcel.takes).await;
        Ok(())
    }

    #[step]
    async fn deliver(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        work(parcel.takes).await;
        if parcel.fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
    }

    async fn undo(&self, _: &mut Scope<'_>, parcel: &Parcel, _: &Failure) -> Result<()> {
        work(parcel.takes).await;
        Ok(())
    }
}

#[derive(Default)]
struct Letters;

#[saga(name = "limited-letters", concurrency(1, by = house), rate("3/60ms", by = house))]
#[subscribes(Letter)]
impl Letters {
    #[step(rollback = undo)]
    async fn sort(&self, _: &mut Scope<'_>, letter: &Letter) -> Result<()> {
        work(letter.takes).await;
        Ok(())
    }

    #[step]
    async fn deliver(&self, _: &mut Scope<'_>, letter: &Letter) -> Result<()> {
        work(letter.takes).await;
        if letter.fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
    }

    async fn undo(&self, _: &mut Scope<'_>, letter: &Letter, _: &Failure) -> Result<()> {
        work(letter.takes).await;
        Ok(())
    }

    fn house(&self, letter: &Letter) -> u32 {
        letter.house
    }
}

#[derive(Default)]
struct Notices;

#[saga(name = "limited-notices", rate("4/100ms"))]
#[subscribes(Notice)]
impl Notices {
    #[step(rollback = undo)]
    async fn post(&self, _: &mut Scope<'_>, notice: &Notice) -> Result<()> {
        work(notice.takes).await;
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, notice: &Notice, _: &Failure) -> Result<()> {
        work(notice.takes).await;
        Ok(())
    }
}

/// All its runs have one key.
#[derive(Default)]
struct Copies;

#[saga(name = "limited-copies", concurrency = 2, rate("3/100ms", by = shelf))]
#[subscribes(Notice)]
impl Copies {
    #[step(rollback = undo)]
    async fn file(&self, _: &mut Scope<'_>, notice: &Notice) -> Result<()> {
        work(notice.takes).await;
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, notice: &Notice, _: &Failure) -> Result<()> {
        work(notice.takes).await;
        Ok(())
    }

    fn shelf(&self, _: &Notice) -> &'static str {
        "the only one"
    }
}

/// One after the other, each with its children and its rollback.
#[derive(Default)]
struct Ledgers;

#[saga(name = "limited-ledgers", serial)]
#[subscribes(Parcel)]
impl Ledgers {
    #[step(rollback = undo)]
    async fn book(&self, scope: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        work(parcel.takes).await;
        scope.launch(Notice { takes: parcel.takes }).await?;
        Ok(())
    }

    #[step]
    async fn rest(&self, scope: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        scope.sleep(Duration::from_millis(parcel.takes.into())).await?;
        Ok(())
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        if parcel.fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
    }

    async fn undo(&self, _: &mut Scope<'_>, parcel: &Parcel, _: &Failure) -> Result<()> {
        work(parcel.takes).await;
        Ok(())
    }
}

#[derive(Default)]
struct Tasks;

#[saga(name = "limited-tasks", concurrency = 1)]
#[subscribes(Task)]
impl Tasks {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, task: &Task) -> Result<()> {
        work(task.takes).await;
        Ok(())
    }
}

fn program(builder: Builder) -> Builder {
    let builder = builder.only::<Orders>().only::<Parcels>().only::<Letters>().only::<Notices>();
    builder.only::<Copies>().only::<Ledgers>().only::<Tasks>()
}

struct World {
    crew: Crew,
    /// The hierarchies, and whether each may be rolled back.
    launched: Vec<(Handle, bool)>,
}

impl World {
    async fn play(mut self) -> Result<Vec<String>> {
        self.crew.register(program).await?;
        self.crew.start(Fate::Lives, program);
        let clients = [self.crew.client().await?, self.crew.client().await?];
        let mut wrong = vec![];
        for _ in 0..DEEDS {
            if self.crew.dice.percent(25) {
                let fate = self.crew.fate();
                self.crew.start(fate, program);
            }
            for _ in 0..4 {
                self.crew.pause(15).await;
                wrong.extend(self.excess());
            }
            self.act(&clients[0]).await?;
            if self.crew.dice.percent(30) {
                self.burst(&clients).await?;
                wrong.extend(self.excess());
            }
        }
        self.crew.heal();
        self.crew.start(Fate::Lives, program);
        for (handle, may_fail) in &self.launched {
            let Ok(outcome) = tokio::time::timeout(Duration::from_secs(600), handle.wait()).await else {
                wrong.push(format!("I7: hierarchy {} does not end", handle.id()));
                break;
            };
            wrong.extend(self.excess());
            match outcome? {
                Outcome::Committed => {}
                Outcome::RolledBack(_) if *may_fail => {}
                outcome => wrong.push(format!("outcome: hierarchy {} ends with {outcome}", handle.id())),
            }
        }
        wrong.extend(self.bursts());
        wrong.extend(self.overlaps());
        wrong.extend(self.crew.violations());
        wrong.extend(audited(
            &small_log(&self.crew.database),
            &[
                Orders::DEFINITION,
                Parcels::DEFINITION,
                Letters::DEFINITION,
                Notices::DEFINITION,
                Copies::DEFINITION,
                Ledgers::DEFINITION,
                Tasks::DEFINITION,
            ],
        ));
        Ok(wrong)
    }

    /// The sagas and keys of which more runs are in execution than may be.
    fn excess(&self) -> Vec<String> {
        let runs = self.crew.database.working_set();
        let mut houses = BTreeSet::new();
        // One without a key only ends.
        let letters = runs.iter().filter(|run| run.handler == "limited-letters" && run.limit_key.is_some());
        let crowded: Vec<_> = letters.filter(|run| !houses.insert(&run.limit_key)).collect();
        let crowded = crowded.into_iter().map(|run| format!("limit: several letters to {:?}", run.limit_key));
        let running = |saga: &str| {
            runs.iter().filter(|run| run.handler == saga && run.state == RowState::Running).count()
        };
        let excess = LIMITS.iter().filter(|(saga, limit)| running(saga) > *limit);
        let excess =
            excess.map(|(saga, limit)| format!("limit: {} runs of {saga}, not {limit}", running(saga)));
        let in_turn = |run: &&WorkingRun| run.handler == "limited-ledgers" && run.limit_key.is_some();
        let in_turn = runs.iter().filter(in_turn).count();
        let turns = (in_turn > 1).then(|| format!("serial: {in_turn} runs of limited-ledgers are executed"));
        excess.chain(crowded).chain(turns).collect()
    }

    /// The sagas of which more runs began within a period than may.
    fn bursts(&self) -> Vec<String> {
        let events = self.crew.database.event_log();
        let burst = |(saga, most, period): &(&str, usize, Duration)| {
            let begun = events.iter().filter(|it| it.kind == EventKind::Seen);
            let begun = begun.filter(|it| it.handler.as_deref() == Some(saga));
            let mut begun: Vec<_> = begun.map(|it| it.at).collect();
            begun.sort_unstable();
            let later = begun.iter().skip(*most);
            let apart = begun.iter().zip(later).filter_map(|(one, other)| other.duration_since(*one).ok());
            let apart = apart.min().filter(|apart| apart < period)?;
            Some(format!("rate: {} runs of {saga} began within {apart:?}", most + 1))
        };
        RATES.iter().filter_map(burst).collect()
    }

    /// The turns of serial runs that have begun before the end of another one. A turn begins with what a run records first after its
    /// claim: one that has to give up by then does nothing. A run that is undone after its commit has a further turn.
    fn overlaps(&self) -> Vec<String> {
        let (mut turn, mut begun, mut wrong) = (None, BTreeSet::new(), vec![]);
        let events = self.crew.database.event_log();
        for event in events.iter().filter(|it| it.handler.as_deref() == Some("limited-ledgers")) {
            let run = event.lineage.id();
            match event.kind {
                EventKind::Emitted | EventKind::Suspended => drop(begun.insert(run)),
                EventKind::RollingBack if begun.contains(&run) => {}
                EventKind::Committed | EventKind::RolledBack => {
                    turn = turn.filter(|it| *it != run);
                    continue;
                }
                _ => continue,
            }
            if let Some(other) = turn.replace(run).filter(|other| *other != run) {
                wrong.push(format!("serial: {run} has its turn before the end of {other}"));
            }
        }
        wrong
    }

    /// Several launches at once.
    async fn burst(&mut self, clients: &[Scoop]) -> Result<()> {
        let dice = &mut self.crew.dice;
        let launches: Vec<_> = (0..dice.between(1, 8))
            .map(|nth| {
                clients[nth as usize % clients.len()].launch(Task { takes: dice.below(20) }).into_future()
            })
            .collect();
        for launched in join_all(launches).await {
            self.launched.push((launched?, false));
        }
        Ok(())
    }

    /// An event from outside.
    async fn act(&mut self, client: &Scoop) -> Result<()> {
        let dice = &mut self.crew.dice;
        if dice.percent(85) {
            let (takes, fails) = (dice.below(30), dice.percent(30));
            let order = Order { parcels: dice.below(4), takes, fails };
            let overdue = dice.percent(10);
            let launch = client.launch(order);
            let launch = if overdue { launch.deadline(Duration::from_millis(200)) } else { launch };
            self.launched.push((launch.await?, fails || overdue));
            return Ok(());
        }
        let count = u32::try_from(self.launched.len()).unwrap_or(0);
        let nth = self.crew.dice.below(count) as usize;
        if let Some((handle, may_fail)) = self.launched.get_mut(nth) {
            *may_fail = true;
            client.cancel(handle.id(), crate::act::PLANNED).await?;
        }
        Ok(())
    }
}

pub(crate) const LIMITED: Small =
    Small { name: "limited", play: |crew| World { crew, launched: vec![] }.play().boxed() };
