//! The measured server, with a fresh database for each measure.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use scoop::embedded::Embedded;
use scoop::{Builder, Scoop};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

use crate::args::Settings;
use crate::outcome::Outcome;
use crate::sagas::{self, Meter};

/// The settings that decide the cost of a commit, and the amount of cached data.
const TELLING: [&str; 9] = [
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "min_wal_size",
    "max_connections",
    "autovacuum",
];

/// The settings of a private server for measures.
const REALISTIC: [(&str, &str); 7] = [
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("synchronous_commit", "on"),
    ("shared_buffers", "1GB"),
    ("max_connections", "300"),
    ("max_wal_size", "4GB"),
    ("min_wal_size", "2GB"),
];

/// Fills the files of the server's log once: a gigabyte. A new server writes each file for the first time,
/// zeroes included, which blocks all sessions every few seconds. A server that has run for a while reuses old
/// files.
const RUN_IN: &str = "
    DO $$ BEGIN
        FOR file IN 1..64 LOOP
            PERFORM pg_logical_emit_message(false, 'run in', ''), pg_switch_wal();
        END LOOP;
    END $$;
    CHECKPOINT";

/// The name of sessions that do not belong to a measure.
pub(crate) const OWN_NAME: &str = "scoop-bench beside the measure";

/// A server on which databases may be created.
pub(crate) struct Server {
    /// A private one, unless the environment names one.
    embedded: Option<Embedded>,
    url: String,
    admin: PgPool,
    prefix: String,
    made: AtomicU32,
}

/// A database with Scoop's tables and the user's in it.
pub(crate) struct Database {
    name: String,
    url: String,
    /// For queries that do not belong to the measure.
    pub(crate) pool: PgPool,
}

impl Server {
    /// Connects to the server of `DATABASE_URL`, or starts a private one with `fsync`.
    pub(crate) async fn start() -> Outcome<Self> {
        let (embedded, url) = match std::env::var("DATABASE_URL") {
            Ok(url) => (None, url),
            Err(_) => {
                let embedded = private(&REALISTIC).await?;
                let url = embedded.url();
                (Some(embedded), url)
            }
        };
        let server = Self::on(embedded, url).await?;
        if server.embedded.is_some() {
            sqlx::raw_sql(RUN_IN).execute(&server.admin).await?;
        }
        Ok(server)
    }

    /// Starts a private server with these settings, whatever `DATABASE_URL` names. It is not run in.
    pub(crate) async fn private_with(settings: &[(&str, &str)]) -> Outcome<Self> {
        let embedded = private(settings).await?;
        let url = embedded.url();
        Self::on(Some(embedded), url).await
    }

    async fn on(embedded: Option<Embedded>, url: String) -> Outcome<Self> {
        let admin = PgPoolOptions::new().max_connections(2).connect(&url).await?;
        let prefix = format!("scoop_bench_{}", std::process::id());
        let server = Self { embedded, url, admin, prefix, made: AtomicU32::new(0) };
        server.make_template().await?;
        Ok(server)
    }

    /// The settings that decide the results, name by name.
    pub(crate) async fn settings(&self) -> Outcome<Vec<(String, String)>> {
        let mut settings = vec![];
        for name in TELLING {
            let value = sqlx::query_scalar("SELECT current_setting($1)").bind(name);
            settings.push((name.to_owned(), value.fetch_one(&self.admin).await?));
        }
        let transport = if self.embedded.is_some() { "Unix socket" } else { "as DATABASE_URL says" };
        settings.push(("connected by".into(), transport.into()));
        let log = if self.embedded.is_some() { "run in" } else { "as it was" };
        settings.push(("write-ahead log".into(), log.into()));
        Ok(settings)
    }

    /// A fresh database with all tables, and with subscriptions of all sagas.
    pub(crate) async fn database(&self) -> Outcome<Database> {
        self.create(&format!("TEMPLATE {}_template", self.prefix)).await
    }

    /// A fresh, empty database.
    pub(crate) async fn empty_database(&self) -> Outcome<Database> {
        self.create("").await
    }

    async fn create(&self, options: &str) -> Outcome<Database> {
        let name = format!("{}_{}", self.prefix, self.made.fetch_add(1, Ordering::Relaxed));
        self.execute(format!("CREATE DATABASE {name} {options}")).await?;
        self.open(name).await
    }

    async fn open(&self, name: String) -> Outcome<Database> {
        let url = with_database(&self.url, &name);
        let options = url.parse::<PgConnectOptions>()?.application_name(OWN_NAME);
        let pool = PgPoolOptions::new().max_connections(2).connect_with(options).await?;
        Ok(Database { name, url, pool })
    }

    /// Drops it, with all its connections.
    pub(crate) async fn remove(&self, database: Database) -> Outcome<()> {
        database.pool.close().await;
        self.execute(format!("DROP DATABASE {} WITH (FORCE)", database.name)).await
    }

    /// The pool for queries about the whole server. They count for no database of a measure.
    pub(crate) fn admin(&self) -> &PgPool {
        &self.admin
    }

    /// The parent process of all sessions of the server, if it runs on this machine.
    pub(crate) async fn process_id(&self) -> Outcome<Option<u32>> {
        let session: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&self.admin).await?;
        Ok(u32::try_from(session).ok().and_then(crate::os_process::parent_of_postgres))
    }

    /// The folder of the server's own programs, if it is a private one.
    pub(crate) fn programs(&self) -> Option<PathBuf> {
        let process = self.embedded.as_ref()?.process_id()?;
        let postgres = std::fs::read_link(format!("/proc/{process}/exe")).ok()?;
        postgres.parent().map(PathBuf::from)
    }

    /// Drops the remaining databases, and stops the server if it is a private one.
    pub(crate) async fn stop(self) -> Outcome<()> {
        let left = "SELECT datname::text FROM pg_database WHERE starts_with(datname::text, $1)";
        let left: Vec<String> = sqlx::query_scalar(left).bind(&self.prefix).fetch_all(&self.admin).await?;
        for name in left {
            self.execute(format!("DROP DATABASE {name} WITH (FORCE)")).await?;
        }
        self.admin.close().await;
        if let Some(embedded) = self.embedded {
            embedded.stop().await?;
        }
        Ok(())
    }

    /// Makes the template: an engine, started and stopped, leaves its tables and subscriptions.
    async fn make_template(&self) -> Outcome<()> {
        let name = format!("{}_template", self.prefix);
        self.execute(format!("CREATE DATABASE {name}")).await?;
        let database = self.open(name.clone()).await?;
        sqlx::raw_sql(include_str!("../sql/tables.sql")).execute(&database.pool).await?;
        let settings = Settings { pool: Builder::required_connections(), ..Settings::default() };
        let scoop = database.engine(&settings, &Meter::default()).await?.start().await?;
        scoop.shutdown().await?;
        scoop.pool().close().await;
        drop(scoop);
        database.pool.close().await;
        // The engine's own sessions end a moment after it.
        let others = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = $1";
        sqlx::query(others).bind(name).execute(&self.admin).await?;
        Ok(())
    }

    async fn execute(&self, sql: String) -> Outcome<()> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&self.admin).await;
        done.map_err(|error| format!("{sql}: {error}"))?;
        Ok(())
    }
}

impl Database {
    /// The URL for other programs.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Its name on the server.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// An engine for it that runs all sagas of [`sagas`], not yet started.
    pub(crate) async fn engine(&self, settings: &Settings, meter: &Meter) -> Outcome<Builder> {
        engine(&self.url, settings, meter).await
    }

    /// A client that launches.
    pub(crate) async fn client(&self) -> Outcome<Scoop> {
        Ok(Scoop::client(pool(&self.url, 16).await?))
    }

    /// Runs statements that return nothing.
    pub(crate) async fn execute(&self, sql: &str) -> Outcome<()> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await;
        done.map_err(|error| format!("{sql}: {error}"))?;
        Ok(())
    }

    /// The one number that a query returns, as a `float8`.
    pub(crate) async fn number(&self, sql: &str) -> Outcome<f64> {
        let number = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await;
        Ok(number.map_err(|error| format!("{sql}: {error}"))?)
    }

    /// The server's clock, in seconds.
    pub(crate) async fn now(&self) -> Outcome<f64> {
        self.number("SELECT extract(epoch FROM clock_timestamp())::float8").await
    }
}

/// An engine for the database of that URL, not yet started.
pub(crate) async fn engine(url: &str, settings: &Settings, meter: &Meter) -> Outcome<Builder> {
    let pool = pool(url, settings.pool).await?;
    let builder = Scoop::builder().postgres(pool).concurrency(settings.concurrency);
    Ok(sagas::with_all(builder, meter))
}

async fn pool(url: &str, connections: u32) -> Outcome<PgPool> {
    let options: PgConnectOptions = url.parse()?;
    let pool = PgPoolOptions::new().max_connections(connections).test_before_acquire(false);
    Ok(pool.acquire_timeout(Duration::from_secs(60)).connect_with(options).await?)
}

/// A private server with these settings.
async fn private(settings: &[(&str, &str)]) -> Outcome<Embedded> {
    if !Embedded::is_installed() {
        return Err("no PostgreSQL is installed here; install one, or set DATABASE_URL".into());
    }
    let builder = settings.iter().fold(Embedded::builder(), |all, (name, value)| all.setting(*name, *value));
    Ok(builder.start().await?)
}

/// The same server's URL for another database.
fn with_database(url: &str, name: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, None), |(place, query)| (place, Some(query)));
    let host = place.find("://").map_or(0, |scheme| scheme + 3);
    let server = place[host..].find('/').map_or(place, |slash| &place[..host + slash]);
    match query {
        Some(query) => format!("{server}/{name}?{query}"),
        None => format!("{server}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn another_database_of_the_same_server() {
        for (url, expected) in [
            ("postgres://a:b@host:5432/shop", "postgres://a:b@host:5432/x"),
            ("postgres://host", "postgres://host/x"),
            ("postgres://host/shop?sslmode=disable", "postgres://host/x?sslmode=disable"),
            ("postgres://u@%2Ftmp%2Fs:5432/postgres", "postgres://u@%2Ftmp%2Fs:5432/x"),
        ] {
            assert_eq!(with_database(url, "x"), expected);
        }
    }
}
