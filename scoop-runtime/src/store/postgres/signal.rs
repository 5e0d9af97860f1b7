//! Signals: their record, and their delivery to the runs that await them (`signal_deliver.sql`).

use scoop_core::SignalKey;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryScalar;
use sqlx::types::Json;
use sqlx::{PgExecutor, Postgres};

use super::PostgresStore;
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use crate::store::{Deliver, NewSignal, SignalSent, SignalStorage, Transaction};
use crate::util::patience::note;

impl SignalStorage for PostgresStore {
    async fn send_signal(&self, signal: &NewSignal) -> sqlx::Result<SignalSent> {
        let to = Deliver::To(vec![signal.to.clone()]);
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.insert_signal(&mut *tx, signal).await?;
        let handlers = self.delivery(&to).fetch_all(&mut *tx).await?;
        let reached = sqlx::query_scalar(self.sql.signal_reached.clone()).bind(signal.id);
        let reached: i32 = reached.fetch_one(&mut *tx).await?;
        tx.commit().await.inspect_err(note)?;
        if reached > 0 {
            return Ok(SignalSent { reached: reached.unsigned_abs().into(), handlers });
        }
        // A run may have begun to await it that the delivery above did not see.
        let handlers = [handlers, self.deliver_signals(&to).await?].concat();
        let reached = sqlx::query_scalar(self.sql.signal_reached.clone()).bind(signal.id);
        let reached: i32 = reached.one(&self.sessions).await?;
        Ok(SignalSent { reached: reached.unsigned_abs().into(), handlers })
    }

    async fn deliver_signals(&self, signals: &Deliver) -> sqlx::Result<Vec<String>> {
        self.delivery(signals).all(&self.sessions).await
    }

    async fn signal_horizon(&self) -> sqlx::Result<Transaction> {
        sqlx::query_scalar(self.sql.signal_horizon.clone()).one(&self.sessions).await.map(Transaction)
    }
}

impl PostgresStore {
    /// Records a signal, in a transaction of the caller, too. Returns whether it is new.
    pub(crate) async fn insert_signal(
        &self,
        executor: impl PgExecutor<'_>,
        signal: &NewSignal,
    ) -> sqlx::Result<bool> {
        let NewSignal { id, to: SignalKey { name, key }, payload, keep } = signal;
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
