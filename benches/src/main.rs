//! Measures Scoop in comparison with plain Postgres. See `benches/README.md`.

mod args;
mod baseline;
mod bench;
mod builds;
mod ceilings;
mod charts;
mod compare;
mod decisions;
mod drain;
mod endurance;
mod executions;
mod fairness;
mod fan_out;
mod four_processes;
mod goals;
mod growth;
mod guard;
mod idle;
mod latency;
mod launches;
mod limits;
mod old_snapshots;
mod os_process;
mod outcome;
mod pages;
mod peers;
mod price;
mod report;
mod retention;
mod rollbacks;
mod sagas;
mod server;
mod sets;
mod signals;
mod sleepers;
mod stats;
mod telemetry;
mod thousand;
mod versus;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use args::{Command, Settings};
use baseline::Limit;
use bench::Bench;
use drain::Crowd;
use outcome::Outcome;
use report::Report;
use server::Server;

/// All measures, in the order of the table.
const MEASURES: [&str; 30] = [
    "B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10", "B11", "B12", "B13", "B14", "B15", "B16",
    "B17", "B18", "B19", "B20", "B21", "B22", "B23", "B24", "B25", "B26", "B27", "F", "CEILINGS", "PEERS",
];

/// The measures of a quick look.
const QUICK: [&str; 9] = ["B1", "B2", "B3", "B4", "B5", "B6", "B7", "B15", "PEERS"];

#[tokio::main(flavor = "current_thread")]
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
        Ok(Command::Charts { results, folder }) => {
            let reports = results.iter().map(|path| Report::read(path)).collect::<Outcome<Vec<_>>>();
            let drawn = reports.and_then(|reports| charts::draw(&reports, &folder));
            drawn.map(|files| files.iter().for_each(|file| println!("{}", folder.join(file).display())))
        }
        Ok(Command::Guard) => guard::run().await,
        Ok(Command::Versus { other, settings }) => versus::run(&other, &settings).await,
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

/// Runs the chosen measures. A measure that fails is reported, and the others go on.
async fn run(settings: Settings) -> Outcome<()> {
    let server = Server::start().await?;
    let limit = Limit::prepare(&server, settings.seconds).await?;
    let mut report = Report { settings: server.settings().await?, ..Report::default() };
    // Other work of the machine distorts the figures, so its load is reported with them.
    report.settings.push(("load average before".into(), os_process::load_average()));
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

/// The measures chosen on the command line.
fn chosen(settings: &Settings) -> Outcome<Vec<&'static str>> {
    let Some(only) = &settings.only else {
        return Ok(if settings.quick { QUICK.to_vec() } else { MEASURES.to_vec() });
    };
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
        "B4" => fan_out::measure(bench).await,
        "B5" => drain::measure(bench, "B5", Crowd::FellingTrees).await,
        "B6" => latency::measure(bench).await,
        "B7" => launches::measure(bench).await,
        "B8" => growth::measure(bench).await,
        "B9" => drain::measure_backlog(bench).await,
        "B10" => sleepers::measure(bench).await,
        "B11" => idle::measure(bench).await,
        "B12" => four_processes::measure(bench).await,
        "B13" => endurance::measure(bench).await,
        "B14" => price::measure(bench).await,
        "B15" => drain::measure(bench, "B15", Crowd::Loaded).await,
        "B16" => builds::measure(bench).await,
        "B17" => rollbacks::measure(bench).await,
        "B18" => signals::measure(bench).await,
        "B19" => decisions::measure(bench).await,
        "B20" => executions::measure(bench).await,
        "B21" => sets::measure(bench).await,
        "B22" => pages::measure(bench).await,
        "B23" => retention::measure(bench).await,
        "B24" => telemetry::measure(bench).await,
        "B25" => limits::measure(bench).await,
        "B26" => old_snapshots::measure(bench).await,
        "B27" => pages::found(bench).await,
        "F" => fairness::measure(bench).await,
        "CEILINGS" => ceilings::measure(bench).await,
        "PEERS" => peers::measure(bench).await,
        unknown => Err(format!("no measure is called {unknown}").into()),
    }
}
