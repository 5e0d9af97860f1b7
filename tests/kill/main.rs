//! Kills a worker at every point of a step, and counts the effects.
//!
//! A worker, a process of its own, runs hierarchies of four kinds ([`Plot`](sagas::Plot)). Its way to the database is a
//! proxy that reads its statements. First each plot is played without a death, which lists its statements: the claim, the
//! record that a step has begun, the calls of the step inside and outside, the settlement with its commit, the parent
//! check, and all others. Then it is played once for each of these points:
//!
//! * before the statement: the worker is killed (SIGKILL), and the server never gets the statement;
//! * after it: the server has carried it out, and the worker is killed before the answer gets to it.
//!
//! Another worker takes over and finishes the hierarchy. Then both ledgers, inside the database and outside, must have what
//! `docs/delivery.md` promises ([`books`]), and the log must keep the invariants (`scoop_audit`).
//!
//! ```text
//! cargo test --test kill                           # before the first execution of each statement, and after the last
//! cargo test --test kill -- --all                  # before and after each execution
//! cargo test --test kill -- --only Pays --point INSERT
//! SCOOP_KILL_LOG=1 cargo test --test kill          # with the warnings of the workers
//! ```
//!
//! The workers are this program again, hence a `main` of its own.

mod args;
mod books;
mod crew;
mod proxy;
mod sagas;
mod stage;
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use scoop::{Error, Result};

use args::Args;
use books::INTERRUPTED;
use proxy::{Moment, Point};
use sagas::Plot;
use stage::{Ended, Stage};

/// How many workers live at the same time, each on a stage of its own.
const STAGES: usize = 2;

/// The points that are still to be tried.
type Points = Arc<Mutex<VecDeque<(Plot, Point)>>>;

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::var_os(worker::DATABASE).is_some() {
        return match worker::work().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("a worker failed: {error:?}");
                ExitCode::FAILURE
            }
        };
    }
    println!("test kill ...");
    let begin = Instant::now();
    match attempt().await {
        Ok(()) => {
            println!("test kill ... ok in {:.1?}\n\nkill: 1 passed, 0 failed", begin.elapsed());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("test kill ... FAILED: {error}\n\nkill: 0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

async fn attempt() -> Result<()> {
    let args = Args::read(std::env::args().skip(1))?;
    report(&run(&args).await?, &args)
}

async fn run(args: &Args) -> Result<Vec<Ended>> {
    let mut first = Stage::set_up().await?;
    let mut points = VecDeque::new();
    for plot in Plot::ALL.into_iter().filter(|plot| args.only.is_empty() || args.only.contains(plot)) {
        let executed = first.rehearse(plot).await?;
        points.extend(points_of(plot, &executed, args).into_iter().map(|point| (plot, point)));
    }
    println!("{} points", points.len());
    let points = Arc::new(Mutex::new(points));
    let mut players = vec![tokio::spawn(play(first, Arc::clone(&points)))];
    for _ in 1..STAGES {
        players.push(tokio::spawn(play(Stage::set_up().await?, Arc::clone(&points))));
    }
    let mut ended = vec![];
    for player in players {
        ended.extend(player.await.map_err(|error| Error::msg(format!("a player panicked: {error}")))??);
    }
    Ok(ended)
}

async fn play(mut stage: Stage, points: Points) -> Result<Vec<Ended>> {
    let next = || points.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some((plot, point)) = next() {
        stage.play(plot, Some(point)).await?;
    }
    stage.strike().await
}

/// The points of these statements. In the short form: before the first execution, and after the last one that is certain.
/// In a step that runs at most once, each point may end in another way: that plot is never shortened.
fn points_of(plot: Plot, executed: &BTreeMap<String, RangeInclusive<usize>>, args: &Args) -> Vec<Point> {
    let chosen = |statement: &str| args.point.as_ref().is_none_or(|point| statement.contains(point.as_str()));
    let mut points = vec![];
    for (statement, executions) in executed.iter().filter(|(statement, _)| chosen(statement)) {
        let point = |execution, moment| Point { statement: statement.clone(), execution, moment };
        if args.all || plot == Plot::Pays {
            let both = |execution| [Moment::Before, Moment::After].map(|moment| point(execution, moment));
            points.extend((1..=*executions.end()).flat_map(both));
        } else {
            points.extend([point(1, Moment::Before), point(*executions.start(), Moment::After)]);
        }
    }
    points
}

/// Prints what was tried. Fails if a promise was broken, or if the deaths have shown too little.
fn report(ended: &[Ended], args: &Args) -> Result<()> {
    let mut wrong = vec![];
    for plot in Plot::ALL {
        let played: Vec<_> = ended.iter().filter(|ended| ended.plot == plot).collect();
        let died = played.iter().filter(|ended| ended.died.is_some()).count();
        let repeated = played.iter().filter(|ended| ended.books.repeats()).count();
        println!(
            "  {plot:?}: {} hierarchies, {died} with a death, {repeated} with a repeated call outside",
            played.len()
        );
        for it in played {
            let died = it.died.as_ref().map_or_else(|| "no death".to_owned(), ToString::to_string);
            wrong.extend(
                it.books.violations(plot).into_iter().map(|what| format!("{plot:?}, {died}: {what}")),
            );
            if it.died.is_none() && (it.books.outcome == INTERRUPTED || it.books.repeats()) {
                wrong.push(format!(
                    "{plot:?}: an interruption or a repetition without a death: {:?}",
                    it.books
                ));
            }
        }
    }
    let interrupted = |calls| {
        ended
            .iter()
            .filter(|it| it.books.outcome == INTERRUPTED && it.books.outside("charge") == calls)
            .count()
    };
    println!("  interrupted: {} before the call outside, {} after it", interrupted(0), interrupted(1));
    if args.is_complete() && (interrupted(0) == 0 || interrupted(1) == 0) {
        wrong.push("no death before the call of a step that runs at most once, or none after it".to_owned());
    }
    if args.is_complete() && !ended.iter().any(|it| it.books.repeats()) {
        wrong.push("no call outside was repeated, so no death came after one".to_owned());
    }
    match wrong.as_slice() {
        [] => Ok(()),
        wrong => Err(Error::msg(wrong.join("\n"))),
    }
}
