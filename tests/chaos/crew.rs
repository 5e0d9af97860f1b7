//! The worker processes, each with a keeper that kills it when this process is gone for any reason.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use scoop::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdout, Command};

use crate::{clock, worker};

/// Passes on the signals it reads, and kills the worker when its input is closed. The kernel closes the pipe
/// when we end, and SIGKILL also reaches a stopped process.
const KEEPER: &str = r#"
trap '' HUP INT QUIT TERM
"$@" </dev/null &
worker=$!
exec >/dev/null
while read -r signal; do
    kill -s "$signal" "$worker" 2>/dev/null
done
kill -s KILL "$worker" 2>/dev/null
wait "$worker" 2>/dev/null
"#;

/// How long an orderly shutdown of a worker may take.
const LEAVES_WITHIN: Duration = Duration::from_secs(20);

/// The settings of all workers.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) database: String,
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
}

impl Orders {
    /// The file for effects outside.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }
}

/// One worker process.
pub(crate) struct Worker {
    pub(crate) name: String,
    keeper: Child,
    /// Ends when the worker does.
    output: ChildStdout,
    clock: PathBuf,
}

impl Worker {
    /// Starts one, with a clock that can be moved if `faketime` is given.
    pub(crate) fn hire(orders: &Orders, number: usize, faketime: Option<&Path>) -> Result<Self> {
        let name = format!("chaos-worker-{number}");
        let clock = orders.folder.join(&name);
        let mut keeper = Command::new("/bin/sh");
        keeper.args(["-c", KEEPER, "scoop-chaos-keeper", "/usr/bin/env"]);
        if let Some(faketime) = faketime {
            clock::set(&clock, 0)?;
            keeper.args(clock::variables(faketime, &clock));
        }
        keeper.arg(std::env::current_exe()?).env(worker::NAME, &name);
        keeper.env(worker::DATABASE, &orders.database).env(worker::LEDGER, orders.ledger());
        keeper.env(worker::SEED, orders.seed.to_string());
        let mut keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = keeper.stdout.take().ok_or_else(|| Error::msg("the keeper has no output"))?;
        Ok(Self { name, keeper, output, clock })
    }

    pub(crate) async fn signal(&mut self, signal: &str) -> Result<()> {
        if let Some(orders) = &mut self.keeper.stdin {
            orders.write_all(format!("{signal}\n").as_bytes()).await?;
        }
        Ok(())
    }

    /// Sets its clock to so many seconds from the right time.
    pub(crate) fn set_clock(&self, seconds: i64) -> Result<()> {
        clock::set(&self.clock, seconds)
    }

    /// Whether it still runs, as it should until it is stopped.
    pub(crate) async fn lives(&mut self) -> bool {
        tokio::time::timeout(Duration::ZERO, self.output.read_u8()).await.is_err()
    }

    /// Stops it in good order.
    pub(crate) async fn dismiss(mut self) -> Result<()> {
        self.signal("TERM").await?;
        let gone = tokio::time::timeout(LEAVES_WITHIN, self.output.read_to_end(&mut vec![])).await;
        gone.map_err(|_| Error::msg(format!("{} received a request to stop and does not", self.name)))??;
        self.kill().await
    }

    /// Kills it.
    pub(crate) async fn kill(mut self) -> Result<()> {
        drop(self.keeper.stdin.take());
        self.keeper.wait().await?;
        Ok(())
    }
}
