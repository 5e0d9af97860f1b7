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
//!   `std::process::exit` or `SIGKILL`, because a supervising process waits for the end of the owner. A temporary
//!   folder is removed with it. If the supervisor is killed, too, the next start cleans up.
//! - A kept folder has one owner at a time.
//!
//! The programs are searched for in the folder named by `SCOOP_PG_BIN`, and nowhere else if that is set. Otherwise
//! they are searched for in `pg_config --bindir`, on the `PATH`, and where Debian, RPM, Homebrew, Postgres.app and
//! Alpine put them, newest first. At least PostgreSQL 15 is needed; kept data needs the version that made it.
//!
//! With the feature `download`, a machine without these programs gets them from
//! [`theseus-rs/postgresql-binaries`](https://github.com/theseus-rs/postgresql-binaries), unless `SCOOP_PG_BIN` is set.
//! The archive is checked against the SHA-256 published beside it (one without is refused), and unpacked once for each
//! user: into `scoop-postgresql` in `$XDG_CACHE_HOME`, by default `~/.cache`, which is closed to other users; for root into
//! `/var/cache/scoop-postgresql`, to which only root may write. It may be deleted while no server runs.
//!
//! PostgreSQL refuses to run as root. For root the server runs as the owner of the kept folder, else as `postgres`,
//! else as `nobody`.
//!
//! Not supported: Windows, TCP, and several processes that share one [`Embedded`] beyond connecting to its
//! [`url`](Embedded::url).

mod binaries;
mod data_dir;
#[cfg(any(feature = "download", test))]
#[cfg_attr(not(feature = "download"), expect(dead_code, reason = "only its tests use it"))]
mod download;
mod error;
mod os_user;
mod process;
mod stale_dirs;
mod supervisor;
mod telemetry;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

pub use error::EmbeddedError;
pub use supervisor::Shutdown;

use binaries::Binaries;
use data_dir::DataDir;
use os_user::Account;
use process::Server;
use supervisor::{OnExit, Supervisor};

/// A private PostgreSQL server, stopped when this is dropped.
///
/// Dropping blocks until the server has stopped, about a tenth of a second. [`stop`](Self::stop) does not block, and
/// returns the error if the server cannot be stopped.
#[derive(Debug)]
pub struct Embedded {
    folder: PathBuf,
    socket: PathBuf,
    cluster: Arc<Cluster>,
}

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
    #[must_use]
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
    #[must_use]
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
    #[must_use]
    pub fn options_for(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(&self.socket)
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
    #[must_use]
    pub fn is_installed() -> bool {
        Account::for_new_cluster().is_ok_and(|account| Binaries::exist(&account))
    }

    /// [`connect_options`](Self::connect_options) as a URL, which psql and most clients accept.
    ///
    /// ```no_run
    /// # fn example(postgres: scoop_embedded::Embedded) {
    /// println!("psql {}", postgres.url());
    /// # }
    /// ```
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}:5432/postgres", percent_encoded(&self.socket.to_string_lossy()))
    }

    /// The folder with the data and `server.log`.
    ///
    /// ```no_run
    /// # fn example(postgres: scoop_embedded::Embedded) {
    /// println!("see {}", postgres.folder().join("server.log").display());
    /// # }
    /// ```
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The pid of the server's main process; `None` while it does not run, as during a restart.
    ///
    /// ```no_run
    /// # fn example(postgres: scoop_embedded::Embedded) {
    /// assert!(postgres.process_id().is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        Server::of(&data_dir::data_in(&self.folder)).map(|server| server.pid)
    }

    /// Stops the server and starts it again, in the same folder with the same settings. Starts it if it has crashed.
    ///
    /// Connections break. Committed data survives, whichever [`Shutdown`] is chosen.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::Unstoppable`], or the reason for which the server did not start again; then the restart can
    /// be repeated.
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
        let cluster = Arc::clone(&self.cluster);
        blocking(move || cluster.restart(how)).boxed()
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
        let (cluster, socket) = (Arc::clone(&self.cluster), self.socket.clone());
        blocking(move || {
            let home = DataDir::temporary(cluster.running().home.account().clone())?;
            home.copy(&cluster.binaries, &socket)?;
            Embedded::launch(home, cluster.binaries.clone(), cluster.settings.clone())
        })
        .boxed()
    }

    /// Stops the server, ending all sessions, and removes the folder if it is temporary.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::Unstoppable`], or the reason for which the folder could not be removed.
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
        blocking(move || self.cluster.stop()).boxed()
    }
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
    /// [`EmbeddedError::NotInstalled`] if the programs are missing (with the feature `download`, `NotDownloaded` if
    /// that failed), or the failure of a program or of the server itself.
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
        blocking(move || {
            let account = Account::for_new_cluster()?;
            let binaries = Binaries::find(&account)?;
            stale_dirs::remove_all(&account, &binaries);
            Embedded::launch(DataDir::temporary(account)?, binaries, self.settings)
        })
        .boxed()
    }

    /// Starts a server whose data is kept in a folder, which is created at the first use.
    ///
    /// The folder has to be empty at the first use, and is then closed to other users. If the former server of the
    /// folder is still stopping, the start waits for it. If it has lost its supervisor, the start stops it.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::Occupied`] if the folder has a live owner, [`EmbeddedError::Foreign`] if it contains other
    /// files, [`EmbeddedError::Unreachable`] if root gives a folder that the account of the server cannot reach,
    /// [`EmbeddedError::OtherVersion`], and those of [`start`](Self::start).
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
    pub async fn start_in(self, folder: impl AsRef<Path>) -> Result<Embedded, EmbeddedError> {
        self.start_kept(folder.as_ref().to_owned()).await
    }

    fn start_kept(self, folder: PathBuf) -> BoxFuture<'static, Result<Embedded, EmbeddedError>> {
        blocking(move || {
            let account = Account::for_new_cluster()?;
            let home = DataDir::kept(&folder, account.clone())?;
            let binaries = match home.made_by() {
                Some(version) => Binaries::find_version(version, home.folder(), &account)?,
                None => Binaries::find(&account)?,
            };
            stale_dirs::remove_all(home.account(), &binaries);
            process::stop_unwatched(&home.data(), home.account(), &binaries)?;
            Embedded::launch(home, binaries, self.settings)
        })
        .boxed()
    }
}

impl Embedded {
    fn launch(
        home: DataDir,
        binaries: Binaries,
        settings: Vec<(String, String)>,
    ) -> Result<Self, EmbeddedError> {
        home.prepare(&binaries)?;
        let supervisor = Supervisor::launch(&home, &binaries, &settings)?;
        let (folder, socket) = (home.folder().to_owned(), home.socket().to_owned());
        let running = Mutex::new(Running { supervisor: Some(supervisor), home });
        Ok(Self { folder, socket, cluster: Arc::new(Cluster { running, binaries, settings }) })
    }
}

/// State that [`Embedded`] shares with its background tasks, which continue when a future is dropped.
#[derive(Debug)]
struct Cluster {
    running: Mutex<Running>,
    binaries: Binaries,
    settings: Vec<(String, String)>,
}

#[derive(Debug)]
struct Running {
    /// `None` after a stop, or after a restart that failed.
    supervisor: Option<Supervisor>,
    home: DataDir,
}

impl Cluster {
    fn restart(&self, how: Shutdown) -> Result<(), EmbeddedError> {
        let mut running = self.running();
        self.stop_server(&mut running, how, OnExit::Keep)?;
        running.supervisor = Some(Supervisor::launch(&running.home, &self.binaries, &self.settings)?);
        Ok(())
    }

    fn stop(&self) -> Result<(), EmbeddedError> {
        let mut running = self.running();
        self.stop_server(&mut running, Shutdown::Fast, OnExit::Remove)?;
        running.home.release()
    }

    /// Stops the server through its supervisor, and then directly: without a supervisor, or when that was killed, the
    /// server may still run.
    fn stop_server(
        &self,
        running: &mut Running,
        how: Shutdown,
        on_exit: OnExit,
    ) -> Result<(), EmbeddedError> {
        if let Some(supervisor) = running.supervisor.take() {
            supervisor.end(how, on_exit, &running.home)?;
        }
        process::stop_unwatched(&running.home.data(), running.home.account(), &self.binaries)
    }

    /// A poisoned lock is ignored: the next stop can handle any state that a panic left.
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            telemetry::stop_failed(&error);
        }
    }
}

/// Runs blocking work on a thread of its own: starting and stopping wait for processes and files, which would block
/// the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EmbeddedError> + Send + 'static,
) -> Result<T, EmbeddedError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(EmbeddedError::RuntimeGone),
        },
    }
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
