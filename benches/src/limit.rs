//! The limit: what pgbench reaches with the same writes, on the same server, in the same minute.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::outcome::Outcome;
use crate::server::{Database, Server};

/// How many clients the limit is taken with, and the callers of the measures that launch.
pub(crate) const CLIENTS: u32 = 16;

/// A script of ours, in `benches/sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// One saga step as six round trips.
    Step,
    /// The same, recorded in a table with all that the protocol's has.
    ProtocolStep,
    /// The same with 4 kB to carry.
    LoadedStep,
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

    /// Transactions a second with as many clients.
    pub(crate) async fn rate(&self, script: Script, clients: u32) -> Outcome<f64> {
        self.database.execute("TRUNCATE history, history_protocol, entry").await?;
        self.database.execute("VACUUM work").await?;
        self.database.execute("VACUUM work_4k").await?;
        let mut command = self.command(clients);
        command.args(["-T", &self.seconds.to_string()]);
        run(command, self.database.url(), script.text()).await
    }

    /// Transactions a second of that script in another database, so many by each of the usual clients. Each begins
    /// with 1 as `nth`.
    pub(crate) async fn rate_in(&self, database: &Database, script: &str, each: i64) -> Outcome<f64> {
        let mut command = self.command(CLIENTS);
        // As the sessions of the engine plan.
        command.env("PGOPTIONS", "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off");
        command.args(["-t", &each.to_string(), "-D", "nth=1", "-D", "first=0"]);
        run(command, database.url(), script).await
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

/// Transactions a second, as pgbench has it.
async fn run(mut command: Command, url: &str, script: &str) -> Outcome<f64> {
    command.args(["-f", "-"]).arg(url);
    let output = feed(command, script).await?;
    tps(&output).ok_or_else(|| format!("pgbench said nothing of tps:\n{output}").into())
}

/// What a command says when it is given this; what it complains about if it fails.
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
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn tps(output: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Beside the server's own programs first, so that versions fit.
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
    use super::tps;

    #[test]
    fn the_rate_is_found_in_what_pgbench_says() {
        let output =
            "number of failed transactions: 0 (0.000%)\ntps = 5647.25 (without initial connection time)\n";
        assert_eq!(tps(output), Some(5647.25));
        assert_eq!(tps("pgbench: error"), None);
    }
}
