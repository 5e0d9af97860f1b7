//! B22: pages of runs and explanations, with many runs that have ended or that sleep.

use std::time::{Duration, Instant};

use scoop::{FindRuns, RunPhase, Scoop, WaitKind};

use crate::bench::Bench;
use crate::growth;
use crate::outcome::Outcome;
use crate::server::Database;
use crate::sleepers;
use crate::stats::percentile_ms;

/// The number of pages of each list that are read one after another.
const PAGES: usize = 20;

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let (finished, sleeping) = (bench.settings.finished, bench.settings.sleeping);
    let old = growth::with_history(bench, bench.settings.finished).await?;
    measured(bench, &old, "B22").await?;
    bench.server.remove(old).await?;
    let asleep = sleepers::with_sleepers(bench).await?;
    measured(bench, &asleep, "B22 asleep").await?;
    bench.server.remove(asleep).await?;
    bench.report.note(format!(
        "B22: {finished} runs had ended, or {sleeping} slept; {PAGES} pages of 50 of each list, one after another."
    ));
    Ok(())
}

async fn measured(bench: &mut Bench, database: &Database, key: &str) -> Outcome<()> {
    let client = database.client().await?;
    for _ in 0..bench.settings.rounds {
        let pages = pages(&client).await?;
        bench.report.add(key, percentile_ms(&pages, 99), None);
        bench.report.add(&format!("{key} p50"), percentile_ms(&pages, 50), None);
    }
    client.pool().close().await;
    Ok(())
}

/// The time of each page.
async fn pages(client: &Scoop) -> Outcome<Vec<Duration>> {
    let first = client.runs().page(1).await?;
    let handler = first.runs.first().map(|run| run.handler.clone()).unwrap_or_default();
    let lists: [FindRuns; 7] = [
        client.runs(),
        client.runs().handler(&handler),
        client.runs().state(RunPhase::Committed),
        client.runs().state(RunPhase::Sleeping),
        client.runs().waiting_for(WaitKind::Program),
        client.runs().handler(&handler).state(RunPhase::RolledBack),
        client.runs().handler(&handler).failed_with("none"),
    ];
    let mut times = vec![];
    for list in lists {
        let mut next = None;
        for _ in 0..PAGES {
            let begun = Instant::now();
            let page = list.clone().after(next).await?;
            times.push(begun.elapsed());
            next = page.next;
            if next.is_none() {
                break;
            }
        }
    }
    for run in first.runs {
        let begun = Instant::now();
        client.explain(run.run).await?;
        times.push(begun.elapsed());
    }
    Ok(times)
}
