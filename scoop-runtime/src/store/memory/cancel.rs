//! Requests to a hierarchy from outside: cancellation and rollback.

use std::collections::BTreeSet;

use scoop_core::{EventKind, Failure, Lineage};
use uuid::Uuid;

use super::super::requests::CancelResult;
use super::MemoryStore;
use super::event_log::{Event, EventLog};
use super::row::WorkingRow;
use super::state::{Hierarchy, State, after, micros};
use crate::model::format::system_time;
use crate::model::name::RUNS_NAMED;
use crate::model::run::RowState;
use crate::store::{ParentRef, RequestKey, RequestStorage, RequestTarget, RollbackStart};
use crate::{CancellationRequest, IdObject, RunId};

impl RequestStorage for MemoryStore {
    async fn find_target(&self, id: Uuid) -> sqlx::Result<Option<RequestTarget>> {
        self.run("find_target", |state| {
            let Some(hierarchy) = state.hierarchy(id).or_else(|| state.hierarchy_of(id)) else {
                return Ok(None);
            };
            let begins = |event: &&Event| match event.kind {
                EventKind::Seen => true,
                EventKind::Emitted => event.lineage.ids().len() == 1,
                _ => false,
            };
            let recorded = hierarchy.record.of_run(id).find(begins);
            let recorded = recorded.map(|event| (&event.lineage, event.message));
            let found =
                recorded.or_else(|| hierarchy.rows.get(&id).map(|row| (&row.lineage, row.message_id)));
            Ok(found.map(|(lineage, message)| RequestTarget { lineage: lineage.clone(), message }))
        })
        .await
    }

    async fn named(&self, id: Uuid) -> sqlx::Result<Option<IdObject>> {
        self.run("named", |state| {
            let named = state.hierarchy_of(id).and_then(|hierarchy| hierarchy.named(id));
            Ok(named.or_else(|| state.hierarchy(id)?.named(id)))
        })
        .await
    }

    async fn cancellations(
        &self,
        root: Uuid,
        ids: Option<&[Uuid]>,
    ) -> sqlx::Result<Vec<CancellationRequest>> {
        self.run("cancellations", |state| {
            let Some(record) = state.hierarchy(root).map(|hierarchy| &hierarchy.record) else {
                return Ok(vec![]);
            };
            let is_request = |event: &&Event| event.kind == EventKind::CancellationRequested;
            let request = |event: &Event| {
                let at = Some(system_time(event.at));
                CancellationRequest::new(event.lineage.clone(), event.exception.clone(), at)
            };
            let mut asked: Vec<_> = match ids {
                Some(ids) => ids.iter().flat_map(|id| record.of_run(*id)).filter(is_request).collect(),
                None => record.events.iter().filter(is_request).collect(),
            };
            asked.sort_by_key(|event| (event.at, &event.lineage));
            Ok(asked.into_iter().map(request).collect())
        })
        .await
    }

    async fn cancel(
        &self,
        target: &RequestTarget,
        request: &Failure,
        asked: RequestKey,
    ) -> sqlx::Result<CancelResult> {
        self.run("cancel", |state| {
            let (now, root) = (state.now(), target.lineage.root_id());
            let kind = EventKind::CancellationRequested;
            let event = Event::new(kind, target.message, target.lineage.clone(), now);
            let event = Event { exception: Some(request.clone()), ..event };
            // Other messages of the hierarchy may have a request under the same lineage.
            let fresh = state.hierarchy(root).is_none_or(|hierarchy| {
                let mut asked = hierarchy.record.of_run(target.lineage.id());
                !asked.any(|other| other.kind == kind && other.lineage == target.lineage)
            });
            let is_recorded = state.requests.contains(&asked.id);
            let marked = state.below(&target.lineage, WorkingRow::can_give_up);
            let any_marked = !marked.is_empty() || is_recorded;
            if asked.is_dry_run {
                return Ok(CancelResult { fresh, any_marked, giving_up: vec![] });
            }
            if fresh {
                state.append(event);
                state.requests.insert(asked.id);
            }
            for id in &marked {
                state.change((root, *id), |row| {
                    row.giving_up = true;
                    row.ready_at = row.ready_at.min(now);
                });
            }
            state.delete_pending(&target.lineage);
            let giving_up = state.below(&target.lineage, |row| row.giving_up);
            let parent =
                |id: Uuid| state.row((root, id)).map(|row| ParentRef { root, id, at: row.last_event_at });
            let giving_up = giving_up.into_iter().filter_map(parent).collect();
            Ok(CancelResult { fresh: fresh || is_recorded, any_marked, giving_up })
        })
        .await
    }

    async fn request_rollback(
        &self,
        target: &RequestTarget,
        request: &Failure,
        asked: RequestKey,
    ) -> sqlx::Result<RollbackStart> {
        self.run("undo", |state| {
            if state.requests.contains(&asked.id) {
                return Ok(RollbackStart::Begun(vec![]));
            }
            let Some(hierarchy) = state.hierarchy(target.lineage.root_id()) else {
                return Ok(RollbackStart::NoHandlers);
            };
            if let Some(refusal) = hierarchy.refuses_to_undo(target.message) {
                return Ok(refusal);
            }
            if asked.is_dry_run {
                return Ok(RollbackStart::Begun(vec![]));
            }
            state.requests.insert(asked.id);
            Ok(RollbackStart::Begun(state.begin_undoing(target, request)))
        })
        .await
    }
}

impl State {
    /// The rows of a part of a hierarchy that meet a condition.
    fn below(&self, part: &Lineage, is_so: impl Fn(&WorkingRow) -> bool) -> Vec<Uuid> {
        let rows = self.hierarchy(part.root_id()).into_iter().flat_map(|hierarchy| &hierarchy.rows);
        let below = rows.filter(|(_, row)| row.lineage.ids().starts_with(part.ids()) && is_so(row));
        below.map(|(id, _)| *id).collect()
    }

    /// Deletes pending runs, if the run that launched them gives up.
    fn delete_pending(&mut self, part: &Lineage) {
        let root = part.root_id();
        let giving_up = |id: Uuid| self.row((root, id)).is_some_and(|row| row.giving_up);
        let dropped = self.below(part, |row| {
            row.epoch == 0
                && !row.rollback_requested
                && row.rollback_since.is_none()
                && match row.parent {
                    Some(parent) => giving_up(parent),
                    None => row.giving_up && row.lineage.ids().len() > 2,
                }
        });
        dropped.into_iter().for_each(|id| drop(self.drop_run((root, id))));
    }

    /// Requests the rollback of the runs that handled a message, all of them finished.
    fn begin_undoing(&mut self, target: &RequestTarget, request: &Failure) -> Vec<String> {
        let (root, message, now) = (target.lineage.root_id(), target.message, self.now());
        let Some(record) = self.hierarchy(root).map(|hierarchy| &hierarchy.record) else {
            return vec![];
        };
        let committed = record.of_message(message, EventKind::Committed).map(|event| after(event.at)).max();
        let requested_at = committed.map_or(now, |at| at.max(now));
        let mut rows = vec![];
        for seen in record.of_message(message, EventKind::Seen) {
            let handler = seen.handler.clone().unwrap_or_else(|| "".into());
            if record.of_handler(message, EventKind::RollingBack, &handler).is_some() {
                continue;
            }
            let commit = record.of_handler(message, EventKind::Committed, &handler);
            let context = commit.map(|commit| commit.context.clone()).unwrap_or_default();
            let topic = record.topic_of(message);
            let mut row = WorkingRow::new(seen.lineage.clone(), message, topic, handler, requested_at);
            row.ready_at = now;
            (row.rolling_back, row.rollback_requested) = (true, true);
            row.failure = Some(request.clone());
            row.rollback_since = Some(now);
            // Higher than any forward epoch, to fence out old owners.
            (row.epoch, row.unclaimed_epoch) = (micros(requested_at), micros(requested_at));
            row.context = context;
            rows.push(row);
        }
        let emitted = Event::new(EventKind::RollbackEmitted, message, target.lineage.clone(), requested_at);
        self.append(Event { exception: Some(request.clone()), ..emitted });
        let handlers = rows.iter().map(|row| row.handler.to_string()).collect();
        rows.into_iter().for_each(|row| self.insert(row));
        handlers
    }
}

impl Hierarchy {
    fn named(&self, id: Uuid) -> Option<IdObject> {
        let record = &self.record;
        let launched = record.of_message(id, EventKind::Emitted).next();
        if let Some(message) = launched {
            let hierarchy = message.lineage.root_id().into();
            return Some(IdObject::Message { hierarchy, runs: self.handling(id) });
        }
        let begun = record.of_run(id).find(|event| match event.kind {
            EventKind::Seen => true,
            EventKind::Emitted => event.lineage.ids().len() == 1,
            _ => false,
        });
        let of_run = |lineage: &Lineage, handler: &str| {
            Some(IdObject::Run { hierarchy: lineage.root_id().into(), handler: handler.to_owned() })
        };
        match begun {
            Some(event) if event.kind == EventKind::Seen => {
                of_run(&event.lineage, event.handler.as_deref().unwrap_or_default())
            }
            Some(event) => Some(IdObject::Hierarchy { runs: self.handling(event.message) }),
            None => self.rows.get(&id).and_then(|row| of_run(&row.lineage, &row.handler)),
        }
    }

    fn handling(&self, message: Uuid) -> Vec<(RunId, String)> {
        let seen = self.record.of_message(message, EventKind::Seen);
        let seen = seen.map(|seen| (seen.handler.clone().unwrap_or_default(), seen.lineage.id()));
        let rows = self.rows.values().filter(|row| row.message_id == message);
        let rows = rows.map(|row| (row.handler.clone(), row.id()));
        let runs: BTreeSet<_> = seen.chain(rows).collect();
        let limit = usize::try_from(RUNS_NAMED).unwrap_or(usize::MAX);
        runs.into_iter().take(limit).map(|(handler, run)| (run.into(), handler.to_string())).collect()
    }

    /// The reason why the effects of a message cannot be rolled back now.
    fn refuses_to_undo(&self, message: Uuid) -> Option<RollbackStart> {
        let record = &self.record;
        let handled: Vec<_> = record.of_message(message, EventKind::Seen).collect();
        let related = |row: &WorkingRow, seen: &Event| {
            let (row, seen) = (row.lineage.ids(), seen.lineage.ids());
            row.starts_with(seen) || seen.starts_with(row)
        };
        let (below, own) = (
            |row: &WorkingRow| handled.iter().any(|seen| row.lineage.ids().starts_with(seen.lineage.ids())),
            |row: &WorkingRow| row.message_id == message,
        );
        let is_related = |row: &&WorkingRow| own(row) || handled.iter().any(|seen| related(row, seen));
        let (failed, unfinished): (Vec<_>, Vec<_>) =
            self.rows.values().filter(is_related).partition(|row| row.state == RowState::Failed);
        if !unfinished.is_empty() {
            return Some(RollbackStart::Unfinished);
        }
        if handled.is_empty() {
            return Some(RollbackStart::NoHandlers);
        }
        let rollback_requested = record.of_message(message, EventKind::RollbackEmitted).next().is_some();
        let began_rollback = rollback_requested || handled.iter().all(|seen| began_rollback(record, seen));
        match (began_rollback, failed.iter().any(|row| own(row))) {
            (true, false) => Some(RollbackStart::RolledBack),
            (true, true) => Some(RollbackStart::FailedBefore),
            (false, _) if failed.iter().any(|row| own(row) || below(row)) => {
                Some(RollbackStart::FailedBefore)
            }
            (false, _) => None,
        }
    }
}

fn began_rollback(record: &EventLog, seen: &Event) -> bool {
    let handler = seen.handler.as_deref().unwrap_or_default();
    record.of_handler(seen.message, EventKind::RollingBack, handler).is_some()
}
