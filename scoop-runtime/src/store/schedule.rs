//! Schedules, and the messages of their ticks. [`Timetable`] decides which times become messages.

use scoop_core::{ContextKey, Recurrence, Schedule};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::schedule::{DueTicks, Timetable, TimetableError, every_ms};
use crate::model::tick::Tick;
use crate::util::ids;

/// A scheduled saga, as it is registered.
#[derive(Debug, Serialize)]
pub(crate) struct ScheduleRegistration<'a> {
    pub(super) topic: &'a str,
    pub(super) handler: &'a str,
    pub(super) every_ms: Option<i64>,
    pub(super) cron: Option<&'a str>,
    pub(super) zone: Option<&'a str>,
    pub(super) missed: &'static str,
    pub(super) overlap: &'static str,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(super) next_at: Option<OffsetDateTime>,
}

impl<'a> ScheduleRegistration<'a> {
    /// The saga of this schedule, which is due at `next_at` if it is new.
    pub(crate) fn new(
        topic: &'a str,
        handler: &'a str,
        schedule: &Schedule,
        next_at: Option<OffsetDateTime>,
    ) -> Result<Self, TimetableError> {
        let (missed, overlap) = (schedule.missed.as_str(), schedule.overlap.as_str());
        let (every_ms, cron, zone) = match schedule.recurrence {
            Recurrence::Every(pause) => (Some(every_ms(pause)?), None, None),
            Recurrence::Cron { expression, zone } => (None, Some(expression), Some(zone)),
        };
        Ok(Self { topic, handler, every_ms, cron, zone, missed, overlap, next_at })
    }
}

/// The state of followed schedules.
#[derive(Debug)]
pub(crate) struct Awaited {
    /// The seconds until one of them is due; negative if it has been, `None` if none ever is.
    pub(crate) seconds: Option<f64>,
    /// The sagas without a row.
    pub(crate) unlisted: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct DueSchedule {
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) timetable: Result<Timetable, TimetableError>,
    pub(crate) next_at: OffsetDateTime,
    pub(crate) run_count: i64,
    /// The hierarchy of the last run.
    pub(crate) last_root: Option<Uuid>,
    /// The time by the clock of the database.
    pub(crate) now: OffsetDateTime,
}

/// A tick as it is launched: a message that starts a hierarchy of its own.
#[derive(Debug, Serialize)]
pub(crate) struct TickMessage<'a> {
    pub(crate) id: Uuid,
    pub(crate) root: Uuid,
    pub(super) topic: &'a str,
    pub(super) payload: Tick,
    pub(super) context: scoop_core::Context,
}

/// The number of a scheduled run, as the reference implementation counts.
#[derive(Serialize, Deserialize)]
struct RunCount {
    value: u64,
}

impl ContextKey for RunCount {
    const KEY: &'static str = "RunCountKey";
}

impl<'a> TickMessage<'a> {
    pub(super) fn all(taken: &'a DueSchedule, due: &DueTicks) -> Vec<Self> {
        let run_count = u64::try_from(taken.run_count).unwrap_or_default();
        let runs = (run_count + 1..).zip(&due.ticks);
        runs.map(|(run, at)| Self::new(&taken.topic, *at, run)).collect()
    }

    pub(crate) fn new(topic: &'a str, due: OffsetDateTime, run: u64) -> Self {
        let mut context = scoop_core::Context::default();
        context.set(RunCount { value: run }).expect("a number can be written as JSON");
        Self { id: ids::now_v7(), root: ids::now_v7(), topic, payload: Tick::new(due, run), context }
    }
}

#[derive(Debug)]
pub(crate) struct Advanced {
    pub(crate) saga: String,
    pub(crate) handlers: Vec<String>,
    /// Whether times were left out since the last run has not ended.
    pub(crate) is_overlap: bool,
    /// The first missed time, and the first one that is made up for, if too many were missed.
    pub(crate) missed: Option<(OffsetDateTime, OffsetDateTime)>,
}

impl Advanced {
    pub(super) fn new(taken: &DueSchedule, due: &DueTicks, handlers: Vec<String>) -> Self {
        let missed = due.from.map(|from| (taken.next_at, from));
        Self { saga: taken.handler.clone(), handlers, is_overlap: due.is_overlap, missed }
    }
}

#[derive(Debug)]
pub(crate) enum FireResult {
    /// None is due, or another worker has locked it.
    Nothing,
    Launched(Advanced),
    /// This program cannot follow it.
    Unfit(DueSchedule),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tick_carries_its_time_and_its_number() {
        let tick = TickMessage::new("ticks.report", OffsetDateTime::UNIX_EPOCH, 7);
        let written = serde_json::to_value(&tick).unwrap();
        assert_eq!(written["payload"], json!({"due": "1970-01-01T00:00:00Z", "run": 7}));
        assert_eq!(written["context"], json!({"RunCountKey": {"value": 7}}));
    }
}
