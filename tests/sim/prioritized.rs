//! A simulation of priorities: clients launch runs of all priorities, some for a time that is past, while processes with few
//! slots fail, die and are replaced.
//!
//! Here is checked that no run begins before another one that had been in the queue for a while and has the earlier queue time,
//! and that each comes to its end: the lowest ones, too.

use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use scoop::prelude::*;
use scoop::{Builder, EventKind, Handle, Outcome, Priority};

use crate::crew::{Crew, Fate, Small};
use crate::judge::{audited, small_log};

/// The number of events from outside.
const DEEDS: u32 = 40;

/// A run that has been in the queue for this time is seen by all claims. Their positions in the queues are reset more often.
const VISIBLE_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "prioritized.job")]
struct Job {
    /// How long the step takes, in ms.
    takes: u32,
}

#[derive(Default)]
struct Jobs;

#[saga(name = "prioritized-jobs")]
#[subscribes(Job)]
impl Jobs {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, job: &Job) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(job.takes.into())).await;
        Ok(())
    }
}

fn program(builder: Builder) -> Builder {
    builder.only::<Jobs>().concurrency(1)
}

/// The times of a run.
struct Times {
    launched_at: SystemTime,
    queue_time: time::OffsetDateTime,
    began_at: SystemTime,
}

struct World {
    crew: Crew,
    launched: Vec<Handle>,
}

impl World {
    async fn play(mut self) -> Result<Vec<String>> {
        self.crew.register(program).await?;
        self.crew.start(Fate::Lives, program);
        let client = self.crew.client().await?;
        for _ in 0..DEEDS {
            if self.crew.dice.percent(15) {
                let fate = self.crew.fate();
                self.crew.start(fate, program);
            }
            self.crew.pause(60).await;
            for _ in 0..self.crew.dice.below(6) {
                self.launch(&client).await?;
            }
        }
        self.crew.heal();
        self.crew.start(Fate::Lives, program);
        let mut wrong = vec![];
        for handle in &self.launched {
            match tokio::time::timeout(Duration::from_secs(600), handle.wait()).await {
                Err(_) => wrong.push(format!("I7: hierarchy {} does not end", handle.id())),
                Ok(outcome) => match outcome? {
                    Outcome::Committed => {}
                    outcome => wrong.push(format!("outcome: hierarchy {} ends with {outcome}", handle.id())),
                },
            }
        }
        wrong.extend(self.overtakings());
        wrong.extend(self.crew.violations());
        wrong.extend(audited(&small_log(&self.crew.database), &[Jobs::DEFINITION]));
        Ok(wrong)
    }

    async fn launch(&mut self, client: &Scoop) -> Result<()> {
        let dice = &mut self.crew.dice;
        let priority = Priority::ALL[dice.below(3) as usize];
        let launch = client.launch(Job { takes: dice.between(10, 120) }).priority(priority);
        let past = dice.percent(50).then(|| Duration::from_secs(dice.below(900).into()));
        let launch = match past {
            Some(past) => launch.delay(self.crew.database.now() - past),
            None => launch,
        };
        self.launched.push(launch.await?);
        Ok(())
    }

    /// A run that began before one that had to be claimed first, if there is one.
    fn overtakings(&self) -> Option<String> {
        let events = self.crew.database.event_log();
        let begun = events.iter().filter(|it| it.kind == EventKind::Seen);
        let runs: Vec<_> = begun
            .filter_map(|seen| {
                let mut launches = events.iter().filter(|it| it.kind == EventKind::Emitted);
                let launch = launches.find(|it| it.message_id == seen.message_id)?;
                // For a past time, it is ready from its launch on.
                let at = launch.at.into();
                let ready_at = launch.context.not_before().map_or(at, |not_before| not_before.max(at));
                let queue_time = Priority::of(&launch.context).queue_time(ready_at);
                Some(Times { launched_at: launch.at, queue_time, began_at: seen.at })
            })
            .collect();
        let is_overtaken = |one: &Times, other: &Times| {
            one.began_at < other.began_at
                && other.launched_at + VISIBLE_AFTER < one.began_at
                && other.queue_time < one.queue_time
        };
        let wrong = runs.iter().filter(|one| runs.iter().any(|other| is_overtaken(one, other))).count();
        (wrong > 0).then(|| format!("priority: {wrong} runs began before ones with an earlier queue time"))
    }
}

pub(crate) const PRIORITIZED: Small =
    Small { name: "prioritized", play: |crew| World { crew, launched: vec![] }.play().boxed() };
