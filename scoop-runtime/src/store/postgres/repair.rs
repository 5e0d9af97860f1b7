//! The statements for operators: lists of failed rollbacks and stuck runs, and interventions in them.

use scoop_core::{Context, Lineage, OPERATOR, SignalKey};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::PostgresStore;
use super::decode::{failure_if_readable, lineage, row_state, stored_time, time, time_if_any, unsigned};
use super::find::phase;
use super::query_ext::{ExecuteExt, FetchExt, PlainQuery};
use super::requests::commit;
use crate::RepairStatus;
use crate::find::BLOCKING_MAX;
use crate::repair::{
    Decision, FailedCompensation, FailedRollback, FailedRollbacks, Intervention, OtherDescendants, Presence,
    Refusal, RepairAction, SIGNAL, StuckRun, WAITING_FOR_OPERATOR, failed_again_reason, no_program,
};
use crate::store::types::UNKNOWN_MAX;
use crate::store::{
    ClaimKey, FailedRollbackPart, InterventionSubject, Page, ParentRef, RepairRequest, RepairResult,
    RepairStorage, RequestTarget, Requester, RowState, no_failure,
};
use crate::tree::{Extent, RunInfo};
use crate::util::format::system_time;

impl RepairStorage for PostgresStore {
    async fn mark_awaiting_operator(
        &self,
        key: ClaimKey,
        worker: &str,
        failed: &FailedRollbackPart,
    ) -> sqlx::Result<bool> {
        let held = sqlx::query(self.sql.run_mark_awaiting_operator.clone())
            .bind(key.root)
            .bind(key.id)
            .bind(key.epoch)
            .bind(&failed.part)
            .bind(failed.handler_iteration.map(|count| i32::try_from(count).unwrap_or(i32::MAX)))
            .bind(Json(&failed.failure))
            .bind(failed_again_reason(&failed.failure))
            .bind(worker)
            .bind(WAITING_FOR_OPERATOR)
            .done(&self.sessions)
            .await?;
        Ok(held.rows_affected() > 0)
    }

    async fn repair(
        &self,
        target: &RequestTarget,
        asked: &RepairRequest<'_>,
    ) -> sqlx::Result<Result<RepairResult, Refusal>> {
        let (root, run) = (target.lineage.root_id(), target.lineage.id());
        let mut tx = self.begin_request(root, asked.requester.asked).await?;
        if !asked.requester.asked.is_dry_run {
            let lineage = target.lineage.ids();
            sqlx::query(self.sql.run_lock_above.clone()).bind(root).bind(lineage).execute(&mut *tx).await?;
        }
        let (failed_rollbacks, now) = self.failed_rollbacks(&mut tx, root).await?;
        if self.is_done(&mut tx, asked.requester.asked).await? {
            return Ok(Ok(RepairResult::before(target, now)));
        }
        let present = self.present(&mut tx, target, &failed_rollbacks.ids()).await?;
        if present.is_stuck {
            if asked.action != RepairAction::Retry {
                return Ok(Err(Refusal::Stuck));
            }
            if asked.requester.asked.is_dry_run {
                return Ok(Ok(RepairResult::checked()));
            }
            let repaired = self.give_a_chance(&mut tx, target, asked.requester).await?;
            commit(tx).await?;
            return Ok(repaired.ok_or(Refusal::Busy));
        }
        let decision = match failed_rollbacks.decide(asked.action, run, present.others) {
            Ok(decision) => decision,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(run) = failed_rollbacks.get(run) else {
            return Ok(Err(Refusal::NotFailed));
        };
        if asked.requester.asked.is_dry_run {
            return Ok(Ok(RepairResult::checked()));
        }
        let (kind, decided) = (asked.action.as_str(), Some(&decision));
        let subject = InterventionSubject { target, handler: &run.handler, kind, decision: decided };
        self.record(&mut tx, subject, asked.requester, now).await?;
        self.carry_out(&mut tx, root, &decision, now).await?;
        commit(tx).await?;
        let parent = decision.parent.map(|id| ParentRef { root, id, at: now });
        let ready = decision.revived.into_iter().filter(|run| run.state == RowState::Ready);
        Ok(Ok(RepairResult { handlers: ready.map(|run| run.handler).collect(), parent }))
    }

    async fn record_signal(
        &self,
        target: &RequestTarget,
        requester: Requester<'_>,
    ) -> sqlx::Result<Option<SignalKey>> {
        let root = target.lineage.root_id();
        // A hierarchy with this run in it is not deleted meanwhile.
        let mut tx = self.begin_request(root, requester.asked).await?;
        let awaited: Option<(String, String, String)> = sqlx::query_as(self.sql.signal_awaited_by.clone())
            .bind(root)
            .bind(target.lineage.id())
            .fetch_optional(&mut *tx)
            .await?;
        let Some((handler, name, key)) = awaited else {
            return Ok(None);
        };
        if !requester.asked.is_dry_run && !self.is_done(&mut tx, requester.asked).await? {
            let now = sqlx::query_scalar("SELECT clock_timestamp()").one_on(&mut tx).await?;
            let subject = InterventionSubject { target, handler: &handler, kind: SIGNAL, decision: None };
            self.record(&mut tx, subject, requester, now).await?;
            commit(tx).await?;
        }
        Ok(Some(SignalKey { name, key }))
    }

    async fn failed_compensations(&self, page: Page) -> sqlx::Result<Vec<FailedCompensation>> {
        let query = page.query(self.sql.rollback_failure_page.clone()).bind(BLOCKING_MAX as i64);
        let rows = query.all(&self.sessions).await?;
        rows.iter().map(FailedCompensation::from_row).collect()
    }

    async fn stuck_runs(&self, page: Page) -> sqlx::Result<Vec<StuckRun>> {
        let rows = page.query(self.sql.run_page_stuck.clone()).all(&self.sessions).await?;
        rows.iter().map(StuckRun::from_row).collect()
    }

    async fn interventions(&self, root: Uuid) -> sqlx::Result<Vec<Intervention>> {
        let rows = sqlx::query(self.sql.intervention_list.clone()).bind(root).all(&self.sessions).await?;
        rows.iter().map(Intervention::from_row).collect()
    }

    async fn interventions_of(
        &self,
        root: Uuid,
        runs: Option<&[Uuid]>,
        extent: Extent,
    ) -> sqlx::Result<Vec<(Intervention, usize)>> {
        if runs.is_none() && extent.events.is_none() {
            let all = self.interventions(root).await?;
            return Ok(all.into_iter().map(|done| (done, 0)).collect());
        }
        let stored = |bound: usize| i32::try_from(bound).unwrap_or(i32::MAX);
        let query = sqlx::query(self.sql.intervention_of_runs.clone())
            .bind(root)
            .bind(runs.map(<[Uuid]>::to_vec))
            .bind(extent.run)
            .bind(extent.events.map(stored))
            .bind(stored(RunInfo::LEFT_OUT_MAX));
        let read = |row: &PgRow| {
            let left_out: i64 = row.try_get("left_out")?;
            Ok((Intervention::from_row(row)?, usize::try_from(left_out).unwrap_or_default()))
        };
        query.all(&self.sessions).await?.iter().map(read).collect()
    }
}

/// What the working set has of a run that is to be repaired.
struct PresentRuns {
    /// Whether it only waits for a program that can continue it.
    is_stuck: bool,
    others: OtherDescendants,
}

impl PostgresStore {
    /// The failed rollbacks of a hierarchy, and a time later than all of them.
    pub(crate) async fn failed_rollbacks(
        &self,
        connection: &mut PgConnection,
        root: Uuid,
    ) -> sqlx::Result<(FailedRollbacks, OffsetDateTime)> {
        let rows = sqlx::query(self.sql.rollback_failure_of_hierarchy.clone())
            .bind(root)
            .bind(OPERATOR)
            .fetch_all(&mut *connection)
            .await?;
        let now: OffsetDateTime =
            sqlx::query_scalar("SELECT clock_timestamp()").one_on(&mut *connection).await?;
        let newest = rows.iter().map(|row| time(row, "newest_at")).collect::<sqlx::Result<Vec<_>>>()?;
        let later = newest.into_iter().max().map(|newest| newest + Duration::MICROSECOND);
        let runs = rows.iter().map(read_unrolled).collect::<sqlx::Result<Vec<_>>>()?;
        Ok((FailedRollbacks::new(runs), later.map_or(now, |later| later.max(now))))
    }

    /// What the working set has of the run, and of other runs below it than those in `known`.
    async fn present(
        &self,
        connection: &mut PgConnection,
        target: &RequestTarget,
        known: &[Uuid],
    ) -> sqlx::Result<PresentRuns> {
        let row = sqlx::query(self.sql.run_find_active_below.clone())
            .bind(target.lineage.root_id())
            .bind(target.lineage.id())
            .bind(known)
            .fetch_one(connection)
            .await?;
        let others = match row.try_get("others")? {
            true => OtherDescendants::Unfinished,
            false => OtherDescendants::None,
        };
        Ok(PresentRuns { is_stuck: row.try_get("is_stuck")?, others })
    }

    /// Gives a stuck run another chance, if it is still stuck.
    async fn give_a_chance(
        &self,
        connection: &mut PgConnection,
        target: &RequestTarget,
        requester: Requester<'_>,
    ) -> sqlx::Result<Option<RepairResult>> {
        let handler: Option<String> = sqlx::query_scalar(self.sql.run_retry_one_stuck.clone())
            .bind(target.lineage.root_id())
            .bind(target.lineage.id())
            .bind(UNKNOWN_MAX)
            .first_on(&mut *connection)
            .await?;
        let Some(handler) = handler else {
            return Ok(None);
        };
        let now = sqlx::query_scalar("SELECT clock_timestamp()").one_on(&mut *connection).await?;
        let kind = RepairAction::Retry.as_str();
        let subject = InterventionSubject { target, handler: &handler, kind, decision: None };
        self.record(&mut *connection, subject, requester, now).await?;
        let handlers = vec![handler];
        self.mark_unawaited(connection, &handlers).await?;
        Ok(Some(RepairResult { handlers, parent: None }))
    }

    async fn record(
        &self,
        connection: &mut PgConnection,
        InterventionSubject { target, handler, kind, decision }: InterventionSubject<'_>,
        requester: Requester<'_>,
        now: OffsetDateTime,
    ) -> sqlx::Result<()> {
        sqlx::query(self.sql.intervention_insert.clone())
            .bind(target.lineage.root_id())
            .bind(target.lineage.id())
            .bind(handler)
            .bind(target.message)
            .bind(decision.map(|decision| &decision.part))
            .bind(kind)
            .bind(decision.is_some_and(|decision| decision.repeats))
            .bind(Some(requester.note.replace('\0', "")).filter(|note| !note.is_empty()))
            .bind(requester.source.replace('\0', ""))
            .bind(now)
            .bind(requester.asked.id)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn carry_out(
        &self,
        connection: &mut PgConnection,
        root: Uuid,
        decision: &Decision,
        now: OffsetDateTime,
    ) -> sqlx::Result<()> {
        // In the order of a settlement: first rows of `run`, then those of `rollback_failure`.
        sqlx::query(self.sql.run_delete_many.clone())
            .bind(root)
            .bind(&decision.dropped)
            .execute(&mut *connection)
            .await?;
        sqlx::query(self.sql.event_insert_operator.clone())
            .bind(Json(&decision.events))
            .bind(OPERATOR)
            .bind(now)
            .bind(root)
            .execute(&mut *connection)
            .await?;
        sqlx::query(self.sql.run_restore.clone())
            .bind(root)
            .bind(Json(&decision.revived))
            .bind(now)
            .execute(&mut *connection)
            .await?;
        sqlx::query(self.sql.run_clear_awaiting_operator.clone())
            .bind(root)
            .bind(&decision.cleared)
            .bind(now)
            .execute(connection)
            .await?;
        Ok(())
    }
}

impl Page {
    /// The query of a page, with its first three parameters.
    fn query(self, sql: sqlx::SqlStr) -> PlainQuery {
        let (time, id) = self.after.unzip();
        sqlx::query(sql).bind(time).bind(id).bind(i64::from(self.limit))
    }
}

/// A damaged row prevents the repair of its run, and no other. So a step or context that cannot be read is left out.
fn read_unrolled(row: &PgRow) -> sqlx::Result<FailedRollback> {
    let state: Option<&str> = row.try_get("state")?;
    let presence = Presence::of(state.map(row_state).transpose()?, row.try_get("awaits_operator")?);
    let count = |column| -> sqlx::Result<Option<u32>> {
        let stored: Option<i32> = row.try_get(column)?;
        Ok(stored.map(unsigned))
    };
    let context = row.try_get::<Option<Json<Context>>, _>("context").ok();
    Ok(FailedRollback {
        lineage: lineage(row)?,
        message: row.try_get("message_id")?,
        handler: row.try_get("handler")?,
        failed_at: time(row, "failed_at")?,
        part: row.try_get("part")?,
        handling: count("handling")?,
        presence,
        suspended_at: time_if_any(row, "suspended_at")?,
        suspended_part: row.try_get("suspended_part")?,
        suspended_handling: count("suspended_handling")?,
        leaves_behind: row.try_get::<Option<bool>, _>("leaves_behind")?.unwrap_or(false),
        context: context.map(|stored| stored.map(|Json(context)| context).unwrap_or_default()),
        compensates: row.try_get("compensates")?,
    })
}

impl FailedCompensation {
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let lineage = lineage(row)?;
        let undecided: Vec<Uuid> = row.try_get("undecided")?;
        let (status, failed_below) = RepairStatus::from_undecided(lineage.id(), &undecided);
        let failure = failure_if_readable(row, "failure");
        let stored_at = stored_time(row, "failed_at")?;
        Ok(Self {
            lineage,
            handler: row.try_get("handler")?,
            topic: row.try_get("topic")?,
            message_id: row.try_get("message_id")?,
            step: row.try_get::<Option<_>, _>("step")?.unwrap_or_else(|| "unknown".into()),
            failure: failure.unwrap_or_else(no_failure),
            failure_at: system_time(time(row, "failure_at")?),
            at: system_time(stored_at.time()),
            status,
            failed_below,
            stored_at,
        })
    }
}

impl StuckRun {
    /// Decodes a row of `run_page_stuck.sql`.
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let (handler, reason): (String, Option<String>) = (row.try_get("handler")?, row.try_get("reason")?);
        let (root, id) = (row.try_get("root")?, row.try_get("id")?);
        let lineage = lineage(row).ok().filter(|lineage| lineage.root_id() == root && lineage.id() == id);
        let stored_since = stored_time(row, "stuck_since")?;
        Ok(Self {
            // The run is found by these two, also if the rest of its row is damaged.
            lineage: lineage.unwrap_or_else(|| Lineage::root(root).child(id)),
            phase: phase(row)?,
            topic: row.try_get("topic")?,
            message_id: row.try_get("message_id")?,
            step: row.try_get("step")?,
            rolling_back: row.try_get("rolling_back")?,
            reason: reason.unwrap_or_else(|| no_program(&handler)),
            handler,
            since: system_time(stored_since.time()),
            giving_up: row.try_get("giving_up")?,
            can_give_up: row.try_get("can_give_up")?,
            needs_retry: row.try_get::<i32, _>("doubts")? >= UNKNOWN_MAX,
            stored_since,
        })
    }
}

impl Intervention {
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            run: row.try_get("run")?,
            handler: row.try_get("handler")?,
            step: row.try_get("step")?,
            kind: row.try_get("kind")?,
            note: row.try_get("note")?,
            source: row.try_get("source")?,
            at: system_time(time(row, "requested_at")?),
        })
    }
}
