//! The life and death of a worker process.

use std::io;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use scoop::{Error, Result};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe::Receiver;

use crate::sagas::Plot;
use crate::worker;

/// The time limit for an expected event, even on a busy machine.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(60);

/// The two ends of a worker: its orders, and what it says.
pub(crate) struct Worker {
    orders: ChildStdin,
    answers: Lines<BufReader<Receiver>>,
}

impl Worker {
    /// Starts one with these databases, and returns its process.
    pub(crate) fn hire(database: &str, outside: &str) -> Result<(Self, Child)> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(worker::DATABASE, database)
            .env(worker::OUTSIDE, outside)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().ok_or_else(|| Error::msg("the worker has no input"))?;
        let output = child.stdout.take().ok_or_else(|| Error::msg("the worker has no output"))?;
        let answers = Receiver::from_owned_fd(output.into())?;
        Ok((Self { orders, answers: BufReader::new(answers).lines() }, child))
    }

    /// Has it launch this hierarchy, unless it exists, and wait for its end.
    pub(crate) fn order(&mut self, plot: Plot, number: i64) -> io::Result<()> {
        use io::Write;
        // A worker that is dead already does not read it.
        match writeln!(self.orders, "{plot:?} {number}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    /// The next line that it writes; none if it is dead.
    pub(crate) async fn says(&mut self) -> Result<Option<String>> {
        let line = tokio::time::timeout(RETRY_FOR, self.answers.next_line()).await;
        Ok(line.map_err(|_| Error::msg("the worker says nothing for a minute"))??)
    }
}
