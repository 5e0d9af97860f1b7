//! What a run did, and what became of what it launched; see `run_history.sql` and `run_children.sql`.

use scoop_core::{Definition, EventKind, Instance, Path, Plan, RollbackNames, Run, Suspension, output_name};
use time::OffsetDateTime;
use uuid::Uuid;

use super::super::Key;
use super::super::engine::History;
use super::Memory;
use super::record::{Event, Record};
use super::standing::failure_of;
use super::state::State;
use crate::children::{Child, ChildOutcome};

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

    /// What became of the messages that a run launched: in its newest window, or ever. The steps
    /// that the user has not written as such are `unseen`.
    pub(crate) async fn children(
        &self,
        run: Uuid,
        handler: &str,
        newest: bool,
        reply: &str,
        unseen: &[&str],
    ) -> sqlx::Result<Vec<Child>> {
        self.run("children", |state| {
            let Some(hierarchy) = state.home_of(run) else {
                return Ok(vec![]);
            };
            let record = &hierarchy.record;
            let since = if newest { record.window(run, handler, unseen) } else { None };
            let launched = record.of_run(run).filter(|event| {
                let is_new = event.kind == EventKind::Emitted;
                (is_new || newest && event.kind == EventKind::RollbackEmitted)
                    && event.handler.as_deref() == Some(handler)
                    && since.is_none_or(|since| event.at > since)
            });
            Ok(launched.flat_map(|event| state.handled(record, event, reply)).collect())
        })
        .await
    }
}

impl State {
    /// One entry for each handler of a message, whether or not it has begun.
    fn handled(&self, record: &Record, launched: &Event, reply: &str) -> Vec<Child> {
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
        let child = |handler: std::sync::Arc<str>| {
            let seen = record.of_handler(launched.message, EventKind::Seen, &handler);
            let values = seen.and_then(|seen| record.values.get(&seen.lineage.id()));
            Child {
                topic: topic.to_string(),
                message_id: launched.message,
                outcome: seen.map_or(ChildOutcome::NeverStarted, |seen| outcome_of(record, seen)),
                reply: values.and_then(|values| values.get(reply)).cloned(),
                handler: handler.to_string(),
            }
        };
        handlers.into_iter().map(child).collect()
    }
}

fn outcome_of(record: &Record, seen: &Event) -> ChildOutcome {
    let handler = seen.handler.as_deref().unwrap_or_default();
    let cause = || failure_of(record.of_handler(seen.message, EventKind::RollingBack, handler));
    let end = record.end_of(seen.lineage.id(), seen.message);
    match end.map(|end| end.kind) {
        Some(EventKind::Committed) => ChildOutcome::Committed,
        Some(EventKind::RolledBack) => ChildOutcome::RolledBack(cause()),
        Some(_) => ChildOutcome::RollbackFailed { cause: cause(), failure: failure_of(end) },
        None => ChildOutcome::Unfinished,
    }
}

impl Record {
    /// When the newest window of a run began: after its newest SUSPENDED but one, those aside that only
    /// wait or clean up.
    fn window(&self, run: Uuid, handler: &str, unseen: &[&str]) -> Option<OffsetDateTime> {
        let suspended = self
            .of_run(run)
            .rev()
            .filter(|event| event.kind == EventKind::Suspended && event.handler.as_deref() == Some(handler));
        let suspended: Vec<_> = suspended.take(2 + unseen.len()).collect();
        let is_seen = |event: &&&Event| event.step.as_deref().is_some_and(|step| !unseen.contains(&step));
        let newest = suspended.iter().find(is_seen)?.at;
        suspended.iter().map(|event| event.at).find(|at| *at < newest)
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
