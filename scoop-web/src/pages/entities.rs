//! Entities: their names, the keys of a name, and one entity with its state and its events, page by page.

use std::time::SystemTime;

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use scoop_operate::{EntityContents, OperateExt as _};

use super::{Base, Fields, Frame, page_of, query_of};
use crate::fault::Fault;
use crate::shown::{Moment, block, excerpt, line, query};
use crate::{SharedWeb, Web};

#[derive(Template)]
#[template(path = "entities.html")]
struct EntitiesPage {
    frame: Frame,
    names: Vec<Link>,
    /// Whether there are more names.
    has_more_names: bool,
    /// The values of the form.
    name: String,
    key: String,
    keys: Vec<Link>,
    /// The URL of the next page of keys.
    more_keys: Option<String>,
    entity: Option<Shown>,
    /// Whether the form asks for an entity that does not exist.
    is_missing: bool,
}

struct Link {
    text: String,
    href: String,
    is_shown: bool,
}

/// An entity.
struct Shown {
    version: u64,
    state: Option<String>,
    events: Vec<EventRow>,
    /// The URL of the next page of events.
    next: Option<String>,
    /// The URL of the first one, if this is a later one.
    first: Option<String>,
}

struct EventRow {
    version: u64,
    at: Moment,
    topic: String,
    payload: String,
    command: String,
}

/// Shows the page.
pub(crate) async fn show(State(web): State<SharedWeb>, base: Base, RawQuery(query): RawQuery) -> Response {
    page_of(&base, read(&web, &base, &query_of(query)).await)
}

async fn read(web: &Web, base: &Base, fields: &Fields) -> Result<EntitiesPage, Fault> {
    let (name, key) = (fields.last("name").unwrap_or_default(), fields.last("key").unwrap_or_default());
    let after = fields.last("after").unwrap_or_default();
    let address = |of: &[(&str, &str)]| format!("{}/entities{}", base.0, query(of.iter().copied()));
    let names = web.scoop.operate().entities().names().await?;
    let has_more_names = names.len() > NAMES_SHOWN;
    let link = |it: &String| Link { text: line(it), href: address(&[("name", it)]), is_shown: it == name };
    let names = names.iter().take(NAMES_SHOWN).map(link).collect();
    let (mut keys, mut more_keys, mut entity) = (vec![], None, None);
    if !name.is_empty() && key.is_empty() {
        let next;
        (keys, next) = self::keys(web, name, fields).await?;
        more_keys = next.map(|last| address(&[("name", name), ("after", &last)]));
    } else if !name.is_empty() {
        let version = fields.parsed("after")?.unwrap_or(0);
        entity = web.scoop.operate().entities().contents(name, key, version).await?;
    }
    let keys = keys.iter().map(|key| Link {
        text: line(key),
        href: address(&[("name", name), ("key", key)]),
        is_shown: false,
    });
    let page = |version: Option<u64>| {
        let after = version.map(|version| version.to_string());
        let parameters: Vec<_> = [("name", name), ("key", key)]
            .into_iter()
            .chain(after.as_deref().map(|after| ("after", after)))
            .collect();
        address(&parameters)
    };
    Ok(EntitiesPage {
        frame: Frame::new(web, base, "Entities", "Entities"),
        names,
        has_more_names,
        name: line(name),
        key: line(key),
        keys: keys.collect(),
        more_keys,
        is_missing: !key.is_empty() && entity.is_none(),
        entity: entity.map(|entity| shown(&entity, base, !after.is_empty(), page)),
    })
}

/// The number of names that are listed.
const NAMES_SHOWN: usize = 200;

/// The number of keys in a page of the library.
const KEYS_OF_A_PAGE: usize = 50;

/// A page of the keys of a name, and after which key the next one begins.
pub(crate) async fn keys(
    web: &Web,
    name: &str,
    fields: &Fields,
) -> Result<(Vec<String>, Option<String>), Fault> {
    let after = fields.exact("after").unwrap_or_default();
    let keys = web.scoop.operate().entities().keys(name, after).await?;
    let next = keys.last().filter(|_| keys.len() >= KEYS_OF_A_PAGE).cloned();
    Ok((keys, next))
}

fn shown(
    entity: &EntityContents,
    base: &Base,
    is_later: bool,
    page: impl Fn(Option<u64>) -> String,
) -> Shown {
    let now = SystemTime::now();
    let events = entity.events.iter().map(|event| EventRow {
        version: event.version,
        at: Moment { at: event.at, now },
        topic: event.topic.as_deref().map_or_else(|| "(the message is missing)".into(), line),
        payload: event.payload.as_ref().map(|payload| excerpt(&payload.to_string())).unwrap_or_default(),
        command: format!("{}/runs/{}", base.0, event.command),
    });
    Shown {
        version: entity.version,
        state: entity.state.as_ref().map(|state| block(&state.to_string())),
        events: events.collect(),
        next: entity.next.map(|next| page(Some(next))),
        first: is_later.then(|| page(None)),
    }
}
