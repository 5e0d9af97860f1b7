//! Statements that are transactions of their own.

use sqlx::postgres::{PgArguments, PgQueryResult, PgRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{FromRow, Postgres};

use super::Sessions;

/// Executes a query in its own transaction, as the route (direct or proxied) requires.
pub(super) trait FetchExt: Sized {
    /// One row of the result.
    type Row;

    /// All rows.
    async fn all(self, sessions: &Sessions) -> sqlx::Result<Vec<Self::Row>>;

    /// The first row, if any.
    async fn first(self, sessions: &Sessions) -> sqlx::Result<Option<Self::Row>>;

    /// The first row, which has to exist.
    async fn one(self, sessions: &Sessions) -> sqlx::Result<Self::Row> {
        self.first(sessions).await?.ok_or(sqlx::Error::RowNotFound)
    }
}

/// A statement without result rows.
pub(super) trait ExecuteExt {
    /// Executes it; the result counts the affected rows.
    async fn done(self, sessions: &Sessions) -> sqlx::Result<PgQueryResult>;
}

impl ExecuteExt for Query<'_, Postgres, PgArguments> {
    async fn done(self, sessions: &Sessions) -> sqlx::Result<PgQueryResult> {
        sessions.run(async |session| self.execute(session).await).await
    }
}

impl FetchExt for Query<'_, Postgres, PgArguments> {
    type Row = PgRow;

    async fn all(self, sessions: &Sessions) -> sqlx::Result<Vec<PgRow>> {
        sessions.run(async |session| self.fetch_all(session).await).await
    }

    async fn first(self, sessions: &Sessions) -> sqlx::Result<Option<PgRow>> {
        sessions.run(async |session| self.fetch_optional(session).await).await
    }
}

impl<T> FetchExt for QueryAs<'_, Postgres, T, PgArguments>
where
    T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    type Row = T;

    async fn all(self, sessions: &Sessions) -> sqlx::Result<Vec<T>> {
        sessions.run(async |session| self.fetch_all(session).await).await
    }

    async fn first(self, sessions: &Sessions) -> sqlx::Result<Option<T>> {
        sessions.run(async |session| self.fetch_optional(session).await).await
    }
}

impl<T> FetchExt for QueryScalar<'_, Postgres, T, PgArguments>
where
    T: Send + Unpin,
    (T,): for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    type Row = T;

    async fn all(self, sessions: &Sessions) -> sqlx::Result<Vec<T>> {
        sessions.run(async |session| self.fetch_all(session).await).await
    }

    async fn first(self, sessions: &Sessions) -> sqlx::Result<Option<T>> {
        sessions.run(async |session| self.fetch_optional(session).await).await
    }
}
