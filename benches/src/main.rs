//! Measures Scoop beside what Postgres can do. See `benches/README.md`.

mod args;
mod bench;
mod compare;
mod drain;
mod goals;
mod latency;
mod launches;
mod limit;
mod outcome;
mod process;
mod report;
mod sagas;
mod server;
mod stats;
mod thousand;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use args::{Command, Settings};
use bench::Bench;
use drain::Crowd;
use limit::Limit;
use outcome::Outcome;
use report::Report;
use server::Server;

/// All measures, in the order of the table.
const MEASURES: [&str; 7] = ["B1", "B2", "B3", "B5", "B6", "B7", "B9"];

#[tokio::main]
async fn main() -> ExitCode {
    let done = match args::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            println!("{}", args::USAGE);
            Ok(())
        }
        Ok(Command::Compare { before, after }) => {
            let reports = Report::read(&before).and_then(|before| Ok((before, Report::read(&after)?)));
            reports.map(|(before, after)| print!("{}", compare::markdown(&before, &after)))
        }
        Ok(Command::Work { kind, url, settings }) => worker::work(&kind, &url, &settings).await,
        Ok(Command::Measure(settings)) => run(settings).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scoop-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures what is asked for. A measure that fails is told of, and the others go on.
async fn run(settings: Settings) -> Outcome<()> {
    let server = Server::start().await?;
    let limit = Limit::prepare(&server, settings.seconds).await?;
    let mut report = Report { settings: server.settings().await?, ..Report::default() };
    report.settings.push(("pool".into(), settings.pool.to_string()));
    report.settings.push(("concurrency".into(), settings.concurrency.to_string()));
    let mut bench = Bench { server, limit, settings, report };
    for measure in chosen(&bench.settings)? {
        let begun = Instant::now();
        eprint!("{measure} .. ");
        match one(&mut bench, measure).await {
            Ok(()) => eprintln!("{:.0} s", begun.elapsed().as_secs_f64()),
            Err(error) => {
                eprintln!("failed: {error}");
                bench.report.note(format!("{measure} failed: {error}"));
            }
        }
    }
    let Bench { server, settings, report, limit } = bench;
    drop(limit);
    print!("{}", report.markdown());
    if let Some(path) = &settings.json {
        report.write(path)?;
    }
    server.stop().await
}

/// The measures that are asked for.
fn chosen(settings: &Settings) -> Outcome<Vec<&'static str>> {
    let Some(only) = &settings.only else { return Ok(MEASURES.to_vec()) };
    if let Some(unknown) = only.iter().find(|name| !MEASURES.contains(&name.as_str())) {
        return Err(format!("no measure is called {unknown}; there are {}", MEASURES.join(", ")).into());
    }
    Ok(MEASURES.into_iter().filter(|measure| only.iter().any(|name| name == measure)).collect())
}

async fn one(bench: &mut Bench, measure: &str) -> Outcome<()> {
    match measure {
        "B1" => drain::measure(bench, "B1", Crowd::Inserts).await,
        "B2" => drain::measure(bench, "B2", Crowd::Idles).await,
        "B3" => drain::measure(bench, "B3", Crowd::Trees).await,
        "B5" => drain::measure(bench, "B5", Crowd::FellingTrees).await,
        "B6" => latency::measure(bench).await,
        "B7" => launches::measure(bench).await,
        "B9" => drain::measure_backlog(bench).await,
        unknown => Err(format!("no measure is called {unknown}").into()),
    }
}
