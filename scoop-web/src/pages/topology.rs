//! The topology: which sagas handle which topics and launch which messages, the workers that run them, and what is or was paused.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_runtime::{
    EndedPause, FormerHandler, Pause, PauseTarget, QueueLength, RegisteredHandler, RegisteredWorker,
    RunCounts,
};

use super::count::Count;
use super::graph::{Drawing, Graph, Mark, NODES_MAX, Node};
use super::pause::query_of_target;
use super::{Base, Fields, Frame, page_of, query_of};
use crate::fault::Fault;
use crate::shown::{Moment, line, query};
use crate::{SharedWeb, Web};

/// The number of ended pauses that are shown.
const ENDED_SHOWN: u32 = 20;

/// The number of pauses that are shown, those that last longest.
const PAUSES_SHOWN: usize = 500;

/// The number of handlers that are shown, and of retired ones.
const HANDLERS_SHOWN: usize = 200;

#[derive(Template)]
#[template(path = "topology.html")]
struct TopologyPage {
    frame: Frame,
    topics: Vec<Topic>,
    /// The text that the names of the shown topics or sagas have.
    named: String,
    /// The number of handlers that are shown, and of all, if these are more or a text is asked for.
    part: Option<(usize, usize)>,
    pauses: Vec<PauseRow>,
    pauses_left_out: usize,
    ended: Vec<EndedRow>,
    pause_all: String,
    drawing: Option<Drawing>,
    former: Vec<FormerRow>,
    former_left_out: usize,
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
    limits: String,
    /// Of a queue with a limit.
    waiting: Option<Waiting>,
    is_paused: bool,
    pause: String,
}

/// The length of a queue with a limit.
struct Waiting {
    runs: String,
    is_nearly_full: bool,
}

struct PauseRow {
    target: String,
    reason: String,
    source: String,
    since: Moment,
    until: Option<Moment>,
    resume: String,
}

struct EndedRow {
    target: String,
    source: String,
    since: Moment,
    ended: Moment,
    by: String,
    reason: String,
}

struct FormerRow {
    handler: String,
    topic: String,
    since: Moment,
    runs: String,
}

/// Shows the page.
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    page_of(&base, read(&web, &base, &query_of(query)).await)
}

async fn read(web: &Web, base: &Base, fields: &Fields) -> Result<TopologyPage, Fault> {
    let scoop = &web.scoop;
    let (handlers, workers, pauses, queues) =
        tokio::join!(scoop.handlers(), scoop.workers(), scoop.pauses(), scoop.queue_lengths());
    let (handlers, workers, pauses, queues) = (handlers?, workers?, pauses?, queues?);
    let ended = scoop.ended_pauses().limit(ENDED_SHOWN).into_future();
    let (ended, former) = tokio::join!(ended, scoop.former_handlers());
    let (ended, former) = (ended?, former?);
    // A graph of so many sagas is not drawn.
    let drawing = if handlers.len() <= NODES_MAX && former.len() <= NODES_MAX {
        let counts = async { scoop.counts().await };
        let (counts, emissions) = tokio::join!(counts, scoop.emissions());
        graph(&handlers, &former, &emissions?, (&workers, &pauses, &counts?), base).draw()
    } else {
        None
    };
    let now = SystemTime::now();
    let named = fields.last("named").unwrap_or_default();
    let is_named = |it: &&RegisteredHandler| it.topic.contains(named) || it.handler.contains(named);
    let shown: Vec<_> = handlers.iter().filter(is_named).take(HANDLERS_SHOWN).collect();
    let part = (shown.len() < handlers.len() || !named.is_empty()).then_some((shown.len(), handlers.len()));
    let mut topics: BTreeMap<&str, Vec<&RegisteredHandler>> = BTreeMap::new();
    for handler in shown {
        topics.entry(&handler.topic).or_default().push(handler);
    }
    let served = served(&workers);
    let topics = topics.into_iter().map(|(topic, handlers)| Topic {
        name: line(topic),
        handlers: handlers.into_iter().map(|it| row(it, &served, (&pauses, &queues), (now, base))).collect(),
        pause: format!("{}/pause{}", base.0, query_of_target(&PauseTarget::topic(topic))),
    });
    let pauses_left_out = pauses.len().saturating_sub(PAUSES_SHOWN);
    let pauses = pauses.iter().take(PAUSES_SHOWN).map(|pause| PauseRow {
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
        named: line(named),
        part,
        pauses: pauses.collect(),
        pauses_left_out,
        ended: ended.iter().map(|it| ended_row(it, now)).collect(),
        drawing,
        former: former.iter().take(HANDLERS_SHOWN).map(|it| former_row(it, (now, base))).collect(),
        former_left_out: former.len().saturating_sub(HANDLERS_SHOWN),
        pause_all: format!("{}/pause{}", base.0, query_of_target(&PauseTarget::Everything)),
    })
}

fn ended_row(it: &EndedPause, now: SystemTime) -> EndedRow {
    EndedRow {
        target: line(&it.pause.target.to_string()),
        source: line(&it.pause.source),
        since: Moment { at: it.pause.since, now },
        ended: Moment { at: it.ended_at, now },
        by: it.ended_by.as_deref().map_or_else(|| "its limit".into(), line),
        reason: it.end_reason.as_deref().map(line).unwrap_or_default(),
    }
}

fn former_row(it: &FormerHandler, (now, base): (SystemTime, &Base)) -> FormerRow {
    FormerRow {
        handler: line(&it.handler),
        topic: line(&it.topic),
        since: Moment { at: it.retired_at, now },
        runs: runs_of(base, ("handler", &it.handler)),
    }
}

fn runs_of(base: &Base, filter: (&str, &str)) -> String {
    format!("{}/runs{}", base.0, query([filter]))
}

/// Topics, the sagas that handle their messages, and the messages that these launch.
fn graph(
    handlers: &[RegisteredHandler],
    former: &[FormerHandler],
    emissions: &[(String, String)],
    (workers, pauses, counts): (&[RegisteredWorker], &[Pause], &RunCounts),
    base: &Base,
) -> Graph {
    let topic = |name: &str| Node::Topic(line(name));
    let saga = |name: &str| Node::Saga(line(name));
    let mut graph = Graph::default();
    let alive = workers.iter().filter(|worker| worker.is_alive).flat_map(|worker| &worker.sagas);
    let alive: BTreeSet<_> = alive.map(|saga| &*saga.handler).collect();
    for it in handlers {
        let ended = counts.finished.iter().filter(|count| count.handler == it.handler);
        let ended: Count = ended.map(Count::from).sum();
        let (note, tone) = if is_paused(pauses, &it.topic, &it.handler) {
            ("paused".to_owned(), "idle")
        } else if !alive.contains(&*it.handler) {
            ("no program runs".to_owned(), "bad")
        } else {
            (format!("{ended} ended in the last hour"), "plain")
        };
        graph.add(saga(&it.handler), Mark { href: runs_of(base, ("handler", &it.handler)), note, tone });
        graph.add(topic(&it.topic), topic_mark(base, &it.topic, ""));
    }
    for it in former.iter().filter(|it| !handlers.iter().any(|handler| handler.handler == it.handler)) {
        let mark =
            Mark { href: runs_of(base, ("handler", &it.handler)), note: "retired".into(), tone: "retired" };
        graph.add(saga(&it.handler), mark);
        if !graph.has(&topic(&it.topic)) {
            graph.add(topic(&it.topic), topic_mark(base, &it.topic, "no handler"));
        }
    }
    for (_, launched) in emissions {
        if !graph.has(&topic(launched)) {
            graph.add(topic(launched), topic_mark(base, launched, "no handler"));
        }
    }
    handlers.iter().for_each(|it| graph.connect(topic(&it.topic), saga(&it.handler)));
    former.iter().for_each(|it| graph.connect(topic(&it.topic), saga(&it.handler)));
    emissions.iter().for_each(|(by, launched)| graph.connect(saga(by), topic(launched)));
    graph
}

fn topic_mark(base: &Base, topic: &str, note: &str) -> Mark {
    Mark { href: runs_of(base, ("topic", topic)), note: note.into(), tone: "plain" }
}

fn is_paused(pauses: &[Pause], topic: &str, handler: &str) -> bool {
    pauses.iter().any(|pause| match &pause.target {
        PauseTarget::Everything => true,
        PauseTarget::Topic(name) => name == topic,
        PauseTarget::Handler(name) => name == handler,
        _ => false,
    })
}

/// The definitions that living workers have, one for each worker, by topic and saga.
fn served(workers: &[RegisteredWorker]) -> HashMap<(&str, &str), Vec<i32>> {
    let mut served: HashMap<_, Vec<i32>> = HashMap::new();
    for saga in workers.iter().filter(|worker| worker.is_alive).flat_map(|worker| &worker.sagas) {
        served.entry((&*saga.topic, &*saga.handler)).or_default().push(saga.definition);
    }
    served
}

fn row(
    handler: &RegisteredHandler,
    served: &HashMap<(&str, &str), Vec<i32>>,
    (pauses, queues): (&[Pause], &[QueueLength]),
    (now, base): (SystemTime, &Base),
) -> Handler {
    let definitions = served.get(&(&*handler.topic, &*handler.handler));
    let mut definitions = definitions.cloned().unwrap_or_default();
    let queue = queues.iter().find(|queue| queue.saga == handler.handler);
    let waiting = |queue: &QueueLength| {
        let or_more = if queue.waiting >= queue.limit as usize { "+" } else { "" };
        Waiting { runs: format!("{}{or_more}", queue.waiting), is_nearly_full: queue.is_nearly_full() }
    };
    let workers = definitions.len();
    definitions.sort_unstable();
    definitions.dedup();
    Handler {
        name: line(&handler.handler),
        runs: runs_of(base, ("handler", &handler.handler)),
        since: Moment { at: handler.since, now },
        workers,
        definitions: definitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        limits: line(&handler.limits.to_string()),
        waiting: queue.map(waiting),
        is_paused: is_paused(pauses, &handler.topic, &handler.handler),
        pause: format!("{}/pause{}", base.0, query_of_target(&PauseTarget::handler(&*handler.handler))),
    }
}
