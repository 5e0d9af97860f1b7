//! Retries several runs of the inbox: one confirmation for all, and a result for each.

use askama::Template;
use axum::extract::{Form, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use scoop_runtime::{RepairAnswer, RuntimeError};
use uuid::Uuid;

use super::action::Action;
use super::requester::{Entered, Mistake, Name, Signed};
use super::{Base, Fields, Frame, check_may_act, id_of, page, query_of};
use crate::fault::Fault;
use crate::shown::{block, counted};
use crate::{SharedWeb, Web};

/// The maximum number of runs of one request.
const RUNS_MAX: usize = 100;

#[derive(Template)]
#[template(path = "retry_many.html")]
struct ConfirmPage {
    frame: Frame,
    runs: Vec<Uuid>,
    signed: Signed,
}

#[derive(Template)]
#[template(path = "retried_many.html")]
struct ResultPage {
    frame: Frame,
    results: Vec<Retried>,
    /// The number of runs that are retried.
    accepted: usize,
}

/// The result for one run.
struct Retried {
    run: Uuid,
    word: &'static str,
    tone: &'static str,
    why: String,
}

impl ConfirmPage {
    fn count(&self) -> String {
        counted(self.runs.len(), "run", "runs")
    }

    fn meaning(&self) -> &'static str {
        Action::Retry.meaning()
    }
}

impl ResultPage {
    fn count(&self) -> String {
        counted(self.results.len(), "run", "runs")
    }
}

/// Asks for the confirmation.
pub(crate) async fn confirm(
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    match selected(&web, &query_of(query)) {
        Ok(runs) => ask(&web, &base, &headers, runs, Entered::before(&headers), None),
        Err(fault) => fault.page(&base.0),
    }
}

/// Retries the runs, one after the other, and shows the results.
pub(crate) async fn carry_out(
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    Form(form): Form<Vec<(String, String)>>,
) -> Response {
    carried_out(&web, &base, &headers, &form.into()).await.unwrap_or_else(|fault| fault.page(&base.0))
}

/// The runs of a form, each once, if the page has actions.
fn selected(web: &Web, fields: &Fields) -> Result<Vec<Uuid>, Fault> {
    check_may_act(web)?;
    let mut runs = vec![];
    for run in fields.all("run") {
        let run = id_of(run)?;
        if !runs.contains(&run) {
            runs.push(run);
        }
        if runs.len() > RUNS_MAX {
            return Err(Fault::BadRequest(format!("A request can have {RUNS_MAX} runs, and this has more.")));
        }
    }
    if runs.is_empty() {
        return Err(Fault::BadRequest("No run is selected.".into()));
    }
    Ok(runs)
}

fn ask(
    web: &Web,
    base: &Base,
    headers: &HeaderMap,
    runs: Vec<Uuid>,
    entered: Entered,
    error: Option<Mistake>,
) -> Response {
    page(&ConfirmPage {
        frame: Frame::new(web, base, "Inbox", "Retry: confirm"),
        runs,
        signed: Signed::new(web, headers, entered, error, false),
    })
}

async fn carried_out(web: &Web, base: &Base, headers: &HeaderMap, form: &Fields) -> Result<Response, Fault> {
    let runs = selected(web, form)?;
    let entered = Entered::of(web, headers, form)?;
    if let Some(mistake) = entered.mistake(false) {
        let mut response = ask(web, base, headers, runs, entered, Some(mistake));
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(response);
    }
    let mut results: Vec<Retried> = vec![];
    let mut is_away = false;
    for run in runs {
        // Each would fail in the same way, perhaps after waiting.
        let result = if is_away { None } else { Some(web.scoop.retry(run).source(&*entered.name).await) };
        is_away |=
            matches!(result, Some(Err(RuntimeError::Unavailable { .. } | RuntimeError::ShutDown { .. })));
        results.push(Retried::of(run, result));
    }
    let shown = page(&ResultPage {
        frame: Frame::new(web, base, "Inbox", "Retry: results"),
        accepted: results.iter().filter(|it| it.tone == "good").count(),
        results,
    });
    Ok(entered.remembered(shown, &base.0, headers))
}

impl Retried {
    /// The result of a request; `None` if it was not made.
    fn of(run: Uuid, result: Option<Result<RepairAnswer, RuntimeError>>) -> Self {
        let (word, tone, why) = match result {
            Some(Ok(answer @ RepairAnswer::Accepted)) => ("done", "good", answer.to_string()),
            Some(Ok(answer)) => ("refused", "idle", answer.to_string()),
            Some(Err(error)) => ("failed", "bad", Fault::Runtime(error).text()),
            None => ("not requested", "idle", "the database did not answer before".into()),
        };
        Self { run, word, tone, why: block(&why) }
    }
}
