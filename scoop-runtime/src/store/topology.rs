//! The subscriptions of handlers, for operators.

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::alone::Alone;
use super::engine::READ_COMMITTED;
use super::rows::time;
use super::{Parent, Tables};
use crate::patience::note;
use crate::topology::ListedHandler;

/// The result of retiring a handler.
#[derive(Debug)]
pub(crate) struct Struck {
    pub(crate) was_listed: bool,
    pub(crate) waiting: i64,
    pub(crate) dropped: usize,
    /// The parents, which may wait for no child any more.
    pub(crate) parents: Vec<Parent>,
}

impl Tables {
    /// The registered handlers.
    pub(crate) async fn listed_handlers(&self) -> sqlx::Result<Vec<ListedHandler>> {
        let rows = sqlx::query(self.sql.handler_list.clone()).all(&self.sessions).await?;
        rows.iter().map(ListedHandler::from_row).collect()
    }

    /// The sagas that have ready runs but no living worker, with their topics.
    pub(crate) async fn abandoned_sagas(&self) -> sqlx::Result<Vec<(String, String)>> {
        sqlx::query_as(self.sql.handler_abandoned.clone()).all(&self.sessions).await
    }

    /// Retires a handler. With `drops`, its runs that have not begun are deleted.
    pub(crate) async fn strike_out(&self, topic: &str, handler: &str, drops: bool) -> sqlx::Result<Struck> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        let retired =
            sqlx::query(self.sql.handler_retire.clone()).bind(topic).bind(handler).execute(&mut *tx).await?;
        let gone = match drops {
            false => vec![],
            true => {
                let drop = sqlx::query(self.sql.handler_drop.clone()).bind(topic).bind(handler);
                drop.fetch_all(&mut *tx).await?
            }
        };
        let waiting = sqlx::query_scalar(self.sql.handler_waiting.clone()).bind(topic).bind(handler);
        let waiting = waiting.fetch_one(&mut *tx).await?;
        tx.commit().await.inspect_err(note)?;
        let parents = gone.iter().map(read_parent).collect::<sqlx::Result<Vec<_>>>()?;
        Ok(Struck {
            was_listed: retired.rows_affected() > 0,
            waiting,
            dropped: gone.len(),
            parents: parents.into_iter().flatten().collect(),
        })
    }
}

fn read_parent(row: &PgRow) -> sqlx::Result<Option<Parent>> {
    let (root, at) = (row.try_get("root")?, time(row, "at")?);
    let parent: Option<Uuid> = row.try_get("parent")?;
    Ok(parent.map(|id| Parent { root, id, at }))
}
