//! What the pages show, as JSON: `GET /api/..`. It only reads, under the token of the pages and with their parameters.
//!
//! An answer is a value of the library, or a list of such values, as the library serializes them: the command line writes the same.
//! `openapi.json` beside this file describes all of it, and is itself an answer. The form is stable: fields and routes are added, but
//! not renamed or removed.

use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::future::{BoxFuture, FutureExt as _};
use scoop_operate::{
    EntityContents, EventCursor, Explanation, ListRequest, Operate, OperateError, OperateExt as _,
    PagedListItem, RecordedEvent, RunContents, RunCounts, RunExplanation, RunSummary,
};
use scoop_runtime::internal::ErrorKind;
use scoop_runtime::{HierarchyId, IdKind, IdObject, RuntimeError, Tree};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::fault::Fault;
use crate::pages::overview::SAGAS_COUNTED;
use crate::pages::{Fields, entities, hierarchy, id_of, query_of, runs};
use crate::{SharedWeb, Web};

/// Where the routes are.
pub(crate) const PREFIX: &str = "/api";

/// The description of all routes.
const OPENAPI: &str = include_str!("api/openapi.json");

/// The number of elements in a part of a list, by default and at most.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;

/// The same of the events. A part repeats those that were written since the oldest open transaction began, so it has many.
const EVENTS_DEFAULT: usize = 1_000;
const EVENTS_MAX: usize = 10_000;

/// For how long before now the events are by default.
const EVENTS_SINCE: Duration = Duration::from_secs(60 * 60);

/// The longest time for the events of an answer.
const EVENTS_READ_MAX: Duration = Duration::from_secs(10);

/// Answers a request with these parameters, among them those in the path.
type Answer = for<'a> fn(&'a Web, &'a Fields) -> BoxFuture<'a, Response>;

/// The parameters in the path.
type Parts = Result<Path<Vec<(String, String)>>, PathRejection>;

/// All routes, below [`PREFIX`].
const ROUTES: [(&str, Answer); 18] = [
    ("/openapi.json", |_, _| async { response(StatusCode::OK, OPENAPI.into()) }.boxed()),
    ("/runs", |web, fields| answer(list_runs(web, fields))),
    ("/runs/{id}", |web, fields| answer(run(web, fields))),
    ("/runs/{id}/contents", |web, fields| answer(contents(web, fields))),
    ("/hierarchies/{id}", |web, fields| answer(tree(web, fields))),
    ("/hierarchies/{id}/explanation", |web, fields| answer(explanation(web, fields))),
    ("/counts", |web, fields| answer(counts(web, fields))),
    ("/failures", |web, fields| answer(page(operate(web).failures().list(), fields))),
    ("/stuck", |web, fields| answer(page(operate(web).failures().stuck(), fields))),
    ("/pauses", |web, _| answer(all(operate(web).pauses().list()))),
    ("/handlers", |web, _| answer(all(operate(web).handlers().list()))),
    ("/workers", |web, _| answer(all(operate(web).handlers().workers()))),
    ("/topology", |web, _| answer(async { Ok(operate(web).topology().await?) })),
    ("/schedules", |web, _| answer(all(operate(web).schedules().list()))),
    ("/events", |web, fields| answer(events(web, fields))),
    ("/entities", |web, _| answer(all(operate(web).entities().names()))),
    ("/entities/{name}", |web, fields| answer(entity_keys(web, fields))),
    ("/entities/{name}/{key}", |web, fields| answer(entity(web, fields))),
];

/// A list, or a part of it.
#[derive(Serialize)]
struct Page<T> {
    items: Vec<T>,
    /// The parameter `after` of the next part, if there may be one.
    next: Option<String>,
}

/// The routes, as a service to mount at [`PREFIX`].
pub(crate) fn routes() -> Router<SharedWeb> {
    let routes = ROUTES.into_iter().fold(Router::new(), |router, (path, answer)| {
        let read = async move |State(web): State<SharedWeb>, parts: Parts, RawQuery(query): RawQuery| {
            match parts {
                // The database cannot store it, so nothing has it in a name.
                Ok(Path(parts)) if !parts.iter().any(|(_, part)| part.contains('\0')) => {
                    answer(&web, &query_of(query).and(parts)).await
                }
                _ => refused(&Fault::BadRequest("The address has no text, or a NUL character.".into())),
            }
        };
        router.route(path, get(read).fallback(async || refused(&Fault::NotRead)))
    });
    routes.fallback(async || refused(&Fault::NotFound("There is no such route.".into())))
}

/// Whether a request for this path is answered with JSON, also if it is refused.
pub(crate) fn is_path(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The response to a request that is refused or has failed.
pub(crate) fn refused(fault: &Fault) -> Response {
    response(fault.status(), json!({ "error": fault.text() }).to_string())
}

fn answer<'a, T: Serialize>(
    read: impl Future<Output = Result<T, Fault>> + Send + 'a,
) -> BoxFuture<'a, Response> {
    async {
        let text = read.await.map(|value| serde_json::to_string(&value));
        match text {
            Ok(Ok(text)) => response(StatusCode::OK, text),
            Ok(Err(error)) => {
                tracing::error!(%error, "an answer of the web page has no JSON");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Err(fault) => refused(&fault),
        }
    }
    .boxed()
}

fn response(status: StatusCode, json: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], json).into_response()
}

fn operate(web: &Web) -> Operate {
    web.scoop.operate()
}

/// A list that has no parts.
async fn all<T>(
    list: impl IntoFuture<Output = Result<Vec<T>, OperateError>, IntoFuture: Send>,
) -> Result<Page<T>, Fault> {
    Ok(Page { items: list.await?, next: None })
}

/// A part of a list.
async fn page<T: PagedListItem>(list: ListRequest<T>, fields: &Fields) -> Result<Page<T>, Fault> {
    let limit = limit(fields)?;
    let list = list.after_cursor(fields.parsed("after")?).limit(u32::try_from(limit).unwrap_or(u32::MAX));
    let items = list.await?;
    let last = items.last().filter(|_| items.len() >= limit);
    Ok(Page { next: last.map(|last| last.position().to_string()), items })
}

fn limit(fields: &Fields) -> Result<usize, Fault> {
    fields.number("limit", LIMIT_DEFAULT, LIMIT_MAX)
}

async fn list_runs(web: &Web, fields: &Fields) -> Result<Page<RunSummary>, Fault> {
    let page = runs::filtered(web, fields)?.page(limit(fields)?).after(fields.parsed("after")?).await?;
    Ok(Page { items: page.runs, next: page.next.map(|next| next.to_string()) })
}

async fn run(web: &Web, fields: &Fields) -> Result<RunExplanation, Fault> {
    let Explanation { id, named, mut runs, .. } = explanation(web, fields).await?;
    let run = runs.pop().filter(|_| matches!(named, IdObject::Run { .. }));
    run.ok_or_else(|| RuntimeError::from(ErrorKind::WrongId { id, named, wanted: IdKind::Run }).into())
}

async fn contents(web: &Web, fields: &Fields) -> Result<RunContents, Fault> {
    Ok(operate(web).runs().contents(&run(web, fields).await?.run).await?)
}

async fn explanation(web: &Web, fields: &Fields) -> Result<Explanation, Fault> {
    Ok(operate(web).runs().explain(id_of(fields.last("id").unwrap_or_default())?).await?)
}

async fn tree(web: &Web, fields: &Fields) -> Result<Tree, Fault> {
    let limit = hierarchy::limit(fields)?;
    let id = HierarchyId::from(id_of(fields.last("id").unwrap_or_default())?);
    Ok(hierarchy::tree(&web.scoop.find(id).await?, limit).await?)
}

async fn counts(web: &Web, fields: &Fields) -> Result<RunCounts, Fault> {
    let by = fields.found_by()?;
    let counts = operate(web).runs().count().sagas(SAGAS_COUNTED);
    Ok(by.into_iter().fold(counts, |counts, (name, value)| counts.found_by(name, value)).await?)
}

async fn events(web: &Web, fields: &Fields) -> Result<Page<RecordedEvent>, Fault> {
    let limit = fields.number("limit", EVENTS_DEFAULT, EVENTS_MAX)?;
    let mut events = match fields.parsed::<EventCursor>("after")? {
        Some(cursor) => operate(web).events().after(cursor),
        None => {
            let since = runs::since(fields)?.unwrap_or_else(|| SystemTime::now() - EVENTS_SINCE);
            operate(web).events().since(since)
        }
    };
    if let Some(handler) = fields.last("handler") {
        events = events.handler(handler);
    }
    if let Some(hierarchy) = fields.last("hierarchy") {
        events = events.hierarchy(id_of(hierarchy)?);
    }
    let (mut recorded, mut items) = (events.recorded(), vec![]);
    let until = Instant::now() + EVENTS_READ_MAX;
    while items.len() < limit {
        match timeout_at(until, recorded.next()).await {
            Ok(Some(event)) => items.push(event?),
            Ok(None) => break,
            Err(_) if items.is_empty() => return Err(Fault::Slow),
            Err(_) => break,
        }
    }
    Ok(Page { items, next: recorded.cursor().map(|cursor| cursor.to_string()) })
}

async fn entity_keys(web: &Web, fields: &Fields) -> Result<Page<String>, Fault> {
    let (keys, next) = entities::keys(web, fields.exact("name").unwrap_or_default(), fields).await?;
    Ok(Page { items: keys, next })
}

async fn entity(web: &Web, fields: &Fields) -> Result<EntityContents, Fault> {
    let [name, key] = ["name", "key"].map(|field| fields.exact(field).unwrap_or_default());
    let version = fields.parsed("after")?.unwrap_or(0);
    let found = operate(web).entities().contents(name, key, version).await?;
    found.ok_or_else(|| Fault::NotFound("There is no such entity.".into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn each_route_is_described_and_no_other() {
        let description: Value = serde_json::from_str(OPENAPI).expect("JSON");
        let described: BTreeSet<_> =
            description["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
        assert_eq!(described, ROUTES.into_iter().map(|(path, _)| path).collect());
    }
}
