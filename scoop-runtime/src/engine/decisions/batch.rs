//! The decisions of one transaction, as a function of the locked states of their entities.

use std::any::Any;

use scoop_core::{
    Call, Continuation, DecidedMessage, Emission, EntityType, Error, Failure, Required, Returned, Run,
    StepKind,
};
use serde_json::Value;
use uuid::Uuid;

use crate::RuntimeError;
use crate::engine::decisions::queue::OutcomeIfCommitted;
use crate::engine::decisions::queue::{Pending, Settles, ToDecide, Undecided};
use crate::engine::settle::after_commit::AfterCommit;
use crate::engine::settle::coalesce_recorded;
use crate::engine::shared::Engine;
use crate::engine::why::Why;
use crate::error::ErrorKind;
use crate::saga::command::{Application, ErasedDecision, Undecidable, decision_name};
use crate::store::entity::{Decisions, EntityAtHand, NewEntityEvent, RENUMBER, StoredEntity};
use crate::store::{EntityId, Settlement, found_by};
use crate::util::ids;
use crate::util::panic_boundary::{self, DropGuarded};
use crate::util::payload::storable;

/// When the new state of an entity is written as JSON.
#[derive(Clone, Copy, PartialEq)]
enum Write {
    /// Once, after all decisions about it.
    AtLast,
    /// After each event, so that one which fails leaves the state before it.
    AfterEach,
    /// Never: the user's code writes it to a table. A decision that is alone in its transaction may fail in any way.
    ByTable { is_single: bool },
}

/// An application of an event failed, or the new state cannot be stored: the states have to be written after each event.
struct NeedsEach;

/// Decides in the order of arrival. `entities` are in their order, and `at_hand` has their states.
pub(super) fn decide_all(
    engine: &Engine,
    batch: &[Pending],
    entities: &[EntityId],
    at_hand: Vec<EntityAtHand>,
) -> (Decisions, Vec<OutcomeIfCommitted>) {
    let decide = |write| decide_with(engine, batch, entities, &at_hand, write);
    let decided = decide(Write::AtLast).or_else(|NeedsEach| decide(Write::AfterEach));
    decided.unwrap_or_else(|NeedsEach| unreachable!("the states are written after each event"))
}

fn decide_with(
    engine: &Engine,
    batch: &[Pending],
    entities: &[EntityId],
    at_hand: &[EntityAtHand],
    write: Write,
) -> Result<(Decisions, Vec<OutcomeIfCommitted>), NeedsEach> {
    let mut working: Vec<_> = at_hand.iter().cloned().map(Working::of).collect();
    let (mut decisions, mut outcomes) = (Decisions::default(), Vec::with_capacity(batch.len()));
    for Pending { undecided, .. } in batch {
        let at = entities.binary_search(&undecided.entity).expect("each has its entity");
        let one = DecisionInBatch { engine, undecided, write };
        outcomes.push(match one.decide(&mut working[at], &mut decisions)? {
            Ok(outcome) | Err(outcome) => outcome,
        });
    }
    for (id, mut working) in entities.iter().zip(working).filter(|(_, working)| working.has_changed) {
        if write == Write::AtLast {
            let what = || format!("the state of the entity `{}`", id.name);
            working.stored.state = Some(working.written(engine, id, what).map_err(|_| NeedsEach)?);
        }
        decisions.changes.push((id.clone(), working.stored));
    }
    Ok((decisions, outcomes))
}

/// Decides about one entity, whose state is in a table of the user; without `state` it has none. Returns the state
/// afterwards, too. None if the decisions have to be made one by one.
pub(super) fn decide_loaded(
    engine: &Engine,
    batch: &[Pending],
    id: &EntityId,
    stored: StoredEntity,
    state: Option<DropGuarded>,
) -> Option<(Decisions, Vec<OutcomeIfCommitted>, Option<DropGuarded>)> {
    let write = Write::ByTable { is_single: batch.len() == 1 };
    let entity = batch.first()?.undecided.decisions.entity;
    let mut working = Working { state: state.map(|state| (entity, state)), ..Working::new(stored) };
    let (mut decisions, mut outcomes) = (Decisions::default(), Vec::with_capacity(batch.len()));
    for Pending { undecided, .. } in batch {
        let one = DecisionInBatch { engine, undecided, write };
        outcomes.push(match one.decide(&mut working, &mut decisions).ok()? {
            Ok(outcome) | Err(outcome) => outcome,
        });
    }
    if working.has_changed {
        decisions.changes.push((id.clone(), working.stored));
    }
    Some((decisions, outcomes, working.state.map(|(_, state)| state)))
}

struct Working {
    /// Its version, and its state as it was last written.
    stored: StoredEntity,
    has_changed: bool,
    /// The functions of its type, and its state, once a decision needs them.
    state: Option<(EntityType, DropGuarded)>,
    /// Why no decision about it can be made.
    hindrance: Option<Hindrance>,
}

enum Hindrance {
    Busy,
    Unreadable(String),
}

impl Working {
    fn new(stored: StoredEntity) -> Self {
        Self { stored, has_changed: false, state: None, hindrance: None }
    }

    fn of(at_hand: EntityAtHand) -> Self {
        let hindered = |hindrance| Self { hindrance: Some(hindrance), ..Self::new(StoredEntity::default()) };
        match at_hand {
            EntityAtHand::Locked(stored) => Self::new(stored),
            EntityAtHand::Busy => hindered(Hindrance::Busy),
            EntityAtHand::Unreadable(why) => hindered(Hindrance::Unreadable(why)),
        }
    }

    fn read(&mut self, entity: EntityType, source: &str) -> Result<(), String> {
        match panic_boundary::run(source, || entity.read(self.stored.state.as_ref())) {
            Ok(Ok(state)) => self.state = Some((entity, DropGuarded::new(state))),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(panic) => return Err(panic.to_string()),
        }
        Ok(())
    }

    /// The state as JSON; or the reason for which it, as `what` names it, cannot be stored.
    fn written(&self, engine: &Engine, id: &EntityId, what: impl Fn() -> String) -> Result<Value, Failure> {
        let (entity, state) = self.state.as_ref().expect("a decision has changed it");
        let source = id.name;
        let written = panic_boundary::run(source, || entity.write(state.get()))?;
        let written =
            written.map_err(|error| Failure::new("EntityState", format!("{}: {error}", what()), source))?;
        let storable = storable(written, engine.settings.limits.payload_bytes_max, what);
        storable.map_err(|error| Error::from(error).to_failure(source))
    }
}

struct DecidedCommand {
    /// The change of the entity.
    apply: Option<DropGuarded<Application>>,
    /// The message that was launched.
    event: Option<Uuid>,
    settles: Box<Settles>,
    settlement: Settlement,
}

struct DecisionInBatch<'a> {
    engine: &'a Engine,
    undecided: &'a Undecided,
    write: Write,
}

impl DecisionInBatch<'_> {
    fn decide(
        &self,
        entity: &mut Working,
        decisions: &mut Decisions,
    ) -> Result<Result<OutcomeIfCommitted, OutcomeIfCommitted>, NeedsEach> {
        let DecidedCommand { apply, event, settles, settlement } = match self.decided(entity) {
            Ok(decided) => decided,
            Err(outcome) => return Ok(Err(outcome)),
        };
        if let Some(apply) = apply {
            match self.apply(entity, apply) {
                Ok(()) => {}
                Err(_) if self.splits() => {
                    return Err(NeedsEach);
                }
                Err(failure) => {
                    // The state may have changed in part.
                    entity.state = None;
                    return Ok(Err(OutcomeIfCommitted::Failed(failure)));
                }
            }
            entity.stored.version += 1;
            entity.has_changed = true;
            let (version, Undecided { entity, key, .. }) = (entity.stored.version, self.undecided);
            decisions.events.extend(event.map(|message| NewEntityEvent {
                entity: entity.clone(),
                version,
                message,
                run: key.id,
            }));
        }
        decisions.settlements.push(settlement);
        Ok(Ok(OutcomeIfCommitted::Settles(settles)))
    }

    /// Calls the command. Nothing has changed yet.
    fn decided(&self, entity: &mut Working) -> Result<DecidedCommand, OutcomeIfCommitted> {
        let Undecided { run, saga, decisions, .. } = self.undecided;
        match &entity.hindrance {
            None => {}
            Some(Hindrance::Busy) => return Err(OutcomeIfCommitted::Busy),
            Some(Hindrance::Unreadable(why)) => return Err(self.unfit(why)),
        }
        let version = entity.stored.version;
        if version < 0 {
            return Err(self.misnumbered(version, "less than 0"));
        }
        if version == i64::MAX {
            return Err(self.misnumbered(version, "the last one, which no event can follow"));
        }
        if entity.state.is_none() {
            entity.read(decisions.entity, &run.source).map_err(|why| self.unfit(&why))?;
        }
        let (_, state) = entity.state.as_ref().expect("it was just read");
        let (mut apply, mut returned) = (None, Returned::nothing());
        if let Some(decided) = self.call(state.get())? {
            apply = decided.apply.map(DropGuarded::new);
            returned.emissions.extend(decided.message.map(|message| self.emission(message)).transpose()?);
            let limit = self.engine.settings.limits.payload_bytes_max;
            let what = || format!("the decision of saga `{}`", saga.definition.saga);
            let reply = decided.reply.map(|reply| storable(reply, limit, what)).transpose();
            let reply = reply.map_err(|error| self.failed(error))?;
            returned.replies.extend(reply.map(|reply| (decision_name().to_owned(), reply)));
        }
        let event = returned.emissions.first().map(|emission| emission.message);
        let (settles, settlement) = self.settlement(returned)?;
        Ok(DecidedCommand { apply, event, settles, settlement })
    }

    /// Whether the batch is split after an application has failed.
    fn splits(&self) -> bool {
        match self.write {
            Write::AtLast => true,
            Write::AfterEach => false,
            Write::ByTable { is_single } => !is_single,
        }
    }

    fn apply(&self, entity: &mut Working, apply: DropGuarded<Application>) -> Result<(), Failure> {
        let Undecided { run, saga, entity: id, .. } = self.undecided;
        let (_, state) = entity.state.as_mut().expect("the decision was made by it");
        let applied = panic_boundary::run(&run.source, || apply.take()(state.get_mut()));
        let code = || format!("the application of an event of saga `{}`", saga.definition.saga);
        applied.map_err(|panic| self.panicked(&code(), "to", panic))?;
        if self.write == Write::AfterEach {
            let after = || {
                let (entity, run) = (self.undecided.named_entity(), run.lineage.id());
                format!(
                    "the state of {entity} after an event of saga `{}` in run {run}",
                    saga.definition.saga
                )
            };
            let written = entity.written(self.engine, id, after).map_err(|failure| {
                let message = format!(
                    "{}; nothing has changed: correct the application of the event or the limit, then {}",
                    failure.message,
                    self.advice()
                );
                Failure { message, ..failure }
            });
            entity.stored.state = Some(written?);
        }
        Ok(())
    }

    /// The advice for the time after the cause of a failure is gone.
    fn advice(&self) -> &'static str {
        match self.undecided.task {
            ToDecide::Decide { .. } => "send the command again",
            ToDecide::Undo { .. } => "retry the rollback",
        }
    }

    /// Calls the code of the command. None if there is nothing to undo.
    fn call(&self, state: &dyn Any) -> Result<Option<ErasedDecision>, OutcomeIfCommitted> {
        let Undecided { decisions, message, task, run, saga, .. } = self.undecided;
        let (message, saga): (&dyn Any, _) = (message.get(), &saga.definition.saga);
        let (code, decided) = match task {
            ToDecide::Decide { fetched } => (
                "decide",
                panic_boundary::run(&run.source, || {
                    (decisions.decide)(message, state, fetched.as_ref(), id_of_command(run)).map(Some)
                }),
            ),
            ToDecide::Undo { decision } => {
                ("undo", panic_boundary::run(&run.source, || (decisions.undo)(message, state, decision)))
            }
        };
        let decided = decided.map_err(|panic| {
            OutcomeIfCommitted::Failed(self.panicked(&format!("`{code}` of saga `{saga}`"), "about", panic))
        })?;
        decided.map_err(|why| match why {
            Undecidable::Unwritable(error) => {
                let about = self.undecided.named_entity();
                let text = format!(
                    "what `{code}` of saga `{saga}` returned about {about} cannot be stored: {error}"
                );
                OutcomeIfCommitted::Failed(Failure::new("DecisionNotStored", text, &run.source))
            }
            Undecidable::Unreadable(error) => {
                let text = format!("a recorded value of saga `{saga}` does not fit its type any more");
                OutcomeIfCommitted::Unread(Why { recorded: format!("{text}: {error}"), logged: Some(text) })
            }
        })
    }

    fn panicked(&self, code: &str, concerns: &str, panic: Failure) -> Failure {
        let (entity, run) = (self.undecided.named_entity(), self.undecided.run.lineage.id());
        let advice = self.advice();
        let code = format!("{code} {concerns} {entity} in run {run}");
        let named = panic_boundary::named(code)(panic);
        let message = format!("{}; nothing has changed: correct the code, then {advice}", named.message);
        Failure { message, ..named }
    }

    /// The launch of the event or rejection.
    fn emission(&self, message: DecidedMessage) -> Result<Emission, OutcomeIfCommitted> {
        let (settings, run) = (&self.engine.settings, &self.undecided.run);
        let DecidedMessage { topic, payload, required, find_by } = message;
        let what = || format!("a message for topic `{topic}`");
        let payload =
            storable(payload, settings.limits.payload_bytes_max, what).map_err(|error| self.failed(error))?;
        let found_by = found_by(topic, find_by, &payload).map_err(|error| self.failed(error))?;
        let (depth, limit) = (run.lineage.ids().len(), settings.limits.depth_max);
        if depth > limit {
            let saga = self.undecided.saga.definition.saga.to_string();
            let step = self.with_call(|call| call.step().to_owned())?;
            let topic = topic.to_owned();
            return Err(self.failed(RuntimeError::from(ErrorKind::DepthExceeded {
                saga,
                step,
                topic,
                depth,
                limit,
            })));
        }
        let required = required.map(|message| Required { message, at: std::panic::Location::caller() });
        let context = self.undecided.event_context.clone();
        let message = ids::now_v7();
        let saga = &self.undecided.saga;
        let step = saga.definition.steps.iter().position(|step| step.kind == StepKind::Decide);
        self.engine.note_launch(saga, step.unwrap_or_default(), topic);
        Ok(Emission {
            message,
            topic: topic.to_owned(),
            payload,
            detached_root: None,
            context,
            required,
            wait: None,
            found_by,
        })
    }

    /// The settlement of the run, and what is needed after its commit.
    fn settlement(&self, returned: Returned) -> Result<(Box<Settles>, Settlement), OutcomeIfCommitted> {
        let Self { engine, undecided, .. } = *self;
        let Undecided { saga, key, flags, run, stored_context, at_hand, recorded, .. } = undecided;
        let conclusion = self.with_call(|call| call.conclude(run.context.clone(), Ok(returned)))?;
        let commit_token = match &engine.settings.rehearsal {
            None => None,
            Some(rehearsal) => {
                let token = rehearsal.before_commit(&saga.definition.saga, key.id, &conclusion);
                Some(token.ok_or(OutcomeIfCommitted::Crashed)?)
            }
        };
        let conclusion = coalesce_recorded(saga, conclusion);
        let after = AfterCommit::of(run, &conclusion);
        let settlement =
            Settlement::new(*key, run, *flags, stored_context, conclusion).under(*at_hand, *recorded);
        let (id, sets_a_time) = (settlement.id(), settlement.has_timer());
        let after = after.with(&settlement);
        Ok((Box::new(Settles { id, after, commit_token, sets_a_time }), settlement))
    }

    fn with_call<T>(&self, conclude: impl FnOnce(Call<'_>) -> T) -> Result<T, OutcomeIfCommitted> {
        match Continuation::of(&self.undecided.saga.definition, &self.undecided.run) {
            Ok(Continuation::Call(call)) => Ok(conclude(call)),
            Ok(Continuation::Record(_)) => unreachable!("the next move of the run is a decision"),
            Err(stuck) => Err(OutcomeIfCommitted::Unread(stuck.to_string().into())),
        }
    }

    fn failed(&self, error: RuntimeError) -> OutcomeIfCommitted {
        OutcomeIfCommitted::Failed(Error::from(error).to_failure(&self.undecided.run.source))
    }

    /// The outcome for an entity with a version that no event can follow.
    fn misnumbered(&self, version: i64, why: &str) -> OutcomeIfCommitted {
        let EntityId { name, key } = &self.undecided.entity;
        let text = format!("the version of the entity `{name}` is {version}: {why}");
        OutcomeIfCommitted::Unfit(Why {
            recorded: format!("{text} (key `{key}`); {RENUMBER}"),
            logged: Some(text),
        })
    }

    fn unfit(&self, why: &str) -> OutcomeIfCommitted {
        let EntityId { name, key } = &self.undecided.entity;
        let text = format!("the stored state of the entity `{name}` does not fit its type");
        let advice = "have the type read it, or restore it with `operate().entities().rebuild`";
        OutcomeIfCommitted::Unfit(Why {
            recorded: format!("{text} (key `{key}`): {why}; {advice}"),
            logged: Some(text),
        })
    }
}

/// The id of a command: that of its message if a step launched it as a child, otherwise of its hierarchy.
fn id_of_command(run: &Run) -> Uuid {
    let is_first = run.lineage.ids().len() == 2;
    if is_first { run.lineage.root_id() } else { run.message }
}
