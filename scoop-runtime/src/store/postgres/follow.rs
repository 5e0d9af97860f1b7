//! The record, for followers.

use scoop_core::EventKind;
use sqlx::Row;
use sqlx::postgres::PgRow;
use time::OffsetDateTime;

use super::PostgresStore;
use super::decode::{failure_if_readable, stored_time, time};
use super::query_ext::FetchExt;
use crate::RecordedEvent;
use crate::find::{EventFilter, EventWindow, FailureSummary, FollowedEvent, FollowedPage, Horizon};
use crate::store::FollowStorage;
use crate::util::format::system_time;

impl FollowStorage for PostgresStore {
    async fn event_horizon(&self) -> sqlx::Result<Horizon> {
        let row = sqlx::query(self.sql.event_horizon.clone()).one(&self.sessions).await?;
        Ok(Horizon {
            snapshot: row.try_get("snapshot")?,
            open: row.try_get("xmin")?,
            next: row.try_get("xmax")?,
            at: time(&row, "at")?,
        })
    }

    async fn oldest_transaction(&self) -> sqlx::Result<OffsetDateTime> {
        let row = sqlx::query(self.sql.event_oldest_transaction.clone()).one(&self.sessions).await?;
        time(&row, "at")
    }

    async fn events(&self, window: &EventWindow, filter: &EventFilter) -> sqlx::Result<FollowedPage> {
        let rows = sqlx::query(self.sql.event_follow.clone())
            .bind(window.after.max(window.floor))
            .bind(window.from)
            .bind(window.until)
            .bind(window.snapshot.clone())
            .bind(window.without.clone())
            .bind(filter.handler.clone())
            .bind(filter.hierarchy)
            .bind(i64::try_from(window.limit).unwrap_or(i64::MAX))
            .bind(!filter.without_failures)
            .all(&self.sessions)
            .await?;
        let found = rows.first().map_or(Ok(0), |row| row.try_get::<i64, _>("found"))?;
        // Large failures make a page shorter than what was found.
        let is_last = usize::try_from(found).is_ok_and(|found| found < window.limit && found == rows.len());
        let events = rows.iter().map(FollowedEvent::from_row).collect::<sqlx::Result<_>>()?;
        Ok(FollowedPage { events, is_last })
    }
}

impl FollowedEvent {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let kind: &str = row.try_get("type")?;
        let kind = EventKind::from_name(kind)
            .ok_or_else(|| sqlx::Error::Decode(format!("`{kind}` is no kind of an event").into()))?;
        let failure = failure_if_readable(row, "failure");
        let at = stored_time(row, "created_at")?;
        let event = RecordedEvent::of(kind, row.try_get("hierarchy")?, row.try_get("run")?);
        let event = RecordedEvent {
            id: row.try_get("id")?,
            handler: row.try_get("handler")?,
            message_id: row.try_get("message_id")?,
            step: row.try_get("step")?,
            at: system_time(at.time()),
            worker: row.try_get("worker")?,
            failure: failure.as_ref().map(|failure| FailureSummary::of_event(kind, failure)),
            ..event
        };
        Ok(Self { transaction: row.try_get("transaction")?, at, event })
    }
}
