//! The connection to the database.

use std::env::{self, VarError};
use std::io;
use std::time::Duration;

use scoop_runtime::{Scoop, connect_options};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool};

use crate::fault::Fault;

/// How long operations are retried while the database is away.
const RETRY_FOR: Duration = Duration::from_secs(5);

/// The name of the connections, which the server shows.
const APPLICATION: &str = "scoop-cli";

/// The schema of the tables, if none is named.
const SCHEMA: &str = "scoop";

// Variables of the environment are read when they are needed: the parser would take them for arguments, and show them in the usage
// of an error.
/// Options of the connection.
#[derive(Debug, clap::Args)]
pub(crate) struct Connection {
    /// The database, as a URL: postgres://user@host/database; by default the value of DATABASE_URL
    ///
    /// A password belongs into DATABASE_URL, PGPASSWORD or the file ~/.pgpass: other users of the machine can see the
    /// arguments of a program. Without a URL, the variables of PostgreSQL are used, such as PGHOST and PGUSER.
    #[arg(long, global = true, value_name = "URL", help_heading = "Connection")]
    database_url: Option<String>,
    /// The schema of the tables; by default the value of SCOOP_SCHEMA, otherwise scoop
    #[arg(long, global = true, value_name = "NAME", help_heading = "Connection")]
    schema: Option<String>,
    /// The URL leads to a proxy that assigns connections per transaction, such as PgBouncer
    #[arg(long, global = true, help_heading = "Connection")]
    behind_proxy: bool,
}

/// The value of a variable of the environment, if it has one.
fn variable(name: &str) -> Result<Option<String>, Fault> {
    match env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Fault::Usage(format!("the variable {name} is not UTF-8"))),
    }
}

impl Connection {
    /// The URL of the database, if there is one.
    fn url(&self) -> Result<Option<String>, Fault> {
        match &self.database_url {
            Some(url) => Ok(Some(url.clone())),
            None => variable("DATABASE_URL"),
        }
    }

    /// The schema of the tables.
    pub(crate) fn schema(&self) -> Result<String, Fault> {
        match &self.schema {
            Some(schema) => Ok(schema.clone()),
            None => Ok(variable("SCOOP_SCHEMA")?.unwrap_or_else(|| SCHEMA.to_owned())),
        }
    }

    /// The names of the options that are given as arguments: other commands need them, too.
    pub(crate) fn given(&self) -> [Option<&'static str>; 3] {
        [
            self.database_url.as_ref().map(|_| "--database-url"),
            self.schema.as_ref().map(|_| "--schema"),
            self.behind_proxy.then_some("--behind-proxy"),
        ]
    }

    /// The pool of the connections. It connects when it is used.
    pub(crate) fn pool(&self) -> Result<PgPool, Fault> {
        let options = match &self.url()? {
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
        let pool = PgPoolOptions::new().max_connections(2).acquire_timeout(RETRY_FOR);
        Ok(pool.connect_lazy_with(options))
    }

    /// Whether the connections lead through a proxy that assigns them per transaction.
    pub(crate) fn is_behind_proxy(&self) -> bool {
        self.behind_proxy
    }

    /// A client of the tables.
    pub(crate) async fn client(&self) -> Result<Scoop, Fault> {
        let builder = Scoop::builder().postgres(self.pool()?).schema(self.schema()?).retry_for(RETRY_FOR);
        let builder = if self.behind_proxy { builder.behind_proxy() } else { builder };
        match builder.client().await {
            Ok(scoop) => Ok(scoop),
            Err(error) if error.is_unavailable() => Err(self.refusal().await.unwrap_or(error.into())),
            Err(error) => Err(error.into()),
        }
    }

    /// Why no connection can be opened: a pool only says that it took too long.
    pub(crate) async fn refusal(&self) -> Option<Fault> {
        let options = self.pool().ok()?.connect_options();
        let opened = tokio::time::timeout(RETRY_FOR, PgConnection::connect_with(&options)).await;
        let opened = opened.unwrap_or_else(|_| Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into())));
        Some(Fault::Connect(self.target(&options), opened.err()?))
    }

    /// Where the connections lead to, and why.
    fn target(&self, options: &PgConnectOptions) -> String {
        let (host, port) = (options.get_host(), options.get_port());
        let folder = options.get_socket().map(|folder| folder.display().to_string());
        let server = match folder.or_else(|| host.starts_with('/').then(|| host.to_owned())) {
            Some(folder) => format!("{folder}/.s.PGSQL.{port}"),
            None => format!("{host}:{port}"),
        };
        match self.url() {
            Ok(Some(_)) => format!("the URL leads to {server}"),
            _ => format!(
                "DATABASE_URL is not set, and the variables of PostgreSQL, such as PGHOST, or their defaults lead to {server}"
            ),
        }
    }
}
