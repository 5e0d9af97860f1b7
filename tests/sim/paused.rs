//! A simulation of pauses: of a handler, of a topic, and of everything, with and without a limit, also for new runs only, while runs launch, fail,
//! roll back and are cancelled, and processes fail, die and are replaced.
//!
//! The reference model checks that no worker records a move of a paused run once the pause is drained, and that no new run begins under a pause for new runs only. Here is checked that
//! each run comes to its end after the last pause, and that each pause ends once.

use std::time::Duration;

use futures_util::FutureExt;
use scoop::pauses::{Pause, PauseTarget};
use scoop::prelude::*;
use scoop::{Builder, Handle, Outcome};
use scoop_audit::LoggedPause;

use crate::crew::{Crew, Fate, Small};
use crate::judge::{audited, small_log};

/// The number of events from outside.
const DEEDS: u32 = 30;

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "paused.order")]
struct Order {
    parcels: u32,
    /// How long a step takes, in ms.
    takes: u32,
    fails: bool,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "paused.parcel")]
struct Parcel {
    takes: u32,
    fails: bool,
}

async fn work(millis: u32) {
    tokio::time::sleep(Duration::from_millis(millis.into())).await;
}

#[derive(Default)]
struct Orders;

#[saga(name = "paused-orders")]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = undo)]
    async fn pack(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        work(order.takes).await;
        for nth in 0..order.parcels {
            scope.launch(Parcel { takes: order.takes, fails: order.fails && nth == 0 }).await?;
        }
        Ok(())
    }

    #[step]
    async fn bill(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        work(order.takes).await;
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Parcels;

#[saga(name = "paused-parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step(rollback = undo)]
    async fn load(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        work(parcel.takes).await;
        Ok(())
    }

    #[step]
    async fn drive(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        work(parcel.takes).await;
        Ok(())
    }

    #[step]
    async fn deliver(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        if parcel.fails { Err(Error::msg(crate::act::PLANNED)) } else { Ok(()) }
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Parcel, _: &Failure) -> Result<()> {
        Ok(())
    }
}

fn program(builder: Builder) -> Builder {
    builder.only::<Orders>().only::<Parcels>()
}

struct World {
    crew: Crew,
    /// The hierarchies, and whether each may be rolled back.
    launched: Vec<(Handle, bool)>,
    /// The drained pauses, and their targets while they are in force.
    drained: Vec<(LoggedPause, Option<PauseTarget>)>,
}

impl World {
    async fn play(mut self) -> Result<Vec<String>> {
        self.crew.register(program).await?;
        self.crew.start(Fate::Lives, program);
        let client = self.crew.client().await?;
        let mut wrong = vec![];
        for _ in 0..DEEDS {
            if self.crew.dice.percent(25) {
                let fate = self.crew.fate();
                self.crew.start(fate, program);
            }
            self.crew.pause(60).await;
            self.act(&client).await?;
            if self.crew.dice.percent(10) {
                wrong.extend(self.crew.violations());
            }
        }
        self.crew.heal();
        for pause in client.pauses().await? {
            self.resume(&client, &pause.target).await?;
        }
        self.crew.start(Fate::Lives, program);
        for (handle, may_fail) in &self.launched {
            let Ok(outcome) = tokio::time::timeout(Duration::from_secs(600), handle.wait()).await else {
                wrong.push(format!("I7: hierarchy {} does not end", handle.id()));
                continue;
            };
            match outcome? {
                Outcome::Committed => {}
                Outcome::RolledBack(_) if *may_fail => {}
                outcome => wrong.push(format!("outcome: hierarchy {} ends with {outcome}", handle.id())),
            }
        }
        wrong.extend(client.pauses().await?.iter().map(|pause| format!("pause: {pause} is left")));
        wrong.extend(self.crew.violations());
        let mut log = small_log(&self.crew.database);
        log.pauses = self.drained.into_iter().map(|(pause, _)| pause).collect();
        wrong.extend(audited(&log, &[Orders::DEFINITION, Parcels::DEFINITION]));
        Ok(wrong)
    }

    /// An event from outside.
    async fn act(&mut self, client: &Scoop) -> Result<()> {
        let dice = &mut self.crew.dice;
        match dice.below(20) {
            0..=9 => {
                let (takes, fails) = (dice.below(30), dice.percent(30));
                let order = Order { parcels: dice.below(3), takes, fails };
                let overdue = dice.percent(10);
                let launch = client.launch(order);
                let launch = if overdue { launch.deadline(Duration::from_millis(200)) } else { launch };
                self.launched.push((launch.await?, fails || overdue));
            }
            10..=14 => self.pause(client).await?,
            15..=18 => {
                let pauses = client.pauses().await?;
                let nth = self.crew.dice.below(u32::try_from(pauses.len()).unwrap_or(0));
                if let Some(Pause { target, .. }) = pauses.into_iter().nth(nth as usize) {
                    self.resume(client, &target).await?;
                }
            }
            _ => {
                let count = u32::try_from(self.launched.len()).unwrap_or(0);
                let nth = self.crew.dice.below(count) as usize;
                if let Some((handle, may_fail)) = self.launched.get_mut(nth) {
                    *may_fail = true;
                    client.cancel(handle.id(), crate::act::PLANNED).await?;
                }
            }
        }
        Ok(())
    }

    async fn pause(&mut self, client: &Scoop) -> Result<()> {
        let dice = &mut self.crew.dice;
        let (target, handler, topic) = match dice.below(4) {
            0 => (PauseTarget::Everything, None, None),
            1 => (PauseTarget::topic("paused.parcel"), None, Some("paused.parcel")),
            2 => (PauseTarget::saga::<Orders>(), Some("paused-orders"), None),
            _ => (PauseTarget::saga::<Parcels>(), Some("paused-parcels"), None),
        };
        let new_runs_only = dice.percent(40);
        let limit = dice.percent(40).then(|| Duration::from_millis(dice.between(20, 500).into()));
        // A pause that replaces another one may end earlier.
        self.ends(&target);
        let pause = client.pause(target.clone());
        let pause =
            if new_runs_only { pause.new_runs_only() } else { pause.drain(Duration::from_millis(400)) };
        let pause = if let Some(limit) = limit { pause.for_at_most(limit) } else { pause };
        let paused = pause.await?;
        let is_acknowledged = paused.in_force && paused.unacknowledged.is_empty();
        let is_drained = if new_runs_only { is_acknowledged } else { paused.is_drained() };
        if is_drained || new_runs_only {
            let drained_at = is_drained.then(|| self.crew.database.now().into());
            let ended_at = paused.pause.until.map(Into::into);
            let (handler, topic) = (handler.map(str::to_owned), topic.map(str::to_owned));
            let pause = LoggedPause { handler, topic, new_runs_only, drained_at, ended_at };
            self.drained.push((pause, Some(target)));
        }
        Ok(())
    }

    async fn resume(&mut self, client: &Scoop, target: &PauseTarget) -> Result<()> {
        self.ends(target);
        // An answer may be lost.
        if let Err(error) = client.resume(target).await
            && !error.may_have_happened()
        {
            return Err(error.into());
        }
        Ok(())
    }

    /// Notes that the pauses of this target end about now.
    fn ends(&mut self, target: &PauseTarget) {
        let now = self.crew.database.now().into();
        for (pause, of) in &mut self.drained {
            if of.as_ref() == Some(target) {
                *of = None;
                pause.ended_at = Some(pause.ended_at.map_or(now, |end| end.min(now)));
            }
        }
    }
}

pub(crate) const PAUSED: Small =
    Small { name: "paused", play: |crew| World { crew, launched: vec![], drained: vec![] }.play().boxed() };
