//! The list of runs, with filters, page by page.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_operate::{FindRuns, OperateExt as _, RunCursor, RunSummary, WaitKind};
use scoop_runtime::{RunPhase, RunRequest};
use uuid::Uuid;

use super::{Base, Fields, Frame, RunRow, page_of};
use crate::fault::Fault;
use crate::shown::{line, query};
use crate::{SharedWeb, Web};

/// The number of runs on a page.
const PAGE_SIZE: usize = 50;

const HOUR: Duration = Duration::from_secs(3_600);

/// The spans of time to choose from.
const SPANS: [(&str, &str, Duration); 5] = [
    ("15m", "last 15 minutes", Duration::from_secs(900)),
    ("1h", "last hour", HOUR),
    ("1d", "last day", Duration::from_secs(24 * 3_600)),
    ("7d", "last 7 days", Duration::from_secs(7 * 24 * 3_600)),
    ("30d", "last 30 days", Duration::from_secs(30 * 24 * 3_600)),
];

/// The fields of the form that a list may have several times or once.
const FILTERS: [&str; 8] = ["handler", "topic", "code", "where", "state", "waiting", "since", "roots"];

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    frame: Frame,
    filters: Filters,
    runs: Vec<RunRow>,
    /// A run of each hierarchy that can be launched again.
    relaunchable: Vec<Uuid>,
    /// The URL of the next page.
    next: Option<String>,
    /// The URL of the first page, if this is a later one.
    first: Option<String>,
}

/// The values of the form.
struct Filters {
    handler: String,
    topic: String,
    code: String,
    /// Fields with their values, and an empty one.
    fields: Vec<String>,
    states: Vec<Choice>,
    waits: Vec<Choice>,
    spans: Vec<Choice>,
    roots: bool,
}

struct Choice {
    value: &'static str,
    name: &'static str,
    is_chosen: bool,
}

/// Shows the list.
pub(crate) async fn list(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    let fields = Fields::of(query.as_deref().unwrap_or_default());
    page_of(&base, read(&web, &base, &fields).await)
}

async fn read(web: &Web, base: &Base, fields: &Fields) -> Result<RunsPage, Fault> {
    let cursor = fields.parsed::<RunCursor>("after")?;
    let page = filtered(web, fields)?.page(PAGE_SIZE).after(cursor).await?;
    let now = SystemTime::now();
    let address = |after: Option<String>| {
        let filters = FILTERS.iter().flat_map(|name| fields.all(name).map(move |value| (*name, value)));
        let parameters: Vec<_> = filters.chain(after.as_deref().map(|after| ("after", after))).collect();
        format!("{}/runs{}", base.0, query(parameters))
    };
    Ok(RunsPage {
        frame: Frame::new(web, base, "Runs", "Runs"),
        filters: filters(fields),
        runs: page.runs.iter().map(|run| RunRow::of(run, now)).collect(),
        relaunchable: if web.options.is_read_only() { vec![] } else { relaunchable(&page.runs) },
        next: page.next.map(|next| address(Some(next.to_string()))),
        first: cursor.map(|_| address(None)),
    })
}

/// The query that the form describes.
pub(crate) fn filtered(web: &Web, fields: &Fields) -> Result<FindRuns, Fault> {
    let mut query = web.scoop.operate().runs().list();
    if let Some(handler) = fields.last("handler") {
        query = query.handler(handler);
    }
    if let Some(topic) = fields.last("topic") {
        query = query.topic(topic);
    }
    if let Some(code) = fields.last("code") {
        query = query.failed_with(code);
    }
    for (name, value) in fields.found_by()? {
        query = query.found_by(name, value);
    }
    for state in fields.all("state") {
        query = query.state(state.parse().map_err(Fault::BadRequest)?);
    }
    for wait in fields.all("waiting") {
        query = query.waiting_for(wait.parse().map_err(Fault::BadRequest)?);
    }
    if let Some(since) = since(fields)? {
        query = query.since(since);
    }
    Ok(if fields.last("roots").is_some() { query.roots() } else { query })
}

/// The beginning of the chosen span of time.
pub(crate) fn since(fields: &Fields) -> Result<Option<SystemTime>, Fault> {
    let Some(since) = fields.last("since") else { return Ok(None) };
    let span = SPANS.iter().find(|(value, ..)| *value == since);
    let (.., span) = span.ok_or_else(|| {
        let known: Vec<_> = SPANS.iter().map(|(value, ..)| *value).collect();
        Fault::BadRequest(format!("`since` is one of {}", known.join(", ")))
    })?;
    Ok(Some(SystemTime::now() - *span))
}

fn relaunchable(runs: &[RunSummary]) -> Vec<Uuid> {
    let mut hierarchies = BTreeSet::new();
    let can_be = |run: &&RunSummary| run.requests().any(|request| request == RunRequest::Relaunch);
    let runs = runs.iter().filter(can_be).filter(|run| hierarchies.insert(run.hierarchy));
    runs.map(|run| run.run.uuid()).collect()
}

fn filters(fields: &Fields) -> Filters {
    let text = |name| line(fields.last(name).unwrap_or_default());
    let is_chosen = |name, value| fields.all(name).any(|chosen| chosen == value);
    let states = RunPhase::ALL.map(RunPhase::name).map(|name| Choice {
        value: name,
        name,
        is_chosen: is_chosen("state", name),
    });
    let waits = WaitKind::ALL.map(WaitKind::name).map(|name| Choice {
        value: name,
        name,
        is_chosen: is_chosen("waiting", name),
    });
    let spans = SPANS.map(|(value, name, _)| Choice { value, name, is_chosen: is_chosen("since", value) });
    Filters {
        handler: text("handler"),
        topic: text("topic"),
        code: text("code"),
        fields: fields.all("where").map(line).chain([String::new()]).collect(),
        states: states.into(),
        waits: waits.into(),
        spans: spans.into(),
        roots: fields.last("roots").is_some(),
    }
}
