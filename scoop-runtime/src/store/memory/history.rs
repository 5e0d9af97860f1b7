//! What a run did, and what became of what it launched; see `run_history.sql` and `run_children.sql`.

use scoop_core::{Definition, EventKind, Instance, Path, Plan, RollbackNames, Run, Suspension, output_name};
use serde_json::Value;
use uuid::Uuid;

use super::super::Key;
use super::super::engine::History;
use super::Memory;
use super::record::{Event, Record};
use super::standing::failure_of;
use super::state::{Hierarchy, State};
use crate::children::{Child, ChildOutcome, ChildQuery, Launches, in_order};

impl Memory {
    /// Reads what a run had done, for its rollback.
    pub(crate) async fn history(&self, definition: &Definition, run: &Run) -> sqlx::Result<History> {
        self.run("history", |state| {
            let record = state.hierarchy(run.lineage.root_id()).map(|hierarchy| &hierarchy.record);
            let names = RollbackNames::of(definition);
            let Some(record) = record else {
                return Ok(History { plan: Plan::of(&names, vec![]), last: None, any_part_done: false });
            };
            let history = record.history(&names, &definition.saga, run.lineage.id());
            Ok(match run.path {
                Path::Backward { failed_before: true, .. } if record.repeats(run.lineage.id()) => {
                    history.repeated()
                }
                _ => history,
            })
        })
        .await
    }

    /// Whether the worker of this identifier has recorded an event of this kind for the run.
    pub(crate) async fn recorded(&self, run: Key, identifier: &str, kind: EventKind) -> sqlx::Result<bool> {
        self.run("recorded", |state| {
            let is = |event: &Event| event.kind == kind && event.identifier.as_deref() == Some(identifier);
            let hierarchy = state.hierarchy(run.root);
            Ok(hierarchy.is_some_and(|hierarchy| hierarchy.record.of_run(run.id).any(is)))
        })
        .await
    }

    /// What became of messages with each of their handlers, in the order of the messages.
    pub(crate) async fn children(&self, asked: ChildQuery<'_>) -> sqlx::Result<Vec<Child>> {
        self.run("children", |state| {
            let ChildQuery { of, topic, replies } = asked;
            let id = match of {
                Launches::OfLastStep { run, .. } | Launches::OfRun { run, .. } => Some(run),
                Launches::Given(messages) => messages.first().copied(),
            };
            let Some(Hierarchy { record, .. }) = id.and_then(|id| state.home_of(id)) else {
                return Ok(vec![]);
            };
            let launched = record.launched(of);
            let wanted = launched.into_iter().filter(|launched| {
                topic.is_none_or(|topic| *record.topic_of(launched.event.message) == *topic)
            });
            Ok(wanted.flat_map(|launched| state.handled(record, launched, replies)).collect())
        })
        .await
    }
}

/// A message that was launched, or told to roll back.
struct Launched<'a> {
    event: &'a Event,
    /// Whether a failure of its handlers has been handled.
    handled: bool,
}

impl State {
    /// One entry for each handler of a message, whether or not it has begun.
    fn handled(&self, record: &Record, launched: Launched<'_>, replies: Option<&str>) -> Vec<Child> {
        let Launched { event: launched, handled } = launched;
        let topic = record.topic_of(launched.message);
        let is_new = launched.kind == EventKind::Emitted;
        let listened = self.topology.iter().filter(|listed| {
            let until = listed.until.is_none_or(|until| until > launched.at);
            is_new && listed.topic == topic && listed.since <= launched.at && until
        });
        let seen =
            record.of_message(launched.message, EventKind::Seen).filter_map(|seen| seen.handler.clone());
        let mut handlers: Vec<_> = listened.map(|listed| listed.handler.clone()).chain(seen).collect();
        handlers.sort();
        handlers.dedup();
        let payload = || record.messages.get(&launched.message).map(|message| message.payload.clone());
        let child = |handler: std::sync::Arc<str>| {
            let seen = record.of_handler(launched.message, EventKind::Seen, &handler);
            let outcome = seen.map_or(ChildOutcome::NeverStarted, |seen| outcome_of(record, seen));
            let counts = seen.filter(|_| outcome == ChildOutcome::Committed);
            let values = counts.and_then(|seen| record.values.get(&seen.lineage.id()));
            let named = values.zip(replies).map(|(values, name)| {
                let same = |stored: &str| stored == name || stored.starts_with(&format!("{name}#"));
                let from = values.range(name.to_owned()..).take_while(|(stored, _)| stored.starts_with(name));
                from.filter(|(stored, _)| same(stored)).map(|(n, value)| (n.clone(), value.clone())).collect()
            });
            Child {
                topic: topic.to_string(),
                message_id: launched.message,
                payload: if replies.is_none() { payload().unwrap_or_default() } else { Value::Null },
                handled: handled && outcome.failure().is_some(),
                replies: in_order(named.unwrap_or_default()),
                handler: handler.to_string(),
                outcome,
            }
        };
        handlers.into_iter().map(child).collect()
    }
}

fn outcome_of(record: &Record, seen: &Event) -> ChildOutcome {
    let handler = seen.handler.as_deref().unwrap_or_default();
    let cause = || failure_of(record.of_handler(seen.message, EventKind::RollingBack, handler));
    let of_kind = |kind| record.of_handler(seen.message, kind, handler);
    let failed = of_kind(EventKind::RollbackFailed);
    if of_kind(EventKind::RolledBack).is_some() {
        ChildOutcome::RolledBack(cause())
    } else if failed.is_some() {
        ChildOutcome::RollbackFailed { cause: cause(), failure: failure_of(failed) }
    } else if of_kind(EventKind::Committed).is_some() && of_kind(EventKind::RollingBack).is_none() {
        ChildOutcome::Committed
    } else {
        ChildOutcome::Unfinished
    }
}

impl Record {
    /// The messages in question, oldest first.
    fn launched(&self, of: Launches<'_>) -> Vec<Launched<'_>> {
        let (run, handler, last_step, unseen) = match of {
            Launches::OfLastStep { run, handler, unseen } => (run, handler, true, unseen),
            Launches::OfRun { run, handler } => (run, handler, false, &[][..]),
            Launches::Given(messages) => {
                let emitted = messages.iter().flat_map(|id| self.of_message(*id, EventKind::Emitted));
                let mut launched: Vec<_> = emitted.map(|event| Launched { event, handled: true }).collect();
                launched.sort_by_key(|launched| launched.event.at);
                return launched;
            }
        };
        let (mut launched, mut suspensions, mut began) = (vec![], 0, false);
        for event in self.of_run(run).rev().filter(|event| event.handler.as_deref() == Some(handler)) {
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

    /// The suspensions of a run in order, each with what it emitted and returned.
    fn history(&self, names: &RollbackNames, handler: &str, run: Uuid) -> History {
        let (mut instances, mut last, mut any_part_done) = (vec![], None, false);
        let mut emitted = vec![];
        let values = self.values.get(&run);
        for event in self.of_run(run).filter(|event| event.handler.as_deref() == Some(handler)) {
            match event.kind {
                EventKind::Emitted => emitted.push(event.message),
                EventKind::Suspended => {
                    let step = event.step.clone().unwrap_or_default();
                    let emitted = std::mem::take(&mut emitted);
                    let handler_iteration = event.handling.and_then(|count| u32::try_from(count).ok());
                    if names.matches(&step) {
                        any_part_done |= handler_iteration.is_none();
                    } else {
                        let position = u32::try_from(instances.len()).unwrap_or(u32::MAX);
                        let name = output_name(&step, position);
                        let output = values.and_then(|values| values.get(&name)).cloned();
                        instances.push(Instance { step: step.clone(), handler_iteration, emitted, output });
                    }
                    last =
                        Some(Suspension { step, jump: event.jump.clone(), iteration: 0, handler_iteration });
                }
                _ => {}
            }
        }
        History { plan: Plan::of(names, instances), last, any_part_done }
    }

    /// Whether somebody wanted the newest part of a rollback to run again, and it has not yet.
    fn repeats(&self, run: Uuid) -> bool {
        let Some(suspended) = self.suspended(run).map(|event| event.at) else {
            return false;
        };
        let mut wanted = self.interventions.iter().filter(|done| done.run == run && done.repeats);
        wanted.any(|done| done.kind == "retry" && done.at > suspended)
    }
}
