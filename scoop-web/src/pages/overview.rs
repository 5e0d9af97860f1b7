//! The overview: how many runs are in which state, how much happens, how long runs take, what failed lately, and the workers.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_operate::RunCursor;
use scoop_operate::{
    Activity, ActivitySpan, FindRuns, OperateError, OperateExt as _, RunCounts, RunDurations, RunSummary,
};
use scoop_runtime::shown::humane;
use scoop_runtime::{RunPhase, Scoop};

use super::count::Count;
use super::spark::Spark;
use super::{Base, Fields, Frame, RunRow, address, page_of, query_of};
use crate::fault::Fault;
use crate::shown::{Moment, line, query};
use crate::{SharedWeb, Web};

/// The number of failed hierarchies that are listed.
const FAILED_SHOWN: usize = 8;

/// The maximum number of pages of failed runs that are read for them. All runs of a page may be children.
const FAILED_PAGES_MAX: usize = 4;

/// The states of failed runs.
pub(super) const FAILED: [RunPhase; 2] = [RunPhase::RolledBack, RunPhase::RollbackFailed];

/// The number of sagas that are listed, and the maximum. With more, the first load of the page would not be small.
const SAGAS_SHOWN: usize = 30;
const SAGAS_MAX: usize = 200;

/// The number of sagas in each state whose runs are counted.
pub(crate) const SAGAS_COUNTED: usize = 500;

/// The number of workers that are listed.
const WORKERS_SHOWN: usize = 50;

/// States that the table counts together, with the name of the column.
const COLUMNS: [(&str, &[RunPhase]); 7] = [
    ("ready", &[RunPhase::Pending, RunPhase::Ready, RunPhase::Retrying]),
    ("running", &[RunPhase::Running]),
    ("waiting", &[RunPhase::Waiting, RunPhase::Sleeping, RunPhase::AwaitingSignal]),
    ("stuck", &[RunPhase::Stuck]),
    ("failed rollbacks", &[RunPhase::RollbackFailed]),
    ("committed", &[RunPhase::Committed]),
    ("rolled back", &[RunPhase::RolledBack]),
];

/// The states of ends: those of the last hour are counted.
const ENDS: [RunPhase; 2] = [RunPhase::Committed, RunPhase::RolledBack];

/// The states that an operator has to see first.
const BAD: [RunPhase; 2] = [RunPhase::Stuck, RunPhase::RollbackFailed];

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    tiles: Vec<Tile>,
    /// How many are in force.
    pauses: usize,
    rows: Vec<Row>,
    left_out: Option<LeftOut>,
    failed: Vec<RunRow>,
    /// The URL that searches earlier failed hierarchies, if there may be some.
    failed_before: Option<String>,
    workers: Vec<WorkerRow>,
    workers_left_out: usize,
    read_at: Moment,
}

/// Sagas that are not listed.
struct LeftOut {
    /// The number of all sagas; with a `+` if there are perhaps more.
    all: String,
    /// Whether the runs of some sagas are not counted.
    is_part: bool,
    /// The URL that lists more, if there is one.
    more: Option<String>,
}

/// A figure.
struct Tile {
    name: &'static str,
    figure: String,
    note: String,
    tone: &'static str,
    href: String,
    spark: Option<Spark>,
}

/// The counts of a saga, and the time that its runs took.
struct Row {
    handler: String,
    href: String,
    p50: String,
    p99: String,
    cells: Vec<Cell>,
}

struct Cell {
    column: &'static str,
    count: Count,
    /// Of the counts of a time.
    rate: Option<String>,
    href: String,
    is_bad: bool,
}

struct WorkerRow {
    identifier: String,
    is_alive: bool,
    since: Moment,
    sagas: usize,
    program: String,
    address: String,
}

/// Shows the page.
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    page_of(&base, read(&web, &base, &query_of(query)).await)
}

async fn read(web: &Web, base: &Base, fields: &Fields) -> Result<OverviewPage, Fault> {
    let sagas_shown = fields.number("sagas", SAGAS_SHOWN, SAGAS_MAX)?;
    let scoop = &web.scoop;
    let counts = async { scoop.operate().runs().count().sagas(SAGAS_COUNTED).await };
    let (counts, failed, workers, activity, pauses) = tokio::join!(
        counts,
        read_failed(scoop),
        scoop.operate().handlers().workers(),
        scoop.operate().runs().activity(),
        scoop.operate().pauses().list()
    );
    let (counts, (failed, before), mut workers, activity, pauses) =
        (counts?, failed?, workers?, activity?, pauses?);
    let now = counts.read_at;
    workers.sort_by_key(|worker| (worker.is_alive, worker.started_at));
    let alive = workers.iter().filter(|worker| worker.is_alive).count();
    let workers_left_out = workers.len().saturating_sub(WORKERS_SHOWN);
    let workers = workers.into_iter().take(WORKERS_SHOWN).map(|worker| WorkerRow {
        identifier: line(&worker.identifier),
        is_alive: worker.is_alive,
        since: Moment { at: worker.started_at, now },
        sagas: worker.sagas.len(),
        program: worker.application.as_deref().map(line).unwrap_or_default(),
        address: worker.address.as_deref().map(line).unwrap_or_default(),
    });
    let (rows, sagas) = rows(&counts, &activity, &base.0, sagas_shown);
    let left_out = (sagas > rows.len()).then(|| LeftOut {
        all: format!("{sagas}{}", if counts.is_complete { "" } else { "+" }),
        is_part: !counts.is_complete,
        more: (sagas_shown < SAGAS_MAX).then(|| address(&base.0, &format!("/?sagas={SAGAS_MAX}"))),
    });
    Ok(OverviewPage {
        frame: Frame::new(web, base, "Overview", "Overview"),
        tiles: tiles(&counts, &activity, alive, &base.0),
        pauses: pauses.len(),
        rows,
        left_out,
        failed: failed.iter().map(|run| RunRow::of(run, now)).collect(),
        failed_before: before.map(|cursor| failed_before(&base.0, cursor)),
        workers: workers.collect(),
        workers_left_out,
        read_at: Moment { at: now, now: SystemTime::now().max(now) },
    })
}

/// The latest failed hierarchies, and the place to search further if there may be earlier ones.
async fn read_failed(scoop: &Scoop) -> Result<(Vec<RunSummary>, Option<RunCursor>), OperateError> {
    let failed = FAILED.into_iter().fold(scoop.operate().runs().list().roots(), FindRuns::state);
    let (mut found, mut cursor) = (vec![], None::<RunCursor>);
    for _ in 0..FAILED_PAGES_MAX {
        let page = failed.clone().page(FAILED_SHOWN - found.len()).after(cursor).await?;
        found.extend(page.runs);
        cursor = page.next;
        if cursor.is_none() || found.len() >= FAILED_SHOWN {
            break;
        }
    }
    Ok((found, cursor))
}

/// The list of failed hierarchies that ended before this place.
fn failed_before(base: &str, cursor: RunCursor) -> String {
    let cursor = cursor.to_string();
    let states = FAILED.iter().map(|state| ("state", state.name()));
    format!("{base}/runs{}", query(states.chain([("roots", "1"), ("after", &*cursor)])))
}

fn tiles(counts: &RunCounts, activity: &Activity, alive: usize, base: &str) -> Vec<Tile> {
    let spark = |kind, of: fn(&ActivitySpan) -> u64| {
        Spark::of(kind, &activity.spans.iter().map(of).collect::<Vec<_>>())
    };
    let per_second = |of: fn(&ActivitySpan) -> u64| format!("{:.2}/s", per_second(activity, of));
    let durations = RunDurations::of_all(&activity.durations);
    let all = || counts.unfinished.iter().chain(&counts.finished);
    let is_cut = !counts.is_complete;
    let of = |phases: &[RunPhase]| {
        let counts = all().filter(|it| phases.contains(&it.phase)).map(Count::from);
        counts.sum::<Count>().or_more_if(is_cut)
    };
    let unfinished = counts.unfinished.iter().map(Count::from).sum::<Count>().or_more_if(is_cut);
    let (stuck, failed): (Count, Count) = (of(&[RunPhase::Stuck]), of(&[RunPhase::RollbackFailed]));
    let rolled_back: Count = of(&[RunPhase::RolledBack]);
    let bad_if = |is_bad: bool| if is_bad { "bad" } else { "good" };
    let runs = |states: &[RunPhase]| format!("{base}/runs{}", query(filters_of(states)));
    let mut all_unfinished = RunPhase::ALL.to_vec();
    all_unfinished.retain(|phase| !ENDS.contains(phase));
    vec![
        Tile {
            name: "unfinished",
            figure: unfinished.to_string(),
            note: "runs".into(),
            tone: "plain",
            href: runs(&all_unfinished),
            spark: None,
        },
        Tile {
            name: "launched",
            figure: per_second(|span| span.launched),
            note: "messages, of the last 5 minutes".into(),
            tone: "plain",
            href: format!("{base}/runs"),
            spark: spark("messages launched", |span| span.launched),
        },
        Tile {
            name: "stuck",
            figure: stuck.to_string(),
            note: "runs that no program continues".into(),
            tone: bad_if(stuck.runs > 0),
            href: runs(&[RunPhase::Stuck]),
            spark: None,
        },
        Tile {
            name: "committed",
            figure: per_second(|span| span.committed),
            note: "runs, of the last 5 minutes".into(),
            tone: "plain",
            href: runs(&[RunPhase::Committed]),
            spark: spark("runs committed", |span| span.committed),
        },
        Tile {
            name: "duration",
            figure: durations.as_ref().map_or_else(|| "–".into(), |all| humane(all.percentile(50))),
            note: "p50 of the latest committed runs".into(),
            tone: "plain",
            href: "#sagas".into(),
            spark: None,
        },
        Tile {
            name: "rolled back",
            figure: rolled_back.to_string(),
            note: format!("runs in the last hour, {}", rolled_back.per_second()),
            tone: "plain",
            href: runs(&[RunPhase::RolledBack]),
            spark: spark("runs failed", |span| span.failed),
        },
        Tile {
            name: "failed rollbacks",
            figure: failed.to_string(),
            note: "an operator has to decide".into(),
            tone: bad_if(failed.runs > 0),
            href: runs(&[RunPhase::RollbackFailed]),
            spark: None,
        },
        Tile {
            name: "workers",
            figure: alive.to_string(),
            note: "alive".into(),
            tone: bad_if(alive == 0),
            href: "#workers".into(),
            spark: None,
        },
    ]
}

/// The filters of the list of the runs that are counted in these states; of ends, those of the last hour.
fn filters_of(states: &[RunPhase]) -> impl Iterator<Item = (&str, &str)> {
    let since = states.iter().any(|state| ENDS.contains(state)).then_some(("since", "1h"));
    states.iter().map(|state| ("state", state.name())).chain(since)
}

/// How many of these happen in a second.
fn per_second(activity: &Activity, of: fn(&ActivitySpan) -> u64) -> f64 {
    let Some(open) = activity.spans.last() else { return 0.0 };
    let open = activity.read_at.duration_since(open.from).unwrap_or_default();
    let minutes = activity.spans.iter().map(|it| (of(it), it.launched + it.committed + it.failed > 0));
    rate(&minutes.collect::<Vec<_>>(), activity.span, open)
}

/// The maximum number of minutes over which a rate is counted.
const RATE_MINUTES: usize = 5;

/// The rate in the last minutes that are over: of each minute what is counted, and whether anything happened. The current one,
/// which has lasted for `open`, counts only if nothing happened before. The load may have begun in the first one: it counts only
/// if no other is over since.
fn rate(minutes: &[(u64, bool)], span: Duration, open: Duration) -> f64 {
    let Some((current, over)) = minutes.split_last() else { return 0.0 };
    let first = over.iter().position(|(_, happened)| *happened);
    let over = first.map_or(&[][..], |first| match &over[first..] {
        [_, whole @ ..] if !whole.is_empty() => whole,
        only => only,
    });
    let newest = &over[over.len().saturating_sub(RATE_MINUTES)..];
    let (counted, seconds) = match newest {
        [] => (current.0, open.as_secs_f64().max(1.0)),
        newest => {
            (newest.iter().map(|(count, _)| count).sum(), newest.iter().map(|_| span.as_secs_f64()).sum())
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let counted = counted as f64;
    counted / seconds
}

/// The counts of the first sagas by their names, those before whose runs wait for an operator; and the number of all.
fn rows(counts: &RunCounts, activity: &Activity, base: &str, shown: usize) -> (Vec<Row>, usize) {
    let durations: HashMap<_, _> = activity.durations.iter().map(|it| (&*it.handler, it)).collect();
    let percentile = |handler: &str, percent| {
        durations.get(handler).map(|it| humane(it.percentile(percent))).unwrap_or_default()
    };
    let mut by_handler: BTreeMap<&str, BTreeMap<RunPhase, Count>> = BTreeMap::new();
    for count in counts.unfinished.iter().chain(&counts.finished) {
        let of_phase = by_handler.entry(&count.handler).or_default().entry(count.phase).or_default();
        *of_phase = [*of_phase, count.into()].into_iter().sum();
    }
    let is_bad = |counted: &BTreeMap<RunPhase, Count>| BAD.iter().any(|phase| counted.contains_key(phase));
    let mut by_handler: Vec<_> = by_handler.into_iter().collect();
    let sagas = by_handler.len();
    if sagas > shown {
        by_handler.sort_by_key(|(_, counted)| !is_bad(counted));
        by_handler.truncate(shown);
    }
    let rows = by_handler.into_iter().map(|(handler, counted)| {
        let cells = COLUMNS.iter().map(|(column, phases)| {
            let count: Count = phases.iter().filter_map(|phase| counted.get(phase)).copied().sum();
            let is_bad = count.runs > 0 && phases.iter().any(|phase| BAD.contains(phase));
            let filters = [("handler", handler)].into_iter().chain(filters_of(phases));
            let href = format!("{base}/runs{}", query(filters));
            let is_of_hour = phases.iter().any(|phase| ENDS.contains(phase));
            let rate = is_of_hour.then(|| count.per_second());
            Cell { column, count, rate, href, is_bad }
        });
        let href = format!("{base}/runs{}", query([("handler", handler)]));
        let (p50, p99) = (percentile(handler, 50), percentile(handler, 99));
        Row { handler: line(handler), href, p50, p99, cells: cells.collect() }
    });
    (rows.collect(), sagas)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of one launch a second since the middle of a minute, at many moments of the next hour.
    #[test]
    fn constant_load_has_a_constant_rate() {
        const BEGUN: u64 = 30;
        for now in (BEGUN + 1..3_600).step_by(7) {
            let launched = |minute: u64| {
                let (from, to) = (minute * 60, (minute * 60 + 60).min(now));
                to.saturating_sub(from.max(BEGUN))
            };
            let minutes: Vec<_> =
                (0..=now / 60).map(|minute| (launched(minute), launched(minute) > 0)).collect();
            let rate = rate(&minutes, Duration::from_secs(60), Duration::from_secs(now % 60));
            match now {
                // No minute is full.
                ..120 => assert!(rate > 0.0 && rate <= 1.0, "{rate} after {now} s"),
                _ => assert_eq!(rate, 1.0, "after {now} s"),
            }
        }
        assert_eq!(rate(&[], Duration::from_secs(60), Duration::ZERO), 0.0);
    }
}
