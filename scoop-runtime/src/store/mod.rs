//! Where runs and their history are kept: PostgreSQL. The only place that speaks SQL.

mod alone;
mod client;
mod engine;
mod migrate;
mod plain;
mod reach;
mod rebuild;
mod repair;
mod requests;
mod rows;
mod schedule;
mod sessions;
mod sql;
mod topology;

pub(crate) use client::{HandlerOutcome, Launch, Launched, Standing};
pub(crate) use engine::{Parent, Release};
pub(crate) use migrate::migrate;
pub(crate) use reach::check;
pub(crate) use repair::{Page, Remedied, Repaired};
pub(crate) use requests::{Target, Undone};
pub(crate) use rows::{
    Claimed, FailedPart, Key, Settled, Settlement, Surroundings, Unreadable, failure, lineage, timestamps,
};
pub(crate) use schedule::{Published, Taken, Ticked};
pub(crate) use sessions::{Access, Sessions};
pub(crate) use sql::{Schema, Statements};

use std::sync::Arc;

use crate::clock::ServerClock;

/// The tables of one schema.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    sessions: Sessions,
    sql: Statements,
    clock: Arc<ServerClock>,
}

impl Store {
    pub(crate) fn new(sessions: Sessions, schema: &Schema) -> Self {
        Self { sessions, sql: Statements::of(schema), clock: Arc::default() }
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgPoolOptions;
    use sqlx::{AssertSqlSafe, Executor, PgPool};

    use super::*;
    use crate::embedded::Embedded;

    /// A database of our own, and what keeps its server alive.
    async fn database(name: &str) -> (PgPool, Option<Embedded>) {
        let name = format!("{name}_{}", std::process::id());
        let (admin, server) = match std::env::var("DATABASE_URL") {
            Ok(url) => (url.parse().expect("DATABASE_URL is a URL"), None),
            Err(_) => {
                let server = Embedded::start().await.expect("a private server starts");
                (server.connect_options(), Some(server))
            }
        };
        let pool = PgPoolOptions::new().connect_with(admin.clone()).await.expect("the server answers");
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(create).execute(&pool).await.expect("a database can be made");
        (PgPool::connect_with(admin.database(&name)).await.expect("the database answers"), server)
    }

    /// The plan that serves all calls of a statement.
    async fn plan_of(pool: &PgPool, statement: &str) -> String {
        let statements = Statements::of(&Schema::new("scoop").unwrap()).all();
        let (_, text) = statements.iter().find(|(name, _)| *name == statement).unwrap();
        let (types, values) = match statement {
            "run_claim" => ("uuid, text, text[], text[], bigint", "gen_random_uuid(), '', '{}', '{}', 1"),
            "run_settle" => ("jsonb, text, text", "'[]', '', NULL"),
            "run_due" => ("text[], text[]", "'{}', '{}'"),
            "run_overdue" => ("bigint", "1"),
            "run_give_up" => ("uuid, uuid, bigint", "gen_random_uuid(), gen_random_uuid(), 1"),
            "run_stops" => ("uuid[], uuid[], bigint[]", "'{}', '{}', '{}'"),
            "step_suspend" => (
                "uuid, uuid, bigint, text, text, text, int, int, int, int, jsonb, bool, jsonb, text, jsonb",
                "gen_random_uuid(), gen_random_uuid(), 1, '', '', '', 1, 0, NULL, 1, NULL, false, NULL, NULL, NULL",
            ),
            "step_settle" => (
                "uuid[], uuid[], bigint[], bool[], bool[], text[], int[], int[], int[], int[], jsonb[], bool[], \
                 jsonb[], text[], jsonb[], text",
                "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', ''",
            ),
            "step_commit" => (
                "uuid, uuid, bigint, text, text, text, int, int, jsonb, text, jsonb",
                "gen_random_uuid(), gen_random_uuid(), 1, '', '', '', 1, NULL, NULL, NULL, NULL",
            ),
            "cancel_mark" | "cancel_drop" => ("uuid, uuid[]", "gen_random_uuid(), '{}'"),
            _ => ("jsonb", "'[]'"),
        };
        let prepare =
            format!("SET plan_cache_mode = force_generic_plan; PREPARE p ({types}) AS {}", text.as_str());
        let mut connection = pool.acquire().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *connection).await.unwrap();
        let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE p ({values})"));
        let lines: Vec<String> = sqlx::raw_sql(explain)
            .fetch_all(&mut *connection)
            .await
            .unwrap()
            .iter()
            .map(|row| sqlx::Row::get(row, 0))
            .collect();
        connection.close().await.unwrap();
        lines.join("\n")
    }

    #[tokio::test]
    async fn every_statement_fits_the_tables_of_any_schema() {
        let (pool, server) = database("statements").await;
        for schema in ["scoop", "another_1"].map(|name| Schema::new(name).unwrap()) {
            migrate(&pool, &schema).await.unwrap();
            for (name, text) in Statements::of(&schema).all() {
                let prepared = (&pool).prepare(text).await;
                assert!(prepared.is_ok(), "{name} in {schema:?}: {:?}", prepared.err());
            }
        }
        let hot = ["run_claim", "run_settle", "run_wake", "run_due", "run_overdue", "run_give_up"];
        let rest = ["run_stops", "cancel_mark", "cancel_drop", "step_suspend", "step_commit", "step_settle"];
        for statement in hot.into_iter().chain(rest) {
            let plan = plan_of(&pool, statement).await;
            assert!(
                !plan.contains("Seq Scan"),
                "{statement} reads whole tables when they are empty:\n{plan}"
            );
        }
        let database = pool.connect_options().get_database().unwrap().to_owned();
        pool.close().await;
        if server.is_none() {
            let admin = PgPool::connect(&std::env::var("DATABASE_URL").unwrap()).await.unwrap();
            let drop = AssertSqlSafe(format!("DROP DATABASE {database} WITH (FORCE)"));
            sqlx::raw_sql(drop).execute(&admin).await.unwrap();
        }
    }

    #[test]
    fn a_schema_needs_a_plain_name() {
        for bad in ["", "Upper", "1st", "a-b", "a.b", "a\"b", &"x".repeat(41)] {
            assert!(Schema::new(bad).is_err(), "{bad}");
        }
        assert!(Schema::new("scoop_2").is_ok());
    }
}
