//! Retries several runs of the inbox, or relaunches several hierarchies of a list: one confirmation for all, and a result for each.

use askama::Template;
use axum::extract::{Form, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use scoop_operate::{OperateError, OperateExt as _};
use scoop_runtime::{RelaunchAnswer, RepairAnswer};
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
#[template(path = "many.html")]
struct ConfirmPage {
    frame: Frame,
    action: Action,
    /// Each with what would become of its request, if that is checked before.
    runs: Vec<(Uuid, Option<String>)>,
    signed: Signed,
}

#[derive(Template)]
#[template(path = "many_results.html")]
struct ResultPage {
    frame: Frame,
    action: Action,
    results: Vec<Requested>,
    /// The number of requests that are accepted.
    accepted: usize,
}

/// The result for one run.
struct Requested {
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
        self.action.meaning()
    }
}

/// Where the user goes back to.
fn back(action: Action) -> &'static str {
    if action == Action::Retry { "inbox" } else { "runs" }
}

impl ResultPage {
    fn count(&self) -> String {
        counted(self.results.len(), "run", "runs")
    }

    fn fate(&self) -> &'static str {
        if self.action == Action::Retry { "continue" } else { "are launched again" }
    }
}

/// Asks for the confirmation.
pub(crate) async fn confirm(
    action: Action,
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    match selected(&web, &query_of(query)) {
        Ok(runs) => ask(&web, (&base, &headers), (action, runs), Entered::before(&headers), None).await,
        Err(fault) => fault.page(&base.0),
    }
}

/// Makes the requests, one after the other, and shows the results.
pub(crate) async fn carry_out(
    action: Action,
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    Form(form): Form<Vec<(String, String)>>,
) -> Response {
    let response = carried_out(&web, (&base, &headers), action, &form.into()).await;
    response.unwrap_or_else(|fault| fault.page(&base.0))
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

async fn ask(
    web: &Web,
    (base, headers): (&Base, &HeaderMap),
    (action, runs): (Action, Vec<Uuid>),
    entered: Entered,
    error: Option<Mistake>,
) -> Response {
    let mut checked = vec![];
    for run in runs {
        let answer = match action {
            Action::Relaunch => Some(match web.scoop.operate().runs().relaunch(run, "").dry_run().await {
                Ok(answer) => answer.name().to_owned(),
                Err(error) => block(&Fault::from(error).text()),
            }),
            _ => None,
        };
        checked.push((run, answer));
    }
    page(&ConfirmPage {
        frame: Frame::new(web, base, "Inbox", format!("{}: confirm", action.label())),
        action,
        runs: checked,
        signed: Signed::new(web, headers, entered, error, action.needs_reason()),
    })
}

async fn carried_out(
    web: &Web,
    (base, headers): (&Base, &HeaderMap),
    action: Action,
    form: &Fields,
) -> Result<Response, Fault> {
    let runs = selected(web, form)?;
    let entered = Entered::of(web, headers, form)?;
    if let Some(mistake) = entered.mistake(action.needs_reason()) {
        let mut response = ask(web, (base, headers), (action, runs), entered, Some(mistake)).await;
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(response);
    }
    let mut results: Vec<Requested> = vec![];
    let mut is_away = false;
    for run in runs {
        // Each would fail in the same way, perhaps after waiting.
        let result = if is_away { None } else { Some(request(web, action, run, &entered).await) };
        is_away |= matches!(&result, Some(Err(error)) if error.is_unavailable() && !error.is_busy());
        results.push(Requested::of(run, result));
    }
    let shown = page(&ResultPage {
        frame: Frame::new(web, base, "Inbox", format!("{}: results", action.label())),
        action,
        accepted: results.iter().filter(|it| it.tone == "good").count(),
        results,
    });
    Ok(entered.remembered(shown, &base.0, headers))
}

/// The text of the answer, and whether the request is accepted.
async fn request(
    web: &Web,
    action: Action,
    run: Uuid,
    Entered { name, reason, .. }: &Entered,
) -> Result<(String, bool), OperateError> {
    Ok(match action {
        Action::Relaunch => {
            let answer = web.scoop.operate().runs().relaunch(run, &**reason).source(&**name).await?;
            (answer.to_string(), matches!(answer, RelaunchAnswer::Accepted(_)))
        }
        _ => {
            let answer = web.scoop.operate().failures().retry(run).source(&**name).await?;
            (answer.to_string(), answer == RepairAnswer::Accepted)
        }
    })
}

impl Requested {
    /// The result of a request; `None` if it was not made.
    fn of(run: Uuid, result: Option<Result<(String, bool), OperateError>>) -> Self {
        let (word, tone, why) = match result {
            Some(Ok((answer, true))) => ("done", "good", answer),
            Some(Ok((answer, false))) => ("refused", "idle", answer),
            Some(Err(error)) => ("failed", "bad", Fault::from(error).text()),
            None => ("not requested", "idle", "the database did not answer before".into()),
        };
        Self { run, word, tone, why: block(&why) }
    }
}
