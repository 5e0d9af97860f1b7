//! Pauses a saga, a topic or everything, and ends a pause.

use std::convert::Infallible;
use std::time::Duration;

use askama::Template;
use axum::extract::{Form, FromRequestParts, RawQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use scoop_operate::OperateExt as _;
use scoop_runtime::PauseTarget;

use super::requester::{Entered, Mistake, Name, Signed};
use super::{Base, Fields, Frame, check_may_act, page, query_of};
use crate::access::redirect;
use crate::fault::Fault;
use crate::shown::{line, query};
use crate::{SharedWeb, Web};

/// The limits to choose from.
const LIMITS: [(&str, &str, Duration); 4] = [
    ("15m", "15 minutes", Duration::from_secs(15 * 60)),
    ("1h", "1 hour", Duration::from_secs(3_600)),
    ("8h", "8 hours", Duration::from_secs(8 * 3_600)),
    ("1d", "1 day", Duration::from_secs(24 * 3_600)),
];

/// What is asked for: the last part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Pause,
    Resume,
}

#[derive(Template)]
#[template(path = "pause.html")]
struct PausePage {
    frame: Frame,
    change: Change,
    /// Where the form is sent to.
    address: String,
    target: String,
    limits: [(&'static str, &'static str, Duration); 4],
    signed: Signed,
}

impl PausePage {
    fn is_pause(&self) -> bool {
        self.change == Change::Pause
    }
}

impl<S: Sync> FromRequestParts<S> for Change {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let is_resume = parts.uri.path().ends_with(Self::Resume.name());
        Ok(if is_resume { Self::Resume } else { Self::Pause })
    }
}

impl Change {
    const fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }
}

/// The query that names a target.
pub(super) fn query_of_target(target: &PauseTarget) -> String {
    match target {
        PauseTarget::Handler(name) => query([("saga", &**name)]),
        PauseTarget::Topic(name) => query([("topic", &**name)]),
        _ => query([("everything", "1")]),
    }
}

fn target_of(fields: &Fields) -> Result<PauseTarget, Fault> {
    match (fields.last("saga"), fields.last("topic"), fields.last("everything")) {
        (Some(saga), None, None) => Ok(PauseTarget::handler(saga)),
        (None, Some(topic), None) => Ok(PauseTarget::topic(topic)),
        (None, None, Some(_)) => Ok(PauseTarget::Everything),
        _ => Err(Fault::BadRequest("The address names one of `saga`, `topic` and `everything`.".into())),
    }
}

/// Asks for the confirmation.
pub(crate) async fn confirm(
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    change: Change,
    RawQuery(query): RawQuery,
) -> Response {
    let asked = (&*web, &base, &headers);
    match target(asked, &query_of(query)) {
        Ok(target) => ask(asked, (change, &target), Entered::before(&headers), None),
        Err(fault) => fault.page(&base.0),
    }
}

/// Pauses, or ends a pause.
pub(crate) async fn carry_out(
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    change: Change,
    RawQuery(query): RawQuery,
    Form(form): Form<Vec<(String, String)>>,
) -> Response {
    match carried_out((&web, &base, &headers), change, &query_of(query), &form.into()).await {
        Ok(Ok(entered)) => entered.remembered(redirect(&format!("{}/topology", base.0)), &base.0, &headers),
        Ok(Err(page)) => *page,
        Err(fault) => fault.page(&base.0),
    }
}

/// What a request comes with.
type Asked<'a> = (&'a Web, &'a Base, &'a HeaderMap);

/// The target, if the page has actions.
fn target((web, ..): Asked<'_>, query: &Fields) -> Result<PauseTarget, Fault> {
    check_may_act(web)?;
    target_of(query)
}

fn ask(
    (web, base, headers): Asked<'_>,
    (change, target): (Change, &PauseTarget),
    entered: Entered,
    error: Option<Mistake>,
) -> Response {
    page(&PausePage {
        frame: Frame::new(web, base, "Topology", format!("{}: confirm", change.name())),
        change,
        address: format!("{}/{}{}", base.0, change.name(), query_of_target(target)),
        target: line(&target.to_string()),
        limits: LIMITS,
        signed: Signed::new(web, headers, entered, error, true),
    })
}

/// What was entered, if the change was made; or the form with a mistake.
async fn carried_out(
    asked: Asked<'_>,
    change: Change,
    query: &Fields,
    form: &Fields,
) -> Result<Result<Entered, Box<Response>>, Fault> {
    let (web, _, headers) = asked;
    let target = target(asked, query)?;
    let entered = Entered::of(web, headers, form)?;
    if let Some(mistake) = entered.mistake(true) {
        let mut response = ask(asked, (change, &target), entered, Some(mistake));
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(Err(Box::new(response)));
    }
    match change {
        Change::Pause => {
            let pause =
                web.scoop.operate().pauses().pause(target).reason(&*entered.reason).source(&*entered.name);
            let new_runs_only = form.last("new_runs_only").is_some();
            let pause = if new_runs_only { pause.new_runs_only() } else { pause };
            match form.last("limit") {
                None => pause.await?,
                Some(limit) => {
                    let limit = LIMITS.iter().find(|(value, ..)| *value == limit);
                    let (.., limit) = limit
                        .ok_or_else(|| Fault::BadRequest("`limit` is no time to choose from.".into()))?;
                    pause.for_at_most(*limit).await?
                }
            };
        }
        Change::Resume => {
            web.scoop
                .operate()
                .pauses()
                .resume(target)
                .source(&*entered.name)
                .reason(&*entered.reason)
                .await?;
        }
    }
    Ok(Ok(entered))
}
