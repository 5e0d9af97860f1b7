//! The servers: a primary whose commits wait for its standby, or the server in `DATABASE_URL`.

use std::process::Command;
use std::time::Duration;

use scoop::embedded::{Embedded, Shutdown};
use scoop::{Error, Result};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, PgPool};

use crate::proxy::Target;

/// The number of sessions, besides the three for superusers. Few, so that a crowd soon fills the server.
pub(crate) const SESSIONS_MAX: usize = 120;

/// How long to wait before another look at a server that is not ready.
const LOOK: Duration = Duration::from_millis(10);

/// How long a standby may need to catch up.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// The servers and the database of the test.
pub(crate) struct Cluster {
    database: String,
    servers: Servers,
}

enum Servers {
    Own { primary: Embedded, standby: Option<Embedded> },
    Theirs { url: String },
}

impl Cluster {
    /// Starts servers of our own, or uses the one in `DATABASE_URL`, and creates a fresh database there.
    pub(crate) async fn start() -> Result<Self> {
        let servers = match std::env::var("DATABASE_URL") {
            Ok(url) => Servers::Theirs { url },
            Err(_) => {
                let builder = Embedded::builder().setting("synchronous_standby_names", "*");
                let builder = builder.setting("max_connections", (SESSIONS_MAX + 3).to_string());
                let builder = builder.setting("wal_retrieve_retry_interval", "50ms");
                // The audit needs the order of the commits.
                let builder = builder.setting("track_commit_timestamp", "on");
                let primary = builder.setting("wal_keep_size", "256MB").start().await?;
                let standby = Some(primary.standby().await?);
                Servers::Own { primary, standby }
            }
        };
        let cluster = Self { database: format!("chaos_{}", std::process::id()), servers };
        cluster.administer(format!("CREATE DATABASE {}", cluster.database)).await?;
        Ok(cluster)
    }

    /// Whether the servers may be restarted, and replaced by their standby.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.servers, Servers::Own { .. })
    }

    /// How to connect to the database directly, without the proxy.
    pub(crate) fn direct(&self) -> Result<PgConnectOptions> {
        match &self.servers {
            Servers::Own { primary, .. } => Ok(primary.options_for(&self.database)),
            Servers::Theirs { url } => Ok(url.parse::<PgConnectOptions>()?.database(&self.database)),
        }
    }

    /// The address that the proxy has to lead to.
    pub(crate) fn target(&self) -> Result<Target> {
        Ok(match &self.servers {
            Servers::Own { primary, .. } => Target::Socket(primary.folder().join(".s.PGSQL.5432")),
            Servers::Theirs { .. } => {
                let options = self.direct()?;
                match options.get_socket() {
                    Some(folder) => Target::Socket(folder.join(format!(".s.PGSQL.{}", options.get_port()))),
                    None => Target::Host(options.get_host().to_owned(), options.get_port()),
                }
            }
        })
    }

    /// The URL of the database by way of a proxy on this port.
    pub(crate) fn url_by(&self, port: u16) -> Result<String> {
        let user = match &self.servers {
            Servers::Own { .. } => "postgres".to_owned(),
            Servers::Theirs { .. } => {
                let url = self.direct()?.to_url_lossy();
                let (user, password) = (url.username(), url.password());
                password.map_or(user.to_owned(), |password| format!("{user}:{password}"))
            }
        };
        // The proxy's two ends negotiate encryption themselves; as a rule they are on one machine.
        Ok(format!("postgres://{user}@127.0.0.1:{port}/{}?sslmode=prefer", self.database))
    }

    /// Restarts the primary, if it is ours.
    pub(crate) async fn restart(&self, how: Shutdown) -> Result<()> {
        if let Servers::Own { primary, .. } = &self.servers {
            primary.restart(how).await?;
        }
        Ok(())
    }

    /// Kills the primary. Its standby takes its place, but is read-only until it is [promoted](Self::promote).
    pub(crate) async fn lose_primary(&mut self) -> Result<()> {
        let Servers::Own { primary, standby } = &mut self.servers else { return Ok(()) };
        let Some(heir) = standby.take() else { return Ok(()) };
        caught_up(primary).await?;
        if let Some(server) = primary.process_id() {
            Command::new("kill").args(["-s", "QUIT", &server.to_string()]).status()?;
        }
        std::mem::replace(primary, heir).stop().await?;
        Ok(())
    }

    /// Promotes the standby to primary. Commits wait until it has [another](Self::reinforce).
    pub(crate) async fn promote(&self) -> Result<()> {
        if let Servers::Own { primary, .. } = &self.servers {
            let mut session = primary.connect_options().connect().await?;
            sqlx::query("SELECT pg_promote()").execute(&mut session).await?;
        }
        Ok(())
    }

    /// Gives the primary a standby, if it has none.
    pub(crate) async fn reinforce(&mut self) -> Result<()> {
        if let Servers::Own { primary, standby: standby @ None } = &mut self.servers {
            *standby = Some(primary.standby().await?);
        }
        Ok(())
    }

    /// Stops our own servers, or drops the database.
    pub(crate) async fn end(self) -> Result<()> {
        match self.servers {
            Servers::Own { primary, standby } => {
                // First, so that the primary does not wait for the standby to confirm its commits.
                primary.stop().await?;
                if let Some(standby) = standby {
                    standby.stop().await?;
                }
                Ok(())
            }
            Servers::Theirs { .. } => {
                self.administer(format!("DROP DATABASE {} WITH (FORCE)", self.database)).await
            }
        }
    }

    async fn administer(&self, statement: String) -> Result<()> {
        let mut session = self.direct()?.database("postgres").connect().await?;
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut session).await?;
        Ok(())
    }
}

/// Waits until the standby has everything that may have been read on the primary. A server that has just been
/// restarted, or that stopped waiting when a session was terminated, may show commits that the standby does not
/// have yet.
async fn caught_up(primary: &Embedded) -> Result<()> {
    let options = PgPoolOptions::new().max_connections(1);
    let pool: PgPool = options.connect_lazy_with(primary.connect_options());
    let written: String =
        sqlx::query_scalar("SELECT pg_current_wal_insert_lsn()::text").fetch_one(&pool).await?;
    let has_it = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND flush_lsn >= $1::pg_lsn)";
    let begin = std::time::Instant::now();
    while !sqlx::query_scalar::<_, bool>(has_it).bind(&written).fetch_one(&pool).await? {
        if begin.elapsed() > RETRY_FOR {
            return Err(Error::msg("the standby does not catch up"));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
