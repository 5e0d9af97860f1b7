//! This program again, as a process with an engine: for measures with several processes, or of a process from
//! outside.
//!
//! It reads orders line by line, and answers in lines. It ends when its input is closed.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use scoop::Scoop;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use crate::args::Settings;
use crate::outcome::Outcome;
use crate::sagas::Meter;
use crate::server;
use crate::thousand;

/// Limit of the wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The kind of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs the sagas of this program.
    Plain,
    /// Also reports the end of each hierarchy of `Idle`.
    Reporting,
    /// Runs a thousand sagas without any launch.
    Thousand,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Plain, Self::Reporting, Self::Thousand];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Reporting => "reporting",
            Self::Thousand => "thousand",
        }
    }
}

/// A worker, as seen by the process that has started it. Dropping this kills it.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts a worker, which connects and waits for [`Worker::go`].
    pub(crate) async fn spawn(kind: Kind, url: &str, settings: &Settings) -> Outcome<Self> {
        Self::spawn_of(&std::env::current_exe()?, kind, url, settings).await
    }

    /// The same of another build of this program.
    pub(crate) async fn spawn_of(
        program: &Path,
        kind: Kind,
        url: &str,
        settings: &Settings,
    ) -> Outcome<Self> {
        let mut command = Command::new(program);
        command.args(["work", kind.name(), url]);
        command.args(["--pool", &settings.pool.to_string()]);
        command.args(["--concurrency", &settings.concurrency.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, answers) = pipes.ok_or("the worker has no pipes")?;
        let mut worker = Self { child, orders, answers: BufReader::new(answers).lines() };
        worker.expect("connected").await?;
        Ok(worker)
    }

    /// Has it start its engine, and waits until that runs.
    pub(crate) async fn go(&mut self) -> Outcome<()> {
        self.order("go").await?;
        self.expect("started").await
    }

    /// Sends an order, and does not wait.
    pub(crate) async fn order(&mut self, order: &str) -> Outcome<()> {
        Ok(self.orders.write_all(format!("{order}\n").as_bytes()).await?)
    }

    /// Its next line.
    pub(crate) async fn answer(&mut self) -> Outcome<String> {
        let line = tokio::time::timeout(PATIENCE, self.answers.next_line()).await?;
        Ok(line?.ok_or("the worker has died; it says why above")?)
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Stops it in good order.
    pub(crate) async fn stop(self) -> Outcome<()> {
        let Self { mut child, orders, answers } = self;
        drop(orders);
        drop(answers);
        tokio::time::timeout(PATIENCE, child.wait()).await??;
        Ok(())
    }

    async fn expect(&mut self, expected: &str) -> Outcome<()> {
        match self.answer().await? {
            line if line == expected => Ok(()),
            line => Err(format!("the worker said {line}, not {expected}").into()),
        }
    }
}

/// The main function of such a process.
pub(crate) async fn work(kind: &str, url: &str, settings: &Settings) -> Outcome<()> {
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind).ok_or("no such kind of worker")?;
    let (roots, launched) = mpsc::unbounded_channel();
    let meter = if kind == Kind::Reporting { Meter::reporting(roots) } else { Meter::default() };
    let builder = server::engine(url, settings, &meter).await?;
    let builder = if kind == Kind::Thousand { thousand::with_them(builder) } else { builder };
    println!("connected");
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    if orders.next_line().await?.is_none() {
        return Ok(());
    }
    let scoop = builder.start().await?;
    println!("started");
    let reporting = tokio::spawn(report(scoop.clone(), launched));
    obey(&mut orders, &meter).await?;
    reporting.abort();
    scoop.shutdown().await?;
    Ok(())
}

async fn obey(orders: &mut Lines<BufReader<Stdin>>, meter: &Meter) -> Outcome<()> {
    while let Some(order) = orders.next_line().await? {
        match order.as_str() {
            "lateness" => {
                let late: Vec<_> =
                    meter.take_lateness().iter().map(|late| late.as_micros().to_string()).collect();
                println!("{}", late.join(" "));
            }
            unknown => return Err(format!("no such order: {unknown}").into()),
        }
    }
    Ok(())
}

/// Reports the end of each hierarchy, as a local caller of `wait` learns of it.
async fn report(scoop: Scoop, mut roots: mpsc::UnboundedReceiver<(i64, scoop::Lineage)>) {
    while let Some((n, lineage)) = roots.recv().await {
        let scoop = scoop.clone();
        tokio::spawn(async move {
            let ended = async { scoop.find(lineage.root_id()).await?.wait().await };
            let outcome = ended.await;
            let nanos =
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
            match outcome {
                Ok(_) => println!("{n} {nanos}"),
                Err(error) => eprintln!("hierarchy {n}: {error}"),
            }
        });
    }
}
