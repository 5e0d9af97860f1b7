//! Wakes parents after the end of their children (`run_wake.sql` decides which continue or commit), has those wait about which
//! strategies have decided (`scoop.decide_wait`), and hands runs back (`run_release.sql`).

use std::iter;

use scoop_core::SignalKey;
use scoop_core::wait::{ChildState, WaitedChild};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::{failure_if_readable, lineage, time, time_if_any};
use super::query_ext::{ExecuteExt, FetchExt};
use crate::store::{
    ClaimKey, ClaimQueues, ClaimedRun, Claimer, CommittedParent, FormerAttempts, LaunchedRun, LeftRun,
    ParentRef, Release, RequestTarget, WaitDecision, WaitedChildren, WakeOptions, WakeStorage, Woken,
};
use crate::util::ids;

/// The pause between two deliveries of a signal that is locked.
const PAUSE_MILLIS: u64 = 100;

impl ParentRef {
    /// From a row with `root`, `id` and `at`.
    pub(super) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self { root: row.try_get("root")?, id: row.try_get("id")?, at: time(row, "at")? })
    }
}

impl CommittedParent {
    fn from_row(row: &PgRow, at: OffsetDateTime) -> sqlx::Result<Self> {
        let (root, parent): (_, Option<Uuid>) = (row.try_get("root")?, row.try_get("parent")?);
        let parent = parent.map(|id| ParentRef { root, id, at });
        let began_at = time_if_any(row, "began_at")?.unwrap_or(at);
        let is_first = lineage(row)?.ids().len() == 2;
        Ok(Self { root, parent, is_first, handler: row.try_get("handler")?, duration: at - began_at })
    }
}

impl LaunchedRun {
    /// From a row of `run_waited_children.sql`.
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let state = match row.try_get::<&str, _>("state")? {
            "pending" => ChildState::Pending,
            "begun" => ChildState::Begun,
            "committed" => ChildState::Committed,
            "rolled back" => ChildState::RolledBack,
            _ => ChildState::RollbackFailed,
        };
        let failure = failure_if_readable(row, "failure");
        let child = WaitedChild { handler: row.try_get("handler")?, state, failure };
        Ok(Self { message: row.try_get("message_id")?, lineage: lineage(row)?, child })
    }
}

impl WakeStorage for PostgresStore {
    async fn wake(&self, parents: &[ParentRef]) -> sqlx::Result<Vec<String>> {
        let none = Claimer { worker: Uuid::nil(), identifier: "" };
        let woken =
            self.wake_and_claim(parents, none, &ClaimQueues::default(), WakeOptions::default()).await?;
        if woken.awaited.is_empty() {
            return Ok(woken.handlers);
        }
        // An earlier signal is not what the sweeps of recent ones look at: only this call delivers it soon.
        let reached = self.deliver_despite_locks(woken.awaited, iter::repeat(PAUSE_MILLIS)).await?;
        Ok([woken.handlers, reached.handlers].concat())
    }

    async fn wake_and_claim(
        &self,
        parents: &[ParentRef],
        Claimer { worker, identifier }: Claimer<'_>,
        queues: &ClaimQueues,
        WakeOptions { slots, commits }: WakeOptions,
    ) -> sqlx::Result<Woken> {
        let last_steps: &[String] = if commits { &queues.last_steps } else { &[] };
        let rows = sqlx::query(self.sql.run_wake.clone())
            .bind(Json(parents))
            .bind(worker)
            .bind(&queues.topics)
            .bind(&queues.handlers)
            .bind(i64::try_from(slots).unwrap_or(i64::MAX))
            .bind(last_steps)
            .bind(identifier)
            .bind(parents.iter().map(|_| ids::now_v7()).collect::<Vec<_>>())
            .bind(&queues.reserved_for)
            .bind(&queues.definitions)
            .bind(queues.topology)
            .all(&self.sessions)
            .await?;
        let mut woken = Woken::default();
        for row in &rows {
            if let Some(at) = time_if_any(row, "committed_at")? {
                woken.committed.push(CommittedParent::from_row(row, at)?);
            } else if row.try_get("claimed")? {
                woken.claimed.push(ClaimedRun::from_row(row, identifier)?);
            } else {
                woken.handlers.push(row.try_get("handler")?);
                woken.sleeps |= row.try_get::<bool, _>("sleeps")?;
                let signal: Option<String> = row.try_get("signal")?;
                let signal = signal.zip(row.try_get("signal_key")?);
                woken.awaited.extend(signal.map(|(name, key)| SignalKey { name, key }));
            }
        }
        Ok(woken)
    }

    async fn decide_wait(&self, key: ClaimKey, decision: &WaitDecision) -> sqlx::Result<Option<Vec<String>>> {
        let decide = sqlx::query_scalar(self.sql.run_decide_wait.clone());
        decide.bind(key.root).bind(key.id).bind(key.epoch).bind(Json(decision)).one(&self.sessions).await
    }

    async fn waited_children(&self, key: ClaimKey, messages: &[Uuid]) -> sqlx::Result<WaitedChildren> {
        let rows =
            sqlx::query(self.sql.run_waited_children.clone()).bind(key.root).bind(key.id).bind(messages);
        let rows = rows.all(&self.sessions).await?;
        let unfinished = rows.first().map(|row| row.try_get::<i64, _>("unfinished")).transpose()?;
        Ok(WaitedChildren {
            runs: rows.iter().map(LaunchedRun::from_row).collect::<sqlx::Result<_>>()?,
            unfinished: unfinished.map_or(0, |count| i32::try_from(count).unwrap_or(i32::MAX)),
        })
    }

    async fn left_children(&self, root: Uuid, messages: &[Uuid]) -> sqlx::Result<Vec<LeftRun>> {
        let rows = sqlx::query(self.sql.run_left_children.clone()).bind(root).bind(messages);
        let left = |row: &PgRow| {
            let target = RequestTarget { lineage: lineage(row)?, message: row.try_get("message_id")? };
            Ok(LeftRun { target, gives_up: row.try_get("giving_up")?, rests: row.try_get("rests")? })
        };
        rows.all(&self.sessions).await?.iter().map(left).collect()
    }

    async fn release(&self, releases: &[Release]) -> sqlx::Result<u64> {
        let each = releases.iter();
        let released = sqlx::query(self.sql.run_release.clone())
            .bind(each.clone().map(|r| r.key.root).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.key.id).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.key.epoch).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.pause_seconds).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.reason.clone()).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.granted).collect::<Vec<_>>())
            .bind(each.clone().map(|r| r.definition).collect::<Vec<_>>())
            .bind(each.map(|r| r.former_attempts == FormerAttempts::OfSameStep).collect::<Vec<_>>())
            .run(&self.sessions)
            .await?;
        Ok(released.rows_affected())
    }

    async fn notify(&self, worker: Uuid) -> sqlx::Result<()> {
        self.notification(worker).run(&self.sessions).await?;
        Ok(())
    }
}

impl PostgresStore {
    /// Makes waiting runs ready that were never woken, and returns their handlers. Deletes ended runs without a parent.
    pub(super) async fn sweep(&self) -> sqlx::Result<Vec<String>> {
        let woken = sqlx::query(self.sql.run_wake_missed.clone()).all(&self.sessions).await?;
        woken.iter().map(|row| row.try_get("handler")).collect()
    }
}
