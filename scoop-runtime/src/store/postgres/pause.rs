//! Pauses of handlers, of topics, and of everything.
//!
//! A pause is a change of the topology: its transaction raises `worker.topology` of all workers. So no claim needs a
//! condition about pauses: under the former number it takes nothing, and a worker reads the new number together with the
//! pauses (`topology_read.sql`).
//!
//! * A run in execution is handed back before its next step (`Execution::is_left`).
//! * A worker acknowledges a pause after its queues have changed (`worker_acknowledge.sql`). The statement waits for claims
//!   of the worker under way. So once all living workers have acknowledged and own no running run of the handler, no step
//!   begins before the end of the pause.
//! * Several workers may find that a pause is over. They lock the topology first, and only the one that deletes the row
//!   commits.
//! * A renamed saga is paused under all names of its rows in `handler`: the view `paused`.
//! * A pause for new runs only leaves the queues to claims, with a mark (`ClaimQueues::begun_only`): they pass over new runs
//!   (`scoop.is_new`).

use serde::Deserialize;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::{time, time_if_any};
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt as _;
use crate::model::format::system_time;
use crate::model::pause::{Pause, PauseTarget};
use crate::util::retries::note;

impl PostgresStore {
    pub(crate) async fn end_expired_pauses(&self) -> sqlx::Result<Vec<Pause>> {
        let mut tx = self.begin_topology_change().await?;
        let rows = sqlx::query(self.sql.pause_end_expired.clone()).all_on(&mut tx).await?;
        if rows.is_empty() {
            // Another worker has ended them.
            return Ok(vec![]);
        }
        self.trim_ended_pauses(&mut tx).await?;
        self.commit_topology_change(tx).await?;
        rows.iter().map(Pause::from_row).collect()
    }
}

impl PostgresStore {
    /// Deletes old ended pauses, in a transaction that has ended one.
    pub async fn trim_ended_pauses(&self, tx: &mut PgConnection) -> sqlx::Result<()> {
        sqlx::query(self.sql.pause_trim_ended.clone()).execute(tx).await?;
        Ok(())
    }

    /// Begins a transaction that changes the topology. It waits for others.
    pub async fn begin_topology_change(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        Ok(tx)
    }

    /// Commits it, and notifies all processes, this one included.
    pub async fn commit_topology_change(&self, mut tx: Transaction<'static, Postgres>) -> sqlx::Result<()> {
        self.notification(Uuid::nil()).execute(&mut *tx).await?;
        tx.commit().await.inspect_err(note)
    }
}

impl Pause {
    #[doc(hidden)]
    pub fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let target = PauseTarget::stored(row.try_get("kind")?, row.try_get("name")?);
        Ok(Self {
            target: target.ok_or_else(|| sqlx::Error::Decode("the kind of a pause is unknown".into()))?,
            reason: row.try_get("reason")?,
            source: row.try_get("source")?,
            since: system_time(time(row, "since")?),
            until: time_if_any(row, "until")?.map(system_time),
            new_runs_only: row.try_get("new_runs_only")?,
        })
    }
}

#[derive(Deserialize)]
struct PauseRow {
    kind: String,
    name: String,
    reason: Option<String>,
    source: String,
    /// Since 1970, in microseconds.
    since: i64,
    until: Option<i64>,
    new_runs_only: bool,
}

/// The pauses in a column with the result of `scoop.pauses_of`.
pub fn pauses(row: &PgRow, column: &str) -> sqlx::Result<Vec<Pause>> {
    let rows: Option<Json<Vec<PauseRow>>> = row.try_get(column)?;
    let at = |micros| system_time(OffsetDateTime::UNIX_EPOCH + ::time::Duration::microseconds(micros));
    let read = |row: PauseRow| {
        let PauseRow { kind, name, reason, source, since, until, new_runs_only } = row;
        let target = PauseTarget::stored(&kind, name)?;
        Some(Pause { target, reason, source, since: at(since), until: until.map(at), new_runs_only })
    };
    Ok(rows.into_iter().flat_map(|Json(rows)| rows).filter_map(read).collect())
}
