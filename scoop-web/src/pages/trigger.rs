//! Runs a saga with a schedule now.

use askama::Template;
use axum::extract::{Form, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::requester::{Entered, Mistake, Name, Signed};
use super::{Base, Fields, Frame, check_may_act, page, query_of};
use crate::access::redirect;
use crate::fault::Fault;
use crate::shown::{line, query};
use crate::{SharedWeb, Web};
use scoop_operate::OperateExt as _;

#[derive(Template)]
#[template(path = "trigger.html")]
struct TriggerPage {
    frame: Frame,
    /// Where the form is sent to.
    address: String,
    saga: String,
    signed: Signed,
}

/// A saga with a schedule.
struct Scheduled<'a> {
    saga: &'a str,
}

/// The address of the page for a saga.
pub(super) fn address(base: &Base, saga: &str) -> String {
    format!("{}/trigger{}", base.0, query([("saga", saga)]))
}

impl<'a> Scheduled<'a> {
    fn of(web: &Web, fields: &'a Fields) -> Result<Self, Fault> {
        check_may_act(web)?;
        let saga =
            fields.last("saga").ok_or_else(|| Fault::BadRequest("The address names a `saga`.".into()))?;
        Ok(Self { saga })
    }
}

/// Asks for the confirmation.
pub(crate) async fn confirm(
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    match Scheduled::of(&web, &query_of(query)) {
        Ok(scheduled) => ask(&web, &base, &headers, &scheduled, Entered::before(&headers), None),
        Err(fault) => fault.page(&base.0),
    }
}

/// Runs the saga.
pub(crate) async fn carry_out(
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    Form(form): Form<Vec<(String, String)>>,
) -> Response {
    let (query, form) = (query_of(query), form.into());
    let carried_out = carried_out(&web, &base, &headers, &query, &form).await;
    carried_out.unwrap_or_else(|fault| fault.page(&base.0))
}

fn ask(
    web: &Web,
    base: &Base,
    headers: &HeaderMap,
    Scheduled { saga }: &Scheduled<'_>,
    entered: Entered,
    error: Option<Mistake>,
) -> Response {
    page(&TriggerPage {
        frame: Frame::new(web, base, "Schedules", "Run now: confirm"),
        address: address(base, saga),
        saga: line(saga),
        signed: Signed::new(web, headers, entered, error, true),
    })
}

async fn carried_out(
    web: &Web,
    base: &Base,
    headers: &HeaderMap,
    query: &Fields,
    form: &Fields,
) -> Result<Response, Fault> {
    let scheduled = Scheduled::of(web, query)?;
    let entered = Entered::of(web, headers, form)?;
    if let Some(mistake) = entered.mistake(true) {
        let mut response = ask(web, base, headers, &scheduled, entered, Some(mistake));
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(response);
    }
    let Scheduled { saga } = scheduled;
    let hierarchy = web.scoop.operate().schedules().trigger(saga).await?.id();
    // A launch has no requester in the tables.
    let (requester, reason) = (line(&entered.name), line(&entered.reason));
    tracing::info!(saga = line(saga), %hierarchy, requester, reason, "schedule run by hand");
    let launched = redirect(&format!("{}/hierarchies/{hierarchy}", base.0));
    Ok(entered.remembered(launched, &base.0, headers))
}
