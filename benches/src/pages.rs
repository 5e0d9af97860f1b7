//! B22: pages of runs, explanations and the web page, with many runs that have ended or that sleep. B27: pages found by fields.

use std::time::{Duration, Instant, SystemTime};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use scoop::operate::{FindRuns, OperateExt as _, WaitKind};
use scoop::{RunPhase, Scoop};
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

/// B27: the times of pages of runs that are found by fields, which all of them get before. Of the events they have only the
/// first and the last, since these lists read no others.
pub(crate) async fn found(bench: &mut Bench) -> Outcome<()> {
    let database =
        growth::with_history_of(bench, bench.settings.finished, &[("bench.events", "ends")]).await?;
    database.execute(include_str!("../sql/found_by.sql")).await?;
    database.execute("VACUUM ANALYZE scoop.found_by").await?;
    let client = database.client().await?;
    let runs = || client.operate().runs().list();
    let finished = bench.settings.finished;
    let lists: [(&str, FindRuns); 6] = [
        ("order", runs().found_by("order", finished / 2)),
        ("customer", runs().found_by("customer", "customer 77")),
        ("country", runs().found_by("country", "DE")),
        ("country and customer", runs().found_by("country", "DE").found_by("customer", "customer 77")),
        ("country, committed, roots", runs().found_by("country", "DE").state(RunPhase::Committed).roots()),
        ("country, stuck", runs().found_by("country", "DE").state(RunPhase::Stuck)),
    ];
    let mut each = vec![];
    for _ in 0..bench.settings.rounds {
        each.clear();
        let mut pages = vec![];
        for (name, list) in &lists {
            let times = times_of(list).await?;
            each.push(format!("{name} {:.1} ms", percentile_ms(&times, 99)));
            pages.extend(times);
        }
        bench.report.add("B27", percentile_ms(&pages, 99), None);
        bench.report.add("B27 p50", percentile_ms(&pages, 50), None);
    }
    bench.report.note(format!("B27: {finished} runs had ended; p99 of each list: {}", each.join(", ")));
    client.pool().close().await;
    bench.server.remove(database).await
}

/// The times of the first pages of a list.
async fn times_of(list: &FindRuns) -> Outcome<Vec<Duration>> {
    let (mut times, mut next) = (vec![], None);
    for _ in 0..PAGES {
        let begun = Instant::now();
        let page = list.clone().after(next).await?;
        times.push(begun.elapsed());
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    Ok(times)
}

async fn measured(bench: &mut Bench, database: &Database, key: &str, with: &str) -> Outcome<()> {
    let client = database.client().await?;
    let mut lists = vec![];
    for _ in 0..bench.settings.rounds {
        lists = pages(&client).await?;
        let pages: Vec<_> = lists.iter().flat_map(|(_, times)| times.iter().copied()).collect();
        bench.report.add(key, percentile_ms(&pages, 99), None);
        bench.report.add(&format!("{key} p50"), percentile_ms(&pages, 50), None);
    }
    let each = lists.iter().map(|(list, times)| format!("{list} {:.1} ms", percentile_ms(times, 99)));
    bench.report.note(format!("{key}, p99 of each: {}", each.collect::<Vec<_>>().join(", ")));
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
        "/error-queue",
        "/schedules",
        "/entities",
        "/topology",
    ]
    .map(str::to_owned)
    .into();
    for run in client.operate().runs().list().page(1).await?.runs {
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

/// The times of the pages of each list, of explanations, of counts, and of lookups by a unique key that was not used.
async fn pages(client: &Scoop) -> Outcome<Vec<(&'static str, Vec<Duration>)>> {
    let first = client.operate().runs().list().page(1).await?;
    let Some(run) = first.runs.first() else { return Err("no run is left in the database".into()) };
    let (handler, topic) = (&run.handler, &run.topic);
    let two_weeks_ago = SystemTime::now() - Duration::from_hours(14 * 24);
    let runs = || client.operate().runs().list();
    let lists: [(&str, FindRuns); 12] = [
        ("all", runs()),
        ("handler", runs().handler(handler)),
        ("topic", runs().topic(topic)),
        ("roots", runs().roots()),
        ("committed", runs().state(RunPhase::Committed)),
        ("sleeping", runs().state(RunPhase::Sleeping)),
        ("since two weeks ago", runs().since(two_weeks_ago)),
        ("until two weeks ago", runs().until(two_weeks_ago)),
        ("waiting for a program", runs().waiting_for(WaitKind::Program)),
        ("rolled back", runs().handler(handler).state(RunPhase::RolledBack)),
        ("code", runs().handler(handler).failed_with("none")),
        ("topic, committed, until two weeks ago", {
            runs().topic(topic).state(RunPhase::Committed).until(two_weeks_ago)
        }),
    ];
    let mut times = vec![];
    for (name, list) in lists {
        times.push((name, times_of(&list).await?));
    }
    let (mut explanations, mut counts, mut keys) = (vec![], vec![], vec![]);
    for nth in 0..PAGES {
        let begun = Instant::now();
        client.operate().runs().explain(run.run).await?;
        explanations.push(begun.elapsed());
        let begun = Instant::now();
        client.operate().runs().count().await?;
        counts.push(begun.elapsed());
        let begun = Instant::now();
        if client.operate().runs().find_by_key(topic, &format!("key {nth}")).await.is_ok() {
            return Err("a key that was not used is found".into());
        }
        keys.push(begun.elapsed());
    }
    times.extend([("explain", explanations), ("counts", counts), ("unique key", keys)]);
    Ok(times)
}
