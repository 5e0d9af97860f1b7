//! The topology: which sagas handle which topics, who runs them, and what is paused.

use std::collections::BTreeMap;
use std::time::SystemTime;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use scoop_runtime::{Pause, PauseTarget, RegisteredHandler, RegisteredWorker};

use super::pause::query_of_target;
use super::{Base, Frame, page_of};
use crate::fault::Fault;
use crate::shown::{Moment, line, query};
use crate::{SharedWeb, Web};

#[derive(Template)]
#[template(path = "topology.html")]
struct TopologyPage {
    frame: Frame,
    topics: Vec<Topic>,
    pauses: Vec<PauseRow>,
    pause_all: String,
}

/// A topic with its handlers.
struct Topic {
    name: String,
    handlers: Vec<Handler>,
    pause: String,
}

struct Handler {
    name: String,
    runs: String,
    since: Moment,
    workers: usize,
    definitions: String,
    is_paused: bool,
    pause: String,
}

struct PauseRow {
    target: String,
    reason: String,
    source: String,
    since: Moment,
    until: Option<Moment>,
    resume: String,
}

/// Shows the page.
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base) -> Response {
    page_of(&base, read(&web, &base).await)
}

async fn read(web: &Web, base: &Base) -> Result<TopologyPage, Fault> {
    let scoop = &web.scoop;
    let (handlers, workers, pauses) = tokio::join!(scoop.handlers(), scoop.workers(), scoop.pauses());
    let (handlers, workers, pauses) = (handlers?, workers?, pauses?);
    let now = SystemTime::now();
    let mut topics: BTreeMap<&str, Vec<&RegisteredHandler>> = BTreeMap::new();
    for handler in &handlers {
        topics.entry(&handler.topic).or_default().push(handler);
    }
    let topics = topics.into_iter().map(|(topic, handlers)| Topic {
        name: line(topic),
        handlers: handlers.into_iter().map(|it| row(it, &workers, &pauses, (now, base))).collect(),
        pause: format!("{}/pause{}", base.0, query_of_target(&PauseTarget::topic(topic))),
    });
    let pauses = pauses.iter().map(|pause| PauseRow {
        target: line(&pause.target.to_string()),
        reason: pause.reason.as_deref().map(line).unwrap_or_default(),
        source: line(&pause.source),
        since: Moment { at: pause.since, now },
        until: pause.until.map(|at| Moment { at, now }),
        resume: format!("{}/resume{}", base.0, query_of_target(&pause.target)),
    });
    Ok(TopologyPage {
        frame: Frame::new(web, base, "Topology", "Topology"),
        topics: topics.collect(),
        pauses: pauses.collect(),
        pause_all: format!("{}/pause{}", base.0, query_of_target(&PauseTarget::Everything)),
    })
}

fn row(
    handler: &RegisteredHandler,
    workers: &[RegisteredWorker],
    pauses: &[Pause],
    (now, base): (SystemTime, &Base),
) -> Handler {
    let alive = workers.iter().filter(|worker| worker.is_alive).flat_map(|worker| &worker.sagas);
    let own = alive.filter(|saga| saga.handler == handler.handler && saga.topic == handler.topic);
    let mut definitions: Vec<_> = own.map(|saga| saga.definition).collect();
    let workers = definitions.len();
    definitions.sort_unstable();
    definitions.dedup();
    let is_paused = pauses.iter().any(|pause| match &pause.target {
        PauseTarget::Everything => true,
        PauseTarget::Topic(topic) => *topic == handler.topic,
        PauseTarget::Handler(name) => *name == handler.handler,
        _ => false,
    });
    Handler {
        name: line(&handler.handler),
        runs: format!("{}/runs{}", base.0, query([("handler", &*handler.handler)])),
        since: Moment { at: handler.since, now },
        workers,
        definitions: definitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        is_paused,
        pause: format!("{}/pause{}", base.0, query_of_target(&PauseTarget::handler(&*handler.handler))),
    }
}
