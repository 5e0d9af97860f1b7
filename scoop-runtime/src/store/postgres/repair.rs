//! The statements for operators: lists of failed rollbacks and stuck runs, and interventions in them.

use scoop_core::{Context, OPERATOR, SignalKey};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::PostgresStore;
use super::cancel::commit;
use super::decode::{lineage, row_state, time, unsigned};
use super::query_ext::FetchExt;
use crate::model::format::system_time;
use crate::model::run::RowState;
use crate::repair::{ConcernedRun, Decision, FailedRun, Intervention, Refusal, RepairAction, SIGNAL};
use crate::store::types::UNKNOWN_MAX;
use crate::store::{
    InterventionSubject, ParentRef, RepairRequest, RepairResult, RepairStorage, RequestTarget, Requester,
};
use crate::tree::{RunInfo, TreeBounds};

impl RepairStorage for PostgresStore {
    async fn repair(
        &self,
        target: &RequestTarget,
        asked: &RepairRequest<'_>,
    ) -> sqlx::Result<Result<RepairResult, Refusal>> {
        let (root, run) = (target.lineage.root_id(), target.lineage.id());
        let mut tx = self.begin_request(root, asked.requester.asked.is_dry_run).await?;
        if !asked.requester.asked.is_dry_run {
            let lineage = target.lineage.ids();
            sqlx::query(self.sql.run_lock_lineage.clone()).bind(root).bind(lineage).execute(&mut *tx).await?;
        }
        let (concerned, now) = self.concerned_by(&mut tx, target).await?;
        if self.is_recorded(&mut tx, asked.requester.asked).await? {
            return Ok(Ok(RepairResult::before(target, now)));
        }
        let failed = match FailedRun::find(run, concerned) {
            Ok(failed) => failed,
            Err(Refusal::Stuck) if asked.action == RepairAction::Retry => {
                if asked.requester.asked.is_dry_run {
                    return Ok(Ok(RepairResult::checked()));
                }
                let repaired = self.give_a_chance(&mut tx, target, asked.requester).await?;
                commit(tx).await?;
                return Ok(repaired.ok_or(Refusal::Busy));
            }
            Err(refusal) => return Ok(Err(refusal)),
        };
        let decision = match failed.decide(asked.action) {
            Ok(decision) => decision,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if asked.requester.asked.is_dry_run {
            return Ok(Ok(RepairResult::checked()));
        }
        let (kind, decided) = (asked.action.as_str(), Some(&decision));
        let subject = InterventionSubject { target, handler: failed.handler(), kind, decision: decided };
        self.record(&mut tx, subject, asked.requester, now).await?;
        self.carry_out(&mut tx, root, &decision, now).await?;
        commit(tx).await?;
        let parent = decision.parent.map(|id| ParentRef { root, id, at: now });
        let ready = decision.repaired.into_iter().filter(|run| run.state == RowState::Ready);
        Ok(Ok(RepairResult { handlers: ready.map(|run| run.handler).collect(), parent }))
    }

    async fn interventions_of(
        &self,
        root: Uuid,
        runs: Option<&[Uuid]>,
        extent: TreeBounds,
    ) -> sqlx::Result<Vec<(Intervention, usize)>> {
        if runs.is_none() && extent.events.is_none() {
            let all = sqlx::query(self.sql.intervention_list.clone()).bind(root).all(&self.sessions).await?;
            return all.iter().map(|row| Ok((Intervention::from_row(row)?, 0))).collect();
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

impl PostgresStore {
    /// The signal that a run awaits. Records the request for it.
    pub async fn record_signal(
        &self,
        target: &RequestTarget,
        requester: Requester<'_>,
    ) -> sqlx::Result<Option<SignalKey>> {
        let root = target.lineage.root_id();
        // A hierarchy with this run in it is not deleted meanwhile.
        let mut tx = self.begin_request(root, requester.asked.is_dry_run).await?;
        let awaited: Option<(String, String, String)> = sqlx::query_as(self.sql.signal_awaited_by.clone())
            .bind(root)
            .bind(target.lineage.id())
            .fetch_optional(&mut *tx)
            .await?;
        let Some((handler, name, key)) = awaited else {
            return Ok(None);
        };
        if !requester.asked.is_dry_run && !self.is_recorded(&mut tx, requester.asked).await? {
            let now = sqlx::query_scalar("SELECT clock_timestamp()").one_on(&mut tx).await?;
            let subject = InterventionSubject { target, handler: &handler, kind: SIGNAL, decision: None };
            self.record(&mut tx, subject, requester, now).await?;
            commit(tx).await?;
        }
        Ok(Some(SignalKey { name, key }))
    }
}

impl PostgresStore {
    /// The runs that a decision about this one concerns, and a time later than all their events.
    async fn concerned_by(
        &self,
        connection: &mut PgConnection,
        target: &RequestTarget,
    ) -> sqlx::Result<(Vec<ConcernedRun>, OffsetDateTime)> {
        let rows = sqlx::query(self.sql.run_read_repair.clone())
            .bind(target.lineage.root_id())
            .bind(target.lineage.ids())
            .bind(target.lineage.id())
            .bind(OPERATOR)
            .fetch_all(&mut *connection)
            .await?;
        let now: OffsetDateTime =
            sqlx::query_scalar("SELECT clock_timestamp()").one_on(&mut *connection).await?;
        let newest = rows.iter().map(|row| time(row, "last_event_at")).collect::<sqlx::Result<Vec<_>>>()?;
        let later = newest.into_iter().max().map(|newest| newest + Duration::MICROSECOND);
        let runs = rows.iter().map(ConcernedRun::from_row).collect::<sqlx::Result<Vec<_>>>()?;
        Ok((runs, later.map_or(now, |later| later.max(now))))
    }

    /// Retries a stuck run, if it is still stuck.
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
        sqlx::query(self.sql.event_insert_operator.clone())
            .bind(Json(&decision.events))
            .bind(OPERATOR)
            .bind(now)
            .bind(root)
            .execute(&mut *connection)
            .await?;
        sqlx::query(self.sql.run_repair.clone())
            .bind(root)
            .bind(Json(&decision.repaired))
            .bind(now)
            .bind(decision.waits_above)
            .execute(&mut *connection)
            .await?;
        if let Some(run) = decision.accepts_below {
            sqlx::query(self.sql.run_accept_failed.clone()).bind(root).bind(run).execute(connection).await?;
        }
        Ok(())
    }
}

impl ConcernedRun {
    /// Decodes a row of `run_read_repair.sql`. A damaged row prevents the repair of its run, and no other. So a step or context that
    /// cannot be read is left out.
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let handling: Option<i32> = row.try_get("handler_iteration")?;
        let context = row.try_get::<Option<Json<Context>>, _>("context").ok();
        let is = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<bool>, _>(column)?.unwrap_or(false));
        Ok(Self {
            lineage: lineage(row)?,
            parent: row.try_get("parent")?,
            message: row.try_get("message_id")?,
            handler: row.try_get("handler")?,
            state: row_state(row.try_get("state")?)?,
            rolling_back: row.try_get("rolling_back")?,
            has_failed: row.try_get("has_failed")?,
            part: row.try_get("step")?,
            handling: handling.map(unsigned),
            context: context.map(|stored| stored.map(|Json(context)| context).unwrap_or_default()),
            compensates: is("compensates")?,
            is_part_complete: is("part_is_done")?,
            leaves_behind: is("leaves_behind")?,
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
