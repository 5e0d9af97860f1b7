//! What is due by the clock of the server (`run_next_due.sql`), and the runs that have to give up: waiting ones at
//! their deadlines (`run_mark_overdue.sql`), running ones by signals (`run_stop_deadlines.sql`).

use std::time::Duration;

use scoop_core::{Context, Priority};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::decode::{time, time_if_any};
use super::query_ext::FetchExt;
use crate::store::{
    ClaimKey, ClaimQueues, DueStorage, GiveUpReasons, NextDue, OverdueRun, ParentRef, PostgresStore,
    QueueCursors, Suspect, SuspectClaim, readable,
};
use crate::util::when::Now;

impl DueStorage for PostgresStore {
    async fn next_due(
        &self,
        queues: &ClaimQueues,
        worker: Uuid,
        suspects: SuspectClaim,
        progress: &QueueCursors,
    ) -> sqlx::Result<NextDue> {
        let due = sqlx::query(self.sql.run_next_due.clone()).bind(&queues.topics).bind(&queues.handlers);
        let due = due.bind(worker).bind(&queues.reserved_for).bind(suspects == SuspectClaim::Allowed);
        let due =
            due.bind(progress.since(queues, Priority::Normal)).bind(progress.since(queues, Priority::High));
        let (open, since) = progress.open();
        let due =
            due.bind(progress.since(queues, Priority::Low)).bind(open).bind(since).bind(&queues.begun_only);
        let row = due.one(&self.sessions).await?;
        Ok(NextDue {
            seconds: row.try_get("seconds")?,
            is_pause_over: row.try_get("is_pause_over")?,
            is_worker_dead: row.try_get("is_worker_dead")?,
            topology: row.try_get("topology")?,
            suspect: Suspect::from_row(&row)?,
        })
    }

    async fn expire_waiting(&self, limit: i64) -> sqlx::Result<Vec<ParentRef>> {
        let rows = sqlx::query(self.sql.run_mark_overdue.clone()).bind(limit).all(&self.sessions).await?;
        rows.iter().map(ParentRef::from_row).collect()
    }

    async fn overdue_runs(&self, limit: i64) -> sqlx::Result<Vec<OverdueRun>> {
        let rows = sqlx::query(self.sql.run_list_overdue.clone()).bind(limit).all(&self.sessions).await?;
        let mut overdue = vec![];
        for row in &rows {
            let Json(steps) = row.try_get("steps")?;
            overdue.extend(Suspect::from_row(row)?.map(|run| OverdueRun { run, steps }));
        }
        Ok(overdue)
    }

    async fn stop_deadlines(&self, keys: &[ClaimKey]) -> sqlx::Result<Vec<(Uuid, f64)>> {
        let each = keys.iter();
        sqlx::query_as(self.sql.run_stop_deadlines.clone())
            .bind(each.clone().map(|key| key.root).collect::<Vec<_>>())
            .bind(each.clone().map(|key| key.id).collect::<Vec<_>>())
            .bind(each.map(|key| key.epoch).collect::<Vec<_>>())
            .all(&self.sessions)
            .await
    }

    async fn give_up_reasons(&self, key: ClaimKey) -> sqlx::Result<Option<GiveUpReasons>> {
        let row = sqlx::query(self.sql.run_give_up_reasons.clone())
            .bind(key.root)
            .bind(key.id)
            .bind(key.epoch)
            .first(&self.sessions)
            .await?;
        let read = |row: PgRow| {
            let requests: Option<Json<Vec<Value>>> = row.try_get("requests")?;
            let requests = requests.map(|Json(requests)| requests).unwrap_or_default();
            let context: Option<Json<Context>> = row.try_get("context")?;
            Ok(GiveUpReasons {
                requests: requests.into_iter().filter_map(|request| readable(request).0).collect(),
                context: context.map(|Json(context)| context).unwrap_or_default(),
                now: time(&row, "now")?,
                since: time_if_any(&row, "rollback_since")?,
            })
        };
        row.map(read).transpose()
    }

    async fn is_claimed(&self, key: ClaimKey) -> sqlx::Result<bool> {
        let query = sqlx::query(self.sql.run_is_claimed.clone()).bind(key.root).bind(key.id).bind(key.epoch);
        query.one(&self.sessions).await?.try_get(0)
    }

    async fn now(&self) -> sqlx::Result<Now> {
        self.clock.now(&self.sessions).await
    }
}

impl PostgresStore {
    pub(crate) async fn clock_lag(&self) -> sqlx::Result<Duration> {
        let seconds: f64 = sqlx::query_scalar(self.sql.event_clock_lead.clone()).one(&self.sessions).await?;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }

    pub(crate) async fn delete_dropped(&self) -> sqlx::Result<Vec<ParentRef>> {
        let rows = sqlx::query(self.sql.run_delete_dropped.clone()).all(&self.sessions).await?;
        rows.iter().map(ParentRef::from_row).collect()
    }
}

impl Suspect {
    fn from_row(row: &PgRow) -> sqlx::Result<Option<Self>> {
        let Some(id) = row.try_get("suspect")? else {
            return Ok(None);
        };
        Ok(Some(Self {
            root: row.try_get("root")?,
            id,
            topic: row.try_get("topic")?,
            handler: row.try_get("handler")?,
            reserved_for: row.try_get("reserved_for")?,
            ready_at: time(row, "ready_at")?,
        }))
    }
}
