//! The retirement of handlers without a program.

use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_runtime::internal::{
    FetchExt as _, GivenUp, ParentRef, READ_COMMITTED, commit, run_to_completion, time, wake,
};
use serde::Serialize;
use sqlx::Row as _;

use crate::database::Database;
use crate::error::failed;
use crate::statements::{HANDLER_COUNT_PENDING, HANDLER_DELETE_PENDING, HANDLER_RETIRE};
use crate::{Operate, OperateError};

/// The result of retiring (`operate().handlers().retire`) a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Retired {
    /// Whether it was registered until now.
    pub was_registered: bool,
    /// The number of its pending deliveries: their runs have not begun.
    pub pending: u64,
    /// The number of such deliveries that were dropped.
    pub dropped: u64,
}

/// A handler about to be retired. Await it.
#[must_use = "nothing happens before this is awaited"]
pub struct Retire {
    operate: Operate,
    topic: String,
    handler: String,
    drops_pending: bool,
}

impl Retire {
    pub(super) fn new(operate: Operate, topic: String, handler: String) -> Self {
        Self { operate, topic, handler, drops_pending: false }
    }

    /// Also drops its pending deliveries. Their runs never begin and leave no record, and the runs that launched the
    /// messages stop waiting for them.
    pub fn drop_pending(mut self) -> Self {
        self.drops_pending = true;
        self
    }

    async fn carry_out(self, database: Arc<Database>) -> Result<Retired, GivenUp> {
        let Self { operate, topic, handler, drops_pending } = &self;
        // A retry would not count the runs dropped by the first attempt.
        let retire_once = |_| database.retire(topic, handler, *drops_pending);
        let (retired, parents) = database.trial().once().run(retire_once).await?;
        wake(&operate.scoop, &parents).await?;
        Ok(retired)
    }
}

impl IntoFuture for Retire {
    type Output = Result<Retired, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        // Dropping the future must not prevent the wake-up of waiting runs after the transaction.
        async move {
            let database = self.operate.required("the retirement of a handler")?;
            let retired = run_to_completion(self.carry_out(database)).await;
            retired.map_err(failed("a handler was retired"))
        }
        .boxed()
    }
}

impl Database {
    /// Retires a handler. Also returns the parents that may wait for no child any more.
    async fn retire(
        &self,
        topic: &str,
        handler: &str,
        drops_pending: bool,
    ) -> sqlx::Result<(Retired, Vec<ParentRef>)> {
        let mut tx = self.sessions().begin_with(READ_COMMITTED).await?;
        let retire = sqlx::query(self.text(HANDLER_RETIRE)).bind(topic).bind(handler);
        let was_registered = retire.execute(&mut *tx).await?.rows_affected() > 0;
        let dropped = match drops_pending {
            false => vec![],
            true => {
                let drop = sqlx::query(self.text(HANDLER_DELETE_PENDING)).bind(topic).bind(handler);
                drop.all_on(&mut tx).await?
            }
        };
        let pending = sqlx::query_scalar(self.text(HANDLER_COUNT_PENDING)).bind(topic).bind(handler);
        let pending: i64 = pending.one_on(&mut tx).await?;
        commit(tx).await?;
        let mut parents = vec![];
        for row in &dropped {
            let (root, at) = (row.try_get("root")?, time(row, "at")?);
            parents.extend(row.try_get::<Option<_>, _>("parent")?.map(|id| ParentRef { root, id, at }));
        }
        let retired = Retired {
            was_registered,
            pending: u64::try_from(pending).unwrap_or(0),
            dropped: u64::try_from(dropped.len()).unwrap_or(u64::MAX),
        };
        Ok((retired, parents))
    }
}
