//! The topology, page by page: which sagas handle which topics and launch which messages, the workers that run them, and what is or
//! was paused.

use std::collections::BTreeSet;
use std::future::IntoFuture as _;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_operate::EndedPause;
use scoop_operate::{
    FormerHandler, QueueLength, RegisteredHandler, Topology, TopologyBuild, TopologyService,
};
use scoop_operate::{OperateExt as _, RunCounts};
use scoop_runtime::{Pause, PauseTarget};

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

/// The number of handlers on a page, and of retired ones that are shown.
const HANDLERS_SHOWN: u32 = 200;

#[derive(Template)]
#[template(path = "topology.html")]
struct TopologyPage {
    frame: Frame,
    topics: Vec<Topic>,
    /// The text that the names of the shown topics or sagas have.
    named: String,
    /// Whether all handlers are shown.
    is_all: bool,
    /// The URL of the next page.
    next: Option<String>,
    /// The URL of the first page, if this is a later one.
    first: Option<String>,
    pauses: Vec<PauseRow>,
    pauses_left_out: usize,
    ended: Vec<EndedRow>,
    pause_all: String,
    drawing: Option<Drawing>,
    services: Vec<Service>,
    /// Why the graph is left out, if it is.
    not_drawn: Option<String>,
    former: Vec<FormerRow>,
    is_former_more: bool,
}

/// A service with the builds of its living workers.
struct Service {
    name: String,
    builds: Vec<String>,
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
    let named = fields.last("named").unwrap_or_default();
    let after = fields.exact("topic").zip(fields.exact("handler"));
    // One more than the page has, to know whether there are more.
    let page = scoop.operate().handlers().list().named(named).limit(HANDLERS_SHOWN + 1);
    let page = match after {
        Some((topic, handler)) => page.after(topic, handler),
        None => page,
    };
    let former = scoop.operate().handlers().former().limit(HANDLERS_SHOWN + 1).into_future();
    let ended = scoop.operate().pauses().ended().limit(ENDED_SHOWN).into_future();
    let (handlers, former, pauses, ended) =
        tokio::join!(page.into_future(), former, scoop.operate().pauses().list(), ended);
    let (mut handlers, mut former, pauses, ended) = (handlers?, former?, pauses?, ended?);
    let is_more = handlers.len() > HANDLERS_SHOWN as usize;
    handlers.truncate(HANDLERS_SHOWN as usize);
    let is_former_more = former.len() > HANDLERS_SHOWN as usize;
    former.truncate(HANDLERS_SHOWN as usize);
    let (definitions, queues) = tokio::join!(
        scoop.operate().handlers().definitions(&handlers),
        scoop.operate().handlers().queues_of(&handlers)
    );
    let (definitions, queues) = (definitions?, queues?);
    let is_all = !is_more && named.is_empty() && after.is_none();
    let too_many = |what| format!("there are more than {NODES_MAX} {what}");
    let (drawing, services, not_drawn) = if !is_all {
        (None, vec![], Some("it is drawn of all subscriptions only, and here are some of them".to_owned()))
    } else if handlers.len() > NODES_MAX {
        (None, vec![], Some(too_many("subscriptions")))
    } else if former.len() > NODES_MAX {
        (None, vec![], Some(too_many("retired sagas")))
    } else {
        let counts = async { scoop.operate().runs().count().await };
        let (counts, topology) = tokio::join!(counts, scoop.operate().topology());
        let (counts, topology) = (counts?, topology?);
        let graph = graph(&topology, (&pauses, &counts), base);
        let services = topology.services.iter().map(service).collect();
        (graph.draw(), services, graph.is_too_large().then(|| too_many("topics and sagas")))
    };
    let now = SystemTime::now();
    let address = |last: &RegisteredHandler| {
        let named = Some(("named", named)).filter(|(_, text)| !text.is_empty());
        let position = [("topic", &*last.topic), ("handler", &*last.handler)];
        format!("{}/topology{}", base.0, query(named.into_iter().chain(position)))
    };
    let first = match named {
        "" => format!("{}/topology", base.0),
        named => format!("{}/topology{}", base.0, query([("named", named)])),
    };
    let next = handlers.last().filter(|_| is_more).map(address);
    // In the order of the pages, which is the collation of the database.
    let mut rows = handlers.iter().zip(definitions).peekable();
    let mut topics = vec![];
    while let Some((first, _)) = rows.peek() {
        let topic = &first.topic;
        let of_topic = std::iter::from_fn(|| rows.next_if(|(handler, _)| handler.topic == *topic));
        let of_topic =
            of_topic.map(|(handler, definitions)| row(handler, definitions, (&pauses, &queues), (now, base)));
        topics.push(Topic {
            name: line(topic),
            handlers: of_topic.collect(),
            pause: format!("{}/pause{}", base.0, query_of_target(&PauseTarget::topic(topic))),
        });
    }
    let pauses_left_out = pauses.len().saturating_sub(PAUSES_SHOWN);
    let pauses = pauses.iter().take(PAUSES_SHOWN).map(|pause| PauseRow {
        target: target_of(pause),
        reason: pause.reason.as_deref().map(line).unwrap_or_default(),
        source: line(&pause.source),
        since: Moment { at: pause.since, now },
        until: pause.until.map(|at| Moment { at, now }),
        resume: format!("{}/resume{}", base.0, query_of_target(&pause.target)),
    });
    Ok(TopologyPage {
        frame: Frame::new(web, base, "Topology", "Topology"),
        topics,
        named: line(named),
        is_all,
        next,
        first: after.map(|_| first),
        pauses: pauses.collect(),
        pauses_left_out,
        ended: ended.iter().map(|it| ended_row(it, now)).collect(),
        drawing,
        services,
        not_drawn,
        former: former.iter().map(|it| former_row(it, (now, base))).collect(),
        is_former_more,
        pause_all: format!("{}/pause{}", base.0, query_of_target(&PauseTarget::Everything)),
    })
}

fn service(it: &TopologyService) -> Service {
    let build = |it: &TopologyBuild| format!("{} ({})", line(&it.id), it.workers);
    Service { name: line(&it.name), builds: it.builds.iter().map(build).collect() }
}

/// What is paused, as it is shown.
fn target_of(pause: &Pause) -> String {
    let target = line(&pause.target.to_string());
    if pause.new_runs_only { format!("{target}: new runs only") } else { target }
}

fn ended_row(it: &EndedPause, now: SystemTime) -> EndedRow {
    EndedRow {
        target: target_of(&it.pause),
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
fn graph(topology: &Topology, (pauses, counts): (&[Pause], &RunCounts), base: &Base) -> Graph {
    let topic = |name: &str| Node::Topic(line(name));
    let saga = |name: &str| Node::Saga(line(name));
    let Topology { handlers, launches, .. } = topology;
    let mut graph = Graph::default();
    for it in handlers {
        let of_saga = || handlers.iter().filter(|other| other.saga == it.saga);
        let ended = counts.finished.iter().filter(|count| count.handler == it.saga);
        let ended: Count = ended.map(Count::from).sum();
        let (note, tone) = if of_saga().all(|it| it.is_retired) {
            ("retired".to_owned(), "retired")
        } else if is_paused(pauses, &it.topic, &it.saga) {
            ("paused".to_owned(), "idle")
        } else if of_saga().all(|it| it.workers == 0) {
            ("no program runs".to_owned(), "bad")
        } else {
            (format!("{ended} ended in the last hour"), "plain")
        };
        graph.add(saga(&it.saga), Mark { href: runs_of(base, ("handler", &it.saga)), note, tone });
    }
    let live: BTreeSet<_> = handlers.iter().filter(|it| !it.is_retired).map(|it| &it.topic).collect();
    let topics = handlers.iter().map(|it| &it.topic).chain(launches.iter().map(|it| &it.topic));
    for name in topics {
        let note = if live.contains(name) { "" } else { "no handler" };
        graph.add(topic(name), topic_mark(base, name, note));
    }
    handlers.iter().for_each(|it| graph.connect(topic(&it.topic), saga(&it.saga)));
    launches.iter().for_each(|it| graph.connect(saga(&it.saga), topic(&it.topic)));
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

fn row(
    handler: &RegisteredHandler,
    mut definitions: Vec<i32>,
    (pauses, queues): (&[Pause], &[QueueLength]),
    (now, base): (SystemTime, &Base),
) -> Handler {
    let queue = queues.iter().find(|queue| queue.saga == handler.handler);
    let waiting = |queue: &QueueLength| {
        let or_more = if queue.waiting >= queue.limit as usize { "+" } else { "" };
        Waiting { runs: format!("{}{or_more}", queue.waiting), is_nearly_full: queue.is_nearly_full() }
    };
    let workers = definitions.len();
    definitions.dedup();
    Handler {
        name: line(&handler.handler),
        runs: runs_of(base, ("handler", &handler.handler)),
        since: Moment { at: handler.since, now },
        workers,
        definitions: definitions.iter().map(|number| format!("no. {number}")).collect::<Vec<_>>().join(", "),
        limits: line(&handler.limits.to_string()),
        waiting: queue.map(waiting),
        is_paused: is_paused(pauses, &handler.topic, &handler.handler),
        pause: format!("{}/pause{}", base.0, query_of_target(&PauseTarget::handler(&*handler.handler))),
    }
}
