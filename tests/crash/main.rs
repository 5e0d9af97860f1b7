//! Kills what runs sagas, in the middle of whatever it does, and looks whether the books agree.
//!
//! Several worker processes share one database. A nemesis kills them with SIGKILL, terminates
//! their database sessions and restarts PostgreSQL without a word of warning, at moments drawn
//! from a seed; somebody cancels hierarchies in between. In the end every hierarchy must have ended, every effect of a committed step must
//! be there exactly once, and every effect of a rolled-back one exactly once with its undoing.
//!
//! The workers are this program again, hence a `main` of its own. `SCOOP_SEED` repeats a run as
//! far as the draws go.

mod books;
mod nemesis;
mod sagas;

use std::process::ExitCode;

use nemesis::Nemesis;

/// Set for a worker: the database it works on.
const WORKER_DATABASE: &str = "SCOOP_CRASH_WORKER_DATABASE";

/// How many hierarchies there are.
const ORDERS: i32 = 150;

/// How many times something is killed.
const BLOWS: usize = 14;

#[tokio::main]
async fn main() -> ExitCode {
    if let Ok(url) = std::env::var(WORKER_DATABASE) {
        // A worker whose start is struck starts again, as its supervisor would see to.
        while sagas::work(&url, ORDERS).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        return ExitCode::SUCCESS;
    }
    let seed = match std::env::var("SCOOP_SEED") {
        Ok(seed) => seed.parse().expect("SCOOP_SEED is a number"),
        Err(_) => std::process::id().into(),
    };
    println!("test crash with SCOOP_SEED={seed} ...");
    match run(seed).await {
        Ok(report) => {
            println!("test crash ... ok: {report}\n\ncrash: 1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("test crash ... FAILED (SCOOP_SEED={seed}): {error:?}\n\ncrash: 0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// One whole run: orders, blows, books.
async fn run(seed: u64) -> scoop::Result<String> {
    let mut nemesis = Nemesis::start(seed).await?;
    let outcome = async {
        let mut doomed = sagas::launch(nemesis.pool(), ORDERS).await?.into_iter();
        for _ in 0..BLOWS {
            nemesis.strike().await?;
            if let Some(order) = doomed.next() {
                sagas::cancel(nemesis.pool(), order).await?;
            }
        }
        nemesis.leave_alone_until_done(ORDERS).await?;
        books::audit(nemesis.pool(), ORDERS).await
    };
    let audited = outcome.await;
    nemesis.end().await?;
    let (committed, rolled_back) = audited?;
    Ok(format!(
        "{committed} committed, {rolled_back} rolled back; {} workers killed, {} sessions terminated, {} restarts",
        nemesis.killed, nemesis.terminated, nemesis.restarts
    ))
}
