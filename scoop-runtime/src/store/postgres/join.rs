//! The messages that sagas join (`join_*.sql`). Which of them form a set is decided in [`crate::store::join`].

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::PostgresStore;
use super::decode::time;
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use crate::WaitingMember;
use crate::store::join::{Launch, OldestMember, complete};
use crate::store::{ExpiredJoin, JoinSpec, JoinStorage, NewMember};
use crate::util::patience::note;
use crate::util::shown::system_time;
use crate::util::stored_time::StoredTime;

impl JoinStorage for PostgresStore {
    async fn join(&self, spec: &JoinSpec, member: &NewMember<'_>) -> sqlx::Result<Vec<String>> {
        let NewMember { claim, topic, message, key } = member;
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_join(&mut tx, spec, key).await?;
        let record = sqlx::query_scalar(self.sql.join_record.clone()).bind(claim.root).bind(claim.id);
        let record = record.bind(claim.epoch).bind(&spec.saga).bind(key).bind(topic).bind(message);
        let is_held: bool =
            record.bind(spec.within.map(|within| within.as_secs_f64())).one_on(&mut tx).await?;
        if !is_held {
            return Ok(vec![]);
        }
        let handlers = self.launch_set(&mut tx, spec, key, Launch::IfComplete).await?;
        tx.commit().await.inspect_err(note)?;
        Ok(handlers)
    }

    async fn withdraw(&self, spec: &JoinSpec, key: &str, run: Uuid) -> sqlx::Result<Option<Uuid>> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_join(&mut tx, spec, key).await?;
        let withdraw = sqlx::query_scalar(self.sql.join_withdraw.clone()).bind(run);
        let joined = withdraw.first_on(&mut tx).await?;
        tx.commit().await.inspect_err(note)?;
        Ok(joined)
    }

    async fn expire_join(&self, specs: &[&JoinSpec]) -> sqlx::Result<ExpiredJoin> {
        let pairs = specs.iter().flat_map(|spec| spec.topics.iter().map(|topic| (&*spec.saga, *topic)));
        let (sagas, topics): (Vec<_>, Vec<_>) = pairs.unzip();
        let next = sqlx::query(self.sql.join_next_due.clone()).bind(sagas).bind(topics);
        let Some(next) = next.all(&self.sessions).await?.pop() else { return Ok(ExpiredJoin::default()) };
        let seconds: f64 = next.try_get("seconds")?;
        let (saga, key): (String, String) = (next.try_get("saga")?, next.try_get("key")?);
        let spec = specs.iter().find(|spec| spec.saga == saga).filter(|_| seconds <= 0.0);
        let Some(spec) = spec else { return Ok(ExpiredJoin { handlers: vec![], seconds: Some(seconds) }) };
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_join(&mut tx, spec, &key).await?;
        // Another process may have launched the set meanwhile.
        let is_due =
            sqlx::query_scalar(self.sql.join_is_due.clone()).bind(&saga).bind(&key).bind(&spec.topics);
        let handlers = match is_due.one_on(&mut tx).await? {
            true => self.launch_set(&mut tx, spec, &key, Launch::AsItIs).await?,
            false => vec![],
        };
        tx.commit().await.inspect_err(note)?;
        Ok(ExpiredJoin { handlers, seconds: Some(0.0) })
    }

    async fn joined(&self, message: Uuid) -> sqlx::Result<Vec<Uuid>> {
        sqlx::query_scalar(self.sql.join_find.clone()).bind(message).all(&self.sessions).await
    }

    async fn waiting_members(&self, limit: i64) -> sqlx::Result<Vec<WaitingMember>> {
        let rows = sqlx::query(self.sql.join_list.clone()).bind(limit).all(&self.sessions).await?;
        rows.iter().map(WaitingMember::from_row).collect()
    }
}

impl WaitingMember {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let until: Option<StoredTime> = row.try_get("expires_at")?;
        Ok(Self {
            saga: row.try_get("saga")?,
            key: row.try_get("key")?,
            topic: row.try_get("topic")?,
            message: row.try_get("message_id")?,
            since: system_time(time(row, "since")?),
            until: until.map(|until| system_time(until.time())),
        })
    }
}

impl PostgresStore {
    async fn lock_join(&self, tx: &mut PgConnection, spec: &JoinSpec, key: &str) -> sqlx::Result<()> {
        sqlx::query(self.sql.join_lock.clone()).bind(&spec.saga).bind(key).execute(tx).await?;
        Ok(())
    }

    /// Launches the hierarchy of the oldest messages of a key, if it is to be. Returns its handlers.
    async fn launch_set(
        &self,
        tx: &mut PgConnection,
        spec: &JoinSpec,
        key: &str,
        launch: Launch,
    ) -> sqlx::Result<Vec<String>> {
        let oldest = sqlx::query(self.sql.join_oldest.clone()).bind(&spec.saga).bind(key).bind(&spec.topics);
        let oldest = oldest.fetch_all(&mut *tx).await?;
        let oldest = oldest.iter().map(OldestMember::from_row).collect::<sqlx::Result<Vec<_>>>()?;
        let Some(message) = complete(spec, key, &oldest, launch) else { return Ok(vec![]) };
        let runs: Vec<_> = oldest.iter().map(|member| member.run).collect();
        let mark = sqlx::query(self.sql.join_mark.clone()).bind(&runs).bind(message.root);
        if mark.execute(&mut *tx).await?.rows_affected() < runs.len() as u64 {
            return Err(sqlx::Error::Protocol("a message was withdrawn while it was joined".into()));
        }
        Ok(self.launch_any(tx, &[message]).await?.handlers)
    }
}

impl OldestMember {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self { run: row.try_get("run")?, topic: row.try_get("topic")?, payload: row.try_get("payload")? })
    }
}
