//! Large payloads: many statements of bounded size in one transaction, in place of one statement that has them all. So
//! the memory of the server is bounded, as is the time of each statement, and a step or a client may launch any number.

use std::collections::BTreeSet;

use sqlx::PgConnection;
use sqlx::types::Json;

use super::PostgresStore;
use crate::store::settlement::EmissionRow;
use crate::store::{LaunchResult, NewMessage, Settlement, parts};
use crate::util::payload;
use crate::util::retries;

impl PostgresStore {
    /// Launches messages by several statements in a transaction of their own.
    pub(super) async fn launch_in_parts(&self, messages: &[NewMessage]) -> sqlx::Result<LaunchResult> {
        let mut tx = self.sessions.begin().await?;
        let (mut launched, mut handlers) = (0, BTreeSet::new());
        for part in parts(messages, |message| message.bytes) {
            let launch = self.launch_found(&mut tx, part).await?;
            launched += launch.launched;
            handlers.extend(launch.handlers);
        }
        tx.commit().await.inspect_err(retries::note)?;
        Ok(LaunchResult { launched, handlers: handlers.into_iter().collect(), claimed: vec![] })
    }

    /// Stores the messages of a settlement ahead of it, in its transaction. `claim` is what the transaction of a step
    /// is marked with. The answer is no if it is not, or if the settlement was applied before.
    pub(super) async fn store_messages(
        &self,
        connection: &mut PgConnection,
        settlement: &Settlement,
        claim: Option<&str>,
    ) -> sqlx::Result<bool> {
        for part in parts(&settlement.emissions, |row: &EmissionRow| payload::bytes(&row.payload.value)) {
            let each = || part.iter();
            let stored = sqlx::query(self.sql.message_store.clone())
                .bind(each().map(|row| row.id).collect::<Vec<_>>())
                .bind(each().map(|row| &*row.topic).collect::<Vec<_>>())
                .bind(each().map(|row| Json(&row.payload.value)).collect::<Vec<_>>())
                .bind(claim)
                .execute(&mut *connection)
                .await?;
            if stored.rows_affected() == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
