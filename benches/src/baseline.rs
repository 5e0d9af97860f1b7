//! The limit: the rate of pgbench with the same writes, on the same server, in the same minute.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::outcome::Outcome;
use crate::server::{Database, Server};

/// The first second does not count, neither of an engine nor of pgbench. Connections are opened then, and the
/// server plans each statement five times in each of the user's connections.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);

/// The clients of the limit, and the callers of the measures that launch.
pub(crate) const CLIENTS: u32 = 16;

/// A script of ours, in `benches/sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// One saga step as six round trips.
    Step,
    /// The same, with its record in a table with the columns and indexes of our table of events.
    ProtocolStep,
    /// The same with 4 kB to carry.
    LoadedStep,
}

/// A rate of pgbench.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Transactions per second, after the warm-up.
    pub(crate) per_second: f64,
    /// All transactions, warm-up included.
    pub(crate) transactions: f64,
}

/// The programs and tables for it.
pub(crate) struct Limit {
    pgbench: PathBuf,
    database: Database,
    seconds: u32,
}

impl Limit {
    /// Finds pgbench and makes its tables.
    pub(crate) async fn prepare(server: &Server, seconds: u32) -> Outcome<Self> {
        let pgbench = find_pgbench(server)?;
        let database = server.empty_database().await?;
        database.execute(include_str!("../sql/limit_setup.sql")).await?;
        Ok(Self { pgbench, database, seconds })
    }

    /// The rate with so many clients.
    pub(crate) async fn rate(&self, script: Script, clients: u32) -> Outcome<Rate> {
        self.database.execute("TRUNCATE history, history_protocol, entry").await?;
        self.database.execute("VACUUM work").await?;
        self.database.execute("VACUUM work_4k").await?;
        let mut command = self.command(clients);
        let seconds = u64::from(self.seconds) + WARM_UP.as_secs();
        command.args(["-T", &seconds.to_string(), "-P", "1"]);
        let said = run(command, self.database.url(), script.text()).await?;
        let rate = Rate::of(&said);
        rate.ok_or_else(|| format!("pgbench said nothing of its progress:\n{said}").into())
    }

    /// Transactions per second of that script in another database, so many by each of the usual clients. Each
    /// client begins with 1 as `nth`.
    pub(crate) async fn rate_in(&self, database: &Database, script: &str, each: i64) -> Outcome<f64> {
        let mut command = self.command(CLIENTS);
        // The sessions of the engine plan in the same way.
        command.env("PGOPTIONS", "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off");
        command.args(["-t", &each.to_string(), "-D", "nth=1", "-D", "first=0"]);
        let said = run(command, database.url(), script).await?;
        tps(&said).ok_or_else(|| format!("pgbench said nothing of tps:\n{said}").into())
    }

    fn command(&self, clients: u32) -> Command {
        let mut command = Command::new(&self.pgbench);
        command.args(["-n", "-M", "prepared"]);
        command.args(["-c", &clients.to_string(), "-j", &clients.min(2).to_string()]);
        command
    }
}

impl Script {
    fn text(self) -> &'static str {
        match self {
            Self::Step => include_str!("../sql/b_sep.sql"),
            Self::ProtocolStep => include_str!("../sql/b_sep_protocol.sql"),
            Self::LoadedStep => include_str!("../sql/b_sep_4k.sql"),
        }
    }
}

impl Rate {
    /// Reads the rate from pgbench's output with its progress second by second.
    fn of(said: &str) -> Option<Self> {
        let transactions = said.lines().find_map(|line| {
            line.strip_prefix("number of transactions actually processed: ")?.trim().parse().ok()
        })?;
        let progress = said.lines().filter_map(|line| {
            let (at, rest) = line.strip_prefix("progress: ")?.split_once(" s, ")?;
            let at: f64 = at.parse().ok()?;
            let tps: f64 = rest.split_once(" tps")?.0.parse().ok()?;
            Some((at, tps))
        });
        let (mut seconds, mut counted, mut last) = (0.0, 0.0, None);
        for (at, tps) in progress {
            if let Some(last) = last.replace(at).filter(|last| *last >= WARM_UP.as_secs_f64()) {
                seconds += at - last;
                counted += tps * (at - last);
            }
        }
        (seconds > 0.0).then(|| Self { per_second: counted / seconds, transactions })
    }
}

/// Runs a script with pgbench, and returns its output.
async fn run(mut command: Command, url: &str, script: &str) -> Outcome<String> {
    command.args(["-f", "-"]).arg(url);
    feed(command, script).await
}

/// Runs a command with this input. Returns its output, or its error output if it fails.
async fn feed(mut command: Command, text: &str) -> Outcome<String> {
    use tokio::io::AsyncWriteExt;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes()).await?;
    }
    let output = child.wait_with_output().await?;
    if !output.status.success() {
        return Err(format!("pgbench failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok([output.stderr, output.stdout].map(|said| String::from_utf8_lossy(&said).into_owned()).concat())
}

fn tps(output: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Prefers the one beside the server's own programs, so that the versions match.
fn find_pgbench(server: &Server) -> Outcome<PathBuf> {
    let mut folders: Vec<PathBuf> = server.programs().into_iter().collect();
    folders.extend(std::env::var_os("SCOOP_PG_BIN").map(PathBuf::from));
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    installed.sort();
    folders.extend(installed.into_iter().rev());
    let found = folders.iter().map(|folder| folder.join("pgbench")).find(|program| Path::is_file(program));
    found.ok_or_else(|| {
        "no pgbench here: it comes with the PostgreSQL server; set SCOOP_PG_BIN to its folder".into()
    })
}

#[cfg(test)]
mod tests {
    use super::{Rate, tps};

    #[test]
    fn rate_is_read_from_the_output_of_pgbench() {
        let output =
            "number of failed transactions: 0 (0.000%)\ntps = 5647.25 (without initial connection time)\n";
        assert_eq!(tps(output), Some(5647.25));
        assert_eq!(tps("pgbench: error"), None);
    }

    #[test]
    fn the_first_second_does_not_count() {
        let said = "progress: 1.0 s, 100.0 tps, lat 3.050 ms stddev 1.200, 0 failed\n\
                    progress: 2.0 s, 5000.0 tps, lat 3.050 ms stddev 1.200, 0 failed\n\
                    progress: 2.5 s, 6500.0 tps, lat 3.050 ms stddev 1.200, 0 failed\n\
                    number of transactions actually processed: 8350\n";
        assert_eq!(Rate::of(said), Some(Rate { per_second: 5500.0, transactions: 8350.0 }));
        let short = said.replace("progress: 2", "nothing: 2");
        assert_eq!(Rate::of(&short), None);
    }
}
