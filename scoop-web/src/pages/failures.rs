//! Failures, grouped by code: the newest ones, and page by page older ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_operate::RunCursor;
use scoop_operate::{FindRuns, OperateExt as _, RunSummary};

use super::overview::FAILED;
use super::{Base, Fields, Frame, page_of, query_of};
use crate::fault::Fault;
use crate::shown::{Moment, line, query};
use crate::{SharedWeb, Web};

/// The number of failed runs that are read.
const READ_MAX: usize = 300;

#[derive(Template)]
#[template(path = "failures.html")]
struct FailuresPage {
    frame: Frame,
    groups: Vec<Group>,
    read: usize,
    /// The oldest end that was read, if there are more.
    until: Option<Moment>,
    /// The URL of the next page.
    next: Option<String>,
    /// The URL of the first page, if this is a later one.
    first: Option<String>,
}

/// The failures with one code.
struct Group {
    code: String,
    href: String,
    /// In so many hierarchies: a failure that undoes runs of one hierarchy is that of each of them.
    count: usize,
    handlers: String,
    headline: String,
    last: Moment,
}

/// Shows the page.
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    page_of(&base, read(&web, &base, &query_of(query)).await)
}

async fn read(web: &Web, base: &Base, fields: &Fields) -> Result<FailuresPage, Fault> {
    let cursor = fields.parsed::<RunCursor>("after")?;
    let failed = FAILED.into_iter().fold(web.scoop.operate().runs().list(), FindRuns::state);
    let page = failed.page(READ_MAX).after(cursor).await?;
    let now = SystemTime::now();
    let mut by_code: BTreeMap<&str, Vec<&RunSummary>> = BTreeMap::new();
    for run in &page.runs {
        let code = run.failure.as_ref().map_or("", |failure| &*failure.code);
        by_code.entry(code).or_default().push(run);
    }
    let mut groups: Vec<_> =
        by_code.into_iter().filter_map(|(code, runs)| group(code, &runs, now, base)).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    // Unfinished runs come first, in another order.
    let oldest = page.runs.last().filter(|run| page.next.is_some() && run.phase.is_finished());
    Ok(FailuresPage {
        frame: Frame::new(web, base, "Failures", "Failures"),
        groups,
        read: page.runs.len(),
        until: oldest.map(|run| Moment { at: run.since, now }),
        next: page.next.map(|next| format!("{}/failures{}", base.0, query([("after", &*next.to_string())]))),
        first: cursor.map(|_| format!("{}/failures", base.0)),
    })
}

/// The runs with one code.
fn group(code: &str, runs: &[&RunSummary], now: SystemTime, base: &Base) -> Option<Group> {
    let newest = runs.iter().max_by_key(|run| run.since)?;
    let mut handlers: Vec<_> = runs.iter().map(|run| &*run.handler).collect();
    handlers.sort_unstable();
    handlers.dedup();
    Some(Group {
        code: line(if code.is_empty() { "(unreadable)" } else { code }),
        href: format!("{}/runs{}", base.0, query([("code", code)])),
        count: runs.iter().map(|run| run.hierarchy).collect::<BTreeSet<_>>().len(),
        handlers: line(&handlers.join(", ")),
        headline: newest.failure.as_ref().map(|failure| line(&failure.headline)).unwrap_or_default(),
        last: Moment { at: newest.since, now },
    })
}
