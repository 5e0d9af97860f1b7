//! The error queues: the sagas that subscribe to `Failed`, their runs, and the failures that these are about. The runs are a list of
//! [`Scoop::runs`](scoop_runtime::Scoop::runs), by saga.

use std::time::SystemTime;

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_core::{Failure, Message as _};
use scoop_operate::RunCursor;
use scoop_operate::{Content, RunSummary};
use scoop_operate::{OperateExt as _, RegisteredHandler};
use scoop_runtime::Failed;

use super::{Base, Fields, Frame, page_of, query_of};
use crate::fault::Fault;
use crate::shown::{Moment, Phase, line, query};
use crate::{SharedWeb, Web};

/// The number of runs on a page.
const PAGE_SIZE: usize = 25;

/// The number of error queues on a page.
const QUEUES_SHOWN: u32 = 200;

#[derive(Template)]
#[template(path = "error_queue.html")]
struct QueuePage {
    frame: Frame,
    queues: Vec<Queue>,
    /// The URL of the next error queues.
    next_queues: Option<String>,
    /// The URL of the first error queues, if these are later ones.
    first_queues: Option<String>,
    rows: Vec<Row>,
    /// The URL of the next page.
    next: Option<String>,
    /// The URL of the first page, if this is a later one.
    first: Option<String>,
}

/// A saga that is subscribed to failures.
struct Queue {
    handler: String,
    topic: String,
    href: String,
    is_shown: bool,
}

/// A run of an error queue.
struct Row {
    id: String,
    label: String,
    phase: Phase,
    since: Moment,
    failed: Option<FailedRow>,
    why_not: String,
}

/// The failure that it is about.
struct FailedRow {
    run: String,
    saga: String,
    outcome: String,
    step: String,
    at: Moment,
    why: String,
}

/// Shows the page.
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    page_of(&base, read(&web, &base, &query_of(query)).await)
}

async fn read(web: &Web, base: &Base, fields: &Fields) -> Result<QueuePage, Fault> {
    let cursor = fields.parsed::<RunCursor>("after")?;
    // The list of queues begins after this one.
    let start = fields.exact("past_topic").zip(fields.exact("past_handler"));
    // One more than the page has, to know whether there are more.
    let request = web.scoop.operate().handlers().list().named(Failed::TOPIC).limit(QUEUES_SHOWN + 1);
    let request = match start {
        Some((topic, handler)) => request.after(topic, handler),
        None => request,
    };
    let mut handlers = request.await?;
    let is_more = handlers.len() > QUEUES_SHOWN as usize;
    handlers.truncate(QUEUES_SHOWN as usize);
    let next_queues = handlers.last().filter(|_| is_more).map(|last| {
        let start = [("past_topic", &*last.topic), ("past_handler", &*last.handler)];
        format!("{}/error-queue{}", base.0, query(start))
    });
    // Other names have the text, too.
    handlers.retain(|handler| Failed::is_topic(&handler.topic));
    let shown = match fields.exact("topic").zip(fields.exact("handler")) {
        Some((topic, handler)) => {
            let asked = web.scoop.operate().handlers().list().topic(topic).saga(handler).limit(1).await?;
            asked.into_iter().find(|asked| Failed::is_topic(&asked.topic))
        }
        None => handlers.first().cloned(),
    };
    let address = |handler: &RegisteredHandler, after: Option<&str>| {
        let parameters = [("handler", &*handler.handler), ("topic", &*handler.topic)];
        let start = start.map(|(topic, handler)| [("past_topic", topic), ("past_handler", handler)]);
        let parameters = parameters.into_iter().chain(start.into_iter().flatten());
        format!("{}/error-queue{}", base.0, query(parameters.chain(after.map(|after| ("after", after)))))
    };
    let queues = handlers.iter().map(|handler| Queue {
        handler: line(&handler.handler),
        topic: line(&handler.topic),
        href: address(handler, None),
        is_shown: Some(handler) == shown.as_ref(),
    });
    let queues = queues.collect();
    let first_queues = start.map(|_| format!("{}/error-queue", base.0));
    let frame = Frame::new(web, base, "Error queue", "Error queue");
    let Some(shown) = shown else {
        let (rows, next, first) = Default::default();
        return Ok(QueuePage { frame, queues, next_queues, first_queues, rows, next, first });
    };
    let runs = web.scoop.operate().runs().list().handler(&*shown.handler).topic(&*shown.topic);
    let page = runs.page(PAGE_SIZE).after(cursor).await?;
    let messages = web.scoop.operate().runs().messages(&page.runs).await?;
    let now = SystemTime::now();
    Ok(QueuePage {
        frame,
        queues,
        next_queues,
        first_queues,
        rows: page.runs.iter().zip(messages).map(|(run, message)| row(run, message, now)).collect(),
        next: page.next.map(|next| address(&shown, Some(&next.to_string()))),
        first: cursor.map(|_| address(&shown, None)),
    })
}

fn row(run: &RunSummary, message: Option<Content>, now: SystemTime) -> Row {
    let failed = match message {
        Some(Content::Shown(message)) => {
            serde_json::from_value::<Failed>(message).map_err(|error| error.to_string())
        }
        Some(left_out) => Err(left_out.to_string()),
        None => Err("the message is missing".into()),
    };
    let why_not = failed.as_ref().err().map(|why| line(why)).unwrap_or_default();
    let failed = failed.ok().map(|failed| FailedRow {
        run: failed.run.to_string(),
        saga: line(&failed.saga),
        outcome: failed.outcome.to_string(),
        step: failed.step.as_deref().map(line).unwrap_or_default(),
        at: Moment { at: failed.at(), now },
        why: why(failed.rollback_failure.as_ref().map_or(&failed.failure, Failure::failed_compensation)),
    });
    Row {
        id: run.run.to_string(),
        label: line(&run.label()),
        phase: Phase(run.phase),
        since: Moment { at: run.since, now },
        failed,
        why_not,
    }
}

/// The code and the text of the main cause.
fn why(failure: &Failure) -> String {
    let code = failure.root_causes().first().map_or(&failure.kind, |cause| &cause.kind);
    line(&format!("{code}: {}", failure.summary()))
}
