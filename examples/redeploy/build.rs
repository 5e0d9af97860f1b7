//! A running build: a child process, started, told to end, or killed.

use std::env;
use std::process::{ExitStatus, Stdio};

use scoop::prelude::*;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::shop::{Courier, Picking, SCHEMA, connect};

/// The build serves until its standard input ends. What `main` does in a child process.
pub async fn serve<Checkout: Saga>() -> Result<()> {
    let variable = |name| env::var(name).map_err(|_| Error::msg(format!("{name} is not set")));
    let (url, schema) = (variable("DATABASE_URL")?, variable(SCHEMA)?);
    let program = Scoop::builder().postgres(connect(&url, &schema).await?).schema(schema);
    let scoop = program.only::<Checkout>().only::<Picking>().only::<Courier>().start().await?;
    let mut stdout = tokio::io::stdout();
    stdout.write_all(b"ready\n").await?;
    stdout.flush().await?;
    tokio::io::stdin().read_to_end(&mut vec![]).await?;
    scoop.shutdown().await?;
    Ok(())
}

/// A child process that serves.
pub struct Build {
    name: &'static str,
    process: Child,
}

impl Build {
    /// Starts a build. It is registered, and so the newest, when this returns.
    pub async fn start(name: &'static str, url: &str, schema: &str) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .arg(name)
            .envs([("DATABASE_URL", url), (SCHEMA, schema)])
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

    /// Ends it in good order: the steps in flight end first.
    pub async fn end(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        let status: ExitStatus = self.process.wait().await?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::msg(format!("`{}` ended with {status}", self.name))),
        }
    }

    /// Kills it in the middle of what it does.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}
