//! One run: what it waits for, its steps and events with attempts and times, its message and values, its failures, its repairs.

use std::collections::HashMap;

use askama::Template;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use scoop_core::{EventKind, visible_step};
use scoop_operate::{OperateExt as _, RunContents, RunSummary, WaitReason};
use scoop_runtime::shown::{humane, utc};
use scoop_runtime::{Handle, IdObject, RunEvent, RunInfo, RunState, Tree};
use uuid::Uuid;

use super::action::{Action, Notice};
use super::search::path_of;
use super::{Base, Fields, Frame, id_of, page, query_of};
use crate::access::redirect;
use crate::fault::Fault;
use crate::shown::{Moment, Phase, block, counted, excerpt, line};
use crate::{SharedWeb, Web};

/// The number of events that are shown of the beginning of a run, and of its end.
const EVENTS_SHOWN: usize = 250;

/// The maximum numbers of children and requests that are shown.
const CHILDREN_SHOWN: usize = 100;
const REQUESTS_SHOWN: usize = 100;

/// The maximum number of steps that are shown.
const STEPS_SHOWN: usize = 100;

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    id: Uuid,
    hierarchy: Uuid,
    parent: Option<Uuid>,
    message: Uuid,
    handler: String,
    topic: String,
    phase: Phase,
    since: Moment,
    explanation: String,
    actions: Vec<Action>,
    /// Runs on which an operator has to decide first, with their sagas.
    failed_below: Vec<(Uuid, String)>,
    has_more_below: bool,
    notice: Option<Notice>,
    /// Whether its hierarchy has a page.
    has_hierarchy: bool,
    /// What is missing of the record.
    gap: Option<&'static str>,
    facts: Vec<(&'static str, String)>,
    contents: Contents,
    /// Why events of the run, or of its children, cannot be read.
    unreadable: Vec<String>,
    /// `None` if the record has nothing of the run that can be read.
    details: Option<Details>,
}

/// What is missing between a hierarchy and one of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    /// The launch of the hierarchy.
    Launch,
    /// The launch of a message that leads to the run.
    Message,
}

impl Details {
    /// The number of events that are not shown.
    fn events_not_shown(&self) -> Option<String> {
        match self.events_left_out {
            0 => None,
            count @ ..RunInfo::LEFT_OUT_MAX => Some(format!(
                "{count} events are not shown: those between the first and the last {EVENTS_SHOWN}."
            )),
            _ => Some(format!(
                "10,000 events or more are not shown: those between the first and the last {EVENTS_SHOWN}."
            )),
        }
    }

    /// The number of requests that are not shown.
    fn requests_not_shown(&self) -> Option<String> {
        match self.requests_left_out {
            0 => None,
            count @ ..RunInfo::LEFT_OUT_MAX => Some(format!("{count} earlier ones are not shown.")),
            _ => Some("10,000 earlier ones or more are not shown.".into()),
        }
    }
}

impl Gap {
    fn text(self) -> &'static str {
        match self {
            Self::Launch => {
                "The record is incomplete: the launch of the hierarchy is missing. So the hierarchy has no page, and runs above or \
                 beside this one are not shown."
            }
            Self::Message => {
                "The record is incomplete: the launch of the message of this run, or of a run above it, is missing. So the page \
                 of the hierarchy does not have this run."
            }
        }
    }
}

/// The message, the context and the values of the run.
struct Contents {
    message: Option<String>,
    context: Option<String>,
    /// Names and values.
    values: Vec<(String, String)>,
    is_complete: bool,
}

/// What the tree of the run tells about it.
struct Details {
    steps: Vec<StepRow>,
    /// Whether earlier steps are not shown.
    has_earlier_steps: bool,
    events: Vec<EventRow>,
    events_left_out: usize,
    /// Names and reports.
    failures: Vec<(&'static str, String)>,
    /// Repairs and cancellations.
    requests: Vec<(String, String)>,
    requests_left_out: usize,
    children: Vec<Child>,
    /// Whether there may be further children.
    has_more_children: bool,
    unhandled: Vec<String>,
    has_more_unhandled: bool,
}

/// An instance of a step.
struct StepRow {
    step: String,
    state: &'static str,
    tone: &'static str,
    at: String,
    lasted: String,
    waited: String,
    note: String,
}

struct EventRow {
    /// Whether events before it are not shown.
    follows_gap: bool,
    at: String,
    what: &'static str,
    step: String,
    lasted: String,
    waited: String,
    worker: String,
    failure: String,
}

struct Child {
    id: Uuid,
    handler: String,
    topic: String,
    phase: Phase,
}

/// Shows the page.
pub(crate) async fn show(
    State(web): State<SharedWeb>,
    base: Base,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    match read(&web, &base, &id, &query_of(query)).await {
        Ok(Ok(shown)) => page(&shown),
        Ok(Err(path)) => redirect(&format!("{}{path}", base.0)),
        Err(fault) => fault.page(&base.0),
    }
}

/// The page, or the path of the one for an id that is not that of a run.
async fn read(web: &Web, base: &Base, id: &str, fields: &Fields) -> Result<Result<RunPage, String>, Fault> {
    let id = id_of(id)?;
    let explanation = web.scoop.operate().runs().explain(id).await?;
    let (IdObject::Run { .. }, Some(explained)) = (&explanation.named, explanation.runs.first()) else {
        return Ok(Err(path_of(&web.scoop, id).await?));
    };
    let run = &explained.run;
    let (tree, gap, contents) =
        tokio::join!(tree_of(web, run), gap_above(web, run), web.scoop.operate().runs().contents(run));
    let (tree, gap, contents) = (tree?, gap?, contents?);
    let info = tree.runs().into_iter().find(|info| info.id() == run.run);
    let requests = tree
        .cancellations()
        .iter()
        .filter(|asked| info.is_some_and(|info| info.lineage.ids().starts_with(asked.lineage.ids())));
    let requests = requests.map(|asked| {
        (
            asked.at.map(utc).unwrap_or_default(),
            line(&format!("cancellation requested by {}: {}", asked.source, asked.reason)),
        )
    });
    let details = info.map(|info| details(&tree, info, requests.collect()));
    let (failed_below, has_more_below) = match &explained.reason {
        WaitReason::Operator { failed_below, has_more_below, .. } => {
            let below = failed_below.iter().map(|below| (below.run.uuid(), line(&below.handler)));
            (below.collect(), *has_more_below)
        }
        _ => (vec![], false),
    };
    let is_read_only = web.options.is_read_only();
    let actions = if is_read_only { vec![] } else { Action::making(explained.requests()) };
    Ok(Ok(RunPage {
        frame: Frame::new(web, base, "Runs", format!("Run of {}", line(&run.handler))),
        id,
        hierarchy: run.hierarchy.uuid(),
        parent: run.parent.map(Into::into),
        message: run.message_id,
        handler: line(&run.handler),
        topic: line(&run.topic),
        phase: Phase(run.phase),
        since: Moment { at: run.since, now: explained.read_at },
        explanation: block(&explained.to_string()),
        actions,
        failed_below,
        has_more_below,
        notice: Notice::of(fields),
        has_hierarchy: gap != Some(Gap::Launch),
        gap: gap.map(Gap::text),
        facts: facts(run, info),
        contents: shown(&contents),
        unreadable: tree.unreadable().iter().map(|why| line(why)).collect(),
        details,
    }))
}

/// The tree of the run and its children.
async fn tree_of(web: &Web, run: &RunSummary) -> Result<Tree, Fault> {
    let message = Handle::of_message(&web.scoop, run.hierarchy, run.message_id);
    Ok(message.tree().only(run.run).limit(1 + CHILDREN_SHOWN).events(EVENTS_SHOWN).await?)
}

/// What is missing of the record above the run.
async fn gap_above(web: &Web, run: &RunSummary) -> Result<Option<Gap>, Fault> {
    match web.scoop.find(run.hierarchy).await {
        Ok(found) => Ok((!found.leads_to(run.message_id).await?).then_some(Gap::Message)),
        Err(error) if error.is_not_found() => Ok(Some(Gap::Launch)),
        Err(error) => Err(error.into()),
    }
}

fn facts(run: &RunSummary, info: Option<&RunInfo>) -> Vec<(&'static str, String)> {
    let mut facts = vec![];
    let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    add("Found by", (!run.found_by.is_empty()).then(|| line(&run.label())));
    add("Last step", run.step.as_deref().map(line));
    add("Worker", run.worker.as_deref().map(line));
    add("Failed attempts", (run.attempts > 0).then(|| run.attempts.to_string()));
    add("Deadline", run.deadline.map(utc));
    add("Queued for", run.queue_time.map(humane));
    add("Took", run.duration.map(humane));
    let former = info.map_or(0, |info| info.former_executions);
    add("Execution", (former > 0).then(|| format!("number {}", u64::from(former) + 1)));
    facts
}

fn shown(contents: &RunContents) -> Contents {
    let values = contents.values.iter().map(|value| {
        let name = match (&value.step, value.position) {
            (Some(step), Some(position)) => {
                format!(
                    "{} returned, after {}",
                    line(visible_step(step)),
                    counted(position as usize, "step", "steps")
                )
            }
            _ => format!("reply {}", line(&value.name)),
        };
        (name, excerpt(&value.value.to_string()))
    });
    Contents {
        message: contents.message.as_ref().map(|message| block(&message.to_string())),
        context: contents.context.as_ref().map(|context| block(&context.to_string())),
        values: values.collect(),
        is_complete: contents.is_complete,
    }
}

/// The steps that have completed, with what became of them, and what is known about the one in progress; and whether there
/// are earlier ones. After a gap these are the steps that completed or were undone after it.
fn steps(info: &RunInfo) -> (Vec<StepRow>, bool) {
    let (mut steps, mut has_earlier): (Vec<StepRow>, _) = (vec![], false);
    // The places of the instances of each step that are not undone, the newest last.
    let mut completed: HashMap<String, Vec<usize>> = HashMap::new();
    for event in &info.events {
        if event.follows_gap {
            steps.clear();
            completed.clear();
            has_earlier = true;
        }
        let subject = event.subject().map(line).unwrap_or_default();
        if event.is_completion() {
            let EventRow { at, lasted, waited, .. } = self::event(event);
            let note = String::new();
            completed.entry(subject.clone()).or_default().push(steps.len());
            steps.push(StepRow { step: subject, state: "completed", tone: "good", at, lasted, waited, note });
        } else if event.is_undoing() || event.is_skipping() {
            let (state, tone) =
                if event.is_undoing() { ("undone", "undone") } else { ("not undone, skipped", "bad") };
            let note = event.at.map(utc).unwrap_or_default();
            match completed.get_mut(&subject).and_then(Vec::pop) {
                Some(index) => {
                    let step = &mut steps[index];
                    (step.state, step.tone, step.note) = (state, tone, note);
                }
                // It completed before the gap.
                None if has_earlier => {
                    let unknown = String::new;
                    let (at, lasted, waited) = (unknown(), unknown(), unknown());
                    steps.push(StepRow { step: subject, state, tone, at, lasted, waited, note });
                }
                None => {}
            }
        }
    }
    if info.attempts > 0 && !info.has_ended() {
        let reason = match &info.state {
            RunState::Retrying { reason, .. } | RunState::Stuck { reason } => line(reason),
            _ => String::new(),
        };
        steps.push(StepRow {
            step: if info.rolling_back {
                "compensation in progress".into()
            } else {
                "step in progress".into()
            },
            state: "failed attempts",
            tone: "bad",
            at: String::new(),
            lasted: String::new(),
            waited: String::new(),
            note: format!("{}: {reason}", info.attempts),
        });
    }
    (steps, has_earlier)
}

fn details(tree: &Tree, info: &RunInfo, mut requests: Vec<(String, String)>) -> Details {
    requests.extend(info.interventions.iter().map(|it| (utc(it.at), line(&it.to_string()))));
    requests.sort();
    let requests_left_out = requests.len().saturating_sub(REQUESTS_SHOWN);
    requests.drain(..requests_left_out);
    let (mut steps, has_earlier_steps) = steps(info);
    let steps_left_out = steps.len().saturating_sub(STEPS_SHOWN);
    steps.drain(..steps_left_out);
    Details {
        steps,
        has_earlier_steps: has_earlier_steps || steps_left_out > 0,
        events: info.events.iter().map(event).collect(),
        events_left_out: info.events_left_out,
        failures: failures(&info.state, &info.events),
        requests,
        requests_left_out: requests_left_out + info.interventions_left_out,
        children: info.children.iter().map(child).collect(),
        has_more_children: !tree.is_complete(),
        unhandled: info.unhandled.iter().map(|message| line(&message.to_string())).collect(),
        has_more_unhandled: tree.has_more_unhandled(),
    }
}

fn failures(state: &RunState, events: &[RunEvent]) -> Vec<(&'static str, String)> {
    let latest = || {
        let failed = events.iter().rev().filter(|event| event.kind != EventKind::Suspended);
        let failure = failed.filter_map(|event| event.failure.as_ref()).next();
        failure.map(|failure| ("Failure", block(&failure.report()))).into_iter().collect()
    };
    match state {
        RunState::RolledBack(failure) => vec![("Failure", block(&failure.report()))],
        RunState::RollbackFailed(failed) => vec![
            ("Failure of the rollback", block(&failed.report())),
            ("Reason of the rollback", block(&failed.cause.report())),
        ],
        RunState::Retrying { reason, .. } => vec![("Last failed attempt", block(reason))],
        RunState::Stuck { reason } => vec![("Reason", block(reason))],
        _ => latest(),
    }
}

fn event(event: &RunEvent) -> EventRow {
    let failure = event.failure_in_words().or(event.unreadable.clone());
    EventRow {
        follows_gap: event.follows_gap,
        at: event.at.map(utc).unwrap_or_default(),
        what: event.word(),
        step: event.subject().map(line).unwrap_or_default(),
        lasted: event.duration.map(humane).unwrap_or_default(),
        waited: event.waited.map(humane).unwrap_or_default(),
        worker: event.worker.as_deref().map(line).unwrap_or_default(),
        failure: failure.as_deref().map(line).unwrap_or_default(),
    }
}

fn child(run: &RunInfo) -> Child {
    Child {
        id: run.id().uuid(),
        handler: line(&run.handler),
        topic: line(&run.topic),
        phase: Phase(run.state.phase()),
    }
}
