//! What the engine asks of the database, one function for each statement.

use std::collections::BTreeMap;

use scoop_core::{
    Context, Definition, Failure, Instance, Lineage, Path, Plan, RollbackNames, Run, Suspension, output_name,
};
use serde::Serialize;
use serde_json::Value;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, Postgres, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::alone::{Alone, Done};
use super::launching::{self, Launching};
use super::plain::{self, Plain};
use super::rows::{Unreadable, lineage, unsigned};
use super::telling::{self, Telling};
use super::{Claimed, Key, Pairs, Progress, Settled, Settlement, Tables};
use crate::children::Child;
use crate::clock::Now;
use crate::ids;

/// Each statement sees what was committed before it began, whatever the database's default is;
/// and a lock that some lost session still holds does not hold us up for long.
pub(super) const READ_COMMITTED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '5s'";

/// A run that lost a child.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
#[derive(Default)]
pub(crate) struct Woken {
    /// Whose those are that are ready.
    pub(crate) handlers: Vec<String>,
    /// Those that were claimed along with it.
    pub(crate) claimed: Vec<Result<Claimed, Unreadable>>,
    /// Those that have committed with it.
    pub(crate) committed: Vec<Committed>,
}

/// A run that has committed when its last child did, as no step was left.
#[derive(Debug, PartialEq)]
pub(crate) struct Committed {
    pub(crate) root: Uuid,
    /// Who lost a child with that.
    pub(crate) parent: Option<Parent>,
}

impl Committed {
    /// The run of this lineage, at this time.
    pub(super) fn of(lineage: &Lineage, has_parent: bool, at: OffsetDateTime) -> Self {
        let root = lineage.root_id();
        let parent = lineage.parent().filter(|_| has_parent);
        Self { root, parent: parent.map(|parent| Parent { root, id: parent.id(), at }) }
    }

    fn from_row(row: &PgRow, at: OffsetDateTime) -> sqlx::Result<Self> {
        let (lineage, has_parent) = (lineage(row)?, row.try_get("has_parent")?);
        Ok(Self::of(&lineage, has_parent, at))
    }
}

/// What a worker had lost track of.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Disowned {
    /// How many runs are free again that it did not work on.
    pub(crate) freed: u64,
    /// Whose the runs are that nobody had woken, and that are ready now.
    pub(crate) woken: Vec<String>,
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
    /// Which of many handlers have something ready, as pairs of topics and handlers. Looks at what has become
    /// ready since `progress`, as a claim does.
    pub(crate) async fn handlers_ready(
        &self,
        (topics, handlers): Pairs<'_>,
        progress: &Progress,
    ) -> sqlx::Result<(Vec<String>, Vec<String>)> {
        let (known_topics, known_handlers, reached) = progress.known();
        let rows = sqlx::query_as(self.sql.handler_ready.clone()).bind(topics).bind(handlers);
        let rows = rows.bind(known_topics).bind(known_handlers).bind(reached);
        let pairs: Vec<(String, String)> = rows.all(&self.sessions).await?;
        Ok(pairs.into_iter().unzip())
    }

    /// Takes up to `limit` ready runs of these handlers. Who has fewer of them already, by `shares`,
    /// comes first. Looks at what has become ready since `progress`, and notes how far it has come.
    pub(crate) async fn claim(
        &self,
        worker: Uuid,
        identifier: &str,
        (topics, handlers): Pairs<'_>,
        limit: usize,
        shares: impl Serialize + Send + Sync,
        progress: &mut Progress,
    ) -> sqlx::Result<Vec<Result<Claimed, Unreadable>>> {
        let rows = sqlx::query(self.sql.run_claim.clone())
            .bind(worker)
            .bind(identifier)
            .bind(topics)
            .bind(handlers)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(Json(shares))
            .bind((0..limit).map(|_| ids::now_v7()).collect::<Vec<_>>())
            .bind(progress.of((topics, handlers)))
            .all(&self.sessions)
            .await?;
        for row in &rows {
            progress.take(row.try_get("topic")?, row.try_get("handler")?, row.try_get("ready_at")?);
        }
        rows.iter().map(|row| Claimed::from_row(row, identifier)).collect()
    }

    /// Applies the settlements whose claims still hold, and says what became of them. It is quick if
    /// all of them have the same shape, and that is not [`Shape::Any`](super::Shape::Any).
    pub(crate) async fn settle(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), Settled>> {
        if settlements.iter().any(Settlement::requires_handlers) {
            return self.settle_required(identifier, settlements).await;
        }
        if let Some(plain) = settlements.iter().map(Plain::of).collect::<Option<Vec<_>>>() {
            // Lists of one are dear.
            if let ([plain], [settlement]) = (&plain[..], settlements)
                && plain.went_through_a_step()
            {
                let settle = async |session: &mut _| plain.settle(self, session, identifier, None).await;
                let settled = self.sessions.run(settle).await?;
                return Ok(settled.map(|settled| (settlement.id(), settled)).into_iter().collect());
            }
            let rows = plain::settle_all(self, identifier, &plain).await?;
            let settled = |row: &PgRow| {
                let id = (row.try_get("id")?, row.try_get("epoch")?);
                Ok((id, plain::settled(row, row.try_get("ended")?)?))
            };
            return rows.iter().map(settled).collect();
        }
        let settle = async |session: &mut _| self.settle_on(session, identifier, settlements, None).await;
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
            return plain.settle(self, connection, identifier, Some(claim)).await;
        }
        let settlements = std::slice::from_ref(settlement);
        let rows = self.settle_on(connection, identifier, settlements, Some(claim)).await?;
        if !rows.is_empty() && settlement.requires_handlers() {
            self.check_handlers(connection, settlement).await?;
        }
        rows.first().map(|row| Settled::from_row(row).map(|(_, settled)| settled)).transpose()
    }

    /// As [`Tables::settle`], by the function that can do anything, and outside the transaction of a step.
    #[cfg(test)]
    pub(super) async fn settle_by_function(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), Settled>> {
        let settle = async |session: &mut _| self.settle_any(session, identifier, settlements, None).await;
        self.sessions.run(settle).await?.iter().map(Settled::from_row).collect()
    }

    pub(super) async fn settle_on(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlements: &[Settlement],
        claim: Option<&str>,
    ) -> sqlx::Result<Vec<PgRow>> {
        if let Some(launching) = settlements.iter().map(Launching::of).collect::<Option<Vec<_>>>() {
            return launching::settle(self, connection, identifier, &launching, claim).await;
        }
        let telling = settlements.iter().map(Telling::of).collect::<Option<Vec<_>>>();
        if let (Some(telling), None) = (telling, claim) {
            return telling::settle_all(self, connection, identifier, &telling).await;
        }
        self.settle_any(connection, identifier, settlements, claim).await
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
        let woken = self.wake_here(parents, Uuid::nil(), "", (&[], &[]), &[], 0).await?;
        Ok(woken.handlers)
    }

    /// The same, by a worker of these handlers that has room for so many of the parents, from the first
    /// on: of these, the ones that wait for nobody are claimed. Those that had come to the last step of their
    /// saga commit instead, if `last_steps` has these, handler by handler.
    pub(crate) async fn wake_here(
        &self,
        parents: &[Parent],
        worker: Uuid,
        identifier: &str,
        (topics, handlers): Pairs<'_>,
        last_steps: &[String],
        room: usize,
    ) -> sqlx::Result<Woken> {
        let rows = sqlx::query(self.sql.run_wake.clone())
            .bind(Json(parents))
            .bind(worker)
            .bind(topics)
            .bind(handlers)
            .bind(i64::try_from(room).unwrap_or(i64::MAX))
            .bind(last_steps)
            .bind(identifier)
            .bind(parents.iter().map(|_| ids::now_v7()).collect::<Vec<_>>())
            .all(&self.sessions)
            .await?;
        let mut woken = Woken::default();
        for row in &rows {
            if let Some(at) = row.try_get("committed_at")? {
                woken.committed.push(Committed::from_row(row, at)?);
            } else if row.try_get("claimed")? {
                woken.claimed.push(Claimed::from_row(row, identifier)?);
            } else {
                woken.handlers.push(row.try_get("handler")?);
            }
        }
        Ok(woken)
    }

    /// Frees the runs of this worker that it does not work on, and makes the runs ready that it may have
    /// failed to wake. What is in flight is asked when no claim is under way.
    pub(crate) async fn disown(
        &self,
        worker: Uuid,
        in_flight: impl Fn() -> Vec<Uuid>,
    ) -> sqlx::Result<Disowned> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        let paused = sqlx::query(self.sql.worker_pause.clone()).bind(worker).execute(&mut *tx).await?;
        let mut freed = 0;
        // Whoever is not listed owns nothing, and holds nothing off that will be his once he is again.
        if paused.rows_affected() > 0 {
            let disown = sqlx::query(self.sql.run_disown.clone()).bind(worker).bind(in_flight());
            freed = disown.execute(&mut *tx).await?.rows_affected();
        }
        tx.commit().await?;
        // By itself, since it takes its time, and claims are held off until that commit.
        Ok(Disowned { freed, woken: self.sweep().await? })
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

    /// Makes the runs ready that nobody came to wake, and says whose they are.
    pub(crate) async fn sweep(&self) -> sqlx::Result<Vec<String>> {
        let woken = sqlx::query(self.sql.run_sweep.clone()).all(&self.sessions).await?;
        woken.iter().map(|row| row.try_get("handler")).collect()
    }

    /// Strikes this process out, frees what it may have lost track of, and tells the others, since they may
    /// go on with what it has handed back.
    pub(crate) async fn leave(&self, worker: Uuid) -> sqlx::Result<()> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        sqlx::query(self.sql.worker_leave.clone()).bind(worker).execute(&mut *tx).await?;
        sqlx::query(self.sql.run_free.clone()).bind([worker]).execute(&mut *tx).await?;
        self.notification(worker).execute(&mut *tx).await?;
        tx.commit().await
    }

    /// Tells the other processes that there may be something to do.
    pub(crate) async fn notify(&self, worker: Uuid) -> sqlx::Result<()> {
        self.notification(worker).done(&self.sessions).await?;
        Ok(())
    }

    fn notification(&self, worker: Uuid) -> Query<'_, Postgres, PgArguments> {
        sqlx::query("SELECT pg_notify($1, $2)").bind(&self.sql.channel).bind(worker.to_string())
    }

    /// The channel on which processes wake each other.
    pub(crate) fn channel(&self) -> &str {
        &self.sql.channel
    }
}
