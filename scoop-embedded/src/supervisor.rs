//! A server bound to the life of this process: a small shell script stops it as soon as this process has ended,
//! however it ended.
//!
//! The script's standard input is a pipe whose only other end is in this process (pipes of the standard library are
//! closed in other child processes). The kernel closes it when this process ends, even by `SIGKILL`. Until then this
//! process sends orders through it, one per line: the name of a signal for the server, or `keep`, to remove nothing
//! at the end.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::binaries::Binaries;
use crate::data_dir::{DataDir, remove_file};
use crate::error::{EmbeddedError, IoContext};
use crate::process::Server;

/// The arguments: the file that records the end of the server, the folder to remove at the end or nothing, the
/// server's command.
///
/// Standard output is the lock of the home, which only the script itself keeps open; standard error is the log. The
/// signals that end processes at a terminal or in a service are ignored: only the pipe decides.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
ended=$1 doomed=$2
shift 2
exec 3<&0

"$@" </dev/null >&2 3<&- &
server=$!

{
    kept=0
    while read -r order; do
        case $order in
            keep) kept=1 ;;
            *) [ -e "$ended" ] || kill -s "$order" "$server" ;;
        esac
    done
    # A server that has only just begun misses signals.
    until [ -e "$ended" ]; do
        kill -s INT "$server" || break
        sleep 0.1 || sleep 1
    done
    exit "$kept"
} <&3 >&2 3<&- &
listener=$!

exec </dev/null 3<&-
wait "$server"
echo "$?" >"$ended" || exit
wait "$listener" && [ -n "$doomed" ] && rm -rf "$doomed"
"#;

const READY_WITHIN: Duration = Duration::from_secs(30);
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
const KILLED_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);
const LOG_LINES: usize = 20;

/// The way to stop a server before it starts again, see [`Embedded::restart`](crate::Embedded::restart).
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

/// Whether the folder of [`DataDir::doomed`] is removed after the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnExit {
    Keep,
    Remove,
}

/// The supervisor of a server.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    orders: Option<ChildStdin>,
    ended: PathBuf,
}

impl Supervisor {
    /// Starts a server and waits until it accepts connections.
    pub(crate) fn launch(
        home: &DataDir,
        binaries: &Binaries,
        settings: &[(String, String)],
    ) -> Result<Self, EmbeddedError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let log_start = fs::metadata(home.log()).map_or(0, |log| log.len());
            let mut supervisor = Self::spawn(home, binaries, settings)?;
            let Err(error) = supervisor.wait_until_ready(home, log_start) else { return Ok(supervisor) };
            // A failure to stop is ignored: the failure to start is the more useful error.
            let _ = supervisor.end(Shutdown::Immediate, OnExit::Keep, home);
            if !is_passing(&error) || Instant::now() > deadline {
                return Err(error);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Stops the server, with a stronger signal if it does not obey, and ends the supervisor.
    pub(crate) fn end(mut self, how: Shutdown, on_exit: OnExit, home: &DataDir) -> Result<(), EmbeddedError> {
        let stopped = self.stop_server(how, home);
        self.finish(on_exit);
        stopped
    }

    fn spawn(
        home: &DataDir,
        binaries: &Binaries,
        settings: &[(String, String)],
    ) -> Result<Self, EmbeddedError> {
        let ended = home.folder().join("ended");
        remove_file(&ended)?;
        let log = home.account().open(OpenOptions::new().create(true).append(true), &home.log());
        let log = log.at("open", &home.log())?;
        let mut script = home.account().command("/bin/sh");
        script.args(["-c", SCRIPT, "scoop-pg-supervisor"]).arg(&ended);
        script.arg(home.doomed().unwrap_or(Path::new("")));
        add_server(&mut script, home, binaries, settings);
        script.stdin(Stdio::piped()).stdout(home.share_lock()?).stderr(log);
        // Ctrl-C at a terminal signals the whole foreground group, but the script has to outlive this process.
        script.process_group(0);
        let mut child = script
            .spawn()
            .map_err(|source| EmbeddedError::Command { command: "/bin/sh".to_owned(), source })?;
        let orders = child.stdin.take();
        Ok(Self { child, orders, ended })
    }

    fn wait_until_ready(&mut self, home: &DataDir, log_start: u64) -> Result<(), EmbeddedError> {
        let deadline = Instant::now() + READY_WITHIN;
        while !Server::of(&home.data()).is_some_and(|server| server.is_ready) {
            let folder = home.folder().to_owned();
            let log = || tail(home, log_start);
            if self.has_server_ended() {
                return Err(EmbeddedError::Exited { folder, log: log() });
            }
            if Instant::now() > deadline {
                let seconds = READY_WITHIN.as_secs();
                return Err(EmbeddedError::NotReady { folder, seconds, log: log() });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn stop_server(&mut self, how: Shutdown, home: &DataDir) -> Result<(), EmbeddedError> {
        self.order(match how {
            Shutdown::Fast => "INT",
            Shutdown::Immediate => "QUIT",
        });
        if self.wait_for_end(STOPPED_WITHIN) {
            return Ok(());
        }
        self.order("QUIT");
        match self.wait_for_end(KILLED_WITHIN) {
            true => Ok(()),
            false => Err(EmbeddedError::Unstoppable { folder: home.folder().to_owned() }),
        }
    }

    /// Closes the pipe, after which the script ends if the server has ended.
    fn finish(mut self, on_exit: OnExit) {
        if on_exit == OnExit::Keep {
            self.order("keep");
        }
        drop(self.orders.take());
        let deadline = Instant::now() + KILLED_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(PAUSE);
        }
    }

    /// Sends an order. A failure is ignored: the script has then ended, which the callers that wait for it notice.
    fn order(&mut self, order: &str) {
        if let Some(orders) = &mut self.orders {
            let _ = orders.write_all(format!("{order}\n").as_bytes());
        }
    }

    fn wait_for_end(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while !self.has_server_ended() {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }

    /// Whether the server has ended, or its supervisor: without that its end cannot be observed, and
    /// [`stop_unwatched`](crate::process::stop_unwatched) has to stop it.
    fn has_server_ended(&mut self) -> bool {
        self.ended.exists() || !matches!(self.child.try_wait(), Ok(None))
    }
}

/// Adds the server's command. The settings of the caller come before those that connecting depends on, which take
/// precedence.
fn add_server(command: &mut Command, home: &DataDir, binaries: &Binaries, settings: &[(String, String)]) {
    command.arg(binaries.program("postgres")).arg("-D").arg(home.data());
    let mut set = |name: &str, value: &str| {
        command.arg("-c").arg(format!("{name}={value}"));
    };
    set("listen_addresses", "");
    set("max_connections", "200");
    if home.is_temporary() {
        set("fsync", "off");
        set("full_page_writes", "off");
    }
    for (name, value) in settings {
        set(name, value);
    }
    set("port", "5432");
    // The value is a list, in which quotes protect a comma; a path that is not text never gets here.
    let socket = home.socket().to_string_lossy().replace('"', "\"\"");
    set("unix_socket_directories", &format!("\"{socket}\""));
}

/// Whether the start failed only because the last processes of a killed server had not ended yet.
fn is_passing(error: &EmbeddedError) -> bool {
    matches!(error, EmbeddedError::Exited { log, .. } if log.contains("pre-existing shared memory block"))
}

fn tail(home: &DataDir, start: u64) -> String {
    let mut bytes = vec![];
    let log = home.account().open(OpenOptions::new().read(true), &home.log());
    // A partial log is better than none.
    let _ = log.and_then(|mut log| log.read_to_end(&mut bytes));
    let start = usize::try_from(start).unwrap_or(usize::MAX).min(bytes.len());
    let text = String::from_utf8_lossy(&bytes[start..]);
    let mut lines: Vec<&str> = text.lines().rev().take(LOG_LINES).collect();
    lines.reverse();
    lines.join("\n")
}
