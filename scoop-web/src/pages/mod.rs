//! The pages, one in a file, and what they have in common. Their HTML is in `templates`.

pub(crate) mod action;
mod count;
pub(crate) mod entities;
pub(crate) mod error_queue;
pub(crate) mod failures;
mod graph;
pub(crate) mod hierarchy;
pub(crate) mod inbox;
pub(crate) mod many;
pub(crate) mod overview;
pub(crate) mod pause;
mod play;
mod requester;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod search;
mod spark;
mod timeline;
pub(crate) mod topology;
pub(crate) mod trigger;

use std::convert::Infallible;
use std::fmt::Display;
use std::str::FromStr;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{Html, IntoResponse as _, Response};
use scoop_operate::{FindValue, RunSummary};
use uuid::Uuid;

use crate::fault::Fault;
use crate::shown::{Moment, Phase, line};
use crate::{Web, assets};

/// The path at which the router is mounted, without a `/` at its end.
#[derive(Clone, Debug)]
pub(crate) struct Base(pub(crate) String);

impl<S: Sync> FromRequestParts<S> for Base {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // `access::guard` has added it.
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_else(|| Self(String::new())))
    }
}

/// The fields of a query or a form, of which some may come several times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl From<Vec<(String, String)>> for Fields {
    fn from(fields: Vec<(String, String)>) -> Self {
        Self(fields)
    }
}

impl Fields {
    pub(crate) fn of(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The values of a field that are not empty.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
        let values = self.0.iter().filter(move |(it, _)| it == name).map(|(_, value)| value.trim());
        values.filter(|value| !value.is_empty())
    }

    /// The last value of a field, unless it is empty.
    pub(crate) fn last<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next_back()
    }

    /// The last value of a field with the spaces at its ends, unless it is empty.
    pub(crate) fn exact(&self, name: &str) -> Option<&str> {
        let values = self.0.iter().filter(|(it, _)| it == name).map(|(_, value)| &**value);
        values.rev().find(|value| !value.is_empty())
    }

    /// These fields after the others, so that their values are the last.
    pub(crate) fn and(mut self, fields: Vec<(String, String)>) -> Self {
        self.0.extend(fields);
        self
    }

    /// The last value of a field, such as a place in a list, unless it is empty.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Fault> {
        let value = self.last(name).map(str::parse).transpose();
        value.map_err(|error| Fault::BadRequest(format!("`{name}`: {error}")))
    }

    /// The fields of messages by which runs are found, with their values.
    pub(crate) fn found_by(&self) -> Result<Vec<(&str, FindValue)>, Fault> {
        let parameters: Option<Vec<_>> = self.all("where").map(|field| field.split_once('=')).collect();
        let parameters = parameters.ok_or_else(|| {
            Fault::BadRequest("`where` has a field and its value, such as `order=2167`".into())
        })?;
        if parameters.len() > WHERE_MAX {
            return Err(Fault::BadRequest(format!("`where` is possible {WHERE_MAX} times")));
        }
        Ok(parameters.into_iter().map(|(name, value)| (name, FindValue::written(value))).collect())
    }

    /// The value of a field that is a number, up to a limit.
    pub(crate) fn number(&self, name: &str, default: usize, max: usize) -> Result<usize, Fault> {
        let Some(text) = self.last(name) else { return Ok(default) };
        let number = text.parse::<usize>().ok().filter(|number| (1..=max).contains(number));
        number.ok_or_else(|| Fault::BadRequest(format!("`{name}` is a number from 1 to {max}")))
    }
}

/// The number of fields in a request. A message has fewer.
const WHERE_MAX: usize = 16;

/// What the frame of all pages needs.
pub(crate) struct Frame {
    pub(crate) base: String,
    pub(crate) title: String,
    style: String,
    script: String,
    icon: String,
    /// The name of the page in the menu.
    pub(crate) current: &'static str,
    pub(crate) read_only: bool,
}

impl Frame {
    pub(crate) fn new(web: &Web, base: &Base, current: &'static str, title: impl Into<String>) -> Self {
        Self {
            base: base.0.clone(),
            title: title.into(),
            style: assets::style(),
            script: assets::script(),
            icon: assets::icon(),
            current,
            read_only: web.options.is_read_only(),
        }
    }

    /// The address of the overview.
    fn overview_address(&self) -> String {
        address(&self.base, "/")
    }

    /// The entries of the menu: paths and names.
    fn menu(&self) -> [(&'static str, &'static str); 8] {
        [
            ("/", "Overview"),
            ("/runs", "Runs"),
            ("/failures", "Failures"),
            ("/inbox", "Inbox"),
            ("/error-queue", "Error queue"),
            ("/schedules", "Schedules"),
            ("/entities", "Entities"),
            ("/topology", "Topology"),
        ]
    }

    /// Whether this is the page of a menu entry.
    fn is_current(&self, name: &str) -> bool {
        self.current == name
    }
}

/// A run in a list.
pub(crate) struct RunRow {
    id: Uuid,
    /// The fields by which it is found, or its id.
    label: String,
    hierarchy: Uuid,
    handler: String,
    topic: String,
    phase: Phase,
    since: Moment,
    about: String,
}

impl RunRow {
    pub(crate) fn of(run: &RunSummary, now: std::time::SystemTime) -> Self {
        Self {
            id: run.run.uuid(),
            label: line(&run.label()),
            hierarchy: run.hierarchy.uuid(),
            handler: line(&run.handler),
            topic: line(&run.topic),
            phase: Phase(run.phase),
            since: Moment { at: run.since, now },
            about: line(&run.about()),
        }
    }
}

/// The address of a path of this page. A mounted router has no `/` at the end of its own path.
pub(crate) fn address(base: &str, path: &str) -> String {
    match path.strip_prefix('/') {
        Some(rest) if !base.is_empty() && (rest.is_empty() || rest.starts_with('?')) => {
            format!("{base}{rest}")
        }
        _ => format!("{base}{path}"),
    }
}

/// Renders a page.
pub(crate) fn page(template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a template of the web page failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Renders a page, or that of the error.
pub(crate) fn page_of<T: Template>(base: &Base, template: Result<T, Fault>) -> Response {
    template.map_or_else(|fault| fault.page(&base.0), |template| page(&template))
}

/// The fields of a query.
pub(crate) fn query_of(query: Option<String>) -> Fields {
    Fields::of(query.as_deref().unwrap_or_default())
}

/// Refuses the request if the page has no actions.
fn check_may_act(web: &Web) -> Result<(), Fault> {
    match web.options.is_read_only() {
        true => Err(Fault::Forbidden("This page is read-only.".into())),
        false => Ok(()),
    }
}

/// The id in a path or a field.
pub(crate) fn id_of(text: &str) -> Result<Uuid, Fault> {
    text.parse().map_err(|_| Fault::NotFound(format!("`{}` is no id of a run or a hierarchy", line(text))))
}

/// The page for an address that has none.
pub(crate) async fn not_found(base: Base) -> Response {
    Fault::NotFound("There is no such page.".into()).page(&base.0)
}
