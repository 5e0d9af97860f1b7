//! The inbox of operators: rollbacks that failed, and stuck runs.

use std::time::SystemTime;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use scoop_runtime::{FailedCompensation, RepairStatus, StuckRun};
use uuid::Uuid;

use super::action::Action;
use super::{Base, Frame, page_of};
use crate::fault::Fault;
use crate::shown::{Moment, line};
use crate::{SharedWeb, Web};

/// The maximum number of entries of each kind.
const SHOWN_MAX: u32 = 100;

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage {
    frame: Frame,
    failed: Vec<Entry>,
    stuck: Vec<Entry>,
}

impl InboxPage {
    fn shown_max(&self) -> usize {
        SHOWN_MAX as usize
    }
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
    actions: Vec<Action>,
}

/// Shows the page.
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base) -> Response {
    page_of(&base, read(&web, &base).await)
}

async fn read(web: &Web, base: &Base) -> Result<InboxPage, Fault> {
    let failed = async { web.scoop.failed_compensations().limit(SHOWN_MAX).await };
    let stuck = async { web.scoop.stuck_runs().limit(SHOWN_MAX).await };
    let (failed, stuck) = tokio::join!(failed, stuck);
    let now = SystemTime::now();
    let read_only = web.options.is_read_only();
    let possible = |actions: Vec<Action>| if read_only { vec![] } else { actions };
    let failed = failed?.into_iter().map(|it| failed_entry(&it, now, possible));
    let stuck = stuck?.into_iter().map(|it| stuck_entry(&it, now, possible));
    Ok(InboxPage {
        frame: Frame::new(web, base, "Inbox", "Inbox"),
        failed: failed.collect(),
        stuck: stuck.collect(),
    })
}

fn failed_entry(
    it: &FailedCompensation,
    now: SystemTime,
    possible: impl Fn(Vec<Action>) -> Vec<Action>,
) -> Entry {
    let (note, actions) = match it.status {
        RepairStatus::AwaitingOperator => ("", vec![Action::Retry, Action::Skip, Action::Resolve]),
        RepairStatus::BlockedByDescendant => {
            ("It goes on when the failed runs below it are settled.", vec![])
        }
        RepairStatus::InProgress => ("A repair is in progress.", vec![]),
        _ => ("", vec![]),
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
        actions: possible(actions),
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
        actions: possible(vec![Action::Retry, Action::Cancel]),
    }
}
