//! The record, for followers.

use scoop_core::EventKind;
use sqlx::Row;
use sqlx::postgres::PgRow;
use time::OffsetDateTime;

use scoop_runtime::internal::{FetchExt as _, failure_if_readable, stored_time, system_time, time};

use super::RecordedEvent;
use super::following::{EventFilter, EventWindow, FollowedEvent, FollowedPage, Horizon};
use crate::database::Database;
use crate::runs::FailureSummary;
use crate::statements::{EVENT_FOLLOW, EVENT_HORIZON, EVENT_OLDEST_TRANSACTION};

impl Database {
    pub(super) async fn event_horizon(&self) -> sqlx::Result<Horizon> {
        let row = sqlx::query(self.text(EVENT_HORIZON)).one(self.sessions()).await?;
        Ok(Horizon {
            snapshot: row.try_get("snapshot")?,
            open: row.try_get("xmin")?,
            next: row.try_get("xmax")?,
            at: time(&row, "at")?,
        })
    }

    pub(super) async fn oldest_transaction(&self) -> sqlx::Result<OffsetDateTime> {
        let row = sqlx::query(self.text(EVENT_OLDEST_TRANSACTION)).one(self.sessions()).await?;
        time(&row, "at")
    }

    pub(super) async fn events(
        &self,
        window: &EventWindow,
        filter: &EventFilter,
    ) -> sqlx::Result<FollowedPage> {
        let rows = sqlx::query(self.text(EVENT_FOLLOW))
            .bind(window.after.max(window.floor))
            .bind(window.from)
            .bind(window.until)
            .bind(window.snapshot.clone())
            .bind(window.without.clone())
            .bind(filter.handler.clone())
            .bind(filter.hierarchy)
            .bind(i64::try_from(window.limit).unwrap_or(i64::MAX))
            .bind(!filter.without_failures)
            .all(self.sessions())
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
