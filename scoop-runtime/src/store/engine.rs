//! What the engine asks of the database, one function for each statement.

use std::collections::BTreeMap;

use scoop_core::{
    Context, Definition, Failure, Instance, Lineage, Path, Plan, RollbackNames, Run, Suspension, output_name,
};
use serde::Serialize;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::alone::{Alone, Done};
use super::plain::{self, Plain};
use super::rows::Unreadable;
use super::rows::unsigned;
use super::{Claimed, Key, Settled, Settlement, Tables};
use crate::children::Child;
use crate::clock::Now;

/// Each statement sees what was committed before it began, whatever the database's default is;
/// and a lock that some lost session still holds does not hold us up for long.
pub(super) const READ_COMMITTED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '5s'";

/// A run that lost a child.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Parent {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    /// When the child's last event was.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
}

impl Parent {
    /// From a row that has the three.
    pub(super) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self { root: row.try_get("root")?, id: row.try_get("id")?, at: row.try_get("at")? })
    }
}

/// The runs that wait for nobody any more.
pub(crate) struct Woken {
    /// Whose those are that are ready.
    pub(crate) handlers: Vec<String>,
    /// Those that were claimed along with it.
    pub(crate) claimed: Vec<Result<Claimed, Unreadable>>,
}

/// A run that did not go the way it was to go.
pub(crate) struct Release {
    pub(crate) key: Key,
    /// How long nobody is to take it again.
    pub(crate) pause_seconds: f64,
    /// What went wrong; nothing if it is merely handed back.
    pub(crate) reason: Option<String>,
    /// Whether the attempt is one of those that the step is granted.
    pub(crate) granted: bool,
}

/// Why a run has to give up.
pub(crate) struct GiveUp {
    /// What was asked of it, or of those above it.
    pub(crate) requests: Vec<Failure>,
    /// By which its deadlines are to be told.
    pub(crate) context: Context,
    pub(crate) now: OffsetDateTime,
    /// Before when deadlines do not count, if so.
    pub(crate) since: Option<OffsetDateTime>,
}

impl Release {
    /// Merely handed back.
    pub(crate) fn at_once(key: Key) -> Self {
        Self { key, pause_seconds: 0.0, reason: None, granted: false }
    }

    /// After an attempt in vain.
    pub(crate) fn after(key: Key, pause_seconds: f64, reason: String, granted: bool) -> Self {
        Self { key, pause_seconds, reason: Some(reason.replace('\0', "")), granted }
    }
}

/// What a rolling back run had done, as the log has it.
pub(crate) struct History {
    pub(crate) plan: Plan,
    /// The newest suspension, on whatever path.
    pub(crate) last: Option<Suspension>,
    /// Whether a part of the rollback was done already.
    pub(crate) any_part_done: bool,
}

impl History {
    /// The same, up to before its newest part.
    pub(super) fn repeated(mut self) -> Self {
        let parts = self.plan.parts();
        let newest = self.last.as_ref().map_or("", |last| last.step.as_str());
        let at = parts.iter().position(|part| part.name == newest);
        let before = at.and_then(|at| at.checked_sub(1)).map(|before| parts[before].name.clone());
        if at.is_some() {
            self.any_part_done = before.is_some();
            let resume = |step| Suspension { step, next: None, iteration: 0, handler_iteration: None };
            self.last = before.map(resume);
        }
        self
    }
}

impl Tables {
    /// Which of many handlers have something ready, as pairs of topics and handlers.
    pub(crate) async fn handlers_ready(
        &self,
        (topics, handlers): (&[String], &[String]),
    ) -> sqlx::Result<(Vec<String>, Vec<String>)> {
        let rows = sqlx::query_as(self.sql.handler_ready.clone()).bind(topics).bind(handlers);
        let pairs: Vec<(String, String)> = rows.all(&self.sessions).await?;
        Ok(pairs.into_iter().unzip())
    }

    /// Takes up to `limit` ready runs of these handlers. Who has fewer of them already, by `shares`,
    /// comes first.
    pub(crate) async fn claim(
        &self,
        worker: Uuid,
        identifier: &str,
        (topics, handlers): (&[String], &[String]),
        limit: usize,
        shares: impl Serialize + Send + Sync,
    ) -> sqlx::Result<Vec<Result<Claimed, Unreadable>>> {
        let rows = sqlx::query(self.sql.run_claim.clone())
            .bind(worker)
            .bind(identifier)
            .bind(topics)
            .bind(handlers)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(Json(shares))
            .all(&self.sessions)
            .await?;
        rows.iter().map(|row| Claimed::from_row(row, identifier)).collect()
    }

    /// Applies the settlements whose claims still hold, and says what became of them. It is quick if
    /// all of them are plain.
    pub(crate) async fn settle(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), Settled>> {
        if let Some(plain) = settlements.iter().map(Plain::of).collect::<Option<Vec<_>>>() {
            let rows = plain::settle_all(self, identifier, &plain).await?;
            let settled = |row: &PgRow| {
                let id = (row.try_get("id")?, row.try_get("epoch")?);
                Ok((id, plain::settled(row, row.try_get("commits")?)?))
            };
            return rows.iter().map(settled).collect();
        }
        let settle = async |session: &mut _| self.settle_any(session, identifier, settlements, None).await;
        let settled = self.sessions.run(settle).await?;
        settled.iter().map(Settled::from_row).collect()
    }

    /// Applies a settlement inside the transaction of a step, if its claim still holds. That
    /// transaction was begun with this as `scoop_run.claim`: without it there, the step has ended its transaction
    /// itself, and nothing is applied.
    pub(crate) async fn settle_within(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlement: &Settlement,
        claim: &str,
    ) -> sqlx::Result<Option<Settled>> {
        if let Some(plain) = Plain::of(settlement) {
            return plain.settle(self, connection, identifier, claim).await;
        }
        let settlements = std::slice::from_ref(settlement);
        let rows = self.settle_any(connection, identifier, settlements, Some(claim)).await?;
        rows.first().map(|row| Settled::from_row(row).map(|(_, settled)| settled)).transpose()
    }

    async fn settle_any(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlements: &[Settlement],
        claim: Option<&str>,
    ) -> sqlx::Result<Vec<PgRow>> {
        let settle = sqlx::query(self.sql.run_settle.clone()).bind(Json(settlements)).bind(identifier);
        settle.bind(claim).fetch_all(connection).await
    }

    /// Makes the runs ready that wait for nobody any more, and says whose they are.
    pub(crate) async fn wake(&self, parents: &[Parent]) -> sqlx::Result<Vec<String>> {
        let woken = self.wake_here(parents, Uuid::nil(), "", (&[], &[]), 0).await?;
        Ok(woken.handlers)
    }

    /// The same, by a worker of these handlers that has room for so many of the parents, from the first
    /// on: of these, the ones that wait for nobody are claimed.
    pub(crate) async fn wake_here(
        &self,
        parents: &[Parent],
        worker: Uuid,
        identifier: &str,
        (topics, handlers): (&[String], &[String]),
        room: usize,
    ) -> sqlx::Result<Woken> {
        let rows = sqlx::query(self.sql.run_wake.clone())
            .bind(Json(parents))
            .bind(worker)
            .bind(topics)
            .bind(handlers)
            .bind(i64::try_from(room).unwrap_or(i64::MAX))
            .all(&self.sessions)
            .await?;
        let mut woken = Woken { handlers: vec![], claimed: vec![] };
        for row in &rows {
            match row.try_get("claimed")? {
                true => woken.claimed.push(Claimed::from_row(row, identifier)?),
                false => woken.handlers.push(row.try_get("handler")?),
            }
        }
        Ok(woken)
    }

    /// Frees the runs of this worker that it does not work on, and says how many those were; and
    /// makes the runs ready that it may have failed to wake. What is in flight is asked when no claim is
    /// under way.
    pub(crate) async fn disown(&self, worker: Uuid, in_flight: impl Fn() -> Vec<Uuid>) -> sqlx::Result<u64> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        sqlx::query(self.sql.worker_pause.clone()).bind(worker).execute(&mut *tx).await?;
        let disown = sqlx::query(self.sql.run_disown.clone()).bind(worker).bind(in_flight());
        let freed = disown.execute(&mut *tx).await?;
        sqlx::query(self.sql.run_sweep.clone()).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(freed.rows_affected())
    }

    /// Hands runs back.
    pub(crate) async fn release(&self, releases: &[Release]) -> sqlx::Result<()> {
        let each = releases.iter();
        sqlx::query(self.sql.run_release.clone())
            .bind(each.clone().map(|r| r.key.root).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.key.id).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.key.epoch).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.pause_seconds).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.reason.clone()).collect::<Vec<_>>())
            .bind(each.map(|r| r.granted).collect::<Vec<_>>())
            .done(&self.sessions)
            .await?;
        Ok(())
    }

    /// Why the run has to give up, if it has to and is still held under this key.
    pub(crate) async fn give_up(&self, key: Key) -> sqlx::Result<Option<GiveUp>> {
        let row = sqlx::query(self.sql.run_give_up.clone())
            .bind(key.root)
            .bind(key.id)
            .bind(key.epoch)
            .first(&self.sessions)
            .await?;
        let read = |row: PgRow| {
            let requests: Option<Json<Vec<Failure>>> = row.try_get("requests")?;
            let context: Option<Json<Context>> = row.try_get("context")?;
            Ok(GiveUp {
                requests: requests.map(|Json(requests)| requests).unwrap_or_default(),
                context: context.map(|Json(context)| context).unwrap_or_default(),
                now: row.try_get("now")?,
                since: row.try_get("undoing_since")?,
            })
        };
        row.map(read).transpose()
    }

    /// Has the waiting runs give up that have missed a deadline, and says which those are.
    pub(crate) async fn overdue(&self, limit: i64) -> sqlx::Result<Vec<Parent>> {
        let rows = sqlx::query(self.sql.run_overdue.clone()).bind(limit).all(&self.sessions).await?;
        rows.iter().map(Parent::from_row).collect()
    }

    /// Which of these running runs have to give up, and in how many seconds.
    pub(crate) async fn stops(&self, keys: &[Key]) -> sqlx::Result<Vec<(Uuid, f64)>> {
        let each = keys.iter();
        sqlx::query_as(self.sql.run_stops.clone())
            .bind(each.clone().map(|key| key.root).collect::<Vec<_>>())
            .bind(each.clone().map(|key| key.id).collect::<Vec<_>>())
            .bind(each.map(|key| key.epoch).collect::<Vec<_>>())
            .all(&self.sessions)
            .await
    }

    /// In how many seconds there is something to do, for these handlers or for anybody who waits;
    /// and whether any worker but this one is dead.
    pub(crate) async fn due(
        &self,
        (topics, handlers): (&[String], &[String]),
        worker: Uuid,
    ) -> sqlx::Result<(Option<f64>, bool)> {
        let due = sqlx::query_as(self.sql.run_due.clone()).bind(topics).bind(handlers).bind(worker);
        due.one(&self.sessions).await
    }

    /// What became of the messages that a run launched: in its newest window, or ever. The steps
    /// that the user has not written as such are `unseen`.
    pub(crate) async fn children(
        &self,
        run: Uuid,
        handler: &str,
        newest: bool,
        reply: &str,
        unseen: &[&str],
    ) -> sqlx::Result<Vec<Child>> {
        let rows = sqlx::query(self.sql.run_children.clone())
            .bind(run)
            .bind(handler)
            .bind(newest)
            .bind(reply)
            .bind(unseen)
            .all(&self.sessions)
            .await?;
        rows.iter().map(Child::from_row).collect()
    }

    /// What time it is, by the clock of the server.
    pub(crate) async fn now(&self) -> sqlx::Result<Now> {
        self.clock.now(&self.sessions).await
    }

    /// Sets a run aside that cannot be continued.
    pub(crate) async fn set_aside(&self, key: Key, reason: &str) -> sqlx::Result<()> {
        sqlx::query(self.sql.run_set_aside.clone())
            .bind(key.root)
            .bind(key.id)
            .bind(key.epoch)
            .bind(reason.replace('\0', ""))
            .done(&self.sessions)
            .await?;
        Ok(())
    }

    /// Gives the runs of these handlers that were set aside another chance.
    pub(crate) async fn retry_stuck(&self, (topics, handlers): (&[String], &[String])) -> sqlx::Result<u64> {
        let done = sqlx::query(self.sql.run_retry_stuck.clone())
            .bind(topics)
            .bind(handlers)
            .done(&self.sessions)
            .await?;
        Ok(done.rows_affected())
    }

    /// Reads what a run had done, for its rollback.
    pub(crate) async fn history(&self, definition: &Definition, run: &Run) -> sqlx::Result<History> {
        let lineage = &run.lineage;
        let names = RollbackNames::of(definition);
        let rows = sqlx::query(self.sql.run_history.clone())
            .bind(lineage.ids())
            .bind(lineage.id())
            .bind(&*definition.saga)
            .all(&self.sessions)
            .await?;
        let outputs: Option<Option<Json<BTreeMap<String, Value>>>> =
            rows.first().map(|row| row.try_get("outputs")).transpose()?;
        let mut outputs = outputs.flatten().map(|Json(outputs)| outputs).unwrap_or_default();
        let (mut instances, mut last, mut any_part_done) = (vec![], None, false);
        for row in &rows {
            let step: String = row.try_get("step")?;
            let handler_iteration: Option<i32> = row.try_get("handler_iteration")?;
            let handler_iteration = handler_iteration.map(unsigned);
            if names.matches(&step) {
                any_part_done |= handler_iteration.is_none();
            } else {
                let position = u32::try_from(instances.len()).unwrap_or(u32::MAX);
                let output = outputs.remove(&output_name(&step, position));
                let emitted = row.try_get("emitted")?;
                instances.push(Instance { step: step.clone(), handler_iteration, emitted, output });
            }
            let next: Option<i32> = row.try_get("next_step")?;
            let next = next.and_then(|next| usize::try_from(next).ok());
            last = Some(Suspension { step, next, iteration: 0, handler_iteration });
        }
        let history = History { plan: Plan::of(&names, instances), last, any_part_done };
        Ok(match run.path {
            Path::Backward { failed_before: true, .. } if self.repeats(lineage).await? => history.repeated(),
            _ => history,
        })
    }

    /// Whether somebody wants the newest part of this rollback to run again.
    async fn repeats(&self, lineage: &Lineage) -> sqlx::Result<bool> {
        sqlx::query_scalar(self.sql.run_repeats.clone()).bind(lineage.id()).one(&self.sessions).await
    }

    /// Lists who listens where.
    pub(crate) async fn publish(&self, (topics, handlers): (&[String], &[String])) -> sqlx::Result<()> {
        sqlx::query(self.sql.handler_publish.clone())
            .bind(topics)
            .bind(handlers)
            .done(&self.sessions)
            .await?;
        Ok(())
    }

    /// Enters a living process whose session holds the lock.
    pub(crate) async fn register(
        &self,
        session: impl PgExecutor<'_>,
        worker: Uuid,
        lock_key: i64,
        handlers: &[String],
    ) -> sqlx::Result<()> {
        sqlx::query(self.sql.worker_register.clone())
            .bind(worker)
            .bind(lock_key)
            .bind(handlers)
            .execute(session)
            .await?;
        Ok(())
    }

    /// Strikes out the dead and frees what they had taken: how many dead, how many runs.
    pub(crate) async fn reap(&self, worker: Uuid) -> sqlx::Result<(usize, u64)> {
        let look = sqlx::query_scalar(self.sql.worker_dead.clone()).bind(worker);
        if !look.one(&self.sessions).await? {
            return Ok((0, 0));
        }
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        let dead: Vec<Uuid> =
            sqlx::query_scalar(self.sql.worker_reap.clone()).bind(worker).fetch_all(&mut *tx).await?;
        let freed = sqlx::query(self.sql.run_free.clone()).bind(&dead).execute(&mut *tx).await?;
        sqlx::query(self.sql.run_sweep.clone()).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok((dead.len(), freed.rows_affected()))
    }

    /// Makes the runs ready that nobody came to wake.
    pub(crate) async fn sweep(&self) -> sqlx::Result<()> {
        sqlx::query(self.sql.run_sweep.clone()).done(&self.sessions).await?;
        Ok(())
    }

    /// Strikes this process out, and frees what it may have lost track of.
    pub(crate) async fn leave(&self, worker: Uuid) -> sqlx::Result<()> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        sqlx::query(self.sql.worker_leave.clone()).bind(worker).execute(&mut *tx).await?;
        sqlx::query(self.sql.run_free.clone()).bind([worker]).execute(&mut *tx).await?;
        tx.commit().await
    }

    /// Tells the other processes that there may be something to do.
    pub(crate) async fn notify(&self, worker: Uuid) -> sqlx::Result<()> {
        sqlx::query("SELECT pg_notify($1, $2)")
            .bind(&self.sql.channel)
            .bind(worker.to_string())
            .done(&self.sessions)
            .await?;
        Ok(())
    }

    /// The channel on which processes wake each other.
    pub(crate) fn channel(&self) -> &str {
        &self.sql.channel
    }
}
