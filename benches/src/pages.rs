//! B22: pages of runs, explanations and the web page, with many runs that have ended or that sleep.

use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use scoop::{FindRuns, RunPhase, Scoop, WaitKind};
use tower::ServiceExt as _;

use crate::bench::Bench;
use crate::growth;
use crate::outcome::Outcome;
use crate::server::Database;
use crate::sleepers;
use crate::stats::percentile_ms;

/// The number of pages of each list that are read one after another.
const PAGES: usize = 20;

/// The number of requests for each page of the web page.
const WEB_REQUESTS: usize = 5;

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let (finished, sleeping) = (bench.settings.finished, bench.settings.sleeping);
    let old = growth::with_history(bench, bench.settings.finished).await?;
    measured(bench, &old, "B22", "").await?;
    bench.server.remove(old).await?;
    let asleep = sleepers::with_sleepers(bench).await?;
    measured(bench, &asleep, "B22 asleep", " asleep").await?;
    bench.server.remove(asleep).await?;
    bench.report.note(format!(
        "B22: {finished} runs had ended, or {sleeping} slept; {PAGES} pages of 50 of each list, one after another."
    ));
    Ok(())
}

async fn measured(bench: &mut Bench, database: &Database, key: &str, with: &str) -> Outcome<()> {
    let client = database.client().await?;
    for _ in 0..bench.settings.rounds {
        let pages = pages(&client).await?;
        bench.report.add(key, percentile_ms(&pages, 99), None);
        bench.report.add(&format!("{key} p50"), percentile_ms(&pages, 50), None);
    }
    let mut web = vec![];
    for _ in 0..bench.settings.rounds {
        web = web_pages(&client).await?;
        let slowest = web.iter().map(|(_, time)| *time).max().unwrap_or_default();
        bench.report.add(&format!("B22 web{with}"), percentile_ms(&[slowest], 50), None);
    }
    let each = web.iter().map(|(path, time)| format!("{path} {:.1} ms", percentile_ms(&[*time], 50)));
    bench.report.note(format!("B22 web{with}: {}", each.collect::<Vec<_>>().join(", ")));
    client.pool().close().await;
    Ok(())
}

/// The median time of each page of the web page, by its path. The router is called in this process.
async fn web_pages(client: &Scoop) -> Outcome<Vec<(String, Duration)>> {
    let router = scoop_web::router(client.clone(), scoop_web::Options::new().without_token());
    let mut paths: Vec<String> = [
        "/",
        "/runs",
        "/runs?state=committed",
        "/runs?state=rolled+back&code=none",
        "/failures",
        "/inbox",
        "/queue",
        "/schedules",
        "/entities",
        "/topology",
    ]
    .map(str::to_owned)
    .into();
    for run in client.runs().page(1).await?.runs {
        let handler = &run.handler;
        paths.extend([
            format!("/runs/{}", run.run),
            format!("/hierarchies/{}", run.hierarchy),
            format!("/actions/cancel/{}", run.run),
            format!("/runs?handler={handler}&state=committed"),
        ]);
    }
    let mut pages = vec![];
    for path in paths {
        let mut times = vec![];
        for _ in 0..WEB_REQUESTS {
            let request = Request::get(&path).body(Body::empty())?;
            let begun = Instant::now();
            let response = router.clone().oneshot(request).await?;
            let status = response.status();
            let body = to_bytes(response.into_body(), usize::MAX).await?;
            times.push(begun.elapsed());
            if !status.is_success() {
                return Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body)).into());
            }
        }
        times.sort_unstable();
        pages.push((path, times[WEB_REQUESTS / 2]));
    }
    Ok(pages)
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
