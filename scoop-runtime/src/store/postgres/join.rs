//! The messages that sagas join (`join_*.sql`). Which of them form a set is decided in [`crate::store::join`].
//!
//! A record and the launch of its set are one transaction under an advisory lock of the saga and the key (`join_lock.sql`),
//! so that of two last messages the later one sees both. A transaction does not wait for that lock, which would take a
//! connection for each message: it tries again. A member is checked by the conditions of `scoop.launch` for the whole set
//! when it is recorded, so that no partner fails for it.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use uuid::Uuid;

use super::PostgresStore;
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use crate::error::{is_of_contents, refusal};
use crate::model::join::RefusedMember;
use crate::model::stored_time::StoredTime;
use crate::store::join::{LaunchedSet, SetMember, SetPolicy, set_message};
use crate::store::{ExpiredJoin, JoinResult, JoinSpec, JoinStorage, NewMember, Withdrawal};
use crate::util::retries::note;

/// How many overdue messages are read at once, first and at most: the keys of some may be locked.
const DUE_MIN: i64 = 20;
const DUE_MAX: i64 = 2_000;

/// How long a key that is locked is tried again, and the longest pause before that. The tries hold no connection in
/// between.
const LOCKED_MAX: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The pause before another attempt with an overdue key that was locked, in seconds.
const LOCKED_PAUSE: f64 = 0.2;

/// The turns of this process at keys: its own transactions wait for each other here, in their order, without a
/// connection. Several keys share one.
#[derive(Debug, Default)]
pub(super) struct KeyLocks([Mutex<()>; 32]);

impl KeyLocks {
    fn lock_of(&self, saga: &str, key: &str) -> &Mutex<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((saga, key));
        &self.0[usize::try_from(hash % self.0.len() as u64).unwrap_or_default()]
    }
}

struct KeyTransaction<'a> {
    tx: Transaction<'static, Postgres>,
    _guard: MutexGuard<'a, ()>,
}

impl JoinStorage for PostgresStore {
    async fn join(&self, spec: &JoinSpec, member: &NewMember<'_>) -> sqlx::Result<JoinResult> {
        let NewMember { claim, topic, message, key, traceparent } = member;
        let Some(mut locked) = self.lock_join_patiently(spec, key).await? else {
            return Ok(JoinResult::Locked);
        };
        let record = sqlx::query(self.sql.join_record.clone()).bind(claim.root).bind(claim.id);
        let record = record.bind(claim.epoch).bind(&spec.saga).bind(key).bind(topic).bind(message);
        let record =
            record.bind(spec.within.map(|within| within.as_secs_f64())).bind(spec.member_bytes_max());
        let record = record.bind(traceparent);
        let Some(row) = record.fetch_optional(&mut *locked.tx).await? else {
            return Ok(JoinResult::NotClaimed);
        };
        if !row.try_get::<bool, _>("is_fit")? {
            let bytes: Option<i32> = row.try_get("bytes")?;
            return Ok(JoinResult::Unfit {
                bytes: usize::try_from(bytes.unwrap_or_default()).unwrap_or_default(),
            });
        }
        let launched = self.launch_set(&mut locked.tx, spec, key, None).await?;
        locked.tx.commit().await.inspect_err(note)?;
        Ok(JoinResult::Recorded(launched))
    }

    async fn withdraw(&self, spec: &JoinSpec, key: &str, run: Uuid) -> sqlx::Result<Withdrawal> {
        let Some(mut locked) = self.lock_join_patiently(spec, key).await? else {
            return Ok(Withdrawal::Locked);
        };
        let withdraw = sqlx::query_scalar(self.sql.join_withdraw.clone()).bind(run);
        let joined = withdraw.first_on(&mut locked.tx).await?;
        locked.tx.commit().await.inspect_err(note)?;
        Ok(Withdrawal::Withdrawn { joined })
    }

    async fn expire_join(&self, specs: &[&JoinSpec]) -> sqlx::Result<ExpiredJoin> {
        let keys = specs.iter().flat_map(|spec| spec.topics.iter().map(|topic| (&*spec.saga, *topic)));
        let (sagas, topics): (Vec<_>, Vec<_>) = keys.unzip();
        let (mut after, mut limit) = ((StoredTime::from_micros(i64::MIN), Uuid::nil()), DUE_MIN);
        let mut locked = HashSet::new();
        loop {
            let next = sqlx::query(self.sql.join_next_due.clone()).bind(&sagas).bind(&topics).bind(limit);
            let rows = next.bind(after.0).bind(after.1).all(&self.sessions).await?;
            for row in &rows {
                let (seconds, run): (f64, Uuid) = (row.try_get("seconds")?, row.try_get("run")?);
                if seconds > 0.0 {
                    let seconds = if locked.is_empty() { seconds } else { seconds.min(LOCKED_PAUSE) };
                    return Ok(ExpiredJoin { launched: LaunchedSet::default(), seconds: Some(seconds) });
                }
                after = (row.try_get("expires_at")?, run);
                let of: (String, String) = (row.try_get("saga")?, row.try_get("key")?);
                let Some(spec) = specs.iter().find(|spec| spec.saga == of.0) else { continue };
                if locked.contains(&of) {
                    continue;
                }
                match self.expire_key(spec, &of.1, run).await? {
                    Some(launched) => return Ok(ExpiredJoin { launched, seconds: Some(0.0) }),
                    None => _ = locked.insert(of),
                }
            }
            if i64::try_from(rows.len()).unwrap_or(i64::MAX) < limit {
                let seconds = (!locked.is_empty()).then_some(LOCKED_PAUSE);
                return Ok(ExpiredJoin { launched: LaunchedSet::default(), seconds });
            }
            limit = (limit * 4).min(DUE_MAX);
        }
    }

    async fn joined(&self, message: Uuid) -> sqlx::Result<Vec<Uuid>> {
        sqlx::query_scalar(self.sql.join_find.clone()).bind(message).all(&self.sessions).await
    }
}

impl PostgresStore {
    /// Begins a transaction that has the lock of a key. None if another session has it.
    async fn lock_join(&self, spec: &JoinSpec, key: &str) -> sqlx::Result<Option<KeyTransaction<'_>>> {
        let guard = self.join_locks.lock_of(&spec.saga, key).lock().await;
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        let lock = sqlx::query_scalar(self.sql.join_lock.clone()).bind(&spec.saga).bind(key);
        if lock.one_on(&mut tx).await? {
            return Ok(Some(KeyTransaction { tx, _guard: guard }));
        }
        tx.rollback().await?;
        Ok(None)
    }

    async fn lock_join_patiently(
        &self,
        spec: &JoinSpec,
        key: &str,
    ) -> sqlx::Result<Option<KeyTransaction<'_>>> {
        let (began, mut pause) = (Instant::now(), Duration::from_millis(2));
        loop {
            match self.lock_join(spec, key).await? {
                Some(locked) => return Ok(Some(locked)),
                None if began.elapsed() > LOCKED_MAX => return Ok(None),
                None => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Launches the set of an overdue message, or sets it aside if the database refuses it. None if the key is locked.
    /// Nothing is launched if another process did it meanwhile.
    async fn expire_key(&self, spec: &JoinSpec, key: &str, run: Uuid) -> sqlx::Result<Option<LaunchedSet>> {
        let Some(mut locked) = self.lock_join(spec, key).await? else { return Ok(None) };
        let launched = match self.launch_set(&mut locked.tx, spec, key, Some(run)).await {
            Err(error) if is_of_contents(&error) => {
                drop(locked);
                let Some(again) = self.lock_join(spec, key).await? else { return Ok(None) };
                locked = again;
                let rows = self.members(&mut locked.tx, spec, key, Some(run)).await?;
                let (rows, why): (Vec<_>, _) = (rows.iter().collect(), refusal(&error));
                let refused = self.refuse(&mut locked.tx, spec, key, (&rows, &why)).await?;
                LaunchedSet { handlers: vec![], refused }
            }
            launched => launched?,
        };
        locked.tx.commit().await.inspect_err(note)?;
        Ok(Some(launched))
    }

    /// Launches the hierarchy of a set. With the run of an overdue message, that is its set, complete or not; otherwise the
    /// oldest messages of the key, if they are complete. Sets those aside that no set can hold.
    async fn launch_set(
        &self,
        tx: &mut PgConnection,
        spec: &JoinSpec,
        key: &str,
        overdue: Option<Uuid>,
    ) -> sqlx::Result<LaunchedSet> {
        let mut refused = vec![];
        let members = loop {
            let rows = self.members(tx, spec, key, overdue).await?;
            let (mut members, mut lost, mut unfit) = (vec![], vec![], vec![]);
            for row in &rows {
                match (row.try_get("is_stored")?, row.try_get("is_fit")?) {
                    (false, _) => lost.push(row),
                    (true, false) => unfit.push(row),
                    (true, true) => members.push(SetMember::from_row(row)?),
                }
            }
            if lost.is_empty() && unfit.is_empty() {
                break members;
            }
            let why = format!(
                "it has more than {} bytes in the database, a number beyond 1.7e308, or too deep a value",
                spec.member_bytes_max()
            );
            refused.extend(self.refuse(tx, spec, key, (&unfit, &why)).await?);
            refused
                .extend(self.refuse(tx, spec, key, (&lost, "scoop.message has no row with its id")).await?);
        };
        let policy = if overdue.is_some() { SetPolicy::AsItIs } else { SetPolicy::IfComplete };
        let Some(message) = set_message(spec, key, &members, policy) else {
            return Ok(LaunchedSet { handlers: vec![], refused });
        };
        let runs: Vec<_> = members.iter().map(|member| member.run).collect();
        let mark = sqlx::query(self.sql.join_mark.clone()).bind(&runs).bind(message.root);
        if mark.execute(&mut *tx).await?.rows_affected() < runs.len() as u64 {
            return Err(sqlx::Error::Protocol("a message was withdrawn while it was joined".into()));
        }
        let handlers = self.launch_any(tx, &[message]).await?.handlers;
        Ok(LaunchedSet { handlers, refused })
    }

    /// The members of the set of an overdue message, or else the oldest messages of the key.
    async fn members(
        &self,
        tx: &mut PgConnection,
        spec: &JoinSpec,
        key: &str,
        overdue: Option<Uuid>,
    ) -> sqlx::Result<Vec<PgRow>> {
        let sql = if overdue.is_some() { &self.sql.join_overdue } else { &self.sql.join_oldest };
        let members = sqlx::query(sql.clone()).bind(&spec.saga).bind(key).bind(&spec.topics);
        let members = members.bind(spec.member_bytes_max());
        match overdue {
            Some(run) => members.bind(run),
            None => members,
        }
        .fetch_all(tx)
        .await
    }

    async fn refuse(
        &self,
        tx: &mut PgConnection,
        spec: &JoinSpec,
        key: &str,
        (members, why): (&[&PgRow], &str),
    ) -> sqlx::Result<Vec<RefusedMember>> {
        if members.is_empty() {
            return Ok(vec![]);
        }
        let runs: Vec<Uuid> = members.iter().map(|row| row.try_get("run")).collect::<sqlx::Result<_>>()?;
        sqlx::query(self.sql.join_mark_refused.clone()).bind(runs).bind(why).execute(tx).await?;
        let refused = members.iter().map(|row| {
            let (saga, key, why) = (spec.saga.clone(), key.to_owned(), why.to_owned());
            Ok(RefusedMember { saga, key, message: row.try_get("message_id")?, why })
        });
        refused.collect()
    }
}

impl SetMember {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            run: row.try_get("run")?,
            topic: row.try_get("topic")?,
            payload: row.try_get("payload")?,
            traceparent: row.try_get("traceparent")?,
        })
    }
}
