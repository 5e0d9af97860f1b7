//! Signals: their record, and their delivery to the runs that await them (`signal_deliver.sql`).

use scoop_core::SignalKey;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryScalar;
use sqlx::types::Json;
use sqlx::{PgExecutor, Postgres, Row};
use uuid::Uuid;

use super::PostgresStore;
use super::query_ext::FetchExt;
use crate::store::{
    ClaimedRun, Deliver, Lanes, NewSignal, SignalClaimer, SignalSent, SignalStorage, Transaction,
};

impl SignalStorage for PostgresStore {
    async fn send_signal(
        &self,
        signal: &NewSignal,
        claimer: Option<SignalClaimer<'_>>,
    ) -> sqlx::Result<SignalSent> {
        let sent = self.send_and_claim(signal, claimer).await?;
        if sent.reached > 0 {
            return Ok(sent);
        }
        // It is kept, an older one came first, or it was sent before. And a run may have begun to await it that the
        // statement did not see.
        let handlers = self.deliver_signals(&Deliver::To(vec![signal.to.clone()])).await?;
        let reached = sqlx::query_scalar(self.sql.signal_reached.clone()).bind(signal.id);
        let reached: i32 = reached.one(&self.sessions).await?;
        Ok(SignalSent { reached: reached.unsigned_abs().into(), handlers, claimed: vec![] })
    }

    async fn deliver_signals(&self, signals: &Deliver) -> sqlx::Result<Vec<String>> {
        self.delivery(signals).all(&self.sessions).await
    }

    async fn signal_horizon(&self) -> sqlx::Result<Transaction> {
        sqlx::query_scalar(self.sql.signal_horizon.clone()).one(&self.sessions).await.map(Transaction)
    }
}

impl PostgresStore {
    /// Records a signal, and hands it to the runs that await it, unless an older one comes first.
    async fn send_and_claim(
        &self,
        signal: &NewSignal,
        claimer: Option<SignalClaimer<'_>>,
    ) -> sqlx::Result<SignalSent> {
        let NewSignal { id, to: SignalKey { name, key }, payload, keep } = signal;
        let none = Lanes::default();
        let lanes = claimer.map_or(&none, |claimer| claimer.lanes);
        let identifier = claimer.map_or("", |claimer| claimer.claimer.identifier);
        let rows = sqlx::query(self.sql.signal_send.clone())
            .bind(id)
            .bind(name.clone())
            .bind(key.clone())
            .bind(Json(payload))
            .bind(keep.as_secs_f64())
            .bind(claimer.map_or(Uuid::nil(), |claimer| claimer.claimer.worker))
            .bind(&lanes.topics)
            .bind(&lanes.handlers)
            .bind(&lanes.reserved_for)
            .bind(claimer.map_or(0, |claimer| i64::try_from(claimer.slots).unwrap_or(i64::MAX)))
            .bind(lanes.topology)
            .all(&self.sessions)
            .await?;
        let mut sent = SignalSent { reached: rows.len() as u64, ..SignalSent::default() };
        for row in &rows {
            match row.try_get("claimed")? {
                true => sent.claimed.push(ClaimedRun::from_row(row, identifier)?),
                false => sent.handlers.push(row.try_get("handler")?),
            }
        }
        Ok(sent)
    }

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
