//! This program again, as a process with an engine: for the measures that need several, or one to look at from outside.
//!
//! It is told what to do line by line, and answers so. It ends when nobody talks to it any more.

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

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs the sagas of this program.
    Plain,
    /// Says, too, when each hierarchy of `Idle` has ended.
    Telling,
    /// Runs a thousand sagas that nobody launches.
    Thousand,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Plain, Self::Telling, Self::Thousand];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Telling => "telling",
            Self::Thousand => "thousand",
        }
    }
}

/// A worker, seen by who has started it. It dies with this.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts one, which connects and waits for [`Worker::go`].
    pub(crate) async fn spawn(kind: Kind, url: &str, settings: &Settings) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
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

    /// Has it start its engine, and does not wait.
    pub(crate) async fn order(&mut self, order: &str) -> Outcome<()> {
        Ok(self.orders.write_all(format!("{order}\n").as_bytes()).await?)
    }

    /// The next line that it says.
    pub(crate) async fn answer(&mut self) -> Outcome<String> {
        let line = tokio::time::timeout(PATIENCE, self.answers.next_line()).await?;
        Ok(line?.ok_or("the worker has died; it says why above")?)
    }

    /// Its process.
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

/// What such a process does.
pub(crate) async fn work(kind: &str, url: &str, settings: &Settings) -> Outcome<()> {
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind).ok_or("no such kind of worker")?;
    let (roots, told) = mpsc::unbounded_channel();
    let meter = if kind == Kind::Telling { Meter::telling(roots) } else { Meter::default() };
    let builder = server::engine(url, settings, &meter).await?;
    let builder = if kind == Kind::Thousand { thousand::with_them(builder) } else { builder };
    println!("connected");
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    if orders.next_line().await?.is_none() {
        return Ok(());
    }
    let scoop = builder.start().await?;
    println!("started");
    let telling = tokio::spawn(tell(scoop.clone(), told));
    obey(&mut orders, &meter).await?;
    telling.abort();
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

/// Says when each hierarchy has ended, as whoever waits for it here learns of it.
async fn tell(scoop: Scoop, mut roots: mpsc::UnboundedReceiver<(i64, scoop::Lineage)>) {
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
