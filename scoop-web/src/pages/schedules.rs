//! The schedules, page by page: which sagas run by themselves, when next, and the last hierarchy of each.

use std::collections::HashSet;
use std::future::IntoFuture as _;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_operate::{OperateExt as _, RegisteredSchedule, RegisteredWorker};
use scoop_runtime::shown::humane;

use super::{Base, Fields, Frame, page_of, query_of, trigger};
use crate::fault::Fault;
use crate::shown::{Moment, line, query};
use crate::{SharedWeb, Web};

/// The number of schedules on a page.
const PAGE_SIZE: u32 = 200;

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    frame: Frame,
    schedules: Vec<Row>,
    /// The URL of the next page.
    next: Option<String>,
    /// The URL of the first page, if this is a later one.
    first: Option<String>,
}

struct Row {
    handler: String,
    runs: String,
    rule: String,
    next: Option<Moment>,
    ticks: u64,
    /// The address of the last hierarchy.
    last: Option<String>,
    missed: String,
    overlap: String,
    has_program: bool,
    /// The address of the page that runs it now.
    trigger: String,
}

/// Shows the page.
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    page_of(&base, read(&web, &base, &query_of(query)).await)
}

async fn read(web: &Web, base: &Base, fields: &Fields) -> Result<SchedulesPage, Fault> {
    let after = fields.exact("topic").zip(fields.exact("handler"));
    let page = web.scoop.operate().schedules().list().limit(PAGE_SIZE + 1);
    let page = match after {
        Some((topic, handler)) => page.after(topic, handler),
        None => page,
    };
    let (schedules, workers) = tokio::join!(page.into_future(), web.scoop.operate().handlers().workers());
    let (mut schedules, workers) = (schedules?, workers?);
    let is_more = schedules.len() > PAGE_SIZE as usize;
    schedules.truncate(PAGE_SIZE as usize);
    let address = |last: &RegisteredSchedule| {
        format!("{}/schedules{}", base.0, query([("topic", &*last.topic), ("handler", &*last.handler)]))
    };
    let (served, now) = (served(&workers), SystemTime::now());
    Ok(SchedulesPage {
        frame: Frame::new(web, base, "Schedules", "Schedules"),
        next: schedules.last().filter(|_| is_more).map(address),
        first: after.map(|_| format!("{}/schedules", base.0)),
        schedules: schedules.iter().map(|schedule| row(schedule, &served, now, base)).collect(),
    })
}

/// The topics and sagas that living workers have.
fn served(workers: &[RegisteredWorker]) -> HashSet<(&str, &str)> {
    let alive = workers.iter().filter(|worker| worker.is_alive).flat_map(|worker| &worker.sagas);
    alive.map(|saga| (&*saga.topic, &*saga.handler)).collect()
}

fn row(schedule: &RegisteredSchedule, served: &HashSet<(&str, &str)>, now: SystemTime, base: &Base) -> Row {
    let rule = match (&schedule.every, &schedule.cron) {
        (Some(every), _) => format!("every {}", humane(*every)),
        (None, Some((cron, zone))) => line(&format!("{cron} in {zone}")),
        (None, None) => String::new(),
    };
    Row {
        handler: line(&schedule.handler),
        runs: format!("{}/runs{}", base.0, query([("handler", &*schedule.handler)])),
        rule,
        next: schedule.next_at.map(|at| Moment { at, now }),
        ticks: schedule.run_count,
        last: schedule.last.map(|last| format!("{}/hierarchies/{last}", base.0)),
        missed: line(&schedule.missed),
        overlap: line(&schedule.overlap),
        trigger: trigger::address(base, &schedule.handler),
        has_program: served.contains(&(&*schedule.topic, &*schedule.handler)),
    }
}
