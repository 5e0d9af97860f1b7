//! Launches the first message of a finished hierarchy again.

use std::future::IntoFuture;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{FIND_FIELDS_MAX, FoundBy};
use scoop_runtime::internal::{
    Attempt, FetchExt as _, RequestInfo, RequestTarget, commit, find_field, notify_ready, storable,
};
use scoop_runtime::{RelaunchAnswer, Request};
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::database::Database;
use crate::error::failed;
use crate::statements::{FOUND_BY_RELAUNCHED, HIERARCHY_RELAUNCH};
use crate::{Operate, OperateError};

/// A relaunch about to be requested. Await it.
#[must_use = "nothing is requested before this is awaited"]
pub struct Relaunch {
    operate: Operate,
    about: RequestInfo,
    how: How,
}

/// How a message is launched again.
#[derive(Default)]
struct How {
    payload: Option<Value>,
    even_if_committed: bool,
    /// Also if it was before.
    again: bool,
}

impl Relaunch {
    pub(super) fn new(operate: Operate, about: RequestInfo) -> Self {
        Self { operate, about, how: How::default() }
    }

    /// Launches the message with this payload in place of its own.
    pub fn payload(mut self, payload: Value) -> Self {
        self.how.payload = Some(payload);
        self
    }

    /// Also accepts a hierarchy that has committed: its effects come a second time.
    pub fn even_if_committed(mut self) -> Self {
        self.how.even_if_committed = true;
        self
    }

    /// Also accepts a hierarchy that was relaunched before.
    pub fn again(mut self) -> Self {
        self.how.again = true;
        self
    }

    /// Names the source of the request, as [`Request::source`].
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.about.source = source.into();
        self
    }

    /// Only checks the request, as [`Request::dry_run`].
    pub fn dry_run(mut self) -> Self {
        self.about.is_dry_run = true;
        self
    }
}

/// For code that makes requests of several kinds.
impl From<Relaunch> for Request<RelaunchAnswer, OperateError> {
    fn from(Relaunch { operate, about, how }: Relaunch) -> Self {
        Self::new(about, |about, target| async move { operate.relaunch(&about, &target, how).await }.boxed())
    }
}

impl IntoFuture for Relaunch {
    type Output = Result<RelaunchAnswer, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Request::from(self).into_future()
    }
}

impl Operate {
    async fn relaunch(
        &self,
        about: &RequestInfo,
        target: &RequestTarget,
        mut how: How,
    ) -> Result<RelaunchAnswer, OperateError> {
        let database = self.required("a relaunch")?;
        let (root, new) = (target.lineage.root_id(), Uuid::now_v7());
        let limit = database.payload_bytes_max;
        let name = || format!("the payload for hierarchy {root}");
        how.payload = how.payload.map(|payload| storable(payload, limit, name)).transpose()?;
        let relaunch = |_: Attempt| database.relaunch((root, new), &how, about);
        let relaunched = about.trial().run(relaunch).await;
        match relaunched.map_err(failed("a relaunch was requested"))? {
            Some((answer, handlers)) => {
                notify_ready(&self.scoop, &handlers);
                Ok(answer)
            }
            None => Err(about.misnamed().await?.into()),
        }
    }
}

impl Database {
    /// Launches the first message of a hierarchy as that of a new one. Returns the handlers with a new run; `None` if there is no such
    /// hierarchy.
    async fn relaunch(
        &self,
        (root, new): (Uuid, Uuid),
        how: &How,
        about: &RequestInfo,
    ) -> sqlx::Result<Option<(RelaunchAnswer, Vec<String>)>> {
        let mut tx = self.begin_request(root, about.is_dry_run).await?;
        let row = sqlx::query(self.text(HIERARCHY_RELAUNCH))
            .bind(root)
            .bind(new)
            .bind(how.payload.as_ref().map(Json))
            .bind(scoop_core::time_keys().collect::<Vec<_>>())
            .bind(how.even_if_committed)
            .bind(how.again)
            .bind(&about.reason)
            .bind(&about.source)
            .bind(about.is_dry_run)
            .one_on(&mut tx)
            .await?;
        if row.try_get::<&str, _>("answer")? == "accepted" && !about.is_dry_run {
            self.record_relaunched(&mut tx, (root, new), how.payload.as_ref()).await?;
        }
        commit(tx).await?;
        let other = row.try_get::<Option<Uuid>, _>("relaunched")?.unwrap_or(new).into();
        let answer = match row.try_get("answer")? {
            "accepted" => RelaunchAnswer::Accepted(other),
            "relaunched before" => RelaunchAnswer::RelaunchedBefore(other),
            "still running" => RelaunchAnswer::StillRunning,
            "committed" => RelaunchAnswer::Committed,
            _ => return Ok(None),
        };
        Ok(Some((answer, row.try_get::<Option<_>, _>("handlers")?.unwrap_or_default())))
    }

    /// Records by what the first message of a relaunched hierarchy is found: as that of the earlier one, or by the values of
    /// another payload. Of these, unfit ones are left out: the operator did not choose the fields.
    async fn record_relaunched(
        &self,
        connection: &mut PgConnection,
        (earlier, new): (Uuid, Uuid),
        payload: Option<&Value>,
    ) -> sqlx::Result<()> {
        let Some(payload) = payload else {
            return self.copy_found_by(connection, &[earlier], &[new]).await;
        };
        let fields = sqlx::query(self.text(FOUND_BY_RELAUNCHED)).bind(new).all_on(connection).await?;
        let mut found = vec![];
        for (position, row) in fields.iter().enumerate().take(FIND_FIELDS_MAX) {
            let Some((name, kind)) = find_field(row)? else { continue };
            let fit = scoop_core::found_by([(&*name, kind)], payload).unwrap_or_default();
            let message: Uuid = row.try_get("message_id")?;
            found.extend(fit.into_iter().map(|fit| (message, FoundBy { position, ..fit })));
        }
        self.insert_found_by(connection, found.iter().map(|(message, found)| (*message, found)).collect())
            .await
    }
}
