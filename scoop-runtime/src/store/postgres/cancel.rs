//! Requests to a hierarchy from outside: cancellation and rollback.

use scoop_core::Failure;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use uuid::Uuid;

use super::PostgresStore;
use super::decode::lineage;
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use crate::model::answers::Relaunches;
use crate::model::name::RUNS_NAMED;
use crate::store::{CancelResult, ParentRef, RequestKey, RequestStorage, RequestTarget, RollbackStart};
use crate::util::retries::{Attempt, note};
use crate::{CancellationRequest, IdObject, RunId};

impl RequestStorage for PostgresStore {
    async fn find_target(&self, id: Uuid) -> sqlx::Result<Option<RequestTarget>> {
        let row = sqlx::query(self.sql.request_find_target.clone()).bind(id).first(&self.sessions).await?;
        row.map(|row| Ok(RequestTarget { lineage: lineage(&row)?, message: row.try_get("message_id")? }))
            .transpose()
    }

    async fn named(&self, id: Uuid) -> sqlx::Result<Option<IdObject>> {
        let rows = sqlx::query(self.sql.id_find_kind.clone())
            .bind(id)
            .bind(i64::from(RUNS_NAMED))
            .all(&self.sessions)
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let hierarchy = row.try_get("root")?;
        let mut runs = vec![];
        for row in &rows {
            if let Some(run) = row.try_get::<Option<RunId>, _>("run")? {
                runs.push((run, row.try_get("handler")?));
            }
        }
        Ok(Some(match row.try_get("kind")? {
            "run" => IdObject::Run {
                hierarchy,
                handler: runs.pop().map_or_else(String::new, |(_, handler)| handler),
            },
            "hierarchy" => IdObject::Hierarchy { runs },
            _ => IdObject::Message { hierarchy, runs },
        }))
    }

    async fn cancellations(
        &self,
        root: Uuid,
        ids: Option<&[Uuid]>,
    ) -> sqlx::Result<Vec<CancellationRequest>> {
        let query = sqlx::query(self.sql.request_list.clone()).bind(root).bind(ids.map(<[Uuid]>::to_vec));
        let rows = query.all(&self.sessions).await?;
        Ok(rows.iter().filter_map(CancellationRequest::from_row).collect())
    }

    async fn cancel(
        &self,
        target: &RequestTarget,
        request: &Failure,
        asked: RequestKey,
    ) -> sqlx::Result<CancelResult> {
        let (root, id) = (target.lineage.root_id(), target.lineage.id());
        if asked.is_dry_run {
            return self.check_cancellation(target).await;
        }
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        let recorded = sqlx::query(self.sql.event_insert_cancellation.clone())
            .bind(target.message)
            .bind(target.lineage.ids())
            .bind(Json(request))
            .bind(asked.id)
            .execute(&mut *tx)
            .await?;
        let is_recorded = self.is_recorded(&mut tx, asked).await?;
        let mut marked = 0;
        loop {
            let mark = sqlx::query_as(self.sql.run_mark_cancelled.clone()).bind(root).bind(id);
            let (seen, more): (i64, i64) = mark.one_on(&mut tx).await?;
            marked += more;
            if seen == 0 {
                break;
            }
        }
        sqlx::query(self.sql.run_delete_pending.clone()).bind(root).bind(id).execute(&mut *tx).await?;
        let left = sqlx::query(self.sql.run_list_giving_up.clone()).bind(root).bind(id);
        let giving_up = left.fetch_all(&mut *tx).await?;
        commit(tx).await?;
        Ok(CancelResult {
            fresh: recorded.rows_affected() > 0 || is_recorded,
            any_marked: marked > 0 || is_recorded,
            giving_up: giving_up.iter().map(ParentRef::from_row).collect::<sqlx::Result<_>>()?,
        })
    }

    async fn request_rollback(
        &self,
        target: &RequestTarget,
        request: &Failure,
        asked: RequestKey,
    ) -> sqlx::Result<RollbackStart> {
        let root = target.lineage.root_id();
        let mut tx = self.begin_request(root, asked.is_dry_run).await?;
        if self.is_recorded(&mut tx, asked).await? {
            return Ok(RollbackStart::Begun(vec![]));
        }
        let check = sqlx::query(self.sql.rollback_check.clone()).bind(root).bind(target.message);
        let state = check.fetch_one(&mut *tx).await?;
        if state.try_get("unfinished")? {
            return Ok(RollbackStart::Unfinished);
        }
        if state.try_get::<i64, _>("handled")? == 0 {
            return Ok(RollbackStart::NoHandlers);
        }
        let began = state.try_get("rollback_requested")? || state.try_get::<i64, _>("committed")? == 0;
        if began && !state.try_get("failed_itself")? {
            return Ok(RollbackStart::RolledBack);
        }
        if began || state.try_get("failed")? {
            return Ok(RollbackStart::FailedBefore);
        }
        if asked.is_dry_run {
            return Ok(RollbackStart::Begun(vec![]));
        }
        let handlers = sqlx::query_scalar(self.sql.rollback_start.clone())
            .bind(root)
            .bind(target.message)
            .bind(target.lineage.ids())
            .bind(Json(request))
            .bind(asked.id)
            .all_on(&mut tx)
            .await?;
        commit(tx).await?;
        Ok(RollbackStart::Begun(handlers))
    }
}

impl PostgresStore {
    pub(crate) async fn relaunches(&self, root: Uuid) -> sqlx::Result<Relaunches> {
        let rows = sqlx::query_as(self.sql.relaunch_list.clone()).bind(root).all(&self.sessions);
        let rows: Vec<(Uuid, Uuid)> = rows.await?;
        Ok(Relaunches {
            of: rows.iter().find(|(new, _)| *new == root).map(|(_, of)| (*of).into()),
            as_others: rows.iter().filter(|(_, of)| *of == root).map(|(new, _)| (*new).into()).collect(),
        })
    }
}

/// Commits a transaction with an effect.
pub async fn commit(tx: Transaction<'static, Postgres>) -> sqlx::Result<()> {
    tx.commit().await.inspect_err(note)
}

impl PostgresStore {
    /// Begins the transaction of a request about this hierarchy. These wait for each other. A dry run only reads, and waits for
    /// nothing.
    pub async fn begin_request(
        &self,
        root: Uuid,
        is_dry_run: bool,
    ) -> sqlx::Result<Transaction<'static, Postgres>> {
        if is_dry_run {
            return self.sessions.begin_snapshot().await;
        }
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        sqlx::query(self.sql.hierarchy_lock.clone()).bind(root).execute(&mut *tx).await?;
        Ok(tx)
    }

    async fn check_cancellation(&self, target: &RequestTarget) -> sqlx::Result<CancelResult> {
        let check = sqlx::query_as(self.sql.cancellation_check.clone())
            .bind(target.lineage.root_id())
            .bind(target.lineage.id())
            .bind(target.message);
        let (fresh, any_marked): (bool, bool) = check.one(&self.sessions).await?;
        Ok(CancelResult { fresh, any_marked, giving_up: vec![] })
    }

    /// Whether an earlier attempt has carried this request out. Checked when that attempt cannot commit any more.
    pub(super) async fn is_recorded(&self, tx: &mut PgConnection, asked: RequestKey) -> sqlx::Result<bool> {
        if asked.attempt == Attempt::First {
            return Ok(false);
        }
        sqlx::query_scalar(self.sql.request_is_recorded.clone()).bind(asked.id).one_on(tx).await
    }
}
