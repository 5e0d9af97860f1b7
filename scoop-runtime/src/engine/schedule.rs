//! Launches the ticks of scheduled sagas. The times of a schedule, and those that are left out, are decided in
//! [`crate::model::schedule`]; a store asks for them while it has locked the schedule.
//!
//! The due times are in the database, and are compared with its clock. A process that finds a due schedule locks its
//! row, launches the tick and advances the row in one transaction: so each time has exactly one tick, regardless of the
//! number of processes, their deaths, and their clocks.
//!
//! Processes follow the row, not their compiled settings: the program that started last decides for all. A clock that is set
//! back makes nothing due again.

use std::sync::Arc;
use std::time::Duration;

use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use crate::model::format::{system_time, utc};
use crate::model::schedule::TimetableError;
use crate::saga::registry::Scheduled;
use crate::store::{Advanced, Awaited, DueSchedule, FireResult, ScheduleRegistration};
use crate::telemetry;

/// The longest interval between looks at the clock of the database: it may be set, and this process may be stopped.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The pause before another look at a schedule that another process has locked and will advance soon, or that was
/// registered again.
const PAUSE_WHILE_TAKEN: Duration = Duration::from_millis(20);

/// Registers the schedules of this program. A new one is due after one period, or at the next time of its expression.
pub(super) async fn publish(engine: &Engine) -> sqlx::Result<()> {
    publish_some(engine, |_| true).await
}

async fn publish_some(engine: &Engine, is_one: impl Fn(&str) -> bool) -> sqlx::Result<()> {
    let schedules: Vec<_> = engine.schedules.iter().filter(|it| is_one(&it.name)).collect();
    if schedules.is_empty() {
        return Ok(());
    }
    let now = engine.store.now().await?.latest;
    let registrations = schedules.into_iter().map(|it| {
        let next_at = it.timetable.first(now);
        ScheduleRegistration::new(&it.topic, &it.name, &it.schedule, next_at)
    });
    let registrations: Vec<_> = registrations
        .collect::<Result<_, TimetableError>>()
        .map_err(|unfit| sqlx::Error::Encode(unfit.into()))?;
    engine.store.publish_schedules(&registrations).await
}

/// Launches due ticks until the engine stops.
pub(super) async fn serve(engine: Arc<Engine>) {
    let mut followed = FollowedSchedules::new(&engine.schedules);
    while !followed.topics.is_empty() {
        let pause = match fire_due(&engine, &mut followed).await {
            Ok(pause) => pause,
            Err(error) => {
                telemetry::operation_failed(engine.worker, "schedule lookup", &error);
                PAUSE_AFTER_FAILURE
            }
        };
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => return,
            () = engine.wakeups.schedules.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
    engine.stopping.cancelled().await;
}

struct FollowedSchedules {
    topics: Vec<String>,
    handlers: Vec<String>,
}

impl FollowedSchedules {
    fn new(schedules: &[Scheduled]) -> Self {
        let keys = schedules.iter().map(|it| (it.topic.clone(), it.name.clone()));
        let (topics, handlers) = keys.unzip();
        Self { topics, handlers }
    }

    fn keys(&self) -> (&[String], &[String]) {
        (&self.topics, &self.handlers)
    }

    /// The schedules without those of paused sagas, whose times pass as without a process.
    fn without_paused(&self, engine: &Engine) -> Self {
        let keys = self.topics.iter().zip(&self.handlers);
        let keys = keys.filter(|(topic, handler)| !engine.topology.is_paused_for_new(topic, handler));
        let (topics, handlers) = keys.map(|(topic, handler)| (topic.clone(), handler.clone())).unzip();
        Self { topics, handlers }
    }

    /// Leaves a schedule to programs that support it.
    fn stop_following(&mut self, taken: &DueSchedule) {
        let is = |topic: &String, handler: &String| *topic == taken.topic && *handler == taken.handler;
        let keys = self.topics.drain(..).zip(self.handlers.drain(..));
        (self.topics, self.handlers) = keys.filter(|(topic, handler)| !is(topic, handler)).unzip();
    }
}

/// Launches the ticks of at most one schedule. Returns the time until the next one is due. A schedule whose row is gone
/// is registered again, and begins anew.
async fn fire_due(engine: &Engine, followed: &mut FollowedSchedules) -> sqlx::Result<Duration> {
    let running;
    let followed_now = match engine.topology.is_any_paused() {
        true => {
            running = followed.without_paused(engine);
            &running
        }
        false => &*followed,
    };
    let Awaited { seconds, unlisted } = engine.store.schedule_next_due(followed_now.keys()).await?;
    if !unlisted.is_empty() {
        unlisted.iter().for_each(|saga| telemetry::schedule_unlisted(engine.worker, saga));
        publish_some(engine, |name| unlisted.iter().any(|saga| saga == name)).await?;
        return Ok(PAUSE_WHILE_TAKEN);
    }
    let wait = seconds.map_or(WAIT_MAX, |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
    if !wait.is_zero() {
        return Ok(wait.min(WAIT_MAX));
    }
    match engine.store.fire_schedule(followed_now.keys()).await? {
        FireResult::Nothing => return Ok(PAUSE_WHILE_TAKEN),
        FireResult::Launched(advanced) => {
            report_left_out(&advanced);
            engine.notify_ready(&advanced.handlers);
        }
        FireResult::Unfit(taken) => {
            if let Err(error) = &taken.timetable {
                telemetry::schedule_unfit(engine.worker, &taken.handler, error);
            }
            followed.stop_following(&taken);
        }
    }
    Ok(Duration::ZERO)
}

fn report_left_out(advanced: &Advanced) {
    if let Some((since, until)) = advanced.missed {
        telemetry::missed_skipped(&advanced.saga, utc(system_time(since)), utc(system_time(until)));
    }
    if advanced.is_overlap {
        telemetry::tick_skipped(&advanced.saga);
    }
}
