//! A server in its folder, bound to the life of this process by a shell script.
//!
//! A folder has `data` (PostgreSQL's) and `server.log`. The user of the server may write to it, and this process may be
//! root: so only that user opens files there, but for `PG_VERSION`.

#[cfg(test)]
#[path = "../../scoop-runtime/src/telemetry/tests/guide_events.rs"]
mod guide_events;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::lchown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::account::{Account, run};
use crate::error::{EmbeddedError, Result, at};
use crate::{Embedded, Shutdown, binaries};

const SCRIPT: &str = include_str!("supervisor.sh");

/// Makes a temporary folder, with a path short enough for a socket.
const MAKE_TEMPORARY: &str = r#"
[ "${#TMPDIR}" -lt 60 ] && mktemp -d "${TMPDIR:-/tmp}/scoop-postgres-XXXXXX" 2>/dev/null ||
    mktemp -d /tmp/scoop-postgres-XXXXXX"#;

/// Why a server does not start while the last processes of the former one, or of its killed owner, have not ended.
const PASSING: [&str; 2] = ["pre-existing shared memory block", "lock file \"postmaster.pid\""];

/// How long a start waits for the former server of the folder.
const FREE_WITHIN: Duration = Duration::from_secs(10);
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// What a server has in common with its standby.
#[derive(Debug, Clone)]
struct Setup {
    account: Account,
    programs: PathBuf,
    settings: Vec<(String, String)>,
}

/// Stopped when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) folder: PathBuf,
    /// A temporary folder, which is that of the data unless one was given.
    pub(crate) socket: PathBuf,
    setup: Setup,
    /// The script and the process of the server. `None` after a stop, or after a restart that failed.
    supervisor: Mutex<Option<(Child, u32)>>,
}

impl Server {
    /// Starts a server in this folder, or in a temporary one.
    pub(crate) fn start(folder: Option<&Path>, settings: Vec<(String, String)>) -> Result<Embedded> {
        let mut account = Account::for_new_data()?;
        let version = folder.and_then(|folder| fs::read_to_string(folder.join("data/PG_VERSION")).ok());
        let programs = binaries::find(version.and_then(|version| version.trim().parse().ok()))?;
        let folder = folder.map(|folder| prepare(folder, &mut account)).transpose()?;
        Self::begin(folder, Setup { account, programs, settings }, "new")
    }

    /// Starts a server with a copy of the data, as a standby of this one.
    pub(crate) fn standby(&self) -> Result<Embedded> {
        Self::begin(None, self.setup.clone(), &self.socket.to_string_lossy())
    }

    fn begin(folder: Option<PathBuf>, setup: Setup, how: &str) -> Result<Embedded> {
        let socket = PathBuf::from(run(&mut setup.account.shell(MAKE_TEMPORARY))?);
        let folder = folder.unwrap_or_else(|| socket.clone());
        let server = Self { folder, socket, setup, supervisor: Mutex::default() };
        server.launch(&mut server.supervisor(), how)?;
        Ok(Embedded(Arc::new(server)))
    }

    pub(crate) fn restart(&self, how: Shutdown) -> Result<()> {
        let mut supervisor = self.supervisor();
        self.stop(&mut supervisor, if how == Shutdown::Fast { "INT" } else { "QUIT" })?;
        self.launch(&mut supervisor, "again")
    }

    /// Stops the server, and removes its temporary folder.
    pub(crate) fn end(&self) -> Result<()> {
        self.stop(&mut self.supervisor(), "INT")?;
        match self.socket.exists() {
            true => fs::remove_dir_all(&self.socket).map_err(at("remove", &self.socket)),
            false => Ok(()),
        }
    }

    pub(crate) fn process_id(&self) -> Option<u32> {
        let mut supervisor = self.supervisor.try_lock().ok()?;
        let (script, server) = supervisor.as_mut()?;
        is_running(script).then_some(*server)
    }

    /// Starts the server and waits until it accepts connections.
    fn launch(&self, supervisor: &mut Option<(Child, u32)>, how: &str) -> Result<()> {
        let deadline = Instant::now() + FREE_WITHIN;
        loop {
            let mut script = self.script(how).spawn().map_err(at("run", Path::new("/bin/sh")))?;
            let mut output = script.stdout.take().map(BufReader::new).expect("it is piped");
            let mut said = Vec::new();
            output.read_until(b'\n', &mut said).map_err(at("start PostgreSQL in", &self.folder))?;
            let line = String::from_utf8_lossy(&said);
            if let Some(server) = line.trim().strip_prefix("ready ").and_then(|server| server.parse().ok()) {
                *supervisor = Some((script, server));
                return Ok(());
            }
            output
                .read_to_end(&mut said)
                .and_then(|_| script.wait())
                .map_err(at("start PostgreSQL in", &self.folder))?;
            let said = String::from_utf8_lossy(&said);
            if Instant::now() > deadline || !PASSING.iter().any(|text| said.contains(text)) {
                let (folder, user) = (self.folder.display(), self.setup.account.note());
                return Err(format!("could not start PostgreSQL in {folder}{user}:\n{}", said.trim()).into());
            }
            thread::sleep(PAUSE);
        }
    }

    fn stop(&self, supervisor: &mut Option<(Child, u32)>, signal: &str) -> Result<()> {
        let Some((script, server)) = supervisor else { return Ok(()) };
        if !has_stopped(script, signal) && !has_stopped(script, "QUIT") {
            let folder = self.folder.display();
            return Err(format!("PostgreSQL in {folder} does not stop; end process {server}").into());
        }
        *supervisor = None;
        Ok(())
    }

    fn script(&self, how: &str) -> Command {
        let mut script = self.setup.account.shell(SCRIPT);
        script.args([&self.folder, &self.socket, &self.setup.programs]).arg(how);
        for (name, value) in &self.setup.settings {
            script.arg("-c").arg(format!("{name}={value}"));
        }
        // Ctrl-C at a terminal signals the whole foreground group, but the script has to outlive this process.
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        script
    }

    /// A poisoned lock is ignored: the next stop can handle any state that a panic left.
    fn supervisor(&self) -> MutexGuard<'_, Option<(Child, u32)>> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            report(&error);
        }
    }
}

/// The event of a server that was not stopped. It is an interface, listed in `docs/reference/telemetry.md`.
pub(crate) fn report(error: &EmbeddedError) {
    warn!(
        name: "stop_failed", target: "scoop::embedded", event = "stop_failed", error = %error,
        "private PostgreSQL not stopped as requested"
    );
}

/// Makes a folder for data that only the user of the server can open: for root its owner, if it has one.
fn prepare(folder: &Path, account: &mut Account) -> Result<PathBuf> {
    fs::create_dir_all(folder).map_err(at("make the folder", folder))?;
    let folder = folder.canonicalize().map_err(at("find the folder", folder))?;
    let is_empty = fs::read_dir(&folder).map_err(at("read the folder", &folder))?.next().is_none();
    if !is_empty && !folder.join("server.log").is_file() {
        return Err(format!("{} holds other files; give a new or an empty folder", folder.display()).into());
    }
    *account = account.or_owner_of(&fs::metadata(&folder).map_err(at("look at", &folder))?);
    if let Some((user, group)) = account.0 {
        lchown(&folder, Some(user), Some(group)).map_err(at("change the owner of", &folder))?;
    }
    Ok(folder)
}

/// Whether the script runs, which ends after the server.
fn is_running(script: &mut Child) -> bool {
    matches!(script.try_wait(), Ok(None))
}

/// Sends a signal to the server, and returns whether it has stopped.
fn has_stopped(script: &mut Child, signal: &str) -> bool {
    if let Some(signals) = &mut script.stdin {
        // If that fails, the script has ended.
        let _ = writeln!(signals, "{signal}");
    }
    let deadline = Instant::now() + STOPPED_WITHIN;
    while is_running(script) && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
    !is_running(script)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Subscriber};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::guide_events::{Row, rows};
    use super::{EmbeddedError, report};

    /// Collects the reported events.
    #[derive(Clone, Default)]
    struct Reported(Arc<Mutex<BTreeSet<Row>>>);

    impl<S: Subscriber> Layer<S> for Reported {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let metadata = event.metadata();
            let fields = metadata.fields().iter().map(|field| field.name().to_owned());
            let fields = fields.filter(|field| !["event", "message"].contains(&&**field)).collect();
            let [target, name, level] = [metadata.target(), metadata.name(), metadata.level().as_str()];
            self.0.lock().unwrap().insert((target.to_owned(), name.to_owned(), level.to_owned(), fields));
        }
    }

    #[test]
    fn page_of_the_guide_lists_exactly_the_reported_events() {
        let reported = Reported::default();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(reported.clone()), || {
            report(&EmbeddedError::from("an error".to_owned()));
        });
        let listed: BTreeSet<_> =
            rows().into_iter().filter(|(target, ..)| target == "scoop::embedded").collect();
        assert_eq!(*reported.0.lock().unwrap(), listed);
    }
}
