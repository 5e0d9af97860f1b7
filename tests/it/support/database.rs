//! A database of its own for each test.

use std::sync::Arc;

use scoop::prelude::*;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

use super::rows::History;
use super::server::Named;

/// The connections of a test: four of them the engine opens by itself, two are for steps, and so
/// many has the test. Eight tests at once fit into the hundred of a server with usual settings.
const CONNECTIONS: u32 = 6;

/// A database that nobody else uses, with all the tables in it, gone when this is dropped.
pub(crate) struct Database {
    pool: PgPool,
    named: Arc<Named>,
}

impl Database {
    /// A fresh one.
    pub(crate) async fn new() -> Self {
        let named = Named::create().await;
        let pool = connect(&named, CONNECTIONS).await;
        Self { pool, named }
    }

    /// What starts a program on this database. Say with `.only::<..>()` which sagas it has, since
    /// those of all tests are linked.
    pub(crate) fn scoop(&self) -> scoop::Builder {
        Scoop::builder().postgres(self.pool.clone())
    }

    /// The pool that [`Database::scoop`] uses.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Another pool, as another process would have.
    pub(crate) async fn another_pool(&self, connections: u32) -> PgPool {
        connect(&self.named, connections).await
    }

    /// Runs statements that return nothing.
    pub(crate) async fn execute(&self, sql: &str) {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The one number that a query returns.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let number = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await;
        number.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The texts that a query returns.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        let texts = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_all(&self.pool).await;
        texts.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// All that is on record.
    pub(crate) async fn history(&self) -> History {
        History::read(&self.pool, "scoop").await
    }

    /// All that is on record in another schema.
    pub(crate) async fn history_in(&self, schema: &str) -> History {
        History::read(&self.pool, schema).await
    }
}

async fn connect(named: &Named, connections: u32) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(connections).test_before_acquire(false);
    pool.connect_with(named.options()).await.expect("the database was just made")
}
