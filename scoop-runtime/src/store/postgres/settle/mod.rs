//! Applies settlements: by a short statement if all of them have the same common shape, otherwise by `scoop.settle`.
//!
//! The short statements are three: a step that launched nothing, one whose messages are due at once, and the request of a
//! rollback. Why there are several: `docs/development/decisions/0014-settlement-statements.md`.

mod advance;
mod launch;
mod parameters;
mod request_rollback;
mod required;

use std::collections::BTreeMap;

use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::decode::{row_state, time};
use super::query_ext::FetchExt as _;
use crate::store::{PostgresStore, SettlePath, SettleResult, SettleStorage, Settlement};

impl SettleStorage for PostgresStore {
    async fn settle(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), SettleResult>> {
        if settlements.iter().any(|it| it.requires_handlers() || it.is_bulky() || it.is_found_by()) {
            return self.settle_in_transaction(identifier, settlements).await;
        }
        if let Some(rows) = settlements.iter().map(advance::of).collect::<Option<Vec<_>>>() {
            // A list of one element costs more than single parameters.
            if let ([row], [settlement]) = (&rows[..], settlements) {
                let settle =
                    async |session: &mut _| advance::settle_one(self, session, identifier, row, None).await;
                let settled = self.sessions.run(settle).await?;
                return Ok(settled.map(|settled| (settlement.id(), settled)).into_iter().collect());
            }
            let settled = advance::settle_many(self, identifier, &rows).all(&self.sessions).await?;
            return settled.iter().map(advance::result_of_many).collect();
        }
        let settle =
            async |session: &mut _| self.settle_by_path(session, identifier, settlements, None).await;
        let settled = self.sessions.run(settle).await?;
        settled.iter().map(SettleResult::from_row).collect()
    }
}

impl PostgresStore {
    /// Applies a settlement inside the transaction of a step, if its claim still holds. That transaction began with
    /// `scoop_run.claim` set to `claim`. Without this setting the step has ended its transaction itself, and nothing is
    /// applied.
    pub(crate) async fn settle_within(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlement: &Settlement,
        claim: &str,
    ) -> sqlx::Result<Option<SettleResult>> {
        if let Some(row) = advance::of(settlement) {
            return advance::settle_one(self, connection, identifier, &row, Some(claim)).await;
        }
        if settlement.is_bulky() && !self.store_messages(connection, settlement, Some(claim)).await? {
            return Ok(None);
        }
        let settlements = std::slice::from_ref(settlement);
        let rows = self.settle_by_path(connection, identifier, settlements, Some(claim)).await?;
        if !rows.is_empty() {
            self.record_found_by_of(connection, [settlement]).await?;
            if settlement.requires_handlers() {
                self.check_handlers(connection, settlement).await?;
            }
        }
        rows.first().map(|row| SettleResult::from_row(row).map(|(_, settled)| settled)).transpose()
    }

    /// Like [`PostgresStore::settle`], always by the function `scoop.settle`, and outside the transaction of a step.
    #[cfg(test)]
    pub(super) async fn settle_by_function(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), SettleResult>> {
        let mut tx = self.sessions.begin().await?;
        for bulky in settlements.iter().filter(|settlement| settlement.is_bulky()) {
            self.store_messages(&mut tx, bulky, None).await?;
        }
        let rows = self.settle_general(&mut tx, identifier, settlements, None).await?;
        tx.commit().await?;
        rows.iter().map(SettleResult::from_row).collect()
    }

    pub(super) async fn settle_on(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), SettleResult>> {
        if let Some(rows) = settlements.iter().map(advance::of).collect::<Option<Vec<_>>>() {
            let settled = advance::settle_many(self, identifier, &rows).fetch_all(connection).await?;
            return settled.iter().map(advance::result_of_many).collect();
        }
        let settled = self.settle_by_path(connection, identifier, settlements, None).await?;
        settled.iter().map(SettleResult::from_row).collect()
    }

    pub(super) async fn settle_by_path(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlements: &[Settlement],
        claim: Option<&str>,
    ) -> sqlx::Result<Vec<PgRow>> {
        if let Some(rows) = settlements.iter().map(launch::of).collect::<Option<Vec<_>>>() {
            return launch::settle(self, connection, identifier, &rows, claim).await;
        }
        let requests = settlements.iter().map(request_rollback::of).collect::<Option<Vec<_>>>();
        if let (Some(rows), None) = (requests, claim) {
            return request_rollback::settle_many(self, connection, identifier, &rows).await;
        }
        self.settle_general(connection, identifier, settlements, claim).await
    }

    async fn settle_general(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlements: &[Settlement],
        claim: Option<&str>,
    ) -> sqlx::Result<Vec<PgRow>> {
        let settle = sqlx::query(self.sql.settle_general.clone()).bind(Json(settlements)).bind(identifier);
        settle.bind(claim).fetch_all(connection).await
    }
}

impl Settlement {
    pub(crate) fn path(&self) -> SettlePath {
        if advance::of(self).is_some() {
            SettlePath::Advance
        } else if launch::of(self).is_some() {
            SettlePath::LaunchChildren
        } else if request_rollback::of(self).is_some() {
            SettlePath::RequestRollback
        } else {
            SettlePath::General
        }
    }
}

impl SettleResult {
    /// From a row of `settle_general.sql`, with the id of the run and the epoch of the settlement.
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<((Uuid, i64), Self)> {
        let mut ready_handlers: Vec<String> = row.try_get("ready_handlers")?;
        ready_handlers.sort_unstable();
        ready_handlers.dedup();
        let settled = Self {
            state: row_state(row.try_get("state")?)?,
            overdue: row.try_get("overdue")?,
            last_event_at: time(row, "last_event_at")?,
            ready_handlers,
        };
        Ok(((row.try_get("id")?, row.try_get("epoch")?), settled))
    }
}
