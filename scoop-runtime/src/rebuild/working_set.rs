//! Computes the working set of one hierarchy from its recorded events: a pure function.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use scoop_core::{Context, Direction, EventKind, Lineage, Wait, output_name, read_output_name};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::repair::WAITING_FOR_OPERATOR;
use crate::store::RowState;
use crate::util::ids;

use super::run_history::{HierarchyHistory, OperatorAction, Phase, RecordedEvent, RunHistory};

/// A period of subscription of a handler to a topic.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionPeriod {
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) since: OffsetDateTime,
    pub(crate) until: Option<OffsetDateTime>,
    /// Whether its pending deliveries were dropped.
    pub(crate) dropped: bool,
}

/// A row of the working set.
#[derive(Debug, Serialize)]
pub(crate) struct Rebuilt {
    pub(crate) lineage: Vec<Uuid>,
    pub(crate) parent: Option<Uuid>,
    pub(crate) message_id: Uuid,
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) state: RowState,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) ready_at: OffsetDateTime,
    pub(crate) begun: bool,
    pub(crate) rolling_back: bool,
    pub(crate) rollback_requested: bool,
    pub(crate) rollback_failed_before: bool,
    pub(crate) step: Option<String>,
    pub(crate) jump: Option<String>,
    pub(crate) definition: Option<i32>,
    pub(crate) iteration: Option<i32>,
    pub(crate) handler_iteration: Option<i32>,
    pub(crate) suspensions: usize,
    /// The number of completions of each step; `None` during a rollback.
    pub(crate) completions: Option<BTreeMap<String, u32>>,
    /// The number of executions before the newest one, on the forward path.
    pub(crate) execution: i32,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) execution_since: Option<OffsetDateTime>,
    /// The message whose payload counts, if it is not that of the run.
    pub(crate) payload_of: Option<Uuid>,
    /// The names of the outputs that count, if not all do.
    #[serde(skip)]
    pub(crate) output_names: Option<Vec<String>>,
    /// The values of its steps; to be read if [`Rebuilt::keeps_outputs`] is true.
    pub(crate) outputs: Option<BTreeMap<String, Value>>,
    pub(crate) context: Context,
    pub(crate) replied: bool,
    pub(crate) giving_up: bool,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) give_up_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) rollback_since: Option<OffsetDateTime>,
    pub(crate) failure: Option<Value>,
    pub(crate) rollback_failure: Option<Value>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) rollback_started_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) last_event_at: OffsetDateTime,
    pub(crate) reason: Option<String>,
    pub(crate) awaits_operator: bool,
    /// The signal that it awaits.
    pub(crate) signal: Option<String>,
    pub(crate) signal_key: Option<String>,
    /// The name of the output that the delivery of this signal leaves, and the time of the wait.
    #[serde(skip)]
    pub(crate) awaited: Option<(String, OffsetDateTime)>,
    /// The steps that awaited a signal, each with the number of its newest wait. Outputs of earlier ones do not count.
    #[serde(skip)]
    pub(crate) signal_steps: BTreeMap<String, u32>,
}

impl Rebuilt {
    /// Applies the delivery of the signal that the run awaits, if there is its output.
    pub(crate) fn apply_delivery(&mut self, is_stored: impl Fn(&str) -> bool) {
        if let Some((_, at)) = self.awaited.take_if(|(name, _)| is_stored(name)) {
            (self.signal, self.signal_key, self.ready_at) = (None, None, at);
        }
    }

    pub(crate) fn root(&self) -> Uuid {
        self.lineage.first().copied().unwrap_or_default()
    }

    /// Whether its row contains the values of its steps. A run with a requested rollback reads them from the record.
    pub(crate) fn keeps_outputs(&self) -> bool {
        self.begun && !self.rollback_requested && self.state != RowState::Ended
    }
}

/// Computes the working set of a hierarchy from its rows, which are in order.
pub(crate) fn rebuild(
    rows: &[RecordedEvent],
    revivals: &[OperatorAction],
    topology: &[SubscriptionPeriod],
    now: OffsetDateTime,
) -> Vec<Rebuilt> {
    let pasts = HierarchyHistory::of(rows, revivals);
    let mut hierarchy = Hierarchy {
        active: BTreeSet::new(),
        awaiting_operator: BTreeSet::new(),
        above_those_back: BTreeSet::new(),
        history: pasts,
        topology,
        now,
    };
    hierarchy.find_unfinished();
    let mut rebuilt = hierarchy.unfinished();
    rebuilt.extend(hierarchy.unacknowledged());
    rebuilt.extend(hierarchy.pending_deliveries());
    let awaited = rebuilt.iter().filter(|run| run.state != RowState::Ended).filter_map(|run| run.parent);
    let awaited: BTreeSet<_> = awaited.collect();
    for run in &mut rebuilt {
        if run.state == RowState::Ready && run.lineage.last().is_some_and(|id| awaited.contains(id)) {
            run.state = RowState::Waiting;
        }
        // The database has microseconds, and would round the last instant of the year 9999 to one of the next year.
        run.ready_at = run.ready_at.truncate_to_microsecond();
        run.give_up_at = run.give_up_at.map(OffsetDateTime::truncate_to_microsecond);
    }
    mark_awaiting_operator(&mut rebuilt);
    rebuilt
}

/// Marks the runs that await an operator, and those that wait for them.
fn mark_awaiting_operator(runs: &mut [Rebuilt]) {
    let begun = runs.iter().enumerate().filter(|(_, run)| run.begun);
    let by_id: HashMap<_, _> = begun.filter_map(|(at, run)| Some((*run.lineage.last()?, at))).collect();
    for at in 0..runs.len() {
        if runs[at].state != RowState::Stuck {
            continue;
        }
        let mut next = Some(at);
        while let Some(run) = next.map(|at| &mut runs[at]).filter(|run| !run.awaits_operator) {
            run.awaits_operator = true;
            run.reason.get_or_insert_with(|| WAITING_FOR_OPERATOR.to_owned());
            let above = run.parent.and_then(|parent| by_id.get(&parent).copied());
            next =
                above.filter(|at| runs[*at].state == RowState::Waiting && runs[*at].rollback_failed_before);
        }
    }
}

struct Hierarchy<'a> {
    history: HierarchyHistory<'a>,
    /// The unfinished runs that do not await an operator.
    active: BTreeSet<Uuid>,
    /// The runs that await an operator.
    awaiting_operator: BTreeSet<Uuid>,
    /// Those of `awaiting_operator` that are back because a descendant was repaired.
    above_those_back: BTreeSet<Uuid>,
    topology: &'a [SubscriptionPeriod],
    now: OffsetDateTime,
}

impl<'a> Hierarchy<'a> {
    fn is_alive(&self, run: Uuid) -> bool {
        self.active.contains(&run) || self.awaiting_operator.contains(&run)
    }

    /// Finds the unfinished runs. Children come before their parents: a failed rollback continues after the repair of
    /// its children.
    fn find_unfinished(&mut self) {
        let mut runs: Vec<_> =
            self.history.runs.values().map(|run| (run.seen.lineage.ids().len(), run.id())).collect();
        runs.sort_unstable();
        for (_, id) in runs.iter().rev() {
            let run = &self.history.runs[id];
            match self.history.phase(run) {
                Phase::Done => {}
                Phase::Forward | Phase::Backward | Phase::RollbackRequested => drop(self.active.insert(*id)),
                Phase::Failed => self.find_revived(*id),
            }
        }
        self.drop_abandoned();
        for (_, id) in &runs {
            if self.active.contains(id) || self.above_those_back.contains(id) {
                self.find_held(*id);
            }
        }
    }

    /// Removes abandoned requests: a requested rollback that had not started when the requester stopped waiting never
    /// starts.
    fn drop_abandoned(&mut self) {
        let requested = self
            .active
            .iter()
            .filter(|id| self.history.phase(&self.history.runs[id]) == Phase::RollbackRequested);
        let let_go = requested.filter(|id| !self.is_still_awaited(&self.history.runs[id]));
        let let_go: Vec<_> = let_go.copied().collect();
        for id in let_go {
            self.active.remove(&id);
        }
    }

    /// Whether the run that requested the rollback of this one still waits for it; true if no run requested it.
    fn is_still_awaited(&self, run: &RunHistory<'_>) -> bool {
        let request = self.history.rollback_request(run).filter(|request| request.handler.is_some());
        let Some(request) = request else {
            return true;
        };
        let Some(requester) = self.history.runs.get(&request.lineage.id()) else {
            return true;
        };
        match self.history.phase(requester) {
            Phase::Backward => requester.is_current_window(request) && !self.is_overdue(requester),
            Phase::Failed => self.is_alive(requester.id()) && requester.rerun_request(request),
            Phase::Done => false,
            Phase::Forward | Phase::RollbackRequested => true,
        }
    }

    /// Whether the run has to give up: it was cancelled or has missed a deadline.
    fn is_overdue(&self, run: &RunHistory<'_>) -> bool {
        let row = self.row(run);
        row.giving_up || row.give_up_at.is_some_and(|deadline| deadline <= self.now)
    }

    /// A failed rollback is active again if an operator intervened on the run or on a descendant, even if it failed
    /// again.
    fn find_revived(&mut self, id: Uuid) {
        let run = &self.history.runs[&id];
        let again = run.failed().zip(run.suspended()).filter(|(failed, last)| last.at > failed.at);
        let went_on = again.is_some_and(|(_, last)| !self.history.is_settled_above(run, last.at));
        let mut children = self.history.below(run).filter(|child| run.failed_after(child));
        let below = children.any(|child| self.is_alive(child.id()) || self.leaves_it_to(child, run));
        let is_back = run.failed_again() && !self.history.is_settled_above(run, run.last().at);
        if self.history.is_revived(run) || went_on || below && run.failed_with_children() {
            self.active.insert(id);
        } else if below || is_back {
            self.awaiting_operator.insert(id);
            self.above_those_back.extend(below.then_some(id));
        }
    }

    /// Whether this child is now rolled back, so that its parent can continue. Not so if the parent has failed again
    /// since then, or if an operator has settled a further ancestor, which then stopped waiting for the parent.
    fn leaves_it_to(&self, child: &RunHistory<'_>, run: &RunHistory<'_>) -> bool {
        let done_at = child.last().at;
        self.history.phase(child) == Phase::Done
            && run.failed().is_none_or(|failed| failed.at < done_at)
            && !self.history.is_settled_above(run, done_at)
    }

    /// Marks the failed children that block an active run: they await an operator.
    fn find_held(&mut self, id: Uuid) {
        let run = &self.history.runs[&id];
        if self.history.phase(run) != Phase::Failed {
            return;
        }
        let children =
            self.history.below(run).filter(|child| run.failed_after(child) && run.waits_for(child));
        let failed = children.filter(|child| self.history.phase(child) == Phase::Failed);
        let held: Vec<_> = failed.map(RunHistory::id).filter(|child| !self.active.contains(child)).collect();
        self.awaiting_operator.extend(held);
    }

    /// The run that waits for this one.
    fn parent(&self, run: &RunHistory<'_>) -> Option<Uuid> {
        let above =
            || run.seen.lineage.parent().filter(|above| above.ids().len() > 1).map(|above| above.id());
        match self.history.phase(run) {
            Phase::Forward => above(),
            Phase::Failed if self.is_alive(run.id()) => {
                // A run that awaits an operator does not wait for its children.
                let parent = self.history.parent_of(run).filter(|parent| self.active.contains(&parent.id()));
                parent.filter(|parent| parent.waits_for(run)).map(RunHistory::id)
            }
            phase if phase == Phase::RollbackRequested || run.is_rollback_requested() => {
                let request = self.history.rollback_request(run)?;
                request.handler.is_some().then(|| request.lineage.id())
            }
            _ => above(),
        }
    }

    /// The rows of the runs that have begun and are not finished.
    fn unfinished(&self) -> Vec<Rebuilt> {
        let alive = self.history.runs.values().filter(|run| self.is_alive(run.id()));
        alive.map(|run| self.row(run)).collect()
    }

    fn row(&self, run: &RunHistory<'_>) -> Rebuilt {
        let phase = self.history.phase(run);
        let parent = self.parent(run);
        let rollback_since = self.history.rollback_since(run);
        let rollback_requested = match phase {
            Phase::Forward => false,
            Phase::RollbackRequested => true,
            Phase::Failed => parent.is_none() || !self.history.launched_by_compensation(run),
            Phase::Backward | Phase::Done => run.is_rollback_requested(),
        };
        let mut row = self.fresh_row(&run.seen.lineage, run.seen, parent);
        row.begun = phase != Phase::RollbackRequested;
        row.rolling_back = phase != Phase::Forward;
        row.rollback_requested = rollback_requested;
        row.rollback_since = rollback_since;
        row.giving_up = rollback_since.is_none() && self.history.is_asked(&run.seen.lineage);
        row.rollback_started_at = run.rolling_back_event().map(|turned| turned.at);
        row.failure = match phase {
            Phase::RollbackRequested => self.history.rollback_request(run),
            _ => run.rolling_back_event(),
        }
        .and_then(|turned| turned.exception.clone());
        row.context = self.context(run);
        self.place(run, &mut row);
        // The deadlines of a requested rollback are looked up with its first move.
        let moved = !(rollback_requested && phase != Phase::Failed && run.suspended_backward().is_none());
        let deadlines = row.context.give_up_at(Direction::backward_if(rollback_since.is_some()));
        let counts = |deadline: &OffsetDateTime| rollback_since.is_none_or(|since| *deadline > since);
        row.give_up_at = deadlines.into_iter().filter(counts).min().filter(|_| moved);
        // A run that gives up does not wait.
        row.signal_steps = run.signal_steps();
        if let Some(signal) = run.last().wait.as_ref().and_then(Wait::signal) {
            let step = run.last().step.clone().unwrap_or_default();
            let number = row.signal_steps.get(&step).copied().unwrap_or_default();
            row.awaited = Some((output_name(&step, number), run.last().at));
            (row.signal, row.signal_key) = (Some(signal.name.clone()), Some(signal.key.clone()));
        }
        if let Some(wait) = run.last().wait.as_ref().filter(|_| !row.giving_up) {
            row.ready_at = row.give_up_at.map_or(wait.time(), |deadline| deadline.min(wait.time()));
        }
        if phase == Phase::Failed {
            self.apply_restoration(run, &mut row);
        }
        row
    }

    /// Sets the position of the run.
    fn place(&self, run: &RunHistory<'_>, row: &mut Rebuilt) {
        let rollback_requested = run.is_rollback_requested() || !row.begun;
        let backward = run.suspended_backward();
        let last = if rollback_requested { backward } else { run.position() };
        row.suspensions = if rollback_requested { 0 } else { run.suspension_count() };
        row.output_names = run.output_names();
        if let Some((execution, began_at)) = run.execution().filter(|_| !row.rolling_back) {
            (row.execution, row.execution_since) = (execution.number, Some(began_at));
            row.payload_of = Some(execution.message);
        }
        row.completions = Some(run.completions()).filter(|counts| !row.rolling_back && !counts.is_empty());
        if let Some(last) = last {
            row.step = last.step.clone();
            row.jump.clone_from(&last.jump);
            row.definition = last.definition;
            row.iteration = Some(if run.rolling_back_event().is_some() { 0 } else { run.iteration() });
            row.handler_iteration = last.handling;
        }
    }

    /// The context of the run: that of its newest event. A just requested rollback combines its own context with that
    /// of the request.
    fn context(&self, run: &RunHistory<'_>) -> Context {
        let newest = run.last();
        let request = match newest.kind {
            EventKind::Committed => self.history.rollback_request(run),
            EventKind::RollingBack if run.is_rollback_requested() => Some(newest),
            _ => None,
        };
        let Some(request) = request else {
            return newest.context.clone();
        };
        run.committed().map_or_else(Context::default, |own| own.context.clone()).overlaid_by(&request.context)
    }

    /// Adapts the row of a failed rollback that is active again.
    fn apply_restoration(&self, run: &RunHistory<'_>, row: &mut Rebuilt) {
        row.rollback_failed_before = true;
        row.rollback_since = Some(self.now);
        // A deadline that was missed before the intervention has had its effect.
        let back_at = self.history.back_at(run).unwrap_or(self.now);
        row.give_up_at = row
            .context
            .give_up_at(Direction::Backward)
            .into_iter()
            .filter(|deadline| *deadline > back_at)
            .min();
        if self.awaiting_operator.contains(&run.id()) {
            row.state = RowState::Stuck;
            row.reason = Some(run.why_held());
            row.give_up_at = None;
        }
    }

    /// The rows of runs that have ended without success, if the parent has not yet recorded that.
    fn unacknowledged(&self) -> Vec<Rebuilt> {
        let ended = self.history.runs.values().filter(|run| !self.is_alive(run.id()));
        ended.filter_map(|run| self.unnoted_row(run)).collect()
    }

    fn unnoted_row(&self, run: &RunHistory<'_>) -> Option<Rebuilt> {
        let (end, turned) = run.end().zip(run.rolling_back_event())?;
        let unrolled = run.failed().filter(|_| end.kind == EventKind::RollbackFailed);
        let rollback_requested = match run.failed() {
            Some(_) if unrolled.is_none() => !self.history.launched_by_compensation(run),
            _ => run.is_rollback_requested(),
        };
        if unrolled.is_none() && (rollback_requested || self.history.is_resolved(run)) {
            return None;
        }
        // A run that awaits an operator does not wait for repaired children.
        let waits = |parent: &&RunHistory<'_>| match run.failed().filter(|_| unrolled.is_none()) {
            Some(_) => self.active.contains(&parent.id()),
            None => self.is_alive(parent.id()),
        };
        let parent = self.history.runs.get(&self.parent(run)?).filter(waits)?;
        let last = parent.last();
        // The beginning of a rollback records only the rolled back children.
        let kept = last.kind == EventKind::RollingBack && unrolled.is_some() && parent.waits_for(run);
        if last.at > end.at && !kept {
            return None;
        }
        let mut row = self.fresh_row(&run.seen.lineage, run.seen, Some(parent.id()));
        (row.state, row.begun, row.rolling_back, row.rollback_requested) =
            (RowState::Ended, true, true, rollback_requested);
        row.failure = turned.exception.clone();
        row.rollback_failure = unrolled.and_then(|failed| failed.exception.clone());
        row.rollback_started_at = Some(turned.at);
        Some(row)
    }

    /// The pending deliveries, unless the run that launched the message does not wait any more.
    fn pending_deliveries(&self) -> Vec<Rebuilt> {
        let runs = self.history.runs.values();
        let begun: HashSet<_> = runs.map(|run| (run.handler(), run.seen.message)).collect();
        let awaited = self.history.emissions.values().filter(|emission| self.is_awaited(emission));
        let mut rows = vec![];
        for emission in awaited {
            let listened = |entry: &&SubscriptionPeriod| {
                let at = delivered_at(emission);
                entry.topic == emission.topic
                    && entry.since <= at
                    && entry.until.is_none_or(|until| at < until)
                    && !entry.dropped
                    && !begun.contains(&(&*entry.handler, emission.message))
            };
            rows.extend(
                self.topology.iter().filter(listened).map(|entry| self.delivery(emission, &entry.handler)),
            );
        }
        rows
    }

    /// Whether pending deliveries of this message are still to begin.
    fn is_awaited(&self, emission: &RecordedEvent) -> bool {
        if emission.handler.is_none() {
            return true;
        }
        let emitter = self.history.runs.get(&emission.lineage.id());
        let Some(emitter) = emitter.filter(|run| self.active.contains(&run.id())) else {
            return false;
        };
        if !emitter.is_current_window(emission) {
            return false;
        }
        !self.is_overdue(emitter)
    }

    fn delivery(&self, emission: &RecordedEvent, handler: &str) -> Rebuilt {
        let parent = emission.handler.is_some().then(|| emission.lineage.id());
        let lineage = emission.lineage.child(ids::now_v7());
        let mut row = self.fresh_row(&lineage, emission, parent);
        row.handler = handler.to_owned();
        row.rollback_since = parent.and_then(|_| self.history.undoing_when_emitted(emission));
        row.giving_up = row.rollback_since.is_none() && self.history.is_asked(&lineage);
        let deadlines = emission.context.give_up_at(Direction::backward_if(row.rollback_since.is_some()));
        let counts = |deadline: &OffsetDateTime| row.rollback_since.is_none_or(|since| *deadline > since);
        row.give_up_at = deadlines.into_iter().filter(counts).min();
        let due = emission.context.not_before().unwrap_or(delivered_at(emission));
        row.ready_at = row.give_up_at.map_or(due, |deadline| deadline.min(due));
        row
    }

    /// A row for a run of this message and lineage that has no other events.
    fn fresh_row(&self, lineage: &Lineage, of: &RecordedEvent, parent: Option<Uuid>) -> Rebuilt {
        Rebuilt {
            lineage: lineage.ids().to_vec(),
            parent,
            message_id: of.message,
            topic: of.topic.clone(),
            handler: of.handler.clone().unwrap_or_default(),
            state: RowState::Ready,
            ready_at: of.at,
            begun: false,
            rolling_back: false,
            rollback_requested: false,
            rollback_failed_before: false,
            step: None,
            jump: None,
            definition: None,
            iteration: None,
            handler_iteration: None,
            suspensions: 0,
            completions: None,
            execution: 0,
            execution_since: None,
            payload_of: None,
            output_names: None,
            outputs: None,
            context: of.context.clone(),
            replied: false,
            giving_up: false,
            give_up_at: None,
            rollback_since: None,
            failure: None,
            rollback_failure: None,
            rollback_started_at: None,
            last_event_at: self.history.newest_at,
            reason: None,
            awaits_operator: false,
            signal: None,
            signal_key: None,
            awaited: None,
            signal_steps: BTreeMap::new(),
        }
    }
}

/// The time at which the handlers of a message were determined: at its launch, or at its redelivery.
fn delivered_at(emission: &RecordedEvent) -> OffsetDateTime {
    emission.redelivered_at.unwrap_or(emission.at)
}

/// The newest output of each step. That of a step which awaits a signal counts only if it is of the newest wait.
pub(crate) fn newest_outputs(
    values: Vec<(String, Value)>,
    signal_steps: &BTreeMap<String, u32>,
) -> Option<BTreeMap<String, Value>> {
    let numbered = |(name, value): (String, Value)| {
        let (step, number) = read_output_name(&name)?;
        let counts = signal_steps.get(step).is_none_or(|newest| *newest == number);
        counts.then(|| (number, step.to_owned(), value))
    };
    let mut numbered: Vec<_> = values.into_iter().filter_map(numbered).collect();
    numbered.sort_by_key(|(number, ..)| *number);
    let outputs: BTreeMap<_, _> = numbered.into_iter().map(|(_, step, value)| (step, value)).collect();
    Some(outputs).filter(|outputs| !outputs.is_empty())
}
