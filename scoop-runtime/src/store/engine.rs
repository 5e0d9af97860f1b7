//! The statements of the engine, one function for each.

use std::collections::{BTreeMap, BTreeSet};

use scoop_core::{Context, Failure, Lineage};
use serde::Serialize;
use serde_json::Value;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::alone::{Alone, Done};
use super::launching::{self, Launching};
use super::plain::{self, Plain};
use super::rows::{Unclaimed, lineage, readable, time, time_if_any};
use super::telling::{self, Telling};
use super::{Claimed, Key, Lanes, Progress, Refusing, SetAside, Settled, Settlement, Tables};
use crate::children::{Child, ChildQuery, Launches};
use crate::clock::Now;
use crate::ids;
use crate::registry::{Renamed, Subscription};

/// Each statement sees all earlier commits, independent of the database's default isolation. The lock of a lost session
/// delays the engine only briefly.
pub(super) const READ_COMMITTED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '5s'";

/// A run of which a child has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Parent {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    /// The time of the child's last event.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
}

impl Parent {
    /// From a row with `root`, `id` and `at`.
    pub(super) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self { root: row.try_get("root")?, id: row.try_get("id")?, at: time(row, "at")? })
    }
}

/// The runs that wait for no child any more.
#[derive(Default)]
pub(crate) struct Woken {
    /// The handlers of the runs that are ready.
    pub(crate) handlers: Vec<String>,
    /// The runs claimed by the same statement.
    pub(crate) claimed: Vec<Result<Claimed, Unclaimed>>,
    /// The runs committed by the same statement.
    pub(crate) committed: Vec<Committed>,
}

/// A run that has committed when its last child did, as no step was left.
#[derive(Debug, PartialEq)]
pub(crate) struct Committed {
    pub(crate) root: Uuid,
    /// The run of which a child ended with that.
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
        let parent: Option<Uuid> = row.try_get("parent")?;
        Ok(Self::of(&lineage(row)?, parent.is_some(), at))
    }
}

/// A run that is handed back without a settlement.
pub(crate) struct Release {
    pub(crate) key: Key,
    /// How long it cannot be claimed.
    pub(crate) pause_seconds: f64,
    /// The cause; `None` if it is merely handed back.
    pub(crate) reason: Option<String>,
    /// Whether the attempt counts as a retry that the step is granted.
    pub(crate) granted: bool,
    /// The definition of the program.
    pub(crate) definition: i32,
    /// Whether the former failed attempts were of the same step.
    pub(crate) again: bool,
}

/// Why a run has to give up.
pub(crate) struct GiveUp {
    /// The requests to it or to its ancestors.
    pub(crate) requests: Vec<Failure>,
    /// The context with its deadlines.
    pub(crate) context: Context,
    pub(crate) now: OffsetDateTime,
    /// Earlier deadlines do not count, if it belongs to a rollback.
    pub(crate) since: Option<OffsetDateTime>,
}

impl Release {
    /// Hands it back without a failed attempt.
    pub(crate) fn at_once(key: Key) -> Self {
        Self { key, pause_seconds: 0.0, reason: None, granted: false, definition: 0, again: true }
    }

    /// Hands it back after a failed attempt.
    pub(crate) fn after(key: Key, pause_seconds: f64, reason: String) -> Self {
        Self { pause_seconds, reason: Some(reason.replace('\0', "")), ..Self::at_once(key) }
    }
}

impl Tables {
    /// The queues that have a ready run. Looks at runs that became ready since `progress`, as a claim does.
    pub(crate) async fn lanes_ready(&self, lanes: &Lanes, progress: &Progress) -> sqlx::Result<Lanes> {
        let known = progress.known();
        let rows = sqlx::query_as(self.sql.handler_ready.clone())
            .bind(&lanes.topics)
            .bind(&lanes.handlers)
            .bind(known.iter().map(|(topic, ..)| *topic).collect::<Vec<_>>())
            .bind(known.iter().map(|(_, handler, ..)| *handler).collect::<Vec<_>>())
            .bind(known.iter().map(|(.., reached)| *reached).collect::<Vec<_>>())
            .bind(&lanes.reserved_for)
            .bind(known.iter().map(|(_, _, lane, _)| *lane).collect::<Vec<_>>());
        let ready: Vec<(String, String, i32)> = rows.all(&self.sessions).await?;
        let ready: BTreeSet<_> =
            ready.iter().map(|(topic, handler, lane)| (&**topic, &**handler, *lane)).collect();
        Ok(lanes.only(|lane| ready.contains(&lane)))
    }

    /// Applies the settlements whose claims still hold, and returns their results. It is fast if all of them have the
    /// same shape, other than [`Shape::Any`](super::Shape::Any).
    pub(crate) async fn settle(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), Settled>> {
        if settlements.iter().any(|settlement| settlement.requires_handlers() || settlement.is_bulky()) {
            return self.settle_in_transaction(identifier, settlements).await;
        }
        if let Some(plain) = settlements.iter().map(Plain::of).collect::<Option<Vec<_>>>() {
            // A list of one element costs more than single parameters.
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

    /// Applies a settlement inside the transaction of a step, if its claim still holds. That transaction began with
    /// `scoop_run.claim` set to `claim`. Without this setting the step has ended its transaction itself, and nothing is
    /// applied.
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
        if settlement.is_bulky() && !self.store_messages(connection, settlement, Some(claim)).await? {
            return Ok(None);
        }
        let settlements = std::slice::from_ref(settlement);
        let rows = self.settle_on(connection, identifier, settlements, Some(claim)).await?;
        if !rows.is_empty() && settlement.requires_handlers() {
            self.check_handlers(connection, settlement).await?;
        }
        rows.first().map(|row| Settled::from_row(row).map(|(_, settled)| settled)).transpose()
    }

    /// Like [`Tables::settle`], always by the function `scoop.settle`, and outside the transaction of a step.
    #[cfg(test)]
    pub(super) async fn settle_by_function(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), Settled>> {
        let mut tx = self.sessions.begin().await?;
        for bulky in settlements.iter().filter(|settlement| settlement.is_bulky()) {
            self.store_messages(&mut tx, bulky, None).await?;
        }
        let rows = self.settle_any(&mut tx, identifier, settlements, None).await?;
        tx.commit().await?;
        rows.iter().map(Settled::from_row).collect()
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

    /// Makes the runs ready that wait for no child any more, and returns their handlers.
    pub(crate) async fn wake(&self, parents: &[Parent]) -> sqlx::Result<Vec<String>> {
        let woken = self.wake_here(parents, Uuid::nil(), "", &Lanes::default(), (0, false)).await?;
        Ok(woken.handlers)
    }

    /// Like `wake`, by a worker of these queues. Of the first `room` parents, those that wait for no child are claimed.
    /// With `commits`, those that had come to the last step of their saga commit instead.
    pub(crate) async fn wake_here(
        &self,
        parents: &[Parent],
        worker: Uuid,
        identifier: &str,
        lanes: &Lanes,
        (room, commits): (usize, bool),
    ) -> sqlx::Result<Woken> {
        let last_steps: &[String] = if commits { &lanes.last_steps } else { &[] };
        let rows = sqlx::query(self.sql.run_wake.clone())
            .bind(Json(parents))
            .bind(worker)
            .bind(&lanes.topics)
            .bind(&lanes.handlers)
            .bind(i64::try_from(room).unwrap_or(i64::MAX))
            .bind(last_steps)
            .bind(identifier)
            .bind(parents.iter().map(|_| ids::now_v7()).collect::<Vec<_>>())
            .bind(&lanes.reserved_for)
            .bind(&lanes.definitions)
            .bind(lanes.topology)
            .all(&self.sessions)
            .await?;
        let mut woken = Woken::default();
        for row in &rows {
            if let Some(at) = time_if_any(row, "committed_at")? {
                woken.committed.push(Committed::from_row(row, at)?);
            } else if row.try_get("claimed")? {
                woken.claimed.push(Claimed::from_row(row, identifier)?);
            } else {
                woken.handlers.push(row.try_get("handler")?);
            }
        }
        Ok(woken)
    }

    /// Hands runs back. Returns how many were still held under their keys.
    pub(crate) async fn release(&self, releases: &[Release]) -> sqlx::Result<u64> {
        let each = releases.iter();
        let released = sqlx::query(self.sql.run_release.clone())
            .bind(each.clone().map(|r| r.key.root).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.key.id).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.key.epoch).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.pause_seconds).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.reason.clone()).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.granted).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.definition).collect::<Vec<_>>())
            .bind(each.map(|r| r.again).collect::<Vec<_>>())
            .done(&self.sessions)
            .await?;
        Ok(released.rows_affected())
    }

    /// Whether the run is still held under this key.
    pub(crate) async fn is_held(&self, key: Key) -> sqlx::Result<bool> {
        let held = sqlx::query(self.sql.run_held.clone()).bind(key.root).bind(key.id).bind(key.epoch);
        held.one(&self.sessions).await?.try_get(0)
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
            let requests: Option<Json<Vec<Value>>> = row.try_get("requests")?;
            let requests = requests.map(|Json(requests)| requests).unwrap_or_default();
            let context: Option<Json<Context>> = row.try_get("context")?;
            Ok(GiveUp {
                requests: requests.into_iter().filter_map(|request| readable(request).0).collect(),
                context: context.map(|Json(context)| context).unwrap_or_default(),
                now: time(&row, "now")?,
                since: time_if_any(&row, "undoing_since")?,
            })
        };
        row.map(read).transpose()
    }

    /// Makes waiting runs give up that have missed a deadline, and returns them.
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

    /// The outcome of messages in each of their handlers, in the order of the messages.
    pub(crate) async fn children(&self, asked: ChildQuery<'_>) -> sqlx::Result<Vec<Child>> {
        let ChildQuery { of, topic, replies } = asked;
        let (messages, run, last_step, unseen) = match of {
            Launches::OfLastStep { run, handler, unseen } => (None, Some((run, handler)), true, unseen),
            Launches::OfRun { run, handler } => (None, Some((run, handler)), false, &[][..]),
            Launches::Given(messages) => (Some(messages), None, false, &[][..]),
        };
        let (run, handler) = run.unzip();
        let rows = sqlx::query(self.sql.run_children.clone())
            .bind(messages)
            .bind(run)
            .bind(handler)
            .bind(last_step)
            .bind(unseen)
            .bind(topic)
            .bind(replies.is_some())
            .all(&self.sessions)
            .await?;
        rows.iter().map(|row| Child::from_row(row, replies)).collect()
    }

    /// The time by the clock of the server.
    pub(crate) async fn now(&self) -> sqlx::Result<Now> {
        self.clock.now(&self.sessions).await
    }

    /// Hands over a run that cannot be continued under this definition, if it is still held under this key.
    pub(crate) async fn set_aside(&self, refusal: Refusing<'_>) -> sqlx::Result<SetAside> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        // So the next statement sees all living workers, and a worker that starts later sees its result.
        sqlx::query(self.sql.worker_share.clone()).bind(refusal.worker).execute(&mut *tx).await?;
        let stuck: Option<bool> = sqlx::query_scalar(self.sql.run_set_aside.clone())
            .bind(refusal.key.root)
            .bind(refusal.key.id)
            .bind(refusal.key.epoch)
            .bind(refusal.reason.replace('\0', ""))
            .bind(refusal.definition)
            .bind(refusal.or_stuck)
            .fetch_optional(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(match stuck {
            Some(true) => SetAside::Stuck,
            Some(false) => SetAside::HandedOver,
            None => SetAside::Void,
        })
    }

    /// Registers the sagas that messages are delivered to, in place of their former names.
    pub(crate) async fn publish(&self, subscriptions: &[Subscription]) -> sqlx::Result<()> {
        let each = || subscriptions.iter();
        let former = || each().flat_map(|it| it.was.iter().map(|was| (&*it.handler, &**was)));
        sqlx::query(self.sql.handler_publish.clone())
            .bind(each().map(|it| &*it.topic).collect::<Vec<_>>())
            .bind(each().map(|it| &*it.handler).collect::<Vec<_>>())
            .bind(former().map(|(handler, _)| handler).collect::<Vec<_>>())
            .bind(former().map(|(_, was)| was).collect::<Vec<_>>())
            .done(&self.sessions)
            .await?;
        Ok(())
    }

    /// The names that newer programs have given these sagas, and that this program does not have.
    pub(crate) async fn renamed_sagas(&self, subscriptions: &[Subscription]) -> sqlx::Result<Vec<Renamed>> {
        let renamed = sqlx::query_as(self.sql.handler_renamed.clone())
            .bind(subscriptions.iter().map(|it| &*it.topic).collect::<Vec<_>>())
            .bind(subscriptions.iter().map(|it| &*it.handler).collect::<Vec<_>>())
            .all(&self.sessions);
        let renamed = renamed.await?.into_iter();
        Ok(renamed.map(|(topic, name, own_name)| Renamed { topic, name, own_name }).collect())
    }

    /// Makes waiting runs ready that were never woken, and returns their handlers. Deletes ended runs without a parent.
    pub(super) async fn sweep(&self) -> sqlx::Result<Vec<String>> {
        let woken = sqlx::query(self.sql.run_sweep.clone()).all(&self.sessions).await?;
        woken.iter().map(|row| row.try_get("handler")).collect()
    }

    /// Notifies the other processes that there may be work.
    pub(crate) async fn notify(&self, worker: Uuid) -> sqlx::Result<()> {
        self.notification(worker).done(&self.sessions).await?;
        Ok(())
    }

    pub(super) fn notification(&self, worker: Uuid) -> Query<'_, Postgres, PgArguments> {
        sqlx::query("SELECT pg_notify($1, $2)").bind(&self.sql.channel).bind(worker.to_string())
    }

    /// The channel on which processes wake each other.
    pub(crate) fn channel(&self) -> &str {
        &self.sql.channel
    }
}
