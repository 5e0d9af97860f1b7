//! Signals: their record, and their delivery to the runs that await them (`signal_deliver.sql`).

use std::time::Duration;

use scoop_core::SignalKey;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::{Query, QueryScalar};
use sqlx::types::Json;
use sqlx::{PgExecutor, Postgres, Row};

use super::PostgresStore;
use super::pool::READ_COMMITTED;
use super::query_ext::{ExecuteExt, FetchExt};
use crate::store::{Deliver, NewSignal, SIGNAL_SENT, SignalSent, SignalStorage, Transaction};
use crate::util::patience::note;

impl SignalStorage for PostgresStore {
    async fn send_signal(&self, signal: &NewSignal) -> sqlx::Result<SignalSent> {
        if !self.may_write().await? {
            return self.send_without_rights(signal).await;
        }
        let to = Deliver::To(vec![signal.to.clone()]);
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.insert_signal(&mut *tx, signal).await?;
        let handlers = self.delivery(&to).fetch_all(&mut *tx).await?;
        let SignalState { reached, .. } = self.state_of(signal).fetch_one(&mut *tx).await?.try_into()?;
        tx.commit().await.inspect_err(note)?;
        if reached > 0 {
            return Ok(SignalSent { reached, handlers });
        }
        // A run may have begun to await it that the delivery above did not see.
        let handlers = [handlers, self.deliver_signals(&to).await?].concat();
        let SignalState { reached, .. } = self.state_of(signal).one(&self.sessions).await?.try_into()?;
        Ok(SignalSent { reached, handlers })
    }

    async fn deliver_signals(&self, signals: &Deliver) -> sqlx::Result<Vec<String>> {
        self.delivery(signals).all(&self.sessions).await
    }

    async fn signal_horizon(&self) -> sqlx::Result<Transaction> {
        sqlx::query_scalar(self.sql.signal_horizon.clone()).one(&self.sessions).await.map(Transaction)
    }
}

/// How far a signal is.
struct SignalState {
    reached: u64,
    is_due: bool,
}

impl TryFrom<PgRow> for SignalState {
    type Error = sqlx::Error;

    fn try_from(row: PgRow) -> sqlx::Result<Self> {
        let reached: i32 = row.try_get("reached")?;
        Ok(Self { reached: reached.unsigned_abs().into(), is_due: row.try_get("is_due")? })
    }
}

/// A role that may not deliver looks for the delivery of a program with sagas after each of these pauses, in ms.
const LOOKS_AFTER: [u64; 8] = [2, 5, 10, 20, 50, 100, 200, 500];

impl PostgresStore {
    /// Records a signal for a role that may not write, and leaves the delivery to the programs with sagas.
    async fn send_without_rights(&self, signal: &NewSignal) -> sqlx::Result<SignalSent> {
        self.sessions.run(async |session| self.insert_signal(session, signal).await).await?;
        self.notification(SIGNAL_SENT).done(&self.sessions).await?;
        let mut pauses = LOOKS_AFTER.into_iter();
        loop {
            let SignalState { reached, is_due } =
                self.state_of(signal).one(&self.sessions).await?.try_into()?;
            let Some(pause) = pauses.next().filter(|_| is_due) else {
                return Ok(SignalSent { reached, handlers: vec![] });
            };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    fn state_of(&self, signal: &NewSignal) -> Query<'_, Postgres, PgArguments> {
        sqlx::query(self.sql.signal_state.clone()).bind(signal.id)
    }

    /// Records a signal, in a transaction of the caller, too. Returns whether it is new.
    pub(crate) async fn insert_signal(
        &self,
        executor: impl PgExecutor<'_>,
        signal: &NewSignal,
    ) -> sqlx::Result<bool> {
        let NewSignal { id, to: SignalKey { name, key }, payload, keep } = signal;
        if !self.may_write().await? {
            let insert = sqlx::query_scalar(self.sql.signal_insert_any.clone()).bind(id).bind(name).bind(key);
            let insert = insert.bind(Json(payload)).bind(keep.as_secs_f64());
            // The transaction may be one of the user, in which names may be taken.
            return insert.persistent(self.sessions.supports_prepared()).fetch_one(executor).await;
        }
        let insert = sqlx::query(self.sql.signal_insert.clone()).bind(id).bind(name).bind(key);
        let inserted = insert.bind(Json(payload)).bind(keep.as_secs_f64()).execute(executor).await?;
        Ok(inserted.rows_affected() > 0)
    }

    fn delivery(&self, signals: &Deliver) -> QueryScalar<'_, Postgres, String, PgArguments> {
        let ((names, keys), since) = match signals {
            Deliver::To(keys) => (keys.iter().map(|to| (to.name.clone(), to.key.clone())).unzip(), None),
            Deliver::SentSince(Transaction(since)) => ((vec![], vec![]), Some(since.clone())),
        };
        let deliver = sqlx::query_scalar(self.sql.signal_deliver.clone());
        deliver.bind::<Vec<String>>(names).bind::<Vec<String>>(keys).bind(since)
    }
}
