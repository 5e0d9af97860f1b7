//! One hierarchy: what it waits for, its runs as a tree, and on a scale of time.

use std::future::IntoFuture as _;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use scoop_operate::OperateExt as _;
use scoop_runtime::shown::humane;
use scoop_runtime::{Handle, HierarchyId, Outcome, ReadTree, RunInfo, RunPhase, RunRequest, Status, Tree};
use uuid::Uuid;

use super::action::{Action, Notice};
use super::play::{Branch, Moments, branches};
use super::search::path_of;
use super::timeline::{BarRow, Scale, bars, level};
use super::{Base, Fields, Frame, id_of, page, query_of};
use crate::access::redirect;
use crate::fault::Fault;
use crate::shown::{Moment, Phase, block, counted, line};
use crate::{SharedWeb, Web};

/// The number of runs that are shown, and the maximum.
const RUNS_SHOWN: usize = 100;
const RUNS_MAX: usize = 1_000;

/// The maximum number of events that are read of the beginnings of all runs, and of their ends.
const EVENTS_READ: usize = 20_000;

#[derive(Template)]
#[template(path = "hierarchy.html")]
struct HierarchyPage {
    frame: Frame,
    id: Uuid,
    topic: String,
    outcome: String,
    tone: &'static str,
    /// A paragraph for each run of the first message.
    explanations: Vec<String>,
    notes: Vec<String>,
    /// The hierarchies with the same first message, each after these words.
    relaunches: Vec<(&'static str, Uuid)>,
    actions: Vec<Action>,
    notice: Option<Notice>,
    runs: usize,
    rows: Vec<Row>,
    bars: Vec<BarRow>,
    scale: Option<Scale>,
    moments: Option<Moments>,
    left_out: Option<LeftOut>,
}

/// A row of the tree.
struct Row {
    level: usize,
    of: RowOf,
}

enum RowOf {
    Run(Node),
    /// A step, above the runs that it launched.
    Step(String),
}

/// A run in the tree.
struct Node {
    id: Uuid,
    handler: String,
    topic: String,
    phase: Phase,
    began: Option<Moment>,
    duration: String,
    about: String,
}

/// Runs that are not shown.
struct LeftOut {
    shown: usize,
    /// Whether there are such runs, or only may be.
    is_certain: bool,
    /// The URL that shows more, if there is one.
    more: Option<String>,
}

/// Shows the page.
pub(crate) async fn show(
    State(web): State<SharedWeb>,
    base: Base,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let fields = query_of(query);
    match read(&web, &base, &id, &fields).await {
        Ok(shown) => page(&shown).into_response(),
        // The id of a run or a message has another page.
        Err((Some(id), Fault::Library(error))) if error.wrong_id().is_some() => {
            match path_of(&web.scoop, id).await {
                Ok(path) => redirect(&format!("{}{path}", base.0)),
                Err(fault) => fault.page(&base.0),
            }
        }
        Err((_, fault)) => fault.page(&base.0),
    }
}

async fn read(
    web: &Web,
    base: &Base,
    id: &str,
    fields: &Fields,
) -> Result<HierarchyPage, (Option<Uuid>, Fault)> {
    let id = id_of(id).map_err(|fault| (None, fault))?;
    read_hierarchy(web, base, id, fields).await.map_err(|fault| (Some(id), fault))
}

/// The maximum number of runs, by the query.
pub(crate) fn limit(fields: &Fields) -> Result<usize, Fault> {
    fields.number("limit", RUNS_SHOWN, RUNS_MAX)
}

/// Up to so many runs of a hierarchy, with as many of their events as can be shown then.
pub(crate) fn tree(hierarchy: &Handle, limit: usize) -> ReadTree<'_> {
    hierarchy.tree().limit(limit).events(EVENTS_READ / limit.max(1))
}

async fn read_hierarchy(web: &Web, base: &Base, id: Uuid, fields: &Fields) -> Result<HierarchyPage, Fault> {
    let limit = limit(fields)?;
    let found = web.scoop.find(HierarchyId::from(id)).await?;
    let tree = tree(&found, limit).into_future();
    let (tree, status, explanation) =
        tokio::join!(tree, found.status(), web.scoop.operate().runs().explain(id));
    let (tree, status, explanation) = (tree?, status?, explanation?);
    let now = explanation.read_at;
    let runs = tree.runs();
    let (tone, outcome) = outcome_of(&status);
    let left_out = (!tree.is_complete()).then(|| LeftOut {
        shown: runs.len(),
        is_certain: runs.len() >= limit,
        more: (limit < RUNS_MAX).then(|| format!("{}/hierarchies/{id}?limit={RUNS_MAX}", base.0)),
    });
    // A run below one that gives up does so, too, and one below a run in rollback is part of it. Of many runs, only a few are
    // explained.
    let mut requests = explanation.runs.iter().flat_map(|run| run.run.requests());
    let can_be_cancelled =
        requests.any(|request| request == RunRequest::Cancel) || tree.roots().len() > explanation.runs.len();
    let actions = if web.options.is_read_only() {
        vec![]
    } else {
        match status {
            Status::Unfinished if can_be_cancelled => vec![Action::Cancel],
            Status::Ended(Outcome::Committed) => vec![Action::Rollback],
            Status::Ended(Outcome::RolledBack(_) | Outcome::RollbackFailed(_)) => vec![Action::Relaunch],
            _ => vec![],
        }
    };
    let topic = tree.roots().first().map(|run| line(&run.topic));
    let unhandled = || tree.unhandled().first().map(|message| line(&message.topic));
    let topic = topic.or_else(unhandled).unwrap_or_default();
    let (bars, scale) = bars(&tree, now);
    let branches = branches(&tree);
    Ok(HierarchyPage {
        frame: Frame::new(web, base, "Runs", format!("Hierarchy {topic}")),
        id,
        topic,
        outcome,
        tone,
        explanations: explanation.runs.iter().map(|run| block(&run.to_string())).collect(),
        notes: notes(&tree),
        relaunches: relaunches(&tree),
        actions,
        notice: Notice::of(fields),
        runs: runs.len(),
        rows: branches.iter().map(|branch| row(branch, now)).collect(),
        bars,
        moments: scale.as_ref().map(|scale| Moments::of(&branches, scale)),
        scale,
        left_out,
    })
}

fn outcome_of(status: &Status) -> (&'static str, String) {
    match status {
        Status::Ended(outcome) => {
            let phase = match outcome {
                Outcome::Committed => Some(RunPhase::Committed),
                Outcome::RolledBack(_) => Some(RunPhase::RolledBack),
                Outcome::RollbackFailed(_) => Some(RunPhase::RollbackFailed),
                _ => None,
            };
            (phase.map_or("idle", |phase| Phase(phase).tone()), line(&outcome.to_string()))
        }
        _ => ("busy", "unfinished".into()),
    }
}

/// Remarks about the whole hierarchy: requests, messages without a handler, unreadable rows.
fn notes(tree: &Tree) -> Vec<String> {
    let asked = tree.cancellations().iter().map(ToString::to_string);
    let unhandled = tree.unhandled().into_iter().map(ToString::to_string);
    let unreadable = tree.unreadable().iter().map(|why| format!("unreadable: {why}"));
    let more = tree.has_more_unhandled().then(|| "There may be more messages without a handler.".into());
    asked.chain(unhandled).chain(more).chain(unreadable).map(|note| line(&note)).collect()
}

fn relaunches(tree: &Tree) -> Vec<(&'static str, Uuid)> {
    let of = tree.relaunch_of().map(|of| ("A relaunch of hierarchy", of.uuid()));
    let others = tree.relaunched_as().iter().map(|new| ("Relaunched as hierarchy", new.uuid()));
    of.into_iter().chain(others).collect()
}

fn row(branch: &Branch<'_>, now: SystemTime) -> Row {
    let of = branch.step().map_or_else(|| RowOf::Run(node(branch.run, now)), |step| RowOf::Step(line(step)));
    Row { level: level(branch.run), of }
}

fn node(run: &RunInfo, now: SystemTime) -> Node {
    // The text of the state has its reason; a state without one is its name.
    let (name, text) = (run.state.phase(), run.state.to_string());
    let has_reason = text.contains(": ");
    let about = match (has_reason, &run.worker) {
        (true, _) => line(text.split_once(": ").map_or(&*text, |(_, reason)| reason)),
        (false, Some(worker)) => format!("by {}", line(worker)),
        (false, None) => String::new(),
    };
    Node {
        id: run.id().uuid(),
        handler: line(&run.handler),
        topic: line(&run.topic),
        phase: Phase(name),
        began: run.began_at().map(|at| Moment { at, now }),
        duration: run.duration.map(humane).unwrap_or_default(),
        about,
    }
}

impl HierarchyPage {
    fn count(&self) -> String {
        counted(self.runs, "run", "runs")
    }
}
