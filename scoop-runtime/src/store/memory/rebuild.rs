//! Rebuilds the working set from the recorded events, and compares it with the present one; see `rebuild_*.sql`.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::{OnDifference, OnRebuilt, RebuildStorage};

use scoop_core::{Failure, Lineage, SignalKey};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::{Event, EventLog};
use super::row::{RowState, WorkingRow};
use super::state::{BegunStepRow, Hierarchy, State};
use crate::rebuild::{
    FailedRollbackComparison, OperatorAction, RebuildComparison, RebuildProgress, RebuildReport, Rebuilt,
    RecordedEvent, RunDifference, SubscriptionPeriod, newest_outputs, rebuild,
};
use crate::repair::{RepairAction, SIGNAL};
use crate::util::ids;

impl RebuildStorage for MemoryStore {
    async fn rebuild(&self, report: OnRebuilt<'_>) -> sqlx::Result<Result<RebuildReport, i64>> {
        self.run("rebuild", |state| {
            let alive =
                state.workers.values().filter(|worker| state.sessions.contains_key(&worker.session)).count();
            if alive > 0 {
                return Ok(Err(i64::try_from(alive).unwrap_or(i64::MAX)));
            }
            let epoch = state.fresh_epoch();
            let (mut before, mut after) = (0, 0);
            let (mut rebuilt, now) = (vec![], state.now());
            for root in state.hierarchies.keys().copied() {
                rebuilt.push((root, state.rebuilt(root, now, epoch)));
            }
            let total = rebuilt.iter().filter(|(_, rows)| !rows.is_empty()).count() as u64;
            let mut hierarchies = 0;
            for (root, rows) in rebuilt {
                let old = state.hierarchy(root).into_iter().flat_map(|hierarchy| hierarchy.rows.keys());
                let old: Vec<_> = old.copied().collect();
                (before, after) = (before + old.len(), after + rows.len());
                old.into_iter().for_each(|id| drop(state.remove((root, id))));
                if !rows.is_empty() {
                    hierarchies += 1;
                    report(RebuildProgress { hierarchies, total });
                }
                rows.into_iter().for_each(|row| state.insert(row));
            }
            let count = |rows| u64::try_from(rows).unwrap_or(u64::MAX);
            Ok(Ok(RebuildReport { before: count(before), after: count(after), skipped: vec![] }))
        })
        .await
    }

    async fn compare_with_record(&self, report: OnDifference<'_>) -> sqlx::Result<RebuildComparison> {
        self.run("compare_with_record", |state| Ok(state.compare_with_record(&mut *report))).await
    }

    async fn compare_failed_rollbacks(&self) -> sqlx::Result<FailedRollbackComparison> {
        // The list follows from the record.
        self.run("compare_failed_rollbacks", |state| {
            let compared = state.unsettled().count() as u64;
            Ok(FailedRollbackComparison { compared, ..FailedRollbackComparison::default() })
        })
        .await
    }
}

impl MemoryStore {
    /// The difference between the rows of a hierarchy and those that follow from its record, if any.
    pub(crate) fn rebuild_diff(&self, root: Uuid) -> Option<String> {
        let state = self.lock();
        let now = self.database.clock.now_after(state.now);
        let [kept, recorded] = state.comparable(root, now)?.map(|runs| {
            let runs = runs.into_iter().map(|((message, handler, _), fields)| {
                format!("{handler} {message} {}", Value::Object(fields))
            });
            runs.collect::<Vec<_>>()
        });
        (recorded != kept)
            .then(|| format!("there is\n{}\nbut the record says\n{}", kept.join("\n"), recorded.join("\n")))
    }
}

/// What counts of the runs of a hierarchy, by message and handler; the number is 0 unless there are several of these.
type Comparable = BTreeMap<(Uuid, String, usize), Map<String, Value>>;

impl State {
    /// The runs of a hierarchy in the working set and by the record, as far as these are to be equal.
    fn comparable(&self, root: Uuid, now: OffsetDateTime) -> Option<[Comparable; 2]> {
        let hierarchy = self.hierarchy(root)?;
        let recorded = ids::without_consuming_ids(|| self.rebuilt(root, now, 1));
        // A run that has not begun when its parent gives up never begins.
        let lets_go = |row: &WorkingRow| {
            let parent = row.parent.and_then(|parent| hierarchy.rows.get(&parent));
            row.is_unclaimed() && parent.is_some_and(|parent| parent.is_overdue(now))
        };
        let kept: Vec<_> = hierarchy.rows.values().filter(|row| !lets_go(row)).collect();
        Some([kept, recorded.iter().collect()].map(|rows| {
            let mut runs = Comparable::new();
            for row in rows {
                let same = runs
                    .keys()
                    .filter(|(message, handler, _)| *message == row.message_id && **handler == *row.handler);
                let number = same.count();
                runs.insert((row.message_id, row.handler.to_string(), number), row.comparable(now));
            }
            runs
        }))
    }

    fn compare_with_record(&self, report: OnDifference<'_>) -> RebuildComparison {
        let (now, mut counts) = (self.now(), RebuildComparison::default());
        for root in self.hierarchies.keys() {
            let [mut kept, mut recorded] = self.comparable(*root, now).unwrap_or_default();
            counts.before += kept.len() as u64;
            counts.after += recorded.len() as u64;
            let runs: BTreeSet<_> = kept.keys().chain(recorded.keys()).cloned().collect();
            for run in runs {
                let (kept, recorded) = (kept.remove(&run), recorded.remove(&run));
                if kept != recorded {
                    counts.different += 1;
                    report(RunDifference::new(*root, run.0, run.1, kept, recorded));
                }
            }
        }
        counts
    }
}

impl State {
    /// The rows of a hierarchy that follow from its record.
    pub(super) fn rebuilt(&self, root: Uuid, now: OffsetDateTime, epoch: i64) -> Vec<WorkingRow> {
        let topology: Vec<_> = self
            .topology
            .iter()
            .map(|listed| SubscriptionPeriod {
                topic: listed.topic.to_string(),
                handler: listed.handler.to_string(),
                since: listed.since,
                until: listed.until,
                dropped: listed.dropped,
            })
            .collect();
        let Some(Hierarchy { record, begun_steps, .. }) = self.hierarchy(root) else {
            return vec![];
        };
        let mut events: Vec<_> = record.events.iter().chain(&record.repeated_failures).collect();
        events.sort_by_key(|event| (event.at, event.place));
        let events: Vec<_> = events.into_iter().map(|event| event.recorded(record)).collect();
        // A signal revives nothing.
        let decisions = record.interventions.iter().filter(|done| done.kind != SIGNAL);
        let revivals = decisions.map(|done| OperatorAction {
            run: done.run,
            at: done.at,
            resolves: done.kind == RepairAction::Resolve.as_str(),
        });
        let revivals: Vec<_> = revivals.collect();
        let rebuilt = rebuild(&events, &revivals, &topology, now);
        let mut rows: Vec<_> = rebuilt.into_iter().filter_map(|row| record.row(row, epoch)).collect();
        for row in &mut rows {
            // So that the next claim looks for the step that runs at most once and did not complete.
            let has_begun = |begun: &BegunStepRow| begun.run == row.id() && begun.instance == row.suspensions;
            row.attempts = i32::from(!row.rolling_back && begun_steps.iter().any(has_begun));
        }
        rows
    }
}

impl Event {
    fn recorded(&self, record: &EventLog) -> RecordedEvent {
        RecordedEvent {
            lineage: self.lineage.clone(),
            message: self.message,
            kind: self.kind,
            handler: self.handler.as_deref().map(str::to_owned),
            topic: record.topic_of(self.message).to_string(),
            step: self.step.clone(),
            jump: self.jump.clone(),
            definition: self.definition,
            handling: self.handling,
            exception: self.exception.as_ref().and_then(|failure| serde_json::to_value(failure).ok()),
            context: self.context.clone(),
            at: self.at,
            redelivered_at: record.redelivered_at(self),
            wait: self.wait.clone(),
            begins: self.begins,
        }
    }
}

impl EventLog {
    fn row(&self, rebuilt: Rebuilt, epoch: i64) -> Option<WorkingRow> {
        let mut rebuilt = rebuilt;
        let remembers = rebuilt.keeps_outputs();
        if let Some(values) = rebuilt.lineage.last().and_then(|id| self.values.get(id)) {
            rebuilt.apply_delivery(|name| values.contains_key(name));
        }
        let (execution, since) = (rebuilt.execution, rebuilt.execution_since);
        let (payload_of, names) = (rebuilt.payload_of, rebuilt.output_names.take());
        let signals = std::mem::take(&mut rebuilt.signal_steps);
        let signal = rebuilt.signal.take().zip(rebuilt.signal_key.take());
        let lineage = Lineage::from_ids(rebuilt.lineage)?;
        let failure =
            |value: Option<Value>| value.and_then(|value| serde_json::from_value::<Failure>(value).ok());
        let (topic, handler) = (rebuilt.topic.into(), rebuilt.handler.into());
        let id = lineage.id();
        let mut row = WorkingRow::new(lineage, rebuilt.message_id, topic, handler, rebuilt.last_event_at);
        row.parent = rebuilt.parent;
        row.state = rebuilt.state;
        row.ready_at = rebuilt.ready_at;
        row.epoch = if rebuilt.begun || rebuilt.rollback_requested { epoch } else { 0 };
        row.unclaimed_epoch = if rebuilt.rollback_requested && !rebuilt.begun { epoch } else { 0 };
        (row.rolling_back, row.rollback_requested, row.rollback_failed_before) =
            (rebuilt.rolling_back, rebuilt.rollback_requested, rebuilt.rollback_failed_before);
        (row.step, row.jump, row.iteration) = (rebuilt.step, rebuilt.jump, rebuilt.iteration);
        row.definition = rebuilt.definition;
        row.handler_iteration = rebuilt.handler_iteration;
        row.suspensions = i32::try_from(rebuilt.suspensions).unwrap_or(i32::MAX);
        row.completions = rebuilt.completions;
        if remembers {
            let values = self.values.get(&id).cloned().unwrap_or_default();
            let counts = |name: &String| names.as_ref().is_none_or(|names| names.contains(name));
            let values = values.into_iter().filter(|(name, _)| counts(name));
            row.outputs = newest_outputs(values.collect(), &signals);
            row.replied = self.has_replied(id);
        }
        row.signal = signal.map(|(name, key)| SignalKey { name, key });
        (row.execution, row.execution_since, row.payload_of) = (execution, since, payload_of);
        row.context = rebuilt.context;
        (row.giving_up, row.give_up_at) = (rebuilt.giving_up, rebuilt.give_up_at);
        row.rollback_since = rebuilt.rollback_since;
        (row.failure, row.rollback_failure) = (failure(rebuilt.failure), failure(rebuilt.rollback_failure));
        row.rollback_started_at = rebuilt.rollback_started_at;
        row.reason = rebuilt.reason;
        row.awaits_operator = rebuilt.awaits_operator;
        Some(row)
    }
}

impl WorkingRow {
    /// The row without what a rebuild need not know: owner, attempts, pauses and reasons, and the id of a pending
    /// run. See `rebuild_compare.sql`.
    fn comparable(&self, now: OffsetDateTime) -> Map<String, Value> {
        let state = match self.state {
            RowState::Ended => "ended",
            RowState::Stuck if self.awaits_operator => "stuck, awaits operator",
            RowState::Waiting if self.awaits_operator => "waiting, awaits operator",
            // Otherwise, whether a run waits follows from its children.
            _ => "unfinished",
        };
        let mut fields = Map::new();
        let mut add = |more: Value| {
            if let Value::Object(more) = more {
                fields.extend(more);
            }
        };
        add(json!({
            "run": (self.epoch > 0 || self.rollback_requested).then(|| self.id()),
            "topic": *self.topic, "parent": self.parent, "rollback_requested": self.rollback_requested,
            "state": state, "failure": self.failure, "rollback_failure": self.rollback_failure,
        }));
        if self.state != RowState::Ended {
            // A pause after a failed attempt is not recorded.
            let due = self.parked_since.unwrap_or(self.ready_at);
            let far = due > now + time::Duration::minutes(10) && self.attempts + self.retries == 0;
            let (signal, signal_key) =
                self.signal.as_ref().filter(|_| due > now).map(|it| (&it.name, &it.key)).unzip();
            add(json!({
                "rolling_back": self.rolling_back, "in_rollback": self.rollback_since.is_some(),
                "rollback_failed_before": self.rollback_failed_before, "replied": self.replied,
                "giving_up": self.is_overdue(now), "give_up_at": self.give_up_at.map(super::state::micros),
                "context": self.context, "due": far.then(|| super::state::micros(due)),
                "signal": signal, "signal_key": signal_key,
            }));
        }
        if self.state != RowState::Ended && !self.rollback_failed_before {
            add(json!({
                "step": self.step, "jump": self.jump, "definition": self.definition, "iteration": self.iteration,
                "handler_iteration": self.handler_iteration, "suspensions": self.suspensions,
                "completions": self.completions, "outputs": self.outputs, "execution": self.execution,
                "execution_since": self.execution_since.map(super::state::micros), "payload_of": self.payload_of,
            }));
        }
        fields
    }
}
