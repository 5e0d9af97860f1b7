//! The connection to the database.

use std::io;
use std::time::Duration;

use scoop_runtime::{RuntimeError, Scoop, connect_options};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool};

use crate::fault::Fault;

/// How long operations are retried while the database is away.
const PATIENCE: Duration = Duration::from_secs(5);

/// The name of the connections, which the server shows.
const APPLICATION: &str = "scoop-cli";

/// Options of the connection.
#[derive(Debug, clap::Args)]
pub(crate) struct Connection {
    /// The database, as a URL: postgres://user@host/database
    ///
    /// A password belongs into DATABASE_URL, PGPASSWORD or the file ~/.pgpass: other users of the machine can see the
    /// arguments of a program. Without a URL, the variables of PostgreSQL are used, such as PGHOST and PGUSER.
    #[arg(
        long,
        global = true,
        env = "DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Connection"
    )]
    database_url: Option<String>,
    /// The schema of the tables
    #[arg(
        long,
        global = true,
        env = "SCOOP_SCHEMA",
        hide_env_values = true,
        value_name = "NAME",
        default_value = "scoop",
        help_heading = "Connection"
    )]
    pub(crate) schema: String,
    /// The URL leads to a proxy that assigns connections per transaction, such as PgBouncer
    #[arg(long, global = true, help_heading = "Connection")]
    behind_proxy: bool,
}

impl Connection {
    /// The pool of the connections. It connects when it is used.
    pub(crate) fn pool(&self) -> Result<PgPool, Fault> {
        let options = match &self.database_url {
            Some(url) if url.trim().is_empty() => {
                return Err(Fault::Usage(
                    "--database-url or DATABASE_URL is empty: name the database, as in postgres://user@host/database, or \
                     unset DATABASE_URL to use the variables of PostgreSQL, such as PGHOST"
                        .into(),
                ));
            }
            // The URL is not repeated: it may have a password.
            Some(url) => connect_options(url).map_err(|error| {
                Fault::Usage(format!("--database-url or DATABASE_URL is no URL of a database: {error}"))
            })?,
            None => PgConnectOptions::new(),
        };
        let mut options = options.application_name(APPLICATION);
        if self.behind_proxy {
            options = options.statement_cache_capacity(0);
        }
        let pool = PgPoolOptions::new().max_connections(2).acquire_timeout(PATIENCE);
        Ok(pool.connect_lazy_with(options))
    }

    /// Whether the connections lead through a proxy that assigns them per transaction.
    pub(crate) fn is_behind_proxy(&self) -> bool {
        self.behind_proxy
    }

    /// A client of the tables.
    pub(crate) async fn client(&self) -> Result<Scoop, Fault> {
        let builder = Scoop::builder().postgres(self.pool()?).schema(&self.schema).patience(PATIENCE);
        let builder = if self.behind_proxy { builder.behind_proxy() } else { builder };
        match builder.client().await {
            Ok(scoop) => Ok(scoop),
            Err(error @ RuntimeError::Unavailable { .. }) => {
                Err(self.refusal().await.unwrap_or(error.into()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Why no connection can be opened: a pool only says that it took too long.
    pub(crate) async fn refusal(&self) -> Option<Fault> {
        let options = self.pool().ok()?.connect_options();
        let opened = tokio::time::timeout(PATIENCE, PgConnection::connect_with(&options)).await;
        let opened = opened.unwrap_or_else(|_| Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into())));
        Some(Fault::Connect(self.way(&options), opened.err()?))
    }

    /// Where the connections lead to, and why.
    fn way(&self, options: &PgConnectOptions) -> String {
        let (host, port) = (options.get_host(), options.get_port());
        let folder = options.get_socket().map(|folder| folder.display().to_string());
        let place = match folder.or_else(|| host.starts_with('/').then(|| host.to_owned())) {
            Some(folder) => format!("{folder}/.s.PGSQL.{port}"),
            None => format!("{host}:{port}"),
        };
        match self.database_url {
            Some(_) => format!("the URL leads to {place}"),
            None => format!(
                "DATABASE_URL is not set, and the variables of PostgreSQL, such as PGHOST, or their defaults lead to {place}"
            ),
        }
    }
}
