//! Injects faults into everything that runs sagas, at any moment, and audits the result.
//!
//! Several worker processes, a client, and a caller that never sees an error share one database, on a server
//! with a standby, through a proxy. A nemesis kills workers, stops and continues them, terminates their
//! sessions, restarts the server with and without warning, has the standby take over, cuts, delays and mutes
//! connections, fills pools and the server, and moves clocks, at moments drawn from a seed. The steps of the hierarchies, drawn from the seed as well,
//! enter their effects in a table and in a file outside. Some hierarchies are cancelled, have a short deadline,
//! or are rolled back.
//!
//! In the end every hierarchy must have ended as planned, each effect must exist exactly as recorded, the
//! recorded events must keep the invariants (`scoop_audit`), and no run is left.
//!
//! ```text
//! cargo test --test chaos                     # every fault twice, half a minute
//! cargo test --test chaos -- --minutes 30     # for so long
//! cargo test --test chaos -- --seed 7 --workers 5
//! cargo test --test chaos -- --only FailOver --only Kill
//! ```
//!
//! The workers are this program again, hence a `main` of its own. A seed repeats a run as far as the draws go.
//! With `DATABASE_URL` the server is not ours: faults that need one of our own are left out, and listed.

mod args;
mod books;
mod caller;
mod client;
mod clock;
mod cluster;
mod crew;
mod dice;
mod ledger;
mod nemesis;
mod observer;
mod plan;
mod proxy;
mod record;
mod report;
mod sagas;
mod scratch;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use scoop::{Error, Result};
use tokio::sync::watch;

use args::Args;
use client::Client;
use cluster::Cluster;
use crew::Orders;
use nemesis::Nemesis;
use proxy::Proxy;
use report::Report;
use scratch::Scratch;

/// How often the short form commits each fault.
const ROUNDS: usize = 2;

/// The percentage of turns in which the long form leaves out a rare fault.
const RARE: usize = 70;

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::var_os(worker::NAME).is_some() {
        return match worker::work().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("a worker failed: {error:?}");
                ExitCode::FAILURE
            }
        };
    }
    let args = match Args::read(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let seed = args.seed;
    println!("test chaos with --seed {seed} --workers {} ...", args.workers);
    match run(args).await {
        Ok(report) if report.is_clean() => {
            println!("{report}\ntest chaos ... ok\n\nchaos: 1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Ok(report) => {
            println!("{report}\ntest chaos ... FAILED (--seed {seed})\n\nchaos: 0 passed, 1 failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("test chaos ... FAILED (--seed {seed}): {error:?}\n\nchaos: 0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// One whole run: hierarchies, faults, audit.
async fn run(args: Args) -> Result<Report> {
    let scratch = Scratch::new()?;
    let cluster = Cluster::start().await?;
    let proxy = Proxy::start(cluster.target()?).await?;
    let database = cluster.url_by(proxy.port())?;
    let orders = Orders { database, folder: scratch.folder().to_owned(), seed: args.seed };
    let mut nemesis = Nemesis::new(cluster, proxy, orders.clone())?;
    let outcome = suffer(&mut nemesis, &args, &orders).await;
    if !outcome.as_ref().is_ok_and(Report::is_clean) || nemesis.longest_recovery > observer::SLOW {
        println!("what was done:\n{}", nemesis.history.join("\n"));
    }
    let ended = nemesis.end().await;
    let report = outcome?;
    ended?;
    Ok(report)
}

async fn suffer(nemesis: &mut Nemesis, args: &Args, orders: &Orders) -> Result<Report> {
    sqlx::raw_sql(ledger::TABLES).execute(nemesis.observer().pool()).await?;
    nemesis.hire(args.workers)?;
    // Before that a message could have no handler.
    let listed = "SELECT count(*) FROM scoop.handler WHERE retired_at IS NULL";
    nemesis.observer().until(listed, sagas::HANDLERS).await?;

    let (stop, stopped) = watch::channel(false);
    let call = caller::call(orders.database.clone(), orders.seed, stopped.clone());
    let caller = tokio::spawn(call);
    let client = tokio::spawn(Client::new(&orders.database, orders.seed)?.work(stopped));
    let begin = Instant::now();
    strike(nemesis, args).await?;
    let deserters = nemesis.deserters().await;
    stop.send_replace(true);
    let mut client = client.await.map_err(|error| Error::msg(format!("the client panicked: {error}")))??;

    let calls = caller.await.map_err(|error| Error::msg(format!("the caller panicked: {error}")))??;

    let peace = Instant::now();
    nemesis.observer().until_done().await?;
    client.undo_the_rest().await?;
    nemesis.observer().until_done().await?;
    let drained = peace.elapsed();
    nemesis.retire().await?;
    let pool = nemesis.observer().pool();
    let mut findings = books::audit(pool, orders.seed, &client.book, &orders.ledger()).await?;
    let (losses, doubles) = calls.audit(pool).await?;
    findings.losses.extend(losses);
    findings.doubles.extend(doubles);
    findings.violations.extend(nemesis.violations.iter().cloned());
    Ok(Report {
        findings,
        book: client.book,
        calls,
        faults: nemesis.tally.clone(),
        deserters,
        took: begin.elapsed(),
        drained,
        longest_recovery: nemesis.longest_recovery,
    })
}

/// The short form commits each fault [`ROUNDS`] times, the long one goes on for its duration.
async fn strike(nemesis: &mut Nemesis, args: &Args) -> Result<()> {
    let (mut faults, left_out) = nemesis.choice();
    faults.retain(|fault| args.only.is_empty() || args.only.contains(&format!("{fault:?}")));
    if faults.is_empty() {
        return Err(Error::msg("no fault is left to commit"));
    }
    for reason in left_out {
        println!("left out: {reason}");
    }
    let begin = Instant::now();
    for round in 1.. {
        for fault in nemesis.shuffled(faults.clone()) {
            match args.duration {
                Some(duration) if begin.elapsed() >= duration => return Ok(()),
                Some(_) if args.only.is_empty() && fault.is_rare() && nemesis.draw(RARE) => {}
                _ => nemesis.strike(fault).await?,
            }
        }
        if args.duration.is_none() && round == ROUNDS {
            break;
        }
    }
    nemesis.recover(vec![]).await
}
