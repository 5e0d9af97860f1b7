//! The progress of a message, and the tree of its hierarchy; see `message_status.sql` and `run_tree.sql`.

use scoop_core::{EventKind, Failure, Lineage};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::{Event, EventLog};
use super::requests::children_of;
use super::row::WorkingRow;
use super::state::{Hierarchy, State};
use crate::store::{HandlerOutcome, MessageStatus, StatusStorage, no_failure};
use crate::tree::{DeeperRuns, Extent, RunHead, RunRow, Stands, TreeRows};
use crate::util::format::system_time;
use crate::{Pause, RunEvent, RunState};

impl StatusStorage for MemoryStore {
    async fn status(&self, root: Uuid, message: Uuid) -> sqlx::Result<MessageStatus> {
        self.run("standing", |state| {
            let hierarchy = state.hierarchy(root);
            let record = hierarchy.map(|hierarchy| &hierarchy.record);
            let emitted = record.is_some_and(|record| record.messages.contains_key(&message));
            let rows = hierarchy.into_iter().flat_map(|hierarchy| hierarchy.rows.values());
            let unfinished = rows.filter(|row| row.message_id == message).count();
            let handled = record.into_iter().flat_map(|record| {
                let seen = record.of_message(message, EventKind::Seen);
                seen.map(move |seen| outcome_of(record, seen))
            });
            let handlers = if unfinished == 0 { handled.collect() } else { vec![] };
            Ok(MessageStatus { emitted, unfinished: i64::try_from(unfinished).unwrap_or(i64::MAX), handlers })
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

    async fn tree(&self, message: Uuid, extent: Extent) -> sqlx::Result<TreeRows> {
        self.run("tree", |state| {
            let Some(hierarchy) = state.hierarchy_of(message) else {
                return Ok(TreeRows::new(vec![], DeeperRuns::None, extent));
            };
            let (mut rows, deeper) = hierarchy.tree(message, extent, state.now());
            let workers = state.workers.values();
            let is_alive =
                |topic: &str, handler: &str| workers.clone().any(|it| it.position(topic, handler).is_some());
            rows.iter_mut().for_each(|row| row.check_alive(is_alive));
            rows.iter_mut().for_each(|row| row.add_pauses(|topic, handler| state.pauses_of(topic, handler)));
            rows.extend(state.unhandled_in(hierarchy).filter(|row| extent.reaches(row.lineage())));
            Ok(TreeRows::new(rows.into_iter().map(Ok).collect(), deeper, extent))
        })
        .await
    }
}

impl State {
    /// The messages that had no handler when they were emitted.
    fn unhandled_in<'a>(&'a self, hierarchy: &'a Hierarchy) -> impl Iterator<Item = RunRow> + 'a {
        let record = &hierarchy.record;
        let emitted = record.events.iter().filter(|event| event.kind == EventKind::Emitted);
        let unhandled = emitted.filter(|event| {
            let topic = record.topic_of(event.message);
            let listened = self.topology.iter().any(|listed| {
                let until = listed.until.is_none_or(|until| until > event.at);
                listed.topic == topic && listed.since <= event.at && until
            });
            let seen = record.of_message(event.message, EventKind::Seen).next().is_some();
            !record.is_former(event)
                && !listened
                && !seen
                && !hierarchy.rows.values().any(|row| row.message_id == event.message)
        });
        unhandled.map(|event| {
            let topic = record.topic_of(event.message);
            let redelivered = record.redeliveries.get(&event.message).map(|redelivered| redelivered.root);
            RunRow::unhandled(
                event.lineage.clone(),
                event.message,
                &topic,
                Some(system_time(event.at)),
                redelivered,
            )
        })
    }
}

fn outcome_of(record: &EventLog, seen: &Event) -> HandlerOutcome {
    let handler = seen.handler.as_deref().unwrap_or_default();
    let end = record.end_of(seen.lineage.id(), seen.message);
    let cause = || failure_of(record.of_handler(seen.message, EventKind::RollingBack, handler));
    match end.map(|end| end.kind) {
        Some(EventKind::Committed) => HandlerOutcome::Committed,
        Some(EventKind::RolledBack) => HandlerOutcome::RolledBack(cause()),
        Some(EventKind::RollbackFailed) => {
            HandlerOutcome::RollbackFailed { failure: failure_of(end), cause: cause() }
        }
        _ => HandlerOutcome::Unfinished,
    }
}

/// The failure that an event has to have.
pub(super) fn failure_of(event: Option<&Event>) -> Failure {
    event.and_then(|event| event.exception.clone()).unwrap_or_else(no_failure)
}

impl Hierarchy {
    /// The runs down to a depth, one more than the limit if there are more; and whether there are deeper
    /// ones, which those at that depth have launched.
    fn tree(&self, message: Uuid, extent: Extent, now: OffsetDateTime) -> (Vec<RunRow>, DeeperRuns) {
        let mut begun: Vec<&Event> = self.record.of_message(message, EventKind::Seen).collect();
        let (mut at, mut deeper) = (0, DeeperRuns::None);
        while let Some(run) = begun.get(at).copied() {
            if extent.ends_at(&run.lineage) {
                let mut own = self.record.of_newest_execution(run.lineage.id());
                if own.any(|event| event.kind == EventKind::Emitted && event.handler == run.handler) {
                    deeper = DeeperRuns::LeftOut;
                }
            } else {
                begun.extend(children_of(&self.record, run));
            }
            at += 1;
        }
        let pending = self.rows.values().filter(|row| row.epoch == 0 && !row.rollback_requested);
        let pending = pending.filter(|row| extent.reaches(&row.lineage));
        let begun = begun.into_iter().map(|seen| self.begun(seen, now));
        let rows = begun.chain(pending.map(|row| to_public(row, vec![], now)));
        let mut rows: Vec<_> = rows.take(extent.runs.unwrap_or(usize::MAX).saturating_add(1)).collect();
        rows.sort_by(|one, other| one.lineage().cmp(other.lineage()));
        (rows, deeper)
    }

    fn begun(&self, seen: &Event, now: OffsetDateTime) -> RunRow {
        let start = self.record.start_of(seen.lineage.id());
        let first = Some(seen).filter(|_| start.is_some());
        let own = first.into_iter().chain(start).chain(self.record.of_newest_execution(seen.lineage.id()));
        let own = own.filter(|event| event.message == seen.message && event.handler == seen.handler);
        let events: Vec<_> = own.map(run_event).collect();
        let former = start.and_then(|start| start.begins).map_or(0, |begun| begun.number);
        let row = match self.rows.get(&seen.lineage.id()) {
            Some(row) => to_public(row, events, now),
            None => {
                let handler = seen.handler.as_deref().unwrap_or_default();
                let topic = self.record.topic_of(seen.message);
                let read_at = Some(system_time(now));
                let head = RunHead {
                    lineage: seen.lineage.clone(),
                    message_id: seen.message,
                    handler,
                    topic: &topic,
                };
                RunRow::new(head, None, events, read_at)
            }
        };
        row.after_executions(former.try_into().unwrap_or(0), start.map(|start| system_time(start.at)))
    }
}

fn to_public(row: &WorkingRow, events: Vec<RunEvent>, now: OffsetDateTime) -> RunRow {
    let stands = Stands {
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
    RunRow::new(head, Some(stands), events, Some(system_time(now)))
}

fn run_event(event: &Event) -> RunEvent {
    let worker = event.identifier.as_deref().map(str::to_owned);
    RunEvent::new(event.kind, event.step.clone(), Some(system_time(event.at)))
        .written_by(worker, event.handling, event.exception.clone())
        .before(event.wait.as_ref())
        .going_on_anew(event.begins.is_some())
}

impl Extent {
    /// Whether a run of this lineage is in it.
    fn reaches(&self, lineage: &Lineage) -> bool {
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

    /// Adds the pauses to a ready run. `pauses_of` takes a topic and a handler.
    fn add_pauses(&mut self, pauses_of: impl Fn(&str, &str) -> Vec<Pause>) {
        if let Self::Run(run) = self
            && matches!(
                run.state,
                RunState::Pending
                    | RunState::Ready
                    | RunState::Sleeping
                    | RunState::AwaitingSignal
                    | RunState::Retrying { .. }
            )
        {
            run.pauses = pauses_of(&run.topic, &run.handler);
        }
    }
}
