//! The statements about schedules, one function for each.

use scoop_core::{ContextKey, Missed, Overlap, Recurrence, Schedule};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::alone::{Alone, Done};
use super::rows::time;
use super::{Asked, Pairs, Tables};
use crate::Tick;
use crate::error::is_of_contents;
use crate::ids;
use crate::patience::note;
use crate::shown;
use crate::timetable::{self, Timetable, Unfit};

/// A scheduled saga, as it is registered.
#[derive(Debug, Serialize)]
pub(crate) struct Published<'a> {
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

impl<'a> Published<'a> {
    /// The saga of this schedule, which is due at `next_at` if it is new.
    pub(crate) fn new(
        (topic, handler): (&'a str, &'a str),
        schedule: &Schedule,
        next_at: Option<OffsetDateTime>,
    ) -> Result<Self, Unfit> {
        let (missed, overlap) = (schedule.missed.as_str(), schedule.overlap.as_str());
        let (every_ms, cron, zone) = match schedule.recurrence {
            Recurrence::Every(pause) => (Some(timetable::every_ms(pause)?), None, None),
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

/// A due schedule, locked by this transaction.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) topic: String,
    pub(crate) handler: String,
    /// Its timetable, if this program supports that.
    pub(crate) timetable: Result<Timetable, Unfit>,
    pub(crate) next_at: OffsetDateTime,
    /// The number of runs so far.
    pub(crate) fired: i64,
    /// The hierarchy of the last run.
    pub(crate) last_root: Option<Uuid>,
    /// The time by the clock of the database.
    pub(crate) now: OffsetDateTime,
}

impl Taken {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            topic: row.try_get("topic")?,
            handler: row.try_get("handler")?,
            timetable: timetable_of(row)?,
            next_at: time(row, "next_at")?,
            fired: row.try_get("fired")?,
            last_root: row.try_get("last_root")?,
            now: time(row, "now")?,
        })
    }
}

fn timetable_of(row: &PgRow) -> sqlx::Result<Result<Timetable, Unfit>> {
    let (cron, zone): (Option<&str>, Option<&str>) = (row.try_get("cron")?, row.try_get("zone")?);
    let (missed, overlap) = (row.try_get("missed")?, row.try_get("overlap")?);
    let every_ms = row.try_get("every_ms")?;
    Ok(match (Missed::named(missed), Overlap::named(overlap)) {
        (Some(missed), Some(overlap)) => Timetable::stored(every_ms, cron.zip(zone), missed, overlap),
        _ => Err(Unfit::Unknown),
    })
}

/// A tick as it is launched: a message that starts a hierarchy of its own.
#[derive(Debug, Serialize)]
pub(crate) struct Ticked<'a> {
    pub(crate) id: Uuid,
    pub(crate) root: Uuid,
    pub(super) topic: &'a str,
    pub(super) payload: Tick,
    pub(super) context: scoop_core::Context,
}

/// The number of a scheduled run, for other participants.
#[derive(Serialize, Deserialize)]
struct RunCount {
    value: u64,
}

impl ContextKey for RunCount {
    const KEY: &'static str = "RunCountKey";
}

impl<'a> Ticked<'a> {
    /// The run of this number, with fresh ids.
    pub(crate) fn new(topic: &'a str, due: OffsetDateTime, run: u64) -> Self {
        let mut context = scoop_core::Context::default();
        context.set(RunCount { value: run }).expect("a number can be written as JSON");
        Self { id: ids::now_v7(), root: ids::now_v7(), topic, payload: Tick::new(due, run), context }
    }
}

/// The result of a lookup of due schedules.
#[derive(Debug)]
pub(crate) enum Fired {
    /// None is due, or another worker has locked it.
    Nothing,
    /// It has been advanced, and its ticks are launched for these handlers.
    Launched(Vec<String>),
    /// This program cannot follow it.
    Unfit(Taken),
}

/// The ticks of a due schedule, and its next time. `busy` tells that the hierarchy of the last run has not ended.
pub(super) fn fired<'a>(
    taken: &'a Taken,
    timetable: &Timetable,
    busy: bool,
) -> (Vec<Ticked<'a>>, Option<OffsetDateTime>) {
    let mut due = timetable.due(taken.next_at, taken.now);
    if let Some(from) = due.from {
        crate::telemetry::missed_skipped(&taken.handler, utc_of(taken.next_at), utc_of(from));
    }
    if busy && timetable.overlap == Overlap::Skip {
        crate::telemetry::tick_skipped(&taken.handler);
        due.ticks.clear();
    }
    let fired = u64::try_from(taken.fired).unwrap_or_default();
    let runs = fired + 1..;
    let ticks = runs.zip(&due.ticks).map(|(run, due)| Ticked::new(&taken.topic, *due, run));
    (ticks.collect(), due.next_at)
}

fn utc_of(time: OffsetDateTime) -> String {
    shown::utc(shown::system_time(time))
}

impl Tables {
    /// Registers the schedules of sagas.
    pub(crate) async fn publish_schedules(&self, schedules: &[Published<'_>]) -> sqlx::Result<()> {
        sqlx::query(self.sql.schedule_publish.clone()).bind(Json(schedules)).done(&self.sessions).await?;
        Ok(())
    }

    /// The wait until one of these is due, and those without a row.
    pub(crate) async fn schedule_wait(&self, (topics, handlers): Pairs<'_>) -> sqlx::Result<Awaited> {
        let wait = sqlx::query(self.sql.schedule_wait.clone()).bind(topics).bind(handlers);
        let row = wait.one(&self.sessions).await?;
        Ok(Awaited { seconds: row.try_get("seconds")?, unlisted: row.try_get("unlisted")? })
    }

    /// Launches the due ticks of one of these schedules and advances it, in one transaction.
    pub(crate) async fn fire_schedule(&self, pairs: Pairs<'_>) -> sqlx::Result<Fired> {
        let mut tx = self.sessions.begin().await?;
        let Some(taken) = self.take_schedule(&mut tx, pairs).await? else {
            return Ok(Fired::Nothing);
        };
        let timetable = match &taken.timetable {
            Ok(timetable) => timetable,
            Err(_) => return Ok(Fired::Unfit(taken)),
        };
        match self.fire(&mut tx, &taken, timetable).await {
            Ok(handlers) => {
                tx.commit().await?;
                Ok(Fired::Launched(handlers))
            }
            Err(error) if is_of_contents(&error) => {
                let timetable = Err(Unfit::Refused(error.to_string()));
                Ok(Fired::Unfit(Taken { timetable, ..taken }))
            }
            Err(error) => Err(error),
        }
    }

    /// Launches what is due of a schedule that was taken, and moves it on. Returns for which handlers that is.
    async fn fire(
        &self,
        tx: &mut PgConnection,
        taken: &Taken,
        timetable: &Timetable,
    ) -> sqlx::Result<Vec<String>> {
        let busy = match (timetable.overlap, taken.last_root) {
            (Overlap::Skip, Some(root)) => self.is_busy(tx, root).await?,
            _ => false,
        };
        let (ticks, next_at) = fired(taken, timetable, busy);
        let handlers = match ticks.is_empty() {
            true => vec![],
            false => self.tick(tx, &ticks).await?,
        };
        self.move_schedule_on(tx, taken, next_at, &ticks).await?;
        Ok(handlers)
    }

    /// Locks one of these that is due, until the end of the transaction.
    async fn take_schedule(
        &self,
        tx: &mut PgConnection,
        (topics, handlers): Pairs<'_>,
    ) -> sqlx::Result<Option<Taken>> {
        let take = sqlx::query(self.sql.schedule_take.clone()).bind(topics).bind(handlers);
        take.fetch_optional(tx).await?.as_ref().map(Taken::from_row).transpose()
    }

    /// Whether anything of the hierarchy has not ended.
    async fn is_busy(&self, tx: &mut PgConnection, root: Uuid) -> sqlx::Result<bool> {
        sqlx::query_scalar(self.sql.schedule_busy.clone()).bind(root).fetch_one(tx).await
    }

    /// Launches ticks, and returns their handlers.
    async fn tick(&self, tx: &mut PgConnection, ticks: &[Ticked<'_>]) -> sqlx::Result<Vec<String>> {
        Ok(self.launch_any(tx, ticks).await?.handlers)
    }

    /// Advances a locked schedule after these ticks.
    async fn move_schedule_on(
        &self,
        tx: &mut PgConnection,
        taken: &Taken,
        next_at: Option<OffsetDateTime>,
        ticks: &[Ticked<'_>],
    ) -> sqlx::Result<()> {
        sqlx::query(self.sql.schedule_move_on.clone())
            .bind(&taken.topic)
            .bind(&taken.handler)
            .bind(next_at)
            .bind(i64::try_from(ticks.len()).unwrap_or(i64::MAX))
            .bind(ticks.last().map(|tick| tick.root))
            .execute(tx)
            .await?;
        Ok(())
    }

    /// Launches a tick now, beside the schedule, with this root and the id of the request. Returns its handlers; `None`
    /// if there is no such schedule.
    pub(crate) async fn trigger(
        &self,
        topic: &str,
        handler: &str,
        root: Uuid,
        asked: Asked,
    ) -> sqlx::Result<Option<Vec<String>>> {
        let mut tx = self.sessions.begin().await?;
        let trigger = sqlx::query(self.sql.schedule_trigger.clone()).bind(topic).bind(handler).bind(root);
        let Some(counted) = trigger.fetch_optional(&mut *tx).await? else {
            return Ok(None);
        };
        // The row of the schedule is locked, so an earlier attempt has ended.
        if self.is_done(&mut tx, asked).await? {
            return Ok(Some(vec![]));
        }
        let run = u64::try_from(counted.try_get::<i64, _>("fired")?).unwrap_or_default();
        let tick = Ticked { root, id: asked.id, ..Ticked::new(topic, counted.try_get("now")?, run) };
        let handlers = self.tick(&mut tx, &[tick]).await?;
        tx.commit().await.inspect_err(note)?;
        Ok(Some(handlers))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tick_carries_its_time_and_its_number() {
        let tick = Ticked::new("ticks.report", OffsetDateTime::UNIX_EPOCH, 7);
        let written = serde_json::to_value(&tick).unwrap();
        assert_eq!(written["payload"], json!({"due": "1970-01-01T00:00:00Z", "run": 7}));
        assert_eq!(written["context"], json!({"RunCountKey": {"value": 7}}));
    }
}
