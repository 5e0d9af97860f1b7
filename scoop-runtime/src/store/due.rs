//! What is due: the next ready run, the next deadline of a waiting run, and signs of other workers.

use sqlx::Row;
use sqlx::postgres::PgRow;
use time::OffsetDateTime;
use uuid::Uuid;

use super::alone::Alone;
use super::rows::time;
use super::{Lanes, Tables};

/// What a worker has to do next.
#[derive(Debug)]
pub(crate) struct Due {
    /// The seconds until its queues or a waiting run have work; negative if that is past.
    pub(crate) seconds: Option<f64>,
    pub(crate) is_worker_dead: bool,
    /// The topology, if this worker is registered.
    pub(crate) topology: Option<i64>,
    /// The suspect that has been ready longest.
    pub(crate) suspect: Option<Suspect>,
}

/// A ready run that may be what ends its workers; see `scoop.is_suspect`.
#[derive(Clone, Debug)]
pub(crate) struct Suspect {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) reserved_for: i32,
    pub(crate) ready_at: OffsetDateTime,
}

impl Suspect {
    /// Its queue: topic, handler and reservation.
    pub(crate) fn lane(&self) -> (&str, &str, i32) {
        (&self.topic, &self.handler, self.reserved_for)
    }

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

impl Tables {
    /// What this worker of these queues has to do next. Without `claims_suspects`, suspects do not count.
    pub(crate) async fn due(&self, lanes: &Lanes, worker: Uuid, claims_suspects: bool) -> sqlx::Result<Due> {
        let due = sqlx::query(self.sql.run_due.clone()).bind(&lanes.topics).bind(&lanes.handlers);
        let due = due.bind(worker).bind(&lanes.reserved_for).bind(claims_suspects);
        let row = due.one(&self.sessions).await?;
        Ok(Due {
            seconds: row.try_get("seconds")?,
            is_worker_dead: row.try_get("is_worker_dead")?,
            topology: row.try_get("topology")?,
            suspect: Suspect::from_row(&row)?,
        })
    }
}
