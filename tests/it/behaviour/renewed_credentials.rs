//! Programs that renew their password while they run, as tokens with a short life require.

use std::time::Duration;

use scoop::embedded::Embedded;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::*;
use crate::support::eventually;

handler! {
    RenewingHandler: "renewing-handler" on Root;
    step "0" zero => executes("SELECT 1");
    step "1" one => done();
}

const ROLE: &str = "renewing";

/// A server that asks one role for its password.
struct Guarded {
    server: Embedded,
    admin: PgPool,
}

impl Guarded {
    async fn start(password: &str) -> Result<Self> {
        let server = Embedded::start().await?;
        let admin = PgPool::connect_with(server.connect_options()).await?;
        let guarded = Self { server, admin };
        guarded.execute(format!("CREATE ROLE {ROLE} LOGIN SUPERUSER")).await?;
        guarded.set_password(password).await?;
        let file: String = sqlx::query_scalar("SHOW hba_file").fetch_one(&guarded.admin).await?;
        let rules = std::fs::read_to_string(&file)?;
        std::fs::write(&file, format!("local all {ROLE} scram-sha-256\n{rules}"))?;
        guarded.execute("SELECT pg_reload_conf()".into()).await?;
        eventually("the server asks for a password", async || {
            PgPool::connect_with(guarded.options("wrong")).await.is_err()
        })
        .await;
        Ok(guarded)
    }

    async fn execute(&self, sql: String) -> Result<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&self.admin).await?;
        Ok(())
    }

    async fn set_password(&self, password: &str) -> Result<()> {
        self.execute(format!("ALTER ROLE {ROLE} PASSWORD '{password}'")).await
    }

    fn options(&self, password: &str) -> PgConnectOptions {
        self.server.connect_options().username(ROLE).password(password)
    }

    /// The number of sessions of the role that began after this moment of the server, or before it.
    async fn sessions(&self, since: &str, select: &str, comparison: char) -> Result<i64> {
        let sql = format!(
            "SELECT count({select}) FROM pg_stat_activity
             WHERE usename = '{ROLE}' AND backend_start {comparison} '{since}'::timestamptz"
        );
        Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&self.admin).await?)
    }

    /// Gives the role another password, and ends its sessions. Returns the moment in between.
    async fn renew(&self, password: &str) -> Result<String> {
        self.set_password(password).await?;
        let now: String = sqlx::query_scalar("SELECT clock_timestamp()::text").fetch_one(&self.admin).await?;
        // Of one that is beginning, the password may have been checked already.
        eventually("all sessions have ended", async || {
            matches!(self.sessions(&now, "pg_terminate_backend(pid)", '<').await, Ok(0))
        })
        .await;
        Ok(now)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_password_of_the_pool_is_that_of_every_new_connection() -> Result<()> {
    if !Embedded::is_installed() {
        eprintln!("not tested: there is no PostgreSQL on this machine");
        return Ok(());
    }
    let guarded = Guarded::start("first").await?;
    let pool = PgPoolOptions::new().max_connections(6).connect_with(guarded.options("first")).await?;
    let builder = Scoop::builder().postgres(pool.clone()).retry_for(Duration::from_secs(5));
    let scoop = builder.only::<RenewingHandler>().start().await?;
    let clients = PgPool::connect_with(guarded.options("first")).await?;
    let client = Scoop::client(clients.clone());
    assert_eq!(client.launch(Root).await?.ends().await?, Outcome::Committed);
    for password in ["second", "third"] {
        pool.set_connect_options(guarded.options(password));
        clients.set_connect_options(guarded.options(password));
        let renewed_at = guarded.renew(password).await?;
        assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
        assert_eq!(client.launch(Root).await?.ends().await?, Outcome::Committed);
        // The lock of the session that listens.
        let listens = format!(
            "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity USING (pid)
                 WHERE l.locktype = 'advisory' AND usename = '{ROLE}' AND backend_start > '{renewed_at}'::timestamptz)"
        );
        eventually("it listens again", async || {
            sqlx::query_scalar(sqlx::AssertSqlSafe(listens.clone())).fetch_one(&guarded.admin).await.unwrap()
        })
        .await;
    }
    scoop.shutdown().await?;
    Ok(())
}
