//! Launches the ticks of sagas that run by themselves.
//!
//! The times stand in the database, and its clock says which have come. Whoever finds one takes
//! its row, launches the tick and moves the row on, all in one transaction: so each time has its tick
//! once, however many processes look, whichever of them die, and whatever their own clocks do.

use std::sync::Arc;
use std::time::Duration;

use scoop_core::Overlap;
use sqlx::PgConnection;
use time::OffsetDateTime;
use tracing::{debug, warn};

use super::Engine;
use crate::registry::Scheduled;
use crate::store::{Published, Taken, Ticked};
use crate::timetable::{Timetable, Unfit};

/// How often to look at the clock of the database at least: it may be put, and this process may
/// be stopped for a while.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// When to look again for what somebody else has taken, and will have moved on soon.
const PAUSE_WHILE_TAKEN: Duration = Duration::from_millis(20);

const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Lists the schedules of this program. What is new is due one period, or one time of its
/// expression, from now.
pub(super) async fn publish(engine: &Engine) -> sqlx::Result<()> {
    let schedules = engine.registry.schedules();
    if schedules.is_empty() {
        return Ok(());
    }
    let now = engine.store.now().await?.latest;
    let published = schedules.iter().map(|it| {
        let next_at = it.timetable.first(now);
        Published::new((&it.topic, &it.name), &it.schedule, next_at)
    });
    let published: Vec<_> =
        published.collect::<Result<_, Unfit>>().map_err(|unfit| sqlx::Error::Encode(unfit.into()))?;
    engine.store.publish_schedules(&published).await
}

/// Launches what is due, until the engine stops.
pub(super) async fn serve(engine: Arc<Engine>) {
    let mut followed = Followed::of(engine.registry.schedules());
    while !followed.topics.is_empty() {
        let pause = match look(&engine, &mut followed).await {
            Ok(pause) => pause,
            Err(error) => {
                warn!(%error, "could not look which sagas are to run by themselves; trying again");
                PAUSE_AFTER_FAILURE
            }
        };
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
    engine.stopping.cancelled().await;
}

/// The schedules that this process follows, pair by pair.
struct Followed {
    topics: Vec<String>,
    handlers: Vec<String>,
}

impl Followed {
    fn of(schedules: &[Scheduled]) -> Self {
        let pairs = schedules.iter().map(|it| (it.topic.clone(), it.name.clone()));
        let (topics, handlers) = pairs.unzip();
        Self { topics, handlers }
    }

    fn pairs(&self) -> (&[String], &[String]) {
        (&self.topics, &self.handlers)
    }

    /// Leaves one to the programs that know how to follow it.
    fn forget(&mut self, taken: &Taken) {
        let is = |topic: &String, handler: &String| *topic == taken.topic && *handler == taken.handler;
        let pairs = self.topics.drain(..).zip(self.handlers.drain(..));
        (self.topics, self.handlers) = pairs.filter(|(topic, handler)| !is(topic, handler)).unzip();
    }
}

/// Launches the ticks of at most one schedule. Says how long there is nothing else to do.
async fn look(engine: &Engine, followed: &mut Followed) -> sqlx::Result<Duration> {
    let wait = engine.store.schedule_wait(followed.pairs()).await?;
    let wait = wait.map_or(LOOK_MAX, |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
    if !wait.is_zero() {
        return Ok(wait.min(LOOK_MAX));
    }
    let mut tx = engine.store.sessions().begin().await?;
    let Some(taken) = engine.store.take_schedule(&mut tx, followed.pairs()).await? else {
        return Ok(PAUSE_WHILE_TAKEN);
    };
    match &taken.timetable {
        Ok(timetable) => {
            let handlers = fire(engine, &mut tx, &taken, timetable).await?;
            tx.commit().await?;
            engine.announce(&handlers);
        }
        Err(error) => {
            let handler = &taken.handler;
            warn!(%error, %handler, "another program has given a saga a schedule that this one cannot follow");
            followed.forget(&taken);
        }
    }
    Ok(Duration::ZERO)
}

/// Launches what is due, and moves the schedule on. Says for which handlers.
async fn fire(
    engine: &Engine,
    tx: &mut PgConnection,
    taken: &Taken,
    timetable: &Timetable,
) -> sqlx::Result<Vec<String>> {
    let mut due = timetable.due(taken.next_at, taken.now);
    if let (Overlap::Skip, Some(root)) = (timetable.overlap, taken.last_root)
        && engine.store.is_busy(tx, root).await?
    {
        debug!(handler = taken.handler, "the last run has not ended; this time is let go");
        due.ticks.clear();
    }
    let ticks = ticks(taken, &due.ticks);
    let handlers = match ticks.is_empty() {
        true => vec![],
        false => engine.store.tick(tx, &ticks).await?,
    };
    engine.store.move_schedule_on(tx, taken, due.next_at, &ticks).await?;
    Ok(handlers)
}

/// The ticks for these times, counted on.
fn ticks<'a>(taken: &'a Taken, times: &[OffsetDateTime]) -> Vec<Ticked<'a>> {
    let fired = u64::try_from(taken.fired).unwrap_or_default();
    let runs = fired + 1..;
    runs.zip(times).map(|(run, due)| Ticked::new(&taken.topic, *due, run)).collect()
}
