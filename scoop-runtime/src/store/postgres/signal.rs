//! Signals: their record, and their delivery to the runs that await them (`signal_deliver.sql`).

use std::time::Duration;

use scoop_core::{SignalKey, TraceContext};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::{Query, QueryScalar};
use sqlx::types::Json;
use sqlx::{PgExecutor, Postgres, Row};
use uuid::Uuid;

use super::PostgresStore;
use super::notification::SIGNAL_SENT;
use super::query_ext::{ExecuteExt, FetchExt};
use crate::error::{is_contended, is_denied, is_transient, is_without_tables};
use crate::model::signal::{AwaitingRun, ExpiredSignals, LockedDelivery, RefusedDelivery};
use crate::store::{
    ClaimKey, ClaimQueues, ClaimedRun, Deliver, Delivered, NewSignal, SignalClaimer, SignalSent,
    SignalStorage, SignalType, TransactionNumber,
};
use crate::telemetry;
use crate::util::retries;

impl SignalStorage for PostgresStore {
    async fn send_signal(
        &self,
        signal: &NewSignal,
        claimer: Option<SignalClaimer<'_>>,
    ) -> sqlx::Result<SignalSent> {
        if !self.may_write().await? {
            return self.send_without_rights(signal).await;
        }
        match self.send_and_claim(signal, claimer).await {
            Ok(sent) if sent.reached > 0 => return Ok(sent),
            // It is kept, another one came first, or it was sent before. And a run may have begun to await it that the
            // statement did not see.
            Ok(_) => {}
            // A run that awaits it may be what the database refuses, and not the signal.
            Err(error) if is_refused(&error) => {
                self.insert_briefly(signal).await?;
            }
            Err(error) => return Err(error),
        }
        let delivered = self.deliver_despite_locks(vec![signal.to.clone()], REDELIVERY_PAUSES_MS).await?;
        let Delivered { handlers, locked, .. } = delivered;
        if !locked.is_empty() {
            // The signal is stored. A program with sagas delivers it when the lock has ended.
            self.notification(SIGNAL_SENT).run(&self.sessions).await?;
        }
        let SignalState { reached, .. } = self.state_of(signal).one(&self.sessions).await?.try_into()?;
        Ok(SignalSent { reached, handlers, claimed: vec![] })
    }

    async fn deliver_signals(&self, signals: &Deliver) -> sqlx::Result<Delivered> {
        match (self.delivery(signals, Reaching::AllBut(&[]), LOCK_WAIT).all(&self.sessions).await, signals) {
            (Ok(handlers), _) => Ok(Delivered { handlers, ..Delivered::default() }),
            (Err(error), Deliver::To(keys)) if is_contended(&error) && keys.len() == 1 => {
                let locked =
                    keys.iter().cloned().zip([error]).map(|(to, error)| LockedDelivery { to, error });
                Ok(Delivered { locked: locked.collect(), ..Delivered::default() })
            }
            (Err(error), _) if is_refused(&error) || is_contended(&error) => {
                self.deliver_key_by_key(signals).await
            }
            (Err(error), _) => Err(error),
        }
    }

    async fn expire_signals(&self, limit: u32) -> sqlx::Result<Vec<ExpiredSignals>> {
        let rows = sqlx::query(self.sql.signal_mark_expired.clone())
            .bind(i64::from(limit))
            .all(&self.sessions)
            .await?;
        let expired = |row: PgRow| {
            let (to, signals) = (
                SignalKey { name: row.try_get("name")?, key: row.try_get("key")? },
                row.try_get::<i64, _>("signals")?,
            );
            Ok(ExpiredSignals { to, signals: signals.unsigned_abs() })
        };
        rows.into_iter().map(expired).collect()
    }

    async fn awaited_names(&self, only_living: bool) -> sqlx::Result<Vec<String>> {
        sqlx::query_scalar(self.sql.signal_names.clone()).bind(only_living).all(&self.sessions).await
    }

    async fn signal_types(&self, name: &str) -> sqlx::Result<Vec<SignalType>> {
        let types = sqlx::query_as(self.sql.signal_types.clone()).bind(name);
        let types: Vec<(Option<String>, bool)> = types.all(&self.sessions).await?;
        Ok(types.into_iter().map(|(shape, is_living)| SignalType { shape, is_living }).collect())
    }

    async fn refuse_signal(&self, key: ClaimKey, why: &str) -> sqlx::Result<Option<SignalKey>> {
        let refuse = sqlx::query_as(self.sql.signal_refuse.clone()).bind(key.root).bind(key.id);
        let refused: Option<(String, String)> =
            refuse.bind(key.epoch).bind(why).first(&self.sessions).await?;
        Ok(refused.map(|(name, key)| SignalKey { name, key }))
    }
}

impl PostgresStore {
    pub(crate) async fn signal_horizon(&self) -> sqlx::Result<TransactionNumber> {
        sqlx::query_scalar(self.sql.signal_horizon.clone()).one(&self.sessions).await.map(TransactionNumber)
    }
}

/// Whether the database refuses a delivery because of what is stored.
fn is_refused(error: &sqlx::Error) -> bool {
    let is_ours = is_transient(error) || is_contended(error) || is_denied(error);
    error.as_database_error().is_some() && !is_ours && is_without_tables(error).is_none()
}

/// Which of the runs that await a signal get it.
#[derive(Clone, Copy)]
enum Reaching<'a> {
    Only(&'a [Uuid]),
    AllBut(&'a [Uuid]),
}

/// The progress of a signal.
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

/// A role that may not deliver looks for the delivery of a program with sagas after each of these pauses, in ms. A call
/// that finds a locked row repeats the delivery after each of them.
const REDELIVERY_PAUSES_MS: [u64; 8] = [2, 5, 10, 20, 50, 100, 200, 500];

/// For how long a delivery waits for the lock of another session.
const LOCK_WAIT: &str = "20ms";

/// As `LOCK_WAIT`, for a delivery to one of several keys: many of them may be locked, and the others wait meanwhile.
const LOCK_WAIT_OF_ONE: &str = "1ms";

/// Begins a transaction that waits for no lock longer than `signal_send.sql`.
const BEGIN_BRIEFLY: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '20ms'";

impl PostgresStore {
    /// Records a signal for a role that may not write, and leaves the delivery to the programs with sagas.
    async fn send_without_rights(&self, signal: &NewSignal) -> sqlx::Result<SignalSent> {
        self.insert_briefly(signal).await?;
        self.notification(SIGNAL_SENT).run(&self.sessions).await?;
        let mut pauses = REDELIVERY_PAUSES_MS.into_iter();
        loop {
            let SignalState { reached, is_due } =
                self.state_of(signal).one(&self.sessions).await?.try_into()?;
            let Some(pause) = pauses.next().filter(|_| is_due) else {
                return Ok(SignalSent { reached, ..SignalSent::default() });
            };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Records a signal. Fails soon if another transaction holds its id.
    async fn insert_briefly(&self, signal: &NewSignal) -> sqlx::Result<()> {
        let mut transaction = self.sessions.begin_with(BEGIN_BRIEFLY).await?;
        self.insert_signal(&mut *transaction, signal).await?;
        transaction.commit().await.inspect_err(retries::note)
    }

    fn state_of(&self, signal: &NewSignal) -> Query<'_, Postgres, PgArguments> {
        sqlx::query(self.sql.signal_state.clone()).bind(signal.id)
    }

    /// Records a signal, and hands it to the runs that await it, unless an older one comes first.
    async fn send_and_claim(
        &self,
        signal: &NewSignal,
        claimer: Option<SignalClaimer<'_>>,
    ) -> sqlx::Result<SignalSent> {
        let NewSignal { id, to: SignalKey { name, key }, payload, retention, trace } = signal;
        let none = ClaimQueues::default();
        let queues = claimer.map_or(&none, |claimer| claimer.queues);
        let identifier = claimer.map_or("", |claimer| claimer.claimer.identifier);
        let rows = sqlx::query(self.sql.signal_send.clone())
            .bind(id)
            .bind(name.clone())
            .bind(key.clone())
            .bind(Json(payload))
            .bind(retention.as_secs_f64())
            .bind(claimer.map_or(Uuid::nil(), |claimer| claimer.claimer.worker))
            .bind(&queues.topics)
            .bind(&queues.handlers)
            .bind(&queues.reserved_for)
            .bind(claimer.map_or(0, |claimer| i64::try_from(claimer.slots).unwrap_or(i64::MAX)))
            .bind(queues.topology)
            .bind(trace.as_ref().map(TraceContext::traceparent))
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

    /// Records a signal; the transaction may be the caller's. Returns whether it is new.
    pub(crate) async fn insert_signal(
        &self,
        executor: impl PgExecutor<'_>,
        signal: &NewSignal,
    ) -> sqlx::Result<bool> {
        let NewSignal { id, to: SignalKey { name, key }, payload, retention, trace } = signal;
        let traceparent = trace.as_ref().map(TraceContext::traceparent);
        if !self.may_write().await? {
            let insert = sqlx::query_scalar(self.sql.signal_insert_any.clone()).bind(id).bind(name).bind(key);
            let insert = insert.bind(Json(payload)).bind(retention.as_secs_f64()).bind(traceparent);
            // The transaction may be one of the user, in which names may be taken.
            return insert.persistent(self.sessions.supports_prepared()).fetch_one(executor).await;
        }
        let insert = sqlx::query(self.sql.signal_insert.clone()).bind(id).bind(name).bind(key);
        let insert = insert.bind(Json(payload)).bind(retention.as_secs_f64()).bind(traceparent);
        let inserted = insert.execute(executor).await?;
        Ok(inserted.rows_affected() > 0)
    }

    /// Delivers the signals of these keys, and repeats that after each of these pauses, in ms, while some are locked. A
    /// pause holds no connection.
    pub(super) async fn deliver_despite_locks(
        &self,
        mut keys: Vec<SignalKey>,
        pauses_millis: impl IntoIterator<Item = u64>,
    ) -> sqlx::Result<Delivered> {
        let mut pauses = pauses_millis.into_iter();
        let (mut handlers, mut refused) = (vec![], vec![]);
        loop {
            let delivered = self.deliver_signals(&Deliver::To(keys)).await?;
            handlers.extend(delivered.handlers);
            refused.extend(delivered.refused);
            let locked = delivered.locked;
            let Some(pause) = pauses.next().filter(|_| !locked.is_empty()) else {
                return Ok(Delivered { handlers, refused, locked });
            };
            keys = locked.into_iter().map(|locked| locked.to).collect();
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Delivers the signals of each key by themselves, since the database refused all together, or some are locked.
    async fn deliver_key_by_key(&self, signals: &Deliver) -> sqlx::Result<Delivered> {
        let keys = match signals {
            Deliver::To(keys) => keys.clone(),
            Deliver::SentSince(TransactionNumber(since)) => {
                let awaited = sqlx::query_as(self.sql.signal_awaited.clone()).bind(since.clone());
                let awaited: Vec<(String, String)> = awaited.all(&self.sessions).await?;
                awaited.into_iter().map(|(name, key)| SignalKey { name, key }).collect()
            }
        };
        let mut delivered = Delivered::default();
        for to in keys {
            let one = Deliver::To(vec![to.clone()]);
            let all = self.delivery(&one, Reaching::AllBut(&[]), LOCK_WAIT_OF_ONE).all(&self.sessions).await;
            let outcome = match all {
                Err(error) if is_refused(&error) => {
                    self.deliver_run_by_run(&one, error, &mut delivered).await
                }
                all => all.map(|handlers| delivered.handlers.extend(handlers)),
            };
            match outcome {
                Err(error) if is_contended(&error) => delivered.locked.push(LockedDelivery { to, error }),
                outcome => outcome?,
            }
        }
        Ok(delivered)
    }

    /// Delivers the signal of a key to the runs that can get it, since the database refused a delivery to all. Each is
    /// tried in a transaction that is rolled back: the signal goes to all of them at once.
    async fn deliver_run_by_run(
        &self,
        one: &Deliver,
        error: sqlx::Error,
        delivered: &mut Delivered,
    ) -> sqlx::Result<()> {
        let Deliver::To(keys) = one else { return Err(error) };
        let (mut damaged, mut refused) = (vec![], vec![]);
        for to in keys {
            let waiting =
                sqlx::query_as(self.sql.signal_waiting.clone()).bind(to.name.clone()).bind(to.key.clone());
            let waiting: Vec<(Uuid, String, Option<String>)> = waiting.all(&self.sessions).await?;
            for (id, handler, step) in waiting {
                let mut trial = self.sessions.begin().await?;
                let tried =
                    self.delivery(one, Reaching::Only(&[id]), LOCK_WAIT_OF_ONE).all_on(&mut trial).await;
                trial.rollback().await?;
                match tried {
                    Ok(_) => {}
                    Err(error) if is_refused(&error) => {
                        damaged.push(id);
                        let run = Some(AwaitingRun { id, handler, step: step.unwrap_or_default() });
                        refused.push(RefusedDelivery { to: to.clone(), run, error });
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        match self.delivery(one, Reaching::AllBut(&damaged), LOCK_WAIT_OF_ONE).all(&self.sessions).await {
            Ok(handlers) => delivered.handlers.extend(handlers),
            Err(error) if is_refused(&error) => {
                let to = keys.first().cloned();
                refused.extend(to.map(|to| RefusedDelivery { to, run: None, error }));
            }
            Err(error) => return Err(error),
        }
        refused.iter().for_each(telemetry::delivery_refused);
        delivered.refused.extend(refused);
        Ok(())
    }

    fn delivery(
        &self,
        signals: &Deliver,
        to: Reaching<'_>,
        lock_wait: &'static str,
    ) -> QueryScalar<'_, Postgres, String, PgArguments> {
        let ((names, keys), since) = match signals {
            Deliver::To(keys) => (keys.iter().map(|to| (to.name.clone(), to.key.clone())).unzip(), None),
            Deliver::SentSince(TransactionNumber(since)) => ((vec![], vec![]), Some(since.clone())),
        };
        let deliver = sqlx::query_scalar(self.sql.signal_deliver.clone());
        let (runs, only) = match to {
            Reaching::Only(runs) => (runs, true),
            Reaching::AllBut(runs) => (runs, false),
        };
        let deliver = deliver.bind::<Vec<String>>(names).bind::<Vec<String>>(keys).bind(since);
        deliver.bind(runs.to_vec()).bind(only).bind(lock_wait)
    }
}
