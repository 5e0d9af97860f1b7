//! Schedules and their ticks on PostgreSQL (`schedule_*.sql`). Which ticks are launched is decided by the
//! [`Timetable`].

use scoop_core::{Missed, Overlap};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::time;
use super::query_ext::{ExecuteExt, FetchExt};
use crate::error::is_of_contents;
use crate::model::schedule::{LastTick, Timetable, TimetableError};
use crate::store::{
    Advanced, Awaited, DueSchedule, FireResult, RequestKey, ScheduleRegistration, ScheduleStorage,
    SubscriptionKeys, TickMessage,
};
use crate::util::retries::note;

impl DueSchedule {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            topic: row.try_get("topic")?,
            handler: row.try_get("handler")?,
            timetable: timetable_of(row)?,
            next_at: time(row, "next_at")?,
            run_count: row.try_get("run_count")?,
            last_root: row.try_get("last_root")?,
            now: time(row, "now")?,
        })
    }
}

fn timetable_of(row: &PgRow) -> sqlx::Result<Result<Timetable, TimetableError>> {
    let (cron, zone): (Option<&str>, Option<&str>) = (row.try_get("cron")?, row.try_get("zone")?);
    let (missed, overlap) = (row.try_get("missed")?, row.try_get("overlap")?);
    let every_ms = row.try_get("every_ms")?;
    Ok(match (Missed::named(missed), Overlap::named(overlap)) {
        (Some(missed), Some(overlap)) => Timetable::stored(every_ms, cron.zip(zone), missed, overlap),
        _ => Err(TimetableError::Unknown),
    })
}

impl ScheduleStorage for PostgresStore {
    async fn publish_schedules(&self, schedules: &[ScheduleRegistration<'_>]) -> sqlx::Result<()> {
        sqlx::query(self.sql.schedule_register.clone()).bind(Json(schedules)).run(&self.sessions).await?;
        Ok(())
    }

    async fn schedule_next_due(&self, (topics, handlers): SubscriptionKeys<'_>) -> sqlx::Result<Awaited> {
        let wait = sqlx::query(self.sql.schedule_next_due.clone()).bind(topics).bind(handlers);
        let row = wait.one(&self.sessions).await?;
        Ok(Awaited { seconds: row.try_get("seconds")?, unlisted: row.try_get("unlisted")? })
    }

    async fn fire_schedule(&self, keys: SubscriptionKeys<'_>) -> sqlx::Result<FireResult> {
        let mut tx = self.sessions.begin().await?;
        let Some(taken) = self.take_schedule(&mut tx, keys).await? else {
            return Ok(FireResult::Nothing);
        };
        let timetable = match &taken.timetable {
            Ok(timetable) => timetable,
            Err(_) => return Ok(FireResult::Unfit(taken)),
        };
        match self.fire(&mut tx, &taken, timetable).await {
            Ok(advanced) => {
                tx.commit().await?;
                Ok(FireResult::Launched(advanced))
            }
            Err(error) if is_of_contents(&error) => {
                let timetable = Err(TimetableError::Refused(error.to_string()));
                Ok(FireResult::Unfit(DueSchedule { timetable, ..taken }))
            }
            Err(error) => Err(error),
        }
    }

    async fn trigger(
        &self,
        handler: &str,
        root: Uuid,
        asked: RequestKey,
    ) -> sqlx::Result<Option<Vec<String>>> {
        let mut tx = self.sessions.begin().await?;
        let trigger = sqlx::query(self.sql.schedule_trigger.clone()).bind(handler).bind(root);
        let Some(counted) = trigger.fetch_optional(&mut *tx).await? else {
            return Ok(None);
        };
        // The row of the schedule is locked, so an earlier attempt has ended.
        if self.is_recorded(&mut tx, asked).await? {
            return Ok(Some(vec![]));
        }
        let run = u64::try_from(counted.try_get::<i64, _>("run_count")?).unwrap_or_default();
        let topic: &str = counted.try_get("topic")?;
        let tick =
            TickMessage { root, id: asked.id, ..TickMessage::new(topic, counted.try_get("now")?, run) };
        let handlers = self.tick(&mut tx, &[tick]).await?;
        tx.commit().await.inspect_err(note)?;
        Ok(Some(handlers))
    }
}

impl PostgresStore {
    /// Launches the due ticks of a locked schedule, and advances it.
    async fn fire(
        &self,
        tx: &mut PgConnection,
        taken: &DueSchedule,
        timetable: &Timetable,
    ) -> sqlx::Result<Advanced> {
        let last = match (timetable.overlap, taken.last_root) {
            (Overlap::Skip, Some(root)) if self.is_busy(tx, root).await? => LastTick::Unfinished,
            _ => LastTick::Ended,
        };
        let due = timetable.due_after(last, taken.next_at, taken.now);
        let ticks = TickMessage::all(taken, &due);
        let handlers = match ticks.is_empty() {
            true => vec![],
            false => self.tick(tx, &ticks).await?,
        };
        self.move_schedule_on(tx, taken, due.next_at, &ticks).await?;
        Ok(Advanced::new(taken, &due, handlers))
    }

    /// Locks a due schedule until the end of the transaction.
    async fn take_schedule(
        &self,
        tx: &mut PgConnection,
        (topics, handlers): SubscriptionKeys<'_>,
    ) -> sqlx::Result<Option<DueSchedule>> {
        let take = sqlx::query(self.sql.schedule_lock_due.clone()).bind(topics).bind(handlers);
        take.fetch_optional(tx).await?.as_ref().map(DueSchedule::from_row).transpose()
    }

    /// Whether anything of the hierarchy has not ended.
    async fn is_busy(&self, tx: &mut PgConnection, root: Uuid) -> sqlx::Result<bool> {
        sqlx::query_scalar(self.sql.hierarchy_is_unfinished.clone()).bind(root).one_on(tx).await
    }

    async fn tick(&self, tx: &mut PgConnection, ticks: &[TickMessage<'_>]) -> sqlx::Result<Vec<String>> {
        Ok(self.launch_any(tx, ticks).await?.handlers)
    }

    async fn move_schedule_on(
        &self,
        tx: &mut PgConnection,
        taken: &DueSchedule,
        next_at: Option<OffsetDateTime>,
        ticks: &[TickMessage<'_>],
    ) -> sqlx::Result<()> {
        sqlx::query(self.sql.schedule_advance.clone())
            .bind(&taken.topic)
            .bind(&taken.handler)
            .bind(next_at)
            .bind(i64::try_from(ticks.len()).unwrap_or(i64::MAX))
            .bind(ticks.last().map(|tick| tick.root))
            .execute(tx)
            .await?;
        Ok(())
    }
}
