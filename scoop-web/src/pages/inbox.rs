//! The inbox of operators: rollbacks that failed, and stuck runs.

use std::time::SystemTime;

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_operate::OperateExt as _;
use scoop_operate::{FailedRollback, ListCursor, StuckRun};
use scoop_runtime::RunId;
use uuid::Uuid;

use super::action::Action;
use super::{Base, Fields, Frame, page_of, query_of};
use crate::fault::Fault;
use crate::shown::{Moment, line, query};
use crate::{SharedWeb, Web};

/// The number of entries of each kind on a page.
const PAGE_SIZE: u32 = 50;

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage {
    frame: Frame,
    failed: Section,
    stuck: Section,
    /// Whether this is the first page of both lists.
    is_first: bool,
}

/// A page of one of the lists.
struct Section {
    /// The last part of the ids of its elements.
    name: &'static str,
    entries: Vec<Entry>,
    /// The URL of the next page.
    next: Option<String>,
    /// The URL of the first page, if this is a later one.
    first: Option<String>,
}

/// A run that needs a decision.
struct Entry {
    id: Uuid,
    hierarchy: Uuid,
    handler: String,
    topic: String,
    step: String,
    why: String,
    since: Moment,
    note: &'static str,
    /// Runs on which an operator has to decide first.
    failed_below: Vec<Uuid>,
    actions: Vec<Action>,
}

impl Section {
    /// Whether several of its runs can be retried at once.
    fn is_selectable(&self) -> bool {
        self.entries.iter().any(Entry::can_be_retried)
    }
}

impl Entry {
    fn can_be_retried(&self) -> bool {
        self.actions.contains(&Action::Retry)
    }
}

/// Shows the page.
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    page_of(&base, read(&web, &base, &query_of(query)).await)
}

async fn read(web: &Web, base: &Base, fields: &Fields) -> Result<InboxPage, Fault> {
    let (failed_after, stuck_after) = (fields.parsed("failed")?, fields.parsed("stuck")?);
    let failed =
        async { web.scoop.operate().failures().list().after_cursor(failed_after).limit(PAGE_SIZE).await };
    let stuck =
        async { web.scoop.operate().failures().stuck().after_cursor(stuck_after).limit(PAGE_SIZE).await };
    let (failed, stuck) = tokio::join!(failed, stuck);
    let (failed, stuck) = (failed?, stuck?);
    let now = SystemTime::now();
    let read_only = web.options.is_read_only();
    let possible = |actions: Vec<Action>| if read_only { vec![] } else { actions };
    let last = |length: usize, last: Option<ListCursor>| last.filter(|_| length >= PAGE_SIZE as usize);
    let section = |name, entries: Vec<Entry>, next: Option<ListCursor>, after: Option<ListCursor>| Section {
        name,
        entries,
        next: next.map(|next| format!("{}/inbox{}#{name}", base.0, query([(name, &*next.to_string())]))),
        first: after.map(|_| format!("{}/inbox#{name}", base.0)),
    };
    let failed_next = last(failed.len(), failed.last().map(FailedRollback::cursor));
    let stuck_next = last(stuck.len(), stuck.last().map(StuckRun::cursor));
    let failed = failed.iter().map(|it| failed_entry(it, now, possible)).collect();
    let stuck = stuck.iter().map(|it| stuck_entry(it, now, possible)).collect();
    Ok(InboxPage {
        frame: Frame::new(web, base, "Inbox", "Inbox"),
        failed: section("failed", failed, failed_next, failed_after),
        stuck: section("stuck", stuck, stuck_next, stuck_after),
        is_first: failed_after.is_none() && stuck_after.is_none(),
    })
}

fn failed_entry(
    it: &FailedRollback,
    now: SystemTime,
    possible: impl Fn(Vec<Action>) -> Vec<Action>,
) -> Entry {
    let note = match it.failed_below[..] {
        [] => "",
        _ => "When the failed runs below it are settled, it continues, or needs a decision of its own:",
    };
    Entry {
        id: it.id().uuid(),
        hierarchy: it.hierarchy().uuid(),
        handler: line(&it.handler),
        topic: line(&it.topic),
        step: line(&it.step),
        why: line(&it.failure.rollback_summary()),
        since: Moment { at: it.at, now },
        note,
        failed_below: it.failed_below.iter().copied().map(RunId::uuid).collect(),
        actions: possible(Action::making(it.requests())),
    }
}

fn stuck_entry(it: &StuckRun, now: SystemTime, possible: impl Fn(Vec<Action>) -> Vec<Action>) -> Entry {
    Entry {
        id: it.id().uuid(),
        hierarchy: it.hierarchy().uuid(),
        handler: line(&it.handler),
        topic: line(&it.topic),
        step: it.step.as_deref().map(line).unwrap_or_default(),
        why: line(&it.reason),
        since: Moment { at: it.since, now },
        note: if it.giving_up { "It gives up as soon as it can." } else { "" },
        failed_below: vec![],
        actions: possible(Action::making(it.requests())),
    }
}
