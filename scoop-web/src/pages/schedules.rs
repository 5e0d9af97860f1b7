//! The schedules: which sagas run by themselves, when next, and the last hierarchy of each.

use std::time::SystemTime;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use scoop_runtime::shown::humane;
use scoop_runtime::{RegisteredSchedule, RegisteredWorker};

use super::{Base, Frame, page_of, trigger};
use crate::fault::Fault;
use crate::shown::{Moment, line, query};
use crate::{SharedWeb, Web};

/// The maximum number of schedules that are shown.
const SHOWN_MAX: usize = 500;

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    frame: Frame,
    schedules: Vec<Row>,
    left_out: usize,
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
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base) -> Response {
    page_of(&base, read(&web, &base).await)
}

async fn read(web: &Web, base: &Base) -> Result<SchedulesPage, Fault> {
    let (schedules, workers) = tokio::join!(web.scoop.schedules(), web.scoop.workers());
    let (schedules, workers) = (schedules?, workers?);
    let now = SystemTime::now();
    let rows = schedules.iter().take(SHOWN_MAX).map(|schedule| row(schedule, &workers, now, base));
    Ok(SchedulesPage {
        frame: Frame::new(web, base, "Schedules", "Schedules"),
        schedules: rows.collect(),
        left_out: schedules.len().saturating_sub(SHOWN_MAX),
    })
}

fn row(schedule: &RegisteredSchedule, workers: &[RegisteredWorker], now: SystemTime, base: &Base) -> Row {
    let rule = match (&schedule.every, &schedule.cron) {
        (Some(every), _) => format!("every {}", humane(*every)),
        (None, Some((cron, zone))) => line(&format!("{cron} in {zone}")),
        (None, None) => String::new(),
    };
    let alive = workers.iter().filter(|worker| worker.is_alive).flat_map(|worker| &worker.sagas);
    let is_own = |handler: &str, topic: &str| handler == schedule.handler && topic == schedule.topic;
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
        has_program: alive.into_iter().any(|saga| is_own(&saga.handler, &saga.topic)),
    }
}
