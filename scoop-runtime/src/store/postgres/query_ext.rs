//! Statements that are transactions of their own, and rows as values.
//!
//! All of them are executed by the same code, with rows of any type: sqlx would compile its streams once for each type
//! of row.

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{Execute, FromRow, PgConnection, Postgres};

use super::Sessions;
use crate::util::retries;

/// A query with owned arguments, and raw rows as its result.
pub(super) type OwnedQuery = Query<'static, Postgres, PgArguments>;

/// Executes a query in its own transaction, as the route (direct or proxied) requires, or in one of the caller.
#[expect(async_fn_in_trait, reason = "all implementations are here, and their futures are `Send`")]
pub trait FetchExt: Sized {
    /// One row of the result.
    type Row;

    /// The query with owned arguments.
    fn untyped(self) -> sqlx::Result<OwnedQuery>;

    /// A row as its type.
    fn decode(row: PgRow) -> sqlx::Result<Self::Row>;

    /// All rows.
    async fn all(self, sessions: &Sessions) -> sqlx::Result<Vec<Self::Row>> {
        let rows = fetch_all(self.untyped()?, sessions).await?;
        // The statement has been executed, although its answer is lost.
        rows.into_iter().map(Self::decode).collect::<sqlx::Result<_>>().inspect_err(retries::note)
    }

    /// The first row, if there is one.
    async fn first(self, sessions: &Sessions) -> sqlx::Result<Option<Self::Row>> {
        let row = fetch_optional(self.untyped()?, sessions).await?;
        row.map(Self::decode).transpose().inspect_err(retries::note)
    }

    /// The first row. An error if there is none.
    async fn one(self, sessions: &Sessions) -> sqlx::Result<Self::Row> {
        self.first(sessions).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// All rows, on this connection.
    async fn all_on(self, connection: &mut PgConnection) -> sqlx::Result<Vec<Self::Row>> {
        let rows = self.untyped()?.fetch_all(connection).await?;
        rows.into_iter().map(Self::decode).collect()
    }

    /// The first row on this connection, if there is one.
    async fn first_on(self, connection: &mut PgConnection) -> sqlx::Result<Option<Self::Row>> {
        self.untyped()?.fetch_optional(connection).await?.map(Self::decode).transpose()
    }

    /// The first row, on this connection. An error if there is none.
    async fn one_on(self, connection: &mut PgConnection) -> sqlx::Result<Self::Row> {
        self.first_on(connection).await?.ok_or(sqlx::Error::RowNotFound)
    }
}

/// A statement without result rows.
pub(super) trait ExecuteExt {
    async fn run(self, sessions: &Sessions) -> sqlx::Result<PgQueryResult>;
}

impl ExecuteExt for Query<'_, Postgres, PgArguments> {
    async fn run(self, sessions: &Sessions) -> sqlx::Result<PgQueryResult> {
        sessions.run(async |session| self.execute(session).await).await
    }
}

impl FetchExt for Query<'_, Postgres, PgArguments> {
    type Row = PgRow;

    fn untyped(self) -> sqlx::Result<OwnedQuery> {
        untyped(self)
    }

    fn decode(row: PgRow) -> sqlx::Result<PgRow> {
        Ok(row)
    }
}

impl<T> FetchExt for QueryAs<'_, Postgres, T, PgArguments>
where
    T: for<'r> FromRow<'r, PgRow> + Send,
{
    type Row = T;

    fn untyped(self) -> sqlx::Result<OwnedQuery> {
        untyped(self)
    }

    fn decode(row: PgRow) -> sqlx::Result<T> {
        T::from_row(&row)
    }
}

impl<T> FetchExt for QueryScalar<'_, Postgres, T, PgArguments>
where
    T: Send,
    (T,): for<'r> FromRow<'r, PgRow> + Send,
{
    type Row = T;

    fn untyped(self) -> sqlx::Result<OwnedQuery> {
        untyped(self)
    }

    fn decode(row: PgRow) -> sqlx::Result<T> {
        <(T,)>::from_row(&row).map(|(value,)| value)
    }
}

fn untyped<'q>(mut query: impl Execute<'q, Postgres>) -> sqlx::Result<OwnedQuery> {
    let arguments = query.take_arguments().map_err(sqlx::Error::Encode)?.unwrap_or_default();
    let persistent = query.persistent();
    Ok(sqlx::query_with(query.sql(), arguments).persistent(persistent))
}

// Boxed, so that the code of a statement is not a part of that of each caller.

fn fetch_all(query: OwnedQuery, sessions: &Sessions) -> BoxFuture<'_, sqlx::Result<Vec<PgRow>>> {
    Box::pin(sessions.run(async |session| query.fetch_all(session).await))
}

fn fetch_optional(query: OwnedQuery, sessions: &Sessions) -> BoxFuture<'_, sqlx::Result<Option<PgRow>>> {
    Box::pin(sessions.run(async |session| query.fetch_optional(session).await))
}
