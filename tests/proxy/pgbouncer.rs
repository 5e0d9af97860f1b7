//! A PgBouncer in front of the database of a test.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgPool};

use scoop_test_support::eventually;
use scoop_test_support::postgres::Database;

/// Ends the proxy when its standard input is closed, also because this process was killed.
const UNTIL_WE_END: &str = r#""$@" <&- & proxy=$!; read -r _; kill -s INT "$proxy"; wait "$proxy""#;

/// A running PgBouncer. It ends when this is dropped.
pub(crate) struct PgBouncer {
    folder: PathBuf,
    supervisor: Child,
    options: PgConnectOptions,
}

impl PgBouncer {
    /// One that hands out so many sessions of the server, transaction by transaction.
    pub(crate) async fn in_front_of(database: &Database, sessions: u32) -> Self {
        Self::with(database, &format!("pool_mode = transaction\ndefault_pool_size = {sessions}")).await
    }

    /// One with these settings.
    pub(crate) async fn with(database: &Database, settings: &str) -> Self {
        let server = (*database.pool().connect_options()).clone();
        let folder = std::env::temp_dir().join(format!("scoop-pgbouncer-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&folder).expect("a folder can be made");
        let config = folder.join("pgbouncer.ini");
        fs::write(&config, configuration(&server, &folder, settings)).expect("a file can be written");
        let supervisor = start(&config, &server);
        let options = server.clone().socket(&folder).port(6432).statement_cache_capacity(0);
        let proxy = Self { folder, supervisor, options };
        eventually("PgBouncer listens", async || proxy.options.connect().await.is_ok()).await;
        proxy
    }

    /// How to connect through it.
    pub(crate) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// A pool of connections through it.
    pub(crate) async fn pool(&self, connections: u32) -> PgPool {
        let pool = PgPoolOptions::new().max_connections(connections).test_before_acquire(false);
        pool.connect_with(self.options()).await.expect("the proxy answers")
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn configuration(server: &PgConnectOptions, folder: &Path, settings: &str) -> String {
    let socket = server.get_socket().map(|folder| folder.display().to_string());
    let host = socket.unwrap_or_else(|| server.get_host().to_owned());
    let (port, user) = (server.get_port(), server.get_username());
    let password = server.to_url_lossy().password().map(|password| format!("password={password}"));
    let (password, folder) = (password.unwrap_or_default(), folder.display());
    // Access to the folder is the only authentication.
    format!(
        "[databases]\n\
         * = host={host} port={port} user={user} {password}\n\
         [pgbouncer]\n\
         auth_type = any\n\
         listen_port = 6432\n\
         unix_socket_dir = {folder}\n\
         logfile = {folder}/log\n\
         ignore_startup_parameters = extra_float_digits\n\
         {settings}\n"
    )
}

/// PgBouncer refuses to run as root. For root it runs as the user of the server if that can be found, otherwise
/// as the unprivileged user 65534.
fn start(config: &Path, server: &PgConnectOptions) -> Child {
    let folder = config.parent().expect("it is in a folder");
    let owner = |path: &Path| fs::metadata(path).map(|file| (file.uid(), file.gid()));
    let us = owner(folder).expect("the folder was just made");
    let mut command = Command::new("sh");
    command.args(["-c", UNTIL_WE_END, "sh", program()]).arg(config);
    if us.0 == 0 {
        let (uid, gid) = server.get_socket().and_then(|socket| owner(socket).ok()).unwrap_or((65534, 65534));
        chown(folder, Some(uid), Some(gid)).expect("root may give things away");
        command.uid(uid).gid(gid);
    }
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("there is a shell")
}

/// Debian installs it in a folder that only root has in its path.
fn program() -> &'static str {
    let candidates = ["pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer"];
    let runs = |program: &&str| match Command::new(program).arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        answer => answer.expect("it can be run").status.success(),
    };
    let found = candidates.into_iter().find(runs);
    found.expect("this test needs PgBouncer: `apt-get install pgbouncer` or the like")
}
