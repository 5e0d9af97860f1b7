//! Programs on a private PostgreSQL.

use std::path::PathBuf;

use scoop_embedded::Embedded;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use super::builder::{Database, explain};
use super::scoop::PrivateServer;
use crate::settings::ENGINE_CONNECTIONS;
use crate::{Builder, RuntimeError, connect_options};

/// The maximum number of connections in the pool of a private PostgreSQL.
const CONNECTIONS_MAX: u32 = 16;

impl Builder {
    /// Runs on a private PostgreSQL, which is started for this program, and stopped and deleted with it. If the
    /// variable `DATABASE_URL` is set, the program runs on the database that it names instead. For examples, tests
    /// and first steps, with the feature `embedded`. The binaries of PostgreSQL must be installed on the
    /// machine, or are downloaded with the feature `download`.
    pub fn embedded(self) -> Self {
        self.on(Database::Embedded(None))
    }

    /// Like [`Builder::embedded`], but keeps the data in this folder, where the next start finds them again. With
    /// the feature `embedded`.
    pub fn embedded_in(self, folder: impl Into<PathBuf>) -> Self {
        self.on(Database::Embedded(Some(folder.into())))
    }
}

/// Connects to the database of `DATABASE_URL`, or else to a private PostgreSQL, which is started.
pub(super) async fn connect(
    folder: Option<PathBuf>,
) -> Result<(PgPool, Option<PrivateServer>), RuntimeError> {
    if std::env::var_os("DATABASE_URL").is_some() {
        let url = std::env::var("DATABASE_URL").unwrap_or_default();
        return Ok((connect_to(&url).await?, None));
    }
    let server = match folder {
        None => Embedded::start().await?,
        Some(folder) => Embedded::start_in(folder).await?,
    };
    let pool = private_pool().connect_with(server.connect_options()).await;
    let pool = pool.map_err(RuntimeError::database("a connection was made to the private PostgreSQL"))?;
    Ok((pool, Some(Box::new(server))))
}

async fn connect_to(url: &str) -> Result<PgPool, RuntimeError> {
    let options =
        connect_options(url).map_err(RuntimeError::database("the variable DATABASE_URL was read"))?;
    let pool = private_pool().connect_lazy_with(options);
    let connected = pool.acquire().await.map(drop);
    match connected.map_err(RuntimeError::database("a connection was made to DATABASE_URL")) {
        Ok(()) => Ok(pool),
        Err(error) => Err(explain(error, &pool, Builder::required_connections(), ENGINE_CONNECTIONS).await),
    }
}

/// A pool that only the engine and the steps use.
fn private_pool() -> PgPoolOptions {
    PgPoolOptions::new().max_connections(CONNECTIONS_MAX).test_before_acquire(false)
}
