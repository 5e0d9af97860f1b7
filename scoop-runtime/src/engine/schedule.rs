//! Launches the ticks of sagas that run by themselves.
//!
//! The times stand in the database, and its clock says which have come. Whoever finds one takes
//! its row, launches the tick and moves the row on, all in one transaction: so each time has its tick
//! once, however many processes look, whichever of them die, and whatever their own clocks do.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::registry::Scheduled;
use crate::store::{Fired, Published, Taken};
use crate::telemetry;
use crate::timetable::Unfit;

/// How often to look at the clock of the database at least: it may be put, and this process may
/// be stopped for a while.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// When to look again for what somebody else has taken, and will have moved on soon.
const PAUSE_WHILE_TAKEN: Duration = Duration::from_millis(20);

const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Lists the schedules of this program. What is new is due one period, or one time of its
/// expression, from now.
pub(super) async fn publish(engine: &Engine) -> sqlx::Result<()> {
    let schedules = &engine.schedules;
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
    let mut followed = Followed::of(&engine.schedules);
    while !followed.topics.is_empty() {
        let pause = match look(&engine, &mut followed).await {
            Ok(pause) => pause,
            Err(error) => {
                telemetry::operation_failed(engine.worker, "schedule lookup", &error);
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
    match engine.store.fire_schedule(followed.pairs()).await? {
        Fired::Nothing => return Ok(PAUSE_WHILE_TAKEN),
        Fired::Launched(handlers) => engine.announce(&handlers),
        Fired::Unfit(taken) => {
            if let Err(error) = &taken.timetable {
                telemetry::schedule_unfit(engine.worker, &taken.handler, error);
            }
            followed.forget(&taken);
        }
    }
    Ok(Duration::ZERO)
}
