//! The search: an id or a unique key leads to its page; the name of a saga or a topic, a value of a field, or a failure code, to the
//! list.

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_operate::{FindValue, OperateExt as _};
use scoop_runtime::{HierarchyId, IdObject, Scoop};
use uuid::Uuid;

use super::{Base, Fields, Frame, page};
use crate::access::redirect;
use crate::fault::Fault;
use crate::shown::{line, query};
use crate::{SharedWeb, Web};

/// Sends the browser to what was searched for.
pub(crate) async fn find(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    let fields = Fields::of(query.as_deref().unwrap_or_default());
    match found(&web, &fields).await {
        Ok(finds) => match &finds[..] {
            [only] => redirect(&format!("{}{}", base.0, only.path)),
            _ => page(&SearchPage {
                frame: Frame::new(&web, &base, "Runs", "Search"),
                text: line(fields.last("q").unwrap_or_default()),
                finds,
            }),
        },
        Err(fault) => fault.page(&base.0),
    }
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: Frame,
    text: String,
    finds: Vec<Find>,
}

/// Something that was found.
struct Find {
    path: String,
    what: String,
}

impl Find {
    /// The list of the runs with this field of the form.
    fn list(name: &str, value: &str) -> Self {
        Self {
            path: format!("/runs{}", query([(name, value)])),
            what: format!("the runs with {}", line(value)),
        }
    }

    fn at(path: String) -> Vec<Self> {
        vec![Self { path, what: String::new() }]
    }
}

/// What was searched for: one place, or several.
async fn found(web: &Web, fields: &Fields) -> Result<Vec<Find>, Fault> {
    match (fields.last("topic"), fields.exact("key")) {
        (Some(topic), Some(key)) => {
            let found = web.scoop.operate().runs().find_by_key(topic, key).await?;
            return Ok(Find::at(format!("/hierarchies/{}", found.id())));
        }
        (None, None) => {}
        _ => {
            let why = "A unique key is looked up with the topic of its message: both are needed.";
            return Err(Fault::BadRequest(why.into()));
        }
    }
    let text = fields.last("q").unwrap_or_default();
    if let Ok(id) = text.parse::<Uuid>() {
        return match path_of(&web.scoop, id).await {
            // A message may be found by it.
            Err(Fault::Library(error)) if error.is_not_found() => {
                let finds = of_values(web, text).await?;
                if finds.is_empty() { Ok(Find::at(path_of(&web.scoop, id).await?)) } else { Ok(finds) }
            }
            path => Ok(Find::at(path?)),
        };
    }
    let handlers = || web.scoop.operate().handlers().list().limit(1);
    if text.is_empty() {
        return Ok(Find::at("/runs".into()));
    }
    if !handlers().saga(text).await?.is_empty() {
        return Ok(vec![Find::list("handler", text)]);
    }
    if !handlers().topic(text).await?.is_empty() {
        return Ok(vec![Find::list("topic", text)]);
    }
    let finds = of_values(web, text).await?;
    Ok(if finds.is_empty() { vec![Find::list("code", text)] } else { finds })
}

/// The list for `field=value` of a registered field; or the lists for all fields with the value, and the hierarchies whose unique key
/// it is.
async fn of_values(web: &Web, text: &str) -> Result<Vec<Find>, Fault> {
    let runs = web.scoop.operate().runs();
    if let Some((name, _)) = text.split_once('=')
        && runs.find_fields().await?.iter().any(|field| field.name == name)
    {
        return Ok(vec![Find::list("where", text)]);
    }
    let names = runs.fields_with(&FindValue::written(text)).await?;
    let mut finds: Vec<_> = names.iter().map(|name| Find::list("where", &format!("{name}={text}"))).collect();
    finds.extend(runs.with_key(text).await?.into_iter().map(|found| Find {
        path: format!("/hierarchies/{}", found.hierarchy),
        what: format!("the hierarchy with this unique key on topic {}", line(&found.topic)),
    }));
    Ok(finds)
}

/// The path of the page for an id.
pub(super) async fn path_of(scoop: &Scoop, id: Uuid) -> Result<String, Fault> {
    match scoop.find(HierarchyId::from(id)).await {
        Ok(_) => Ok(format!("/hierarchies/{id}")),
        Err(error) => match error.wrong_id() {
            Some((IdObject::Run { .. }, _)) => Ok(format!("/runs/{id}")),
            Some((IdObject::Message { hierarchy, .. }, _)) => Ok(format!("/hierarchies/{hierarchy}")),
            _ => Err(error.into()),
        },
    }
}
