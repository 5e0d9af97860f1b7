//! A database of its own for each test.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use scoop::prelude::*;
use scoop::retention::Retention;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

use super::server::Named;
use crate::{History, Store};

/// The connections of a test: the engine opens four for itself, and two are for steps. A test has
/// as many. Eight tests at once fit into the hundred of a server with usual settings.
const CONNECTIONS: u32 = 6;

/// A database of one test, with all tables, dropped with this value.
pub struct Database {
    pool: PgPool,
    named: Arc<Named>,
}

impl Database {
    /// Whether the programs run in memory.
    pub const IN_MEMORY: bool = false;

    /// A fresh one.
    pub async fn new() -> Self {
        let named = Named::create().await;
        let pool = connect(&named, CONNECTIONS).await;
        Self { pool, named }
    }

    /// The builder of a program on this database. `.only::<..>()` chooses its sagas, since those of
    /// all tests are linked.
    pub fn scoop(&self) -> scoop::Builder {
        Scoop::builder().postgres(self.pool.clone()).retention(Retention::forever())
    }

    /// The pool that [`Database::scoop`] uses.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Another pool, as another process would have.
    pub async fn another_pool(&self, connections: u32) -> PgPool {
        connect(&self.named, connections).await
    }

    /// A client that launches and looks up.
    pub fn client(&self) -> Scoop {
        Scoop::client(self.pool.clone())
    }

    /// How many runs are unfinished.
    pub async fn unfinished(&self) -> i64 {
        self.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await
    }

    /// How many of them do not wait for others, nor for an operator.
    pub async fn able_to_go_on(&self) -> i64 {
        self.number(
            "SELECT count(*) FROM scoop.run r WHERE r.handler <> 'none' AND (
                 r.state IN ('ready', 'running', 'ended') OR r.state = 'waiting' AND NOT EXISTS (
                     SELECT FROM scoop.run c WHERE c.root = r.root AND c.parent = r.id AND c.state NOT IN ('ended', 'failed')))",
        )
        .await
    }

    /// Drops the rules for rows of `run` that only the tests have.
    pub async fn drop_rules(&self) {
        self.execute(
            "DO $$ DECLARE rule name; BEGIN
                 FOR rule IN SELECT conname FROM pg_constraint WHERE conrelid = 'scoop.run'::regclass AND contype = 'c'
                 LOOP EXECUTE format('ALTER TABLE scoop.run DROP CONSTRAINT %I', rule); END LOOP;
             END $$",
        )
        .await;
    }

    /// The server's time.
    pub async fn time(&self) -> SystemTime {
        let micros = self.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await;
        SystemTime::UNIX_EPOCH + Duration::from_micros(micros.try_into().expect("it is later than 1970"))
    }

    /// Makes the record older, as if time had passed without events.
    ///
    /// Times that are to come stay: those at which runs wake up, give up, or leave a queue (`ready_at`, `give_up_at` and
    /// `parked_since` of `run`), and those of schedules, pauses and rates. In memory, where the clock moves, these times come.
    /// A new column with a time of `0001_tables.sql` belongs into the list.
    pub async fn grow_older(&self, by: Duration) {
        const TIMES: [(&str, &[&str]); 15] = [
            ("message", &["created_at"]),
            ("message_event", &["created_at"]),
            ("return_value", &["created_at"]),
            ("intervention", &["requested_at"]),
            ("begun_step", &["begun_at"]),
            ("execution", &["began_at"]),
            ("redelivery", &["redelivered_at"]),
            ("relaunch", &["requested_at"]),
            ("signal", &["sent_at", "kept_until", "delivered_at"]),
            ("join_member", &["since", "expires_at"]),
            ("handler", &["since", "retired_at", "dropped_at"]),
            ("kept_hierarchy", &["until"]),
            ("kept_key", &["until"]),
            ("ended_run", &["queued_at", "began_at", "ended_at"]),
            ("run", &["queued_at", "began_at", "last_event_at", "rollback_since"]),
        ];
        // No program deletes hierarchies meanwhile: it locks the same rows in another order.
        let mut sql = String::from("BEGIN; LOCK TABLE scoop.retention IN EXCLUSIVE MODE;");
        for (table, columns) in TIMES {
            let earlier =
                columns.iter().map(|column| format!("{column} = {column} - interval '{} s'", by.as_secs()));
            sql += &format!("UPDATE scoop.{table} SET {};", earlier.collect::<Vec<_>>().join(", "));
        }
        sql += &format!(
            "UPDATE scoop.run SET newest_execution.since = (newest_execution).since - interval '{} s' WHERE (newest_execution).since IS NOT NULL;",
            by.as_secs()
        );
        self.execute(&(sql + "COMMIT")).await;
    }

    /// Runs statements that return nothing.
    pub async fn execute(&self, sql: &str) {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The one number that a query returns.
    pub async fn number(&self, sql: &str) -> i64 {
        let number = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await;
        number.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The texts that a query returns.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let texts = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_all(&self.pool).await;
        texts.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// All recorded events, after the verdict of the reference model.
    pub async fn history(&self) -> History {
        self.history_in("scoop").await
    }

    /// The same for another schema.
    pub async fn history_in(&self, schema: &str) -> History {
        super::audited::judge(&self.pool, schema).await;
        History::read(&self.pool, schema).await
    }
}

impl Store for Database {
    async fn create() -> Self {
        Self::new().await
    }

    fn scoop(&self) -> scoop::Builder {
        self.scoop()
    }

    async fn history(&self) -> History {
        self.history().await
    }
}

async fn connect(named: &Named, connections: u32) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(connections).test_before_acquire(false);
    pool.connect_with(named.options()).await.expect("the database was just made")
}
