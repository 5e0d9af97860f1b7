//! The history of a run, and the outcomes of its launches; see `run_history.sql`, `run_count_parts.sql`,
//! `run_count_repetitions.sql`, `run_values.sql` and `run_children.sql`.

use std::collections::BTreeMap;

use scoop_core::{Beginning, Entry, EventKind, RollbackNames, RollbackProgress, Run, Suspension, Window};
use serde_json::Value;
use uuid::Uuid;

use super::MemoryStore;
use super::event_log::{Event, EventLog, RecordedExecution};
use super::state::{Hierarchy, State};
use super::status::failure_of;
use crate::model::children::{Child, ChildOutcome, ChildQuery, Launches, chosen};
use crate::store::types::{micros_of, unreadable};
use crate::store::{ClaimKey, ExecutionHistory, HistoryStorage, RollbackHistory, ValueQuery};

impl HistoryStorage for MemoryStore {
    async fn recorded(&self, run: ClaimKey, identifier: &str, kind: EventKind) -> sqlx::Result<bool> {
        self.run("recorded", |state| {
            let is = |event: &Event| event.kind == kind && event.identifier.as_deref() == Some(identifier);
            let hierarchy = state.hierarchy(run.root);
            Ok(hierarchy
                .is_some_and(|hierarchy| hierarchy.record.of_execution_until(run.id, i64::MAX).any(is)))
        })
        .await
    }

    async fn history(
        &self,
        names: &RollbackNames,
        handler: &str,
        run: &Run,
        limit: usize,
    ) -> sqlx::Result<RollbackHistory> {
        self.run("history", |state| {
            let record = state.hierarchy(run.lineage.root_id()).map(|hierarchy| &hierarchy.record);
            record.map_or_else(
                || Ok(RollbackHistory::default()),
                |record| record.history(names, handler, run.lineage.id(), limit),
            )
        })
        .await
    }

    async fn entries_until(
        &self,
        names: &RollbackNames,
        handler: &str,
        run: &Run,
        limit: usize,
        until: i64,
    ) -> sqlx::Result<Vec<Entry>> {
        self.run("history", |state| {
            let record = state.hierarchy(run.lineage.root_id()).map(|hierarchy| &hierarchy.record);
            let entries = record.map(|record| record.forward(names, handler, run.lineage.id(), until));
            Ok(entries.into_iter().flatten().take(limit).map(|(entry, _)| entry).collect())
        })
        .await
    }

    async fn count_history(&self, handler: &str, run: &Run, until: i64) -> sqlx::Result<Beginning> {
        self.run("history", |state| {
            let mut beginning = Beginning { until, instances: 0, runs: BTreeMap::new(), newest: None };
            let record = state.hierarchy(run.lineage.root_id()).map(|hierarchy| &hierarchy.record);
            let suspended = record.map(|record| record.suspensions_until(handler, run.lineage.id(), until));
            for event in suspended.into_iter().flatten() {
                let runs = beginning.runs.entry(event.step.clone().unwrap_or_default()).or_default();
                *runs += u32::from(event.handling.is_none());
                beginning.instances += 1;
            }
            Ok(beginning)
        })
        .await
    }

    async fn repetitions(&self, handler: &str, run: &Run, steps: &[String], until: i64) -> sqlx::Result<u32> {
        self.run("history", |state| {
            let record = state.hierarchy(run.lineage.root_id()).map(|hierarchy| &hierarchy.record);
            let suspended = record.map(|record| record.suspensions_until(handler, run.lineage.id(), until));
            let runs = suspended.into_iter().flatten().filter(|event| event.handling.is_none());
            let repeated =
                runs.take_while(|event| event.step.as_ref().is_some_and(|step| steps.contains(step)));
            Ok(u32::try_from(repeated.count()).unwrap_or(u32::MAX))
        })
        .await
    }

    async fn values(&self, _: &str, run: &Run, wanted: &ValueQuery) -> sqlx::Result<BTreeMap<String, Value>> {
        self.run("history", |state| {
            let record = state.hierarchy(run.lineage.root_id()).map(|hierarchy| &hierarchy.record);
            let Some(values) = record.and_then(|record| record.values.get(&run.lineage.id())) else {
                return Ok(BTreeMap::new());
            };
            let named = wanted.names.iter().filter_map(|name| values.get_key_value(name));
            let newest = wanted.newest.iter().filter_map(|(first, last)| {
                let mut range = values.range::<String, _>(first..=last).rev();
                range.find(|(name, _)| name.chars().count() == last.chars().count())
            });
            Ok(named.chain(newest).map(|(name, value)| (name.clone(), value.clone())).collect())
        })
        .await
    }

    async fn reruns_part(&self, run: &Run) -> sqlx::Result<bool> {
        self.run("history", |state| {
            let record = state.hierarchy(run.lineage.root_id()).map(|hierarchy| &hierarchy.record);
            Ok(record.is_some_and(|record| record.reruns_part(run.lineage.id())))
        })
        .await
    }

    async fn children(&self, asked: ChildQuery<'_>) -> sqlx::Result<Vec<Child>> {
        self.run("children", |state| {
            let ChildQuery { of, topic, replies } = asked;
            let id = match of {
                Launches::OfLastStep { run, .. } | Launches::OfRun { run, .. } => Some(run),
                Launches::Given(messages) => messages.first().copied(),
            };
            let Some(hierarchy) = id.and_then(|id| state.hierarchy_of(id)) else {
                return Ok(vec![]);
            };
            let record = &hierarchy.record;
            let launched = record.launched(of);
            let wanted = launched.into_iter().filter(|launched| {
                topic.is_none_or(|topic| *record.topic_of(launched.event.message) == *topic)
            });
            Ok(wanted.flat_map(|launched| state.handled(hierarchy, launched, replies)).collect())
        })
        .await
    }
}

struct Launched<'a> {
    event: &'a Event,
    handled: bool,
}

impl State {
    /// One entry for each handler of a message, whether or not it has begun.
    fn handled(&self, hierarchy: &Hierarchy, launched: Launched<'_>, replies: Option<&str>) -> Vec<Child> {
        let record = &hierarchy.record;
        let Launched { event: launched, handled } = launched;
        let topic = record.topic_of(launched.message);
        let is_new = launched.kind == EventKind::Emitted;
        let subscribed = self.topology.iter().filter(|entry| {
            let until = entry.until.is_none_or(|until| until > launched.at);
            is_new && entry.topic == topic && entry.since <= launched.at && until
        });
        let seen =
            record.of_message(launched.message, EventKind::Seen).filter_map(|seen| seen.handler.clone());
        let mut handlers: Vec<_> = subscribed.map(|entry| entry.handler.clone()).chain(seen).collect();
        handlers.sort();
        handlers.dedup();
        let payload = || record.messages.get(&launched.message).map(|message| message.payload.clone());
        let child = |handler: std::sync::Arc<str>| {
            let seen = record.of_handler(launched.message, EventKind::Seen, &handler);
            let outcome = seen.map_or(ChildOutcome::NeverStarted, |seen| outcome_of(hierarchy, seen));
            let counts = seen.filter(|_| outcome == ChildOutcome::Committed);
            let values = counts.and_then(|seen| record.values.get(&seen.lineage.id()));
            let named = values.filter(|_| replies.is_some()).into_iter().flatten();
            let named = named.filter(|(name, _)| !name.starts_with("Output of "));
            let named = named.map(|(name, value)| (name.clone(), value.clone()));
            Child {
                topic: topic.to_string(),
                message_id: launched.message,
                payload: if replies.is_none() { payload().unwrap_or_default() } else { Value::Null },
                handled: handled && outcome.failure().is_some(),
                replies: chosen(named.collect(), replies.unwrap_or_default()),
                handler: handler.to_string(),
                outcome,
            }
        };
        handlers.into_iter().map(child).collect()
    }
}

fn outcome_of(hierarchy: &Hierarchy, seen: &Event) -> ChildOutcome {
    let record = &hierarchy.record;
    let handler = seen.handler.as_deref().unwrap_or_default();
    let cause = || failure_of(record.of_handler(seen.message, EventKind::RollingBack, handler));
    let of_kind = |kind| record.of_handler(seen.message, kind, handler);
    // Also while a repair is under way.
    let failed = hierarchy.rows.get(&seen.lineage.id()).and_then(|row| row.rollback_failure.clone());
    if of_kind(EventKind::RolledBack).is_some() {
        ChildOutcome::RolledBack(cause())
    } else if let Some(failure) = failed {
        ChildOutcome::RollbackFailed { cause: cause(), failure }
    } else if of_kind(EventKind::Committed).is_some() && of_kind(EventKind::RollingBack).is_none() {
        ChildOutcome::Committed
    } else {
        ChildOutcome::Unfinished
    }
}

impl EventLog {
    /// The requested messages, oldest first.
    fn launched(&self, of: Launches<'_>) -> Vec<Launched<'_>> {
        let (run, handler, last_step, unseen, after) = match of {
            Launches::OfLastStep { run, handler, unseen } => (run, handler, true, unseen, None),
            Launches::OfRun { run, handler, after } => (run, handler, false, &[][..], after),
            Launches::Given(messages) => {
                let emitted = messages.iter().flat_map(|id| self.of_message(*id, EventKind::Emitted));
                let mut launched: Vec<_> = emitted.map(|event| Launched { event, handled: true }).collect();
                launched.sort_by_key(|launched| launched.event.at);
                return launched;
            }
        };
        let (mut launched, mut suspensions, mut began) = (vec![], 0, false);
        let later = |event: &&Event| after.is_none_or(|after| micros_of(event.at) > after);
        let events = self.of_run(run).rev().take_while(later);
        for event in events.filter(|event| event.handler.as_deref() == Some(handler)) {
            match event.kind {
                // The last step began after the SUSPENDED before its own.
                EventKind::Suspended if last_step && began => break,
                EventKind::Suspended => {
                    suspensions += 1;
                    let seen = event.step.as_deref().is_some_and(|step| !unseen.contains(&step));
                    began = seen && event.handling.is_none();
                }
                EventKind::Emitted => launched.push(Launched { event, handled: suspensions > 1 }),
                EventKind::RollbackEmitted if last_step => {
                    launched.push(Launched { event, handled: suspensions > 1 });
                }
                _ => {}
            }
        }
        launched.reverse();
        launched
    }

    fn history(
        &self,
        names: &RollbackNames,
        handler: &str,
        run: Uuid,
        limit: usize,
    ) -> sqlx::Result<RollbackHistory> {
        let is_part = |event: &Event| event.step.as_deref().is_some_and(|step| names.matches(step));
        let suspended = || self.suspensions_until(handler, run, i64::MAX);
        let Some(newest) = suspended().next() else {
            return Ok(RollbackHistory::default());
        };
        let last = Suspension {
            step: newest.step.clone().unwrap_or_default(),
            jump: newest.jump.clone(),
            iteration: 0,
            handler_iteration: newest.handling.and_then(|count| u32::try_from(count).ok()),
        };
        let has_begun = suspended().find(|event| event.handling.is_none()).is_some_and(is_part);
        // A part that an operator has skipped names no window; then the one before does.
        let marked = suspended().take_while(|event| is_part(event)).find_map(|event| event.jump.as_deref());
        let window = marked.map(Window::read).transpose().map_err(unreadable)?;
        let until = window.as_ref().map_or(i64::MAX, Window::until);
        let after = window.as_ref().map(|window| window.before().map_or(i64::MIN, |before| before.until));
        let inside = |(_, at): &(Entry, i64)| after.is_none_or(|after| *at > after);
        let limit = if window.is_some() { usize::MAX } else { limit };
        let entries = self.forward(names, handler, run, until).take_while(inside).take(limit);
        let entries: Vec<_> = entries.map(|(entry, _)| entry).collect();
        let whole = window.is_none() && entries.len() < limit;
        let execution = self.start_of(run).and_then(|start| {
            let RecordedExecution { message, suspensions, number } = start.begins?;
            let payload = self.messages.get(&message).map(|message| message.payload.clone());
            let (after, payload) = (micros_of(start.at), payload.unwrap_or_default());
            Some(ExecutionHistory { after, suspensions, number: u32::try_from(number).unwrap_or(0), payload })
        });
        let outputs = self.values.get(&run).filter(|_| whole && execution.is_none());
        let outputs = outputs.cloned().unwrap_or_default();
        Ok(RollbackHistory {
            progress: RollbackProgress { last: Some(last), has_begun },
            window,
            entries,
            outputs,
            execution,
        })
    }

    /// The events of the newest execution of a run up to `until`, newest first.
    fn of_execution_until(&self, run: Uuid, until: i64) -> impl Iterator<Item = &Event> {
        let start = self.start_of(run).map(|start| start.at);
        self.of_run_until(run, until).take_while(move |event| start.is_none_or(|start| event.at > start))
    }

    /// The suspensions of the newest execution of a run up to `until`, newest first.
    fn suspensions_until(&self, handler: &str, run: Uuid, until: i64) -> impl Iterator<Item = &Event> {
        let is_its = move |event: &&Event| {
            event.kind == EventKind::Suspended && event.handler.as_deref() == Some(handler)
        };
        self.of_execution_until(run, until).filter(is_its)
    }

    /// The suspensions and launches of the forward path of a run's newest execution up to `until`, newest first, each with its time.
    fn forward(
        &self,
        names: &RollbackNames,
        handler: &str,
        run: Uuid,
        until: i64,
    ) -> impl Iterator<Item = (Entry, i64)> {
        let is_part = |event: &Event| event.step.as_deref().is_some_and(|step| names.matches(step));
        let of_saga = self
            .of_execution_until(run, until)
            .filter(move |event| event.handler.as_deref() == Some(handler));
        let is_end = move |event: &&Event| event.kind == EventKind::Suspended && !is_part(event);
        of_saga.skip_while(move |event| !is_end(event)).filter_map(|event| {
            let at = micros_of(event.at);
            let entry = match event.kind {
                EventKind::Emitted => Entry::Emitted(event.message),
                EventKind::Suspended => Entry::Suspended {
                    step: event.step.clone().unwrap_or_default(),
                    handler_iteration: event.handling.and_then(|count| u32::try_from(count).ok()),
                    definition: event.definition,
                    by_strategy: event.wait.as_ref().is_some_and(|wait| !wait.messages().is_empty()),
                    at,
                },
                _ => return None,
            };
            Some((entry, at))
        })
    }

    /// Whether an operator requested the newest part of a rollback to run again, and it has not yet.
    fn reruns_part(&self, run: Uuid) -> bool {
        let Some(suspended) = self.suspended(run).map(|event| event.at) else {
            return false;
        };
        let mut wanted = self.interventions_of(run).filter(|it| it.reruns_part);
        wanted.any(|it| it.kind == "retry" && it.at > suspended)
    }
}
