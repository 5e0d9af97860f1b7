//! B20: a run that continues as new many times: whether an execution costs the same after all the others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use scoop::prelude::*;

use crate::bench::Bench;
use crate::os_process;
use crate::outcome::Outcome as Answer;
use crate::sagas::Meter;
use crate::stats::percentile_ms;

/// Executions at the end of a run that sleep before they go on, so that each has to be claimed.
const SLEEPING: u64 = 40;

/// How long each of them sleeps.
const SLEEP: Duration = Duration::from_millis(20);

/// Calls of `tree` on a run.
const TREES: usize = 20;

/// Runs of a hundredth of the length, for comparison.
const SHORT_RUNS: usize = 3;

/// The message of [`Endless`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.endless")]
pub(crate) struct Execution {
    n: u64,
    /// Executions that go on at once.
    executions: u64,
    /// The time at which this one was to begin, if it was to be claimed; in nanoseconds since 1970.
    due: Option<u64>,
}

/// What the executions of one run note.
#[derive(Clone, Default)]
pub(crate) struct Marks(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    /// The begin of the run, of each hundredth of it, and the memory at that time, in bytes.
    hundredths: Vec<(Instant, u64)>,
    claims: Vec<Duration>,
    failed_at: Option<Instant>,
}

impl Marks {
    fn change<T>(&self, change: impl FnOnce(&mut Noted) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Goes on anew, fails in the end, and is rolled back to the begin of its last execution.
pub(crate) struct Endless(Marks);

#[saga]
#[subscribes(Execution)]
impl Endless {
    #[step(rollback = unturn)]
    async fn turn(
        &self,
        scope: &mut Scope<'_>,
        now: &Execution,
    ) -> Result<ContinueAsNew<EndlessStep, Execution>> {
        let Execution { n, executions, due } = *now;
        if let Some(due) = due {
            let late = (SystemTime::UNIX_EPOCH + Duration::from_nanos(due)).elapsed().unwrap_or_default();
            self.0.change(|noted| noted.claims.push(late));
        }
        if n <= executions && n % (executions / 100).max(1) == 0 {
            let memory = os_process::resident_bytes(std::process::id());
            self.0.change(|noted| noted.hundredths.push((Instant::now(), memory)));
        }
        if n >= executions + SLEEPING {
            return Ok(Next::Continue.into());
        }
        let mut due = None;
        if n >= executions {
            let at = (SystemTime::now() + SLEEP).duration_since(SystemTime::UNIX_EPOCH);
            due = at.ok().and_then(|at| u64::try_from(at.as_nanos()).ok());
            scope.sleep(SLEEP).await?;
        }
        Ok(Next::continue_as_new(Execution { n: n + 1, executions, due }))
    }

    async fn unturn(&self, _: &mut Scope<'_>, _: &Execution, _: &Failure) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn end(&self, _: &mut Scope<'_>, _: &Execution) -> Result<()> {
        self.0.change(|noted| noted.failed_at = Some(Instant::now()));
        Err(Error::msg("the last execution fails, as it should"))
    }
}

/// What a run has shown.
struct Shown {
    /// Executions a second: the medians of the first ten hundredths, and of the last ten.
    first: f64,
    last: f64,
    /// More memory at the end than after the first hundredth, in bytes.
    memory: f64,
    claim_ms: f64,
    rollback_ms: f64,
    tree_ms: f64,
}

pub(crate) async fn measure(bench: &mut Bench) -> Answer<()> {
    let executions = bench.settings.executions;
    let database = bench.server.database().await?;
    let marks = Marks::default();
    let builder = database.engine(&bench.settings, &Meter::default()).await?;
    let scoop = builder.provide(Endless(marks.clone())).only::<Endless>().start().await?;
    let mut short = vec![];
    for _ in 0..SHORT_RUNS {
        short.push(run(&scoop, &marks, executions / 100).await?);
    }
    let long = run(&scoop, &marks, executions).await?;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    bench.server.remove(database).await?;

    let median = |of: fn(&Shown) -> f64| crate::stats::median(&short.iter().map(of).collect::<Vec<_>>());
    bench.report.add("B20", long.last, Some(long.first));
    bench.report.add("B20 memory", long.memory / 1e6, None);
    bench.report.add("B20 claim", long.claim_ms, median(|shown| shown.claim_ms));
    bench.report.add("B20 rollback", long.rollback_ms, median(|shown| shown.rollback_ms));
    bench.report.add("B20 tree", long.tree_ms, median(|shown| shown.tree_ms));
    bench.report.note(format!("B20: {executions} executions of one run, once; `a hundredth` is the median of {SHORT_RUNS} runs of so many."));
    Ok(())
}

/// One run of so many executions.
async fn run(scoop: &scoop::Scoop, marks: &Marks, executions: u64) -> Answer<Shown> {
    marks.change(|noted| *noted = Noted::default());
    let run = scoop.launch(Execution { n: 0, executions, due: None }).await?;
    match run.wait().await? {
        Outcome::RolledBack(_) => {}
        other => return Err(format!("the run was to be rolled back, but {other}").into()),
    }
    // From the failure until the caller knows of the end.
    let (ended, noted) = (Instant::now(), marks.change(std::mem::take));
    let [_, (_, memory_first), .., (_, memory_last)] = noted.hundredths[..] else {
        return Err(format!("{executions} executions have no hundredths").into());
    };
    let rate = |time: Duration| executions as f64 / 100.0 / time.as_secs_f64();
    let rates: Vec<f64> =
        noted.hundredths.windows(2).map(|of| rate(of[1].0.duration_since(of[0].0))).collect();
    let tenth = rates.len() / 10;
    let rolled_back = ended - noted.failed_at.ok_or("the run has not failed")?;
    let mut trees = vec![];
    for _ in 0..TREES {
        let asked = Instant::now();
        run.tree().await?;
        trees.push(asked.elapsed());
    }
    Ok(Shown {
        first: crate::stats::median(&rates[..tenth]).ok_or("too few executions")?,
        last: crate::stats::median(&rates[rates.len() - tenth..]).ok_or("too few executions")?,
        memory: memory_last as f64 - memory_first as f64,
        claim_ms: percentile_ms(&noted.claims, 50),
        rollback_ms: rolled_back.as_secs_f64() * 1000.0,
        tree_ms: percentile_ms(&trees, 50),
    })
}
