//! The requests of an operator: each is confirmed on a page of its own, with a reason and a recorded name.

use std::fmt;

use askama::Template;
use axum::extract::{Form, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use scoop_operate::OperateExt as _;
use scoop_runtime::{
    CancelAnswer, HierarchyId, IdObject, RelaunchAnswer, RepairAnswer, RollbackAnswer, RunRequest, Scoop,
    SignalAnswer,
};
use serde_json::Value;
use uuid::Uuid;

use super::requester::{Entered, Mistake, Name, Signed};
use super::{Base, Fields, Frame, check_may_act, id_of, page};
use crate::access::redirect;
use crate::fault::Fault;
use crate::shown::{block, line, query};
use crate::{SharedWeb, Web};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Cancel,
    Rollback,
    Retry,
    Skip,
    Resolve,
    Signal,
    Relaunch,
}

impl Action {
    const ALL: [Self; 7] =
        [Self::Cancel, Self::Rollback, Self::Retry, Self::Skip, Self::Resolve, Self::Signal, Self::Relaunch];

    /// The request that it makes.
    const fn request(self) -> RunRequest {
        match self {
            Self::Cancel => RunRequest::Cancel,
            Self::Rollback => RunRequest::Rollback,
            Self::Retry => RunRequest::Retry,
            Self::Skip => RunRequest::Skip,
            Self::Resolve => RunRequest::Resolve,
            Self::Signal => RunRequest::Signal,
            Self::Relaunch => RunRequest::Relaunch,
        }
    }

    /// Its name in URLs.
    pub(super) const fn name(self) -> &'static str {
        self.request().name()
    }

    /// The text of its button.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Cancel => "Cancel",
            Self::Rollback => "Roll back",
            Self::Retry => "Retry",
            Self::Skip => "Skip",
            Self::Resolve => "Resolve",
            Self::Signal => "Send the signal",
            Self::Relaunch => "Relaunch",
        }
    }

    /// The words before what it is about.
    const fn verb(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Rollback => "roll back",
            Self::Retry => "retry",
            Self::Skip => "skip the failed compensation, or the wait for failed runs below, of",
            Self::Resolve => "resolve",
            Self::Signal => "send the awaited signal to",
            Self::Relaunch => "launch the message again of",
        }
    }

    /// What it does.
    pub(super) const fn meaning(self) -> &'static str {
        match self {
            Self::Cancel => {
                "Its unfinished runs are rolled back. Running steps end first, and runs that have not begun never begin."
            }
            Self::Rollback => {
                "The compensations of its steps run, the newest step first, and before each step those of the messages \
                 that it launched."
            }
            Self::Retry => {
                "The failed compensation is executed again; if it succeeds, the rollback continues. A stuck run is retried \
                 with the programs that live now."
            }
            Self::Skip => {
                "The failed compensation is left out: its effects stay, and the rollback continues after it. Failed runs below \
                 keep their failed rollbacks, and stay in the list."
            }
            Self::Resolve => {
                "The run counts as rolled back by hand: nothing more of it is executed. So do the failed runs below that \
                 block it."
            }
            Self::Relaunch => {
                "The first message of the hierarchy is launched again, in a new one: as it was, but for deadlines and a delay. \
                 A second time answers with the hierarchy of the first."
            }
            Self::Signal => {
                "All runs that await the same signal with the same key get the payload, and continue. Nothing checks that they \
                 can read it."
            }
        }
    }

    pub(super) fn needs_reason(self) -> bool {
        self != Self::Retry
    }

    /// The actions that make these requests.
    pub(super) fn making(requests: impl Iterator<Item = RunRequest>) -> Vec<Self> {
        let making = |request: RunRequest| Self::ALL.into_iter().find(|action| action.request() == request);
        requests.filter_map(making).collect()
    }

    fn of(name: &str) -> Result<Self, Fault> {
        let found = Self::ALL.into_iter().find(|action| action.name() == name);
        found.ok_or_else(|| Fault::NotFound("There is no such action.".into()))
    }

    /// The names and texts of its answers.
    fn answers(self) -> Vec<(&'static str, String)> {
        use {
            CancelAnswer as Cancel, RelaunchAnswer as Relaunch, RepairAnswer as Repair,
            RollbackAnswer as Rollback, SignalAnswer as Signal,
        };
        match self {
            Self::Cancel => [Cancel::Accepted, Cancel::AlreadyRequested, Cancel::NothingToDo]
                .map(|answer| (answer.name(), answer.to_string()))
                .into(),
            Self::Rollback => [
                Rollback::Accepted,
                Rollback::StillRunning,
                Rollback::NoHandlers,
                Rollback::AlreadyRolledBack,
                Rollback::FailedBefore,
            ]
            .map(|answer| (answer.name(), answer.to_string()))
            .into(),
            Self::Retry | Self::Skip | Self::Resolve => [
                Repair::Accepted,
                Repair::NotFailed,
                Repair::StillRunning,
                Repair::FailedBelow,
                Repair::Stuck,
            ]
            .map(|answer| (answer.name(), answer.to_string()))
            .into(),
            Self::Relaunch => {
                let none = HierarchyId::from(Uuid::nil());
                [
                    (
                        Relaunch::Accepted(none).name(),
                        "the message is launched again: see the relaunch below".into(),
                    ),
                    (
                        Relaunch::RelaunchedBefore(none).name(),
                        "it was launched again before: see below".into(),
                    ),
                    (Relaunch::StillRunning.name(), Relaunch::StillRunning.to_string()),
                    (Relaunch::Committed.name(), Relaunch::Committed.to_string()),
                ]
                .into()
            }
            Self::Signal => [Signal::Accepted, Signal::Pending, Signal::NotAwaiting]
                .map(|answer| (answer.name(), answer.to_string()))
                .into(),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The answer to a request, as the page after it shows it.
pub(crate) struct Notice {
    pub(super) title: String,
    pub(super) text: String,
    pub(super) tone: &'static str,
}

impl Notice {
    /// The answer that a query tells. Only texts of ours are shown.
    pub(super) fn of(fields: &Fields) -> Option<Self> {
        let action = Action::of(fields.last("action")?).ok()?;
        let answer = fields.last("answer")?;
        let (answer, text) = action.answers().into_iter().find(|(name, _)| *name == answer)?;
        let tone = if answer == CancelAnswer::Accepted.name() { "good" } else { "idle" };
        Some(Self { title: format!("{}: {answer}", action.label()), text, tone })
    }
}

#[derive(Template)]
#[template(path = "action.html")]
struct ActionPage {
    frame: Frame,
    action: Action,
    id: Uuid,
    /// What the id names.
    named: String,
    explanations: Vec<String>,
    /// Whether a part of a hierarchy is undone without the rest.
    undoes_part: bool,
    /// Where the user goes back to.
    back: String,
    /// The entered payload, if the action needs one.
    payload: Option<String>,
    signed: Signed,
}

/// What a form for an action has, besides the action and the id.
struct Filled {
    entered: Entered,
    /// Of a signal.
    payload: String,
}

/// Shows the page that asks for the confirmation.
pub(crate) async fn confirm(
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    Path((action, id)): Path<(String, String)>,
) -> Response {
    let filled = Filled { entered: Entered::before(&headers), payload: String::new() };
    match asked(&web, (&action, &id)) {
        Ok((action, id)) => ask(&web, &base, &headers, (action, id, filled, None)).await,
        Err(fault) => fault.page(&base.0),
    }
}

/// Makes the request.
pub(crate) async fn carry_out(
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    Path((action, id)): Path<(String, String)>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    let fields = Fields::from(fields);
    let (action, id) = match asked(&web, (&action, &id)) {
        Ok(asked) => asked,
        Err(fault) => return fault.page(&base.0),
    };
    let entered = match Entered::of(&web, &headers, &fields) {
        Ok(entered) => entered,
        Err(fault) => return fault.page(&base.0),
    };
    let payload = fields.exact("payload").unwrap_or_default().to_owned();
    let filled = Filled { entered, payload };
    let value = match filled.checked(action) {
        Ok(value) => value,
        Err(mistake) => {
            let mut response = ask(&web, &base, &headers, (action, id, filled, Some(mistake))).await;
            *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
            return response;
        }
    };
    let Filled { entered, .. } = filled;
    match request(&web.scoop, (action, id), value, &entered).await {
        Ok((answer, is_run)) => {
            let kind = if is_run { "runs" } else { "hierarchies" };
            let outcome = query([("action", action.name()), ("answer", answer)]);
            entered.remembered(redirect(&format!("{}/{kind}/{id}{outcome}", base.0)), &base.0, &headers)
        }
        Err(fault) => fault.page(&base.0),
    }
}

impl Filled {
    /// The payload, if the action needs one and nothing is wrong.
    fn checked(&self, action: Action) -> Result<Option<Value>, Mistake> {
        if let Some(mistake) = self.entered.mistake(action.needs_reason()) {
            return Err(mistake);
        }
        if action != Action::Signal {
            return Ok(None);
        }
        let read = serde_json::from_str(&self.payload);
        read.map(Some).map_err(|error| Mistake::new("payload", format!("The payload is no JSON: {error}.")))
    }
}

/// The action and the id, if the page has actions.
fn asked(web: &Web, (action, id): (&str, &str)) -> Result<(Action, Uuid), Fault> {
    check_may_act(web)?;
    Ok((Action::of(action)?, id_of(id)?))
}

/// Shows the form.
async fn ask(
    web: &Web,
    base: &Base,
    headers: &HeaderMap,
    (action, id, filled, error): (Action, Uuid, Filled, Option<Mistake>),
) -> Response {
    let explanation = match web.scoop.operate().runs().explain(id).await {
        Ok(explanation) => explanation,
        Err(error) => return Fault::from(error).page(&base.0),
    };
    let is_run = matches!(explanation.named, IdObject::Run { .. });
    let back = format!("{}/{}/{id}", base.0, if is_run { "runs" } else { "hierarchies" });
    let Filled { entered, payload } = filled;
    page(&ActionPage {
        frame: Frame::new(web, base, "Runs", format!("{}: confirm", action.label())),
        action,
        id,
        named: line(&explanation.named.to_string()),
        undoes_part: action == Action::Rollback && explanation.runs.iter().any(|it| it.run.parent.is_some()),
        explanations: explanation.runs.iter().map(|run| block(&run.to_string())).collect(),
        back,
        payload: (action == Action::Signal).then_some(payload),
        signed: Signed::new(web, headers, entered, error, action.needs_reason()),
    })
}

/// Makes the request: the name of the answer, and whether the id is that of a run.
async fn request(
    scoop: &Scoop,
    (action, id): (Action, Uuid),
    payload: Option<Value>,
    entered: &Entered,
) -> Result<(&'static str, bool), Fault> {
    let is_run = matches!(scoop.operate().runs().explain(id).await?.named, IdObject::Run { .. });
    let (name, reason) = (&*entered.name, &*entered.reason);
    let answer = match action {
        Action::Cancel => scoop.cancel(id, reason).source(name).without_call_site().await?.name(),
        Action::Rollback => scoop.rollback(id, reason).source(name).without_call_site().await?.name(),
        Action::Retry => scoop.operate().failures().retry(id).source(name).await?.name(),
        Action::Skip => scoop.operate().failures().skip(id, reason).source(name).await?.name(),
        Action::Resolve => scoop.operate().failures().resolve(id, reason).source(name).await?.name(),
        Action::Relaunch => scoop.operate().runs().relaunch(id, reason).source(name).await?.name(),
        Action::Signal => scoop
            .operate()
            .runs()
            .signal_run(id, payload.unwrap_or_default(), reason)
            .source(name)
            .await?
            .name(),
    };
    Ok((answer, is_run))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The enum of requests may grow, so no `match` here has all of them.
    #[test]
    fn each_request_has_an_action() {
        assert_eq!(Action::ALL.map(Action::request), RunRequest::ALL);
    }
}
