//! Deletion of finished hierarchies and signals; see `prune_*.sql`.

use std::ops::Bound;
use std::time::Duration;

use scoop_core::EventKind;
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::state::{Hierarchy, State};
use crate::store::{PRUNE_AGE_MIN, PruneMode, PrunePage, PruneResult, PruneVerdict, RetentionStorage};
use crate::util::ids;

/// The topics of messages about failed runs begin with this.
const FAILED_TOPICS: &str = "scoop.failed";

/// The number of hierarchies on a page.
const PAGE_MAX: usize = 1_000;

impl RetentionStorage for MemoryStore {
    async fn prune_page(&self, after: Option<Uuid>, age: Duration) -> sqlx::Result<PrunePage> {
        self.run("prune_page", |state| {
            let begin = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let page = state.hierarchies.range(begin).take(PAGE_MAX);
            let before = state.before(age);
            let mut found = PrunePage::default();
            for (root, hierarchy) in page {
                found.next = Some(*root);
                let began = hierarchy.record.of_run(*root).find(|event| event.kind == EventKind::Emitted);
                found.roots.extend(began.filter(|event| event.at < before).map(|_| *root));
            }
            Ok(found)
        })
        .await
    }

    async fn prune(&self, roots: &[Uuid], age: Duration, mode: PruneMode) -> sqlx::Result<Vec<PruneResult>> {
        self.run("prune", |state| Ok(roots.iter().map(|root| state.prune(*root, age, mode)).collect())).await
    }

    async fn prune_signals(&self, age: Duration, limit: u32, mode: PruneMode) -> sqlx::Result<u64> {
        self.run("prune_signals", |state| {
            let before = state.before(age);
            let mut over: Vec<_> = state.signals_over(before);
            if mode == PruneMode::Delete {
                over.truncate(limit as usize);
                over.iter().for_each(|id| state.delete_signal(*id));
            }
            Ok(over.len() as u64)
        })
        .await
    }
}

impl State {
    /// What is older than this is old enough.
    fn before(&self, age: Duration) -> OffsetDateTime {
        let age = age.max(PRUNE_AGE_MIN).try_into().unwrap_or(time::Duration::MAX);
        self.now().saturating_sub(age)
    }

    fn prune(&mut self, root: Uuid, age: Duration, mode: PruneMode) -> PruneResult {
        if let Some(kept) = self.needs_to_keep(root, self.before(age)) {
            return PruneResult::kept(kept);
        }
        let Some(Hierarchy { record, .. }) = self.hierarchy(root) else {
            return PruneResult::kept(PruneVerdict::Absent);
        };
        let messages = record.messages.keys().filter(|id| !self.is_entity_event(**id));
        let pruned = PruneResult {
            verdict: PruneVerdict::Deleted,
            messages: messages.count() as u64,
            events: record.events.len() as u64,
        };
        if mode == PruneMode::Count {
            return pruned;
        }
        self.join_members.forget(|run| self.hierarchy_by_id.get(&run) == Some(&root));
        self.take_record(root);
        pruned
    }

    /// Why a hierarchy is not deleted.
    fn needs_to_keep(&self, root: Uuid, before: OffsetDateTime) -> Option<PruneVerdict> {
        let Some(Hierarchy { rows, record, .. }) = self.hierarchy(root) else {
            return Some(PruneVerdict::Absent);
        };
        if !rows.is_empty() {
            return Some(PruneVerdict::Unfinished);
        }
        let emitted = record.of_run(root).find(|event| event.kind == EventKind::Emitted);
        let message = emitted.and_then(|event| record.messages.get(&event.message));
        let Some(message) = message else {
            return Some(PruneVerdict::Absent);
        };
        if record.events.iter().any(|event| event.at >= before) {
            return Some(PruneVerdict::Recent);
        }
        let mut failed = record.events.iter().filter(|event| event.kind == EventKind::RollbackFailed);
        let is_settled =
            |message, handler| record.of_handler(message, EventKind::RolledBack, handler).is_some();
        if failed.any(|event| !is_settled(event.message, event.handler.as_deref().unwrap_or_default())) {
            return Some(PruneVerdict::Failed);
        }
        if !ids::without_consuming_ids(|| self.rebuilt(root, self.now(), 1)).is_empty() {
            return Some(PruneVerdict::Unfinished);
        }
        let about = message.payload.get("hierarchy").filter(|_| message.topic.starts_with(FAILED_TOPICS));
        let about = about.and_then(|about| Uuid::try_parse(about.as_str()?).ok());
        let is_needed = self.join_members.needs(root, |run| self.hierarchy_by_id.get(&run) == Some(&root))
            || about.and_then(|about| self.hierarchy(about)).is_some_and(|about| !about.rows.is_empty());
        is_needed.then_some(PruneVerdict::Needed)
    }
}
