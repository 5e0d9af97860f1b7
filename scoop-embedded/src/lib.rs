//! A private PostgreSQL, started from the programs installed on the machine. Tests and first steps need neither a
//! container nor an administered server. Users of `scoop-saga` have it with the feature `embedded`.
//!
//! ```no_run
//! # mod scoop { pub use scoop_embedded as embedded; }
//! use scoop::embedded::Embedded;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let postgres = Embedded::start().await?;
//! let pool = sqlx::PgPool::connect_with(postgres.connect_options()).await?;
//! let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&pool).await?;
//! assert_eq!(one, 1);
//! postgres.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Guarantees:
//!
//! - The server listens on a Unix socket only, in a folder that is closed to other users.
//! - The server never outlives its owner for long: it stops when [`Embedded`] is dropped, and also after a panic,
//!   `std::process::exit` or `SIGKILL`, because a supervising shell waits for the end of the owner. A temporary folder
//!   is removed with it. Only if this shell is killed, too, the server and the folder are left.
//! - A kept folder has one server at a time, by the lock of PostgreSQL.
//!
//! The programs are searched for in the folder named by `SCOOP_PG_BIN`, and nowhere else if that is set. Otherwise
//! they are searched for in `pg_config --bindir`, on the `PATH`, and where Debian, RPM, Homebrew, Postgres.app and
//! Alpine put them, newest first. At least PostgreSQL 15 is needed; kept data needs the version that made it.
//!
//! With the feature `download`, a machine without these programs gets those of PostgreSQL 17 from
//! [`theseus-rs/postgresql-binaries`](https://github.com/theseus-rs/postgresql-binaries), unless `SCOOP_PG_BIN` is set.
//! This needs `curl` and `tar`. The archive is checked against the SHA-256 published beside it (one without is refused),
//! and unpacked once for each user: into `scoop-postgresql` in `$XDG_CACHE_HOME`, by default `~/.cache`, which is closed to
//! other users; for root into `/var/cache/scoop-postgresql`, to which only root may write. It may be deleted while no server
//! runs.
//!
//! PostgreSQL refuses to run as root. For root the server runs as the owner of the kept folder, else as `postgres`,
//! else as `nobody`.
//!
//! Not supported: Windows, TCP, and several processes that share one [`Embedded`] beyond connecting to its
//! [`url`](Embedded::url).

mod account;
mod binaries;
mod download;
mod error;
mod server;

use std::path::Path;
use std::sync::Arc;

use futures_util::future::FutureExt;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

pub use error::EmbeddedError;

use server::Server;

/// A private PostgreSQL server, stopped when this is dropped.
///
/// Dropping blocks until the server has stopped, about a tenth of a second. [`stop`](Self::stop) does not block, and
/// returns the error if the server cannot be stopped.
#[derive(Debug)]
pub struct Embedded(Arc<Server>);

impl Embedded {
    /// Starts a temporary server with the usual settings, see [`Builder::start`].
    ///
    /// # Errors
    ///
    /// As [`Builder::start`].
    ///
    /// ```no_run
    /// # use scoop_embedded::{Embedded, EmbeddedError};
    /// # async fn example() -> Result<(), EmbeddedError> {
    /// let postgres = Embedded::start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start() -> Result<Self, EmbeddedError> {
        Self::builder().start().await
    }

    /// Starts a server whose data is kept in a folder, with the usual settings, see [`Builder::start_in`].
    ///
    /// # Errors
    ///
    /// As [`Builder::start_in`].
    ///
    /// ```no_run
    /// # use scoop_embedded::{Embedded, EmbeddedError};
    /// # async fn example() -> Result<(), EmbeddedError> {
    /// let postgres = Embedded::start_in("target/postgres").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_in(folder: impl AsRef<Path>) -> Result<Self, EmbeddedError> {
        Self::builder().start_in(folder).await
    }

    /// A builder for a server with other settings.
    ///
    /// ```
    /// # mod scoop { pub use scoop_embedded as embedded; }
    /// use scoop::embedded::Embedded;
    ///
    /// let builder = Embedded::builder().setting("log_statement", "all");
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Options to connect to the database `postgres`, as the superuser `postgres`.
    ///
    /// ```no_run
    /// # async fn example(postgres: scoop_embedded::Embedded) -> sqlx::Result<()> {
    /// let pool = sqlx::PgPool::connect_with(postgres.connect_options()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_options(&self) -> PgConnectOptions {
        self.options_for("postgres")
    }

    /// Options to connect to another database of the server, as the superuser `postgres`. The database is not
    /// created.
    ///
    /// ```no_run
    /// # async fn example(postgres: scoop_embedded::Embedded, pool: sqlx::PgPool) -> sqlx::Result<()> {
    /// sqlx::query("CREATE DATABASE shop").execute(&pool).await?;
    /// let shop = sqlx::PgPool::connect_with(postgres.options_for("shop")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn options_for(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(&self.0.socket)
            .port(5432)
            .username("postgres")
            .database(database)
            .ssl_mode(PgSslMode::Disable)
    }

    /// Whether the programs of a supported PostgreSQL are on this machine.
    ///
    /// ```
    /// # mod scoop { pub use scoop_embedded as embedded; }
    /// use scoop::embedded::Embedded;
    ///
    /// if !Embedded::is_installed() {
    ///     println!("set DATABASE_URL instead");
    /// }
    /// ```
    pub fn is_installed() -> bool {
        binaries::installed(None).is_ok()
    }

    /// [`connect_options`](Self::connect_options) as a URL, which psql and most clients accept.
    ///
    /// ```no_run
    /// # fn example(postgres: scoop_embedded::Embedded) {
    /// println!("psql {}", postgres.url());
    /// # }
    /// ```
    pub fn url(&self) -> String {
        let mut url = self.connect_options().to_url_lossy();
        // Other clients refuse parameters of sqlx.
        url.set_query(None);
        url.to_string()
    }

    /// The folder with the data and `server.log`.
    ///
    /// ```no_run
    /// # fn example(postgres: scoop_embedded::Embedded) {
    /// println!("see {}", postgres.folder().join("server.log").display());
    /// # }
    /// ```
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// The pid of the server's main process; `None` while it does not run, as during a restart.
    ///
    /// ```no_run
    /// # fn example(postgres: scoop_embedded::Embedded) {
    /// assert!(postgres.process_id().is_some());
    /// # }
    /// ```
    pub fn process_id(&self) -> Option<u32> {
        self.0.process_id()
    }

    /// Stops the server and starts it again, in the same folder with the same settings. Starts it if it has crashed.
    ///
    /// Connections break. Committed data survives, whichever [`Shutdown`] is chosen.
    ///
    /// # Errors
    ///
    /// The server did not stop, or did not start again; then the restart can be repeated.
    ///
    /// # Cancel safety
    ///
    /// A restart that has begun continues in the background when the future is dropped.
    ///
    /// ```no_run
    /// # mod scoop { pub use scoop_embedded as embedded; }
    /// use scoop::embedded::Shutdown;
    ///
    /// # async fn example(postgres: scoop_embedded::Embedded) -> Result<(), scoop_embedded::EmbeddedError> {
    /// postgres.restart(Shutdown::Immediate).await?; // As after a crash.
    /// # Ok(())
    /// # }
    /// ```
    pub fn restart(&self, how: Shutdown) -> impl Future<Output = Result<(), EmbeddedError>> + Send {
        let server = Arc::clone(&self.0);
        blocking(move || server.restart(how)).boxed()
    }

    /// Starts a standby: a temporary, read-only server with the same settings that replicates this one.
    ///
    /// Replication is asynchronous, unless `synchronous_standby_names` of this server makes commits wait for the
    /// standby. `SELECT pg_promote()` on the standby makes it an independent server, which continues when this one
    /// stops.
    ///
    /// # Errors
    ///
    /// The data could not be copied, because `pg_basebackup` or this server is missing, or the standby did not start.
    ///
    /// # Cancel safety
    ///
    /// As [`Builder::start`].
    ///
    /// ```no_run
    /// # async fn example(postgres: scoop_embedded::Embedded) -> Result<(), Box<dyn std::error::Error>> {
    /// let standby = postgres.standby().await?;
    /// let pool = sqlx::PgPool::connect_with(standby.connect_options()).await?;
    /// drop(postgres); // The server fails, ...
    /// sqlx::query("SELECT pg_promote()").execute(&pool).await?; // ... and its standby takes over.
    /// # Ok(())
    /// # }
    /// ```
    pub fn standby(&self) -> impl Future<Output = Result<Self, EmbeddedError>> + Send {
        let server = Arc::clone(&self.0);
        blocking(move || server.standby()).boxed()
    }

    /// Stops the server, ending all sessions, and removes the folder if it is temporary.
    ///
    /// # Errors
    ///
    /// The server does not stop, or the folder could not be removed.
    ///
    /// # Cancel safety
    ///
    /// The stop continues in the background when the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(postgres: scoop_embedded::Embedded) -> Result<(), scoop_embedded::EmbeddedError> {
    /// postgres.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop(self) -> impl Future<Output = Result<(), EmbeddedError>> + Send {
        blocking(move || self.0.end()).boxed()
    }
}

/// The way to stop a server before it starts again, see [`Embedded::restart`].
///
/// ```
/// # mod scoop { pub use scoop_embedded as embedded; }
/// use scoop::embedded::Shutdown;
///
/// assert_ne!(Shutdown::Fast, Shutdown::Immediate);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Ends all sessions and writes everything out.
    Fast,
    /// Ends all processes at once, like a crash; the next start recovers from the write-ahead log.
    Immediate,
}

/// Settings of a server, see [`Embedded::builder`].
///
/// ```no_run
/// # use scoop_embedded::{Builder, Embedded, EmbeddedError};
/// # async fn example() -> Result<(), EmbeddedError> {
/// let builder: Builder = Embedded::builder();
/// let postgres = builder.setting("fsync", "on").start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Builder {
    settings: Vec<(String, String)>,
}

impl Builder {
    /// Sets a parameter of the server, as in `postgresql.conf`; the last value of a name counts.
    ///
    /// PostgreSQL checks the parameter at the start. The address on which the server listens cannot be changed.
    ///
    /// ```
    /// # mod scoop { pub use scoop_embedded as embedded; }
    /// use scoop::embedded::Embedded;
    ///
    /// let builder = Embedded::builder().setting("max_connections", "20").setting("log_lock_waits", "on");
    /// ```
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Starts a temporary server, in a new folder that is removed at the end.
    ///
    /// The server runs with `fsync` and `full_page_writes` off, since it need not survive a power cut. All committed
    /// data survives [`Shutdown::Immediate`], so `synchronous_commit` stays on: without `fsync` that costs little.
    ///
    /// # Errors
    ///
    /// The programs are missing and, with the feature `download`, could not be downloaded; or the server did not start,
    /// with the end of its log.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the server is stopped and its folder removed in the background.
    ///
    /// ```no_run
    /// # use scoop_embedded::{Embedded, EmbeddedError};
    /// # async fn example() -> Result<(), EmbeddedError> {
    /// let postgres = Embedded::builder().setting("max_connections", "20").start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(self) -> impl Future<Output = Result<Embedded, EmbeddedError>> + Send {
        blocking(move || Server::start(None, self.settings)).boxed()
    }

    /// Starts a server whose data is kept in a folder, which is created at the first use.
    ///
    /// The folder has to be empty at the first use, and is then closed to other users. If another server has the folder,
    /// such as that of a killed owner, the start waits ten seconds for its end.
    ///
    /// # Errors
    ///
    /// The folder has a live owner, or contains other files; and the reasons of [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the server is stopped in the background.
    ///
    /// ```no_run
    /// # use scoop_embedded::{Embedded, EmbeddedError};
    /// # async fn example() -> Result<(), EmbeddedError> {
    /// let postgres = Embedded::builder().setting("log_statement", "all").start_in("target/postgres").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_in(
        self,
        folder: impl AsRef<Path>,
    ) -> impl Future<Output = Result<Embedded, EmbeddedError>> + Send {
        let folder = folder.as_ref().to_owned();
        blocking(move || Server::start(Some(&folder), self.settings)).boxed()
    }
}

/// Runs blocking work on a thread of its own: starting and stopping wait for processes and files, which would block
/// the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EmbeddedError> + Send + 'static,
) -> Result<T, EmbeddedError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic()))
}
