//! The search: an id or a unique key leads to its page; the name of a saga or a topic, or a failure code, to the list.

use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_operate::OperateExt as _;
use scoop_runtime::{HierarchyId, IdObject, RuntimeError, Scoop};
use uuid::Uuid;

use super::{Base, Fields};
use crate::access::redirect;
use crate::fault::Fault;
use crate::shown::query;
use crate::{SharedWeb, Web};

/// Sends the browser to what was searched for.
pub(crate) async fn find(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    let fields = Fields::of(query.as_deref().unwrap_or_default());
    match found(&web, &fields).await {
        Ok(path) => redirect(&format!("{}{path}", base.0)),
        Err(fault) => fault.page(&base.0),
    }
}

async fn found(web: &Web, fields: &Fields) -> Result<String, Fault> {
    match (fields.last("topic"), fields.exact("key")) {
        (Some(topic), Some(key)) => {
            let found = web.scoop.operate().runs().find_by_key(topic, key).await?;
            return Ok(format!("/hierarchies/{}", found.id()));
        }
        (None, None) => {}
        _ => {
            let why = "A unique key is looked up with the topic of its message: both are needed.";
            return Err(Fault::BadRequest(why.into()));
        }
    }
    let text = fields.last("q").unwrap_or_default();
    if let Ok(id) = text.parse::<Uuid>() {
        return path_of(&web.scoop, id).await;
    }
    let handlers = || web.scoop.operate().handlers().list().limit(1);
    let pair = if text.is_empty() {
        None
    } else if !handlers().saga(text).await?.is_empty() {
        Some(("handler", text))
    } else if !handlers().topic(text).await?.is_empty() {
        Some(("topic", text))
    } else {
        Some(("code", text))
    };
    Ok(format!("/runs{}", query(pair)))
}

/// The path of the page for an id.
pub(super) async fn path_of(scoop: &Scoop, id: Uuid) -> Result<String, Fault> {
    match scoop.find(HierarchyId::from(id)).await {
        Ok(_) => Ok(format!("/hierarchies/{id}")),
        Err(RuntimeError::WrongId { named: IdObject::Run { .. }, .. }) => Ok(format!("/runs/{id}")),
        Err(RuntimeError::WrongId { named: IdObject::Message { hierarchy, .. }, .. }) => {
            Ok(format!("/hierarchies/{hierarchy}"))
        }
        Err(error) => Err(error.into()),
    }
}
