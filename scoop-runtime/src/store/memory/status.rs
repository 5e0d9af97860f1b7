//! The progress of a message, and the tree of its hierarchy; see `message_status.sql` and `run_tree.sql`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use scoop_core::{EventKind, Failure, Lineage};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::{Event, EventLog};
use super::row::{RunOutcome, WorkingRow};
use super::state::{Hierarchy, RecordedRow, State};
use crate::model::format::system_time;
use crate::model::run::no_failure;
use crate::store::{HandlerOutcome, MessageStatus, StatusStorage, Waited};
use crate::tree::{
    FAILURE_BYTES_MAX, LeftOut, RunHead, RunInfo, RunRow, RunStage, TreeBounds, TreeRows, WorkingState,
};
use crate::{RunEvent, RunState};

impl StatusStorage for MemoryStore {
    async fn status(&self, root: Uuid, message: Uuid) -> sqlx::Result<MessageStatus> {
        self.run("status", |state| {
            let hierarchy = state.hierarchy(root);
            let record = hierarchy.map(|hierarchy| &hierarchy.record);
            let emitted = record.is_some_and(|record| record.messages.contains_key(&message));
            let in_progress = hierarchy.is_some_and(|hierarchy| {
                let mut own = hierarchy.rows.values().filter(|row| row.message_id == message);
                own.any(WorkingRow::goes_on)
            });
            let handled = hierarchy.into_iter().flat_map(|hierarchy| {
                let seen = hierarchy.record.of_message(message, EventKind::Seen);
                seen.map(move |seen| hierarchy.outcome_of(seen))
            });
            let handlers = if in_progress { vec![] } else { handled.collect() };
            Ok(MessageStatus { emitted, in_progress, handlers })
        })
        .await
    }

    async fn ended(&self, waited: &[Waited]) -> sqlx::Result<BTreeSet<Uuid>> {
        self.run("ended", |state| {
            let has_ended = |waited: &&Waited| {
                let Some(hierarchy) = state.hierarchy(waited.root) else { return true };
                let mut own = hierarchy.rows.values().filter(|row| row.message_id == waited.message);
                !own.any(WorkingRow::goes_on)
                    || waited
                        .decision
                        .is_some_and(|name| hierarchy.decision(waited.message, name, None).is_some())
            };
            Ok(waited.iter().filter(has_ended).map(|waited| waited.message).collect())
        })
        .await
    }

    async fn root_message(&self, root: Uuid) -> sqlx::Result<Option<Uuid>> {
        self.run("root_message", |state| {
            let events =
                state.hierarchy(root).into_iter().flat_map(|hierarchy| hierarchy.record.of_run(root));
            let mut emitted = events.filter(|event| event.kind == EventKind::Emitted);
            Ok(emitted.next().map(|event| event.message))
        })
        .await
    }

    async fn tree(&self, message: Uuid, extent: TreeBounds) -> sqlx::Result<TreeRows> {
        self.run("tree", |state| {
            let Some(hierarchy) = state.hierarchy_of(message) else {
                return Ok(TreeRows::new(vec![], LeftOut::default(), extent));
            };
            let (mut rows, deeper_runs) = hierarchy.tree(message, extent, state.now(), &state.definitions);
            let (launched, is_part) = hierarchy.launched(message, &rows, extent);
            rows.sort_by(|one, other| one.lineage().cmp(other.lineage()));
            let workers = state.workers.values();
            let is_alive =
                |topic: &str, handler: &str| workers.clone().any(|it| it.position(topic, handler).is_some());
            rows.iter_mut().for_each(|row| row.check_alive(is_alive));
            let unhandled = launched.into_iter().filter(|event| state.is_unhandled(hierarchy, event));
            let read_max = extent.unhandled().map_or(usize::MAX, |max| max.saturating_add(1));
            let mut unhandled: Vec<_> = unhandled.take(read_max).collect();
            unhandled.sort_by(|one, other| (&one.lineage, one.at).cmp(&(&other.lineage, other.at)));
            rows.extend(unhandled.into_iter().map(|event| hierarchy.record.unhandled_row(event)));
            let left_out = LeftOut { deeper_runs, launched: is_part };
            Ok(TreeRows::new(rows.into_iter().map(Ok).collect(), left_out, extent))
        })
        .await
    }

    async fn is_reachable(&self, root: Uuid, message: Uuid) -> sqlx::Result<bool> {
        self.run("is_reachable", |state| {
            let Some(hierarchy) = state.hierarchy(root) else { return Ok(false) };
            let record = &hierarchy.record;
            let (mut seen, mut next) = (BTreeSet::new(), Some(message));
            while let Some(message) = next.take().filter(|message| seen.insert(*message)) {
                let Some(emitted) = record.of_message(message, EventKind::Emitted).next() else { break };
                if emitted.lineage.ids() == [root] {
                    return Ok(true);
                }
                let mut of_emitter = record.of_run(emitted.lineage.id());
                let begun = of_emitter
                    .find(|event| event.kind == EventKind::Seen && event.handler == emitted.handler);
                next = begun.map(|begun| begun.message);
            }
            Ok(false)
        })
        .await
    }
}

impl State {
    /// Whether a launched message had no handler when it was launched.
    fn is_unhandled(&self, hierarchy: &Hierarchy, event: &Event) -> bool {
        let record = &hierarchy.record;
        let topic = record.topic_of(event.message);
        let subscribed = self.topology.iter().any(|entry| {
            let until = entry.until.is_none_or(|until| until > event.at);
            entry.topic == topic && entry.since <= event.at && until
        });
        let seen = record.of_message(event.message, EventKind::Seen).next().is_some();
        !subscribed && !seen && !hierarchy.rows.values().any(|row| row.message_id == event.message)
    }
}

impl EventLog {
    /// The row of a launched message without a handler.
    fn unhandled_row(&self, event: &Event) -> RunRow {
        let topic = self.topic_of(event.message);
        let redelivered = self.redeliveries.get(&event.message).copied();
        let at = Some(system_time(event.at));
        RunRow::unhandled(event.lineage.clone(), event.message, &topic, at, redelivered)
    }
}

pub(super) fn failure_of(event: Option<&Event>) -> Failure {
    event.and_then(|event| event.exception.clone()).unwrap_or_else(no_failure)
}

impl Hierarchy {
    fn outcome_of(&self, seen: &Event) -> HandlerOutcome {
        let run = seen.lineage.id();
        if let Some(row) = self.rows.get(&run) {
            let known = |failure: &Option<Failure>| failure.clone().unwrap_or_else(no_failure);
            let (failure, cause) = (known(&row.rollback_failure), known(&row.failure));
            return HandlerOutcome::RollbackFailed { failure, cause };
        }
        let Some(ended) = self.ended.get(&run) else { return HandlerOutcome::Unfinished };
        match ended.outcome {
            RunOutcome::Committed => HandlerOutcome::Committed,
            RunOutcome::RolledBack => {
                HandlerOutcome::RolledBack(ended.last.failure.clone().unwrap_or_else(no_failure))
            }
            RunOutcome::Dropped => HandlerOutcome::Unfinished,
        }
    }

    /// The runs down to a depth, those above before those below, one more than the limit if there are more; and whether there
    /// are deeper ones, which those at that depth have launched.
    fn tree(
        &self,
        message: Uuid,
        extent: TreeBounds,
        now: OffsetDateTime,
        definitions: &[RecordedRow],
    ) -> (Vec<RunRow>, bool) {
        let seen = self.record.of_message(message, EventKind::Seen);
        let mut begun: Vec<&Event> = seen.filter(|seen| extent.has(seen.lineage.id())).collect();
        let (mut at, mut has_deeper) = (0, false);
        while let Some(run) = begun.get(at).copied() {
            if extent.ends_at(&run.lineage) {
                has_deeper |= self.launches_of(run.lineage.id(), run.handler.as_deref()).next().is_some();
            } else if extent.has(run.lineage.id()) {
                let launches = self.launches_of(run.lineage.id(), run.handler.as_deref());
                let looked_at = launches.take(extent.launched().unwrap_or(usize::MAX));
                begun.extend(looked_at.flat_map(|it| self.record.of_message(it.message, EventKind::Seen)));
            }
            at += 1;
        }
        let pending = self.rows.values().filter(|row| row.epoch == 0 && !row.rollback_requested);
        let pending = pending.filter(|row| {
            let is_child = || row.lineage.parent().is_some_and(|parent| extent.has(parent.id()));
            extent.includes(&row.lineage) && (extent.has(row.id()) || is_child())
        });
        let runs_max = extent.runs.unwrap_or(usize::MAX).saturating_add(1);
        let mut begun: Vec<_> =
            begun.into_iter().take(runs_max).map(|seen| self.begun(seen, extent, definitions)).collect();
        leave_out_failures(&mut begun);
        let begun = begun.into_iter().map(|run| self.begun_row(run, now));
        let rows = begun.chain(pending.map(|row| to_public(row, vec![], now)));
        (rows.take(runs_max).collect(), has_deeper)
    }

    /// The launches by the newest execution of a run.
    fn launches_of(&self, run: Uuid, handler: Option<&str>) -> impl Iterator<Item = &Event> {
        let own = self.record.of_newest_execution(run);
        own.filter(move |event| event.kind == EventKind::Emitted && event.handler.as_deref() == handler)
    }

    /// The launch of the message and those of these runs, as far as they are looked at for handlers; and whether there are
    /// others.
    fn launched(&self, message: Uuid, runs: &[RunRow], extent: TreeBounds) -> (Vec<&Event>, bool) {
        let of_each = extent.launched().unwrap_or(usize::MAX);
        let of_all = extent.launched_in_all().map_or(usize::MAX, |max| max.saturating_add(1));
        let of_runs = runs.iter().filter_map(|row| match row {
            RunRow::Run(run) if extent.has(run.lineage.id()) => Some(run),
            _ => None,
        });
        let of_runs = of_runs.flat_map(|run| {
            let launches = self.launches_of(run.lineage.id(), Some(&run.handler));
            launches.enumerate().take(of_each.saturating_add(1))
        });
        let first = self.record.of_message(message, EventKind::Emitted).map(|event| (0, event));
        let launched: Vec<_> = first.chain(of_runs).take(of_all).collect();
        let is_part = launched.len() == of_all || launched.iter().any(|(nth, _)| *nth >= of_each);
        let looked_at = launched.into_iter().filter(|(nth, _)| *nth < of_each).map(|(_, event)| event);
        (looked_at.collect(), is_part)
    }

    fn begun<'a>(&'a self, seen: &'a Event, extent: TreeBounds, definitions: &[RecordedRow]) -> BegunRun<'a> {
        let start = self.record.start_of(seen.lineage.id());
        let first = Some(seen).filter(|_| start.is_some());
        let own = start.into_iter().chain(self.record.of_newest_execution(seen.lineage.id()));
        let own = own.filter(|event| event.message == seen.message && event.handler == seen.handler);
        let count = extent.events_of(seen.lineage.id());
        let (own, left_out) = at_ends(own.collect(), count, definitions);
        let events = first.map(|event| run_event(event, definitions)).into_iter().chain(own).collect();
        BegunRun { seen, start, events, left_out }
    }

    fn begun_row(&self, run: BegunRun<'_>, now: OffsetDateTime) -> RunRow {
        let BegunRun { seen, start, events, left_out } = run;
        let former = start.and_then(|start| start.begins).map_or(0, |begun| begun.number);
        let ended = self.ended.get(&seen.lineage.id()).map(|ended| ended.outcome);
        let row = match (self.rows.get(&seen.lineage.id()), ended) {
            (Some(row), None) => to_public(row, events, now),
            (_, ended) => {
                let handler = seen.handler.as_deref().unwrap_or_default();
                let topic = self.record.topic_of(seen.message);
                let read_at = Some(system_time(now));
                let head = RunHead {
                    lineage: seen.lineage.clone(),
                    message_id: seen.message,
                    handler,
                    topic: &topic,
                };
                let recorded = match ended {
                    Some(RunOutcome::Committed) => RunStage::Committed,
                    Some(RunOutcome::RolledBack) => RunStage::RolledBack,
                    Some(RunOutcome::Dropped) | None => RunStage::Missing,
                };
                RunRow::new(head, recorded, events, read_at)
            }
        };
        row.after_executions(former.try_into().unwrap_or(0), start.map(|start| system_time(start.at)))
            .without_events(left_out)
            .queued_for(self.queue_time(seen.lineage.id()))
    }

    fn queue_time(&self, run: Uuid) -> Option<Duration> {
        let row = self.rows.get(&run).or_else(|| Some(&self.ended.get(&run)?.last))?;
        Duration::try_from(row.began_at? - row.queued_at?).ok()
    }
}

struct BegunRun<'a> {
    seen: &'a Event,
    /// The event before its newest execution, if that is not the first one.
    start: Option<&'a Event>,
    events: Vec<RunEvent>,
    left_out: usize,
}

/// Leaves out the failures beyond the bytes of a tree. The newest of each kind of each run come first, then all others, from the
/// newest one on.
fn leave_out_failures(runs: &mut [BegunRun<'_>]) {
    let mut failures = vec![];
    for (nth, run) in runs.iter().enumerate() {
        let mut kinds = BTreeSet::new();
        for (at, event) in run.events.iter().enumerate().rev() {
            if let Some(failure) = &event.failure {
                let is_former = !kinds.insert(event.kind.as_str());
                failures.push(((is_former, Reverse(event.at)), failure.bytes(), nth, at));
            }
        }
    }
    failures.sort_by_key(|(order, ..)| *order);
    let mut bytes = 0;
    for (_, own, nth, at) in failures {
        bytes += own;
        if bytes > FAILURE_BYTES_MAX {
            let event = &mut runs[nth].events[at];
            *event = event.clone().without_failure();
        }
    }
}

/// The first and the last so many events, with those between that a run has once; and the number of the others.
fn at_ends(own: Vec<&Event>, count: Option<usize>, definitions: &[RecordedRow]) -> (Vec<RunEvent>, usize) {
    let once = [EventKind::Committed, EventKind::RollingBack, EventKind::RolledBack];
    let own_count = own.len();
    let between =
        count.filter(|count| own_count > count.saturating_mul(2)).map(|count| count..own_count - count);
    let is_between = |nth: usize| between.as_ref().is_some_and(|between| between.contains(&nth));
    // Each with whether it is read.
    let own = own.into_iter().enumerate();
    let all: Vec<_> =
        own.map(|(nth, event)| (event, !is_between(nth) || once.contains(&event.kind))).collect();
    let left_out = all.iter().filter(|(_, is_read)| !is_read).count();
    let mut follows_gap = false;
    let read = all.into_iter().filter_map(|(event, is_read)| {
        let is_after_gap = std::mem::replace(&mut follows_gap, !is_read);
        is_read.then(|| run_event(event, definitions).after_gap(is_after_gap))
    });
    (read.collect(), left_out.min(RunInfo::LEFT_OUT_MAX))
}

fn to_public(row: &WorkingRow, events: Vec<RunEvent>, now: OffsetDateTime) -> RunRow {
    let state = WorkingState {
        state: row.state,
        attempts: u32::try_from(row.attempts + row.retries).unwrap_or(0),
        reason: row.reason.clone(),
        rolling_back: row.rolling_back,
        ready_at: Some(system_time(row.due_at())),
        give_up_at: row.give_up_at.map(system_time),
        giving_up: row.giving_up,
        is_abandoned: false,
        owner: row.owner,
        signal: row.signal.clone(),
        pauses: vec![],
    };
    let head = RunHead {
        lineage: row.lineage.clone(),
        message_id: row.message_id,
        handler: &row.handler,
        topic: &row.topic,
    };
    RunRow::new(head, RunStage::Unfinished(state), events, Some(system_time(now)))
}

fn run_event(event: &Event, definitions: &[RecordedRow]) -> RunEvent {
    let at = event.definition.and_then(|number| usize::try_from(number - 1).ok());
    let steps = at.and_then(|at| definitions.get(at)).map_or(&[][..], |definition| &definition.steps);
    let own = steps.iter().find(|it| event.step.as_ref() == Some(&it.step.name));
    let worker = event.identifier.as_deref().map(str::to_owned);
    RunEvent::new(event.kind, event.step.clone(), Some(system_time(event.at)))
        .written_by(worker, event.handling, event.exception.clone())
        .before(event.wait.as_ref())
        .continued(event.begins.is_some())
        .without_compensation(own.is_some_and(|own| !own.step.compensated))
}

impl TreeBounds {
    fn has(&self, run: Uuid) -> bool {
        self.run.is_none_or(|only| only == run)
    }

    pub(super) fn events_of(&self, run: Uuid) -> Option<usize> {
        self.events.map(|count| if self.has(run) { count } else { count.min(1) })
    }

    fn includes(&self, lineage: &Lineage) -> bool {
        self.depth.is_none_or(|depth| lineage.ids().len() <= depth.saturating_add(1))
    }

    /// Whether a run of this lineage is at the maximum depth or below it, so that its children are not in it.
    fn ends_at(&self, lineage: &Lineage) -> bool {
        self.depth.is_some_and(|depth| lineage.ids().len() > depth)
    }
}

impl RunRow {
    /// Marks a ready run without a living worker that has its saga. `is_alive` takes a topic and a handler.
    fn check_alive(&mut self, is_alive: impl Fn(&str, &str) -> bool) {
        if let Self::Run(run) = self
            && matches!(run.state, RunState::Pending | RunState::Ready | RunState::Retrying { .. })
        {
            run.is_abandoned = !is_alive(&run.topic, &run.handler);
        }
    }
}
