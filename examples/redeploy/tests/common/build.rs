//! A running build: a child process that is started, shut down or killed.

use std::process::{ExitStatus, Stdio};

use redeploy::{BUILD, SCHEMA};
use scoop::prelude::*;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const BEFORE: &str = env!("CARGO_BIN_EXE_before");
const AFTER: &str = env!("CARGO_BIN_EXE_after");

/// A child process that runs sagas.
pub(crate) struct Build {
    name: &'static str,
    process: Child,
}

impl Build {
    pub(crate) async fn before(name: &'static str, url: &str, schema: &str) -> Result<Self> {
        Self::start(BEFORE, name, url, schema).await
    }

    pub(crate) async fn after(url: &str, schema: &str) -> Result<Self> {
        Self::start(AFTER, "after", url, schema).await
    }

    /// Starts a build. It is registered, and so the newest, when this returns.
    async fn start(program: &str, name: &'static str, url: &str, schema: &str) -> Result<Self> {
        let mut process = Command::new(program)
            .envs([("DATABASE_URL", url), (SCHEMA, schema), (BUILD, name)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| Error::msg("the child has no output"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await?;
        match &*line {
            "ready\n" => Ok(Self { name, process }),
            other => Err(Error::msg(format!("`{name}` did not start: {other:?}"))),
        }
    }

    /// Shuts it down: the steps in flight end first.
    pub(crate) async fn end(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        let status: ExitStatus = self.process.wait().await?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::msg(format!("`{}` ended with {status}", self.name))),
        }
    }

    /// Kills it without a shutdown.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}
