//! The database of a program, for reading.

use std::ops::Deref;

use scoop_runtime::internal::Tables;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, SqlStr};

use crate::statements::complete;

/// The tables of a program, and the texts of statements for their schema.
pub(crate) struct Database(pub(crate) Tables);

impl Deref for Database {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.0
    }
}

impl Database {
    /// The text of a statement.
    pub(crate) fn text(&self, statement: &str) -> SqlStr {
        self.qualify(&complete(statement))
    }
}

/// Executes a query.
pub(crate) trait ReadExt: Sized {
    /// All rows.
    async fn all(self, database: &Database) -> sqlx::Result<Vec<PgRow>>;

    /// The first row, if any.
    async fn first(self, database: &Database) -> sqlx::Result<Option<PgRow>>;

    /// The first row, which has to exist.
    async fn one(self, database: &Database) -> sqlx::Result<PgRow> {
        self.first(database).await?.ok_or(sqlx::Error::RowNotFound)
    }
}

impl ReadExt for Query<'_, Postgres, PgArguments> {
    async fn all(self, database: &Database) -> sqlx::Result<Vec<PgRow>> {
        database.0.all(self).await
    }

    async fn first(self, database: &Database) -> sqlx::Result<Option<PgRow>> {
        database.0.first(self).await
    }
}
