//! The trait that `#[command]` implements, and the saga of a command.

use std::any::Any;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::BoxFuture;
use scoop_core::{
    Applies, Caller, DecidedMessage, Decision, Definition, Entity, EntityKey as _, EntityType, Json, Message,
    Rejection, Result, Stored,
};
use serde_json::Value;
use uuid::Uuid;

use super::shape::StoredType;
use super::sql_entity::{Erased, Table};
use super::{RetryTarget, Saga, Step, StepEnd};
use crate::model::children::reply_name;
use crate::{Retry, Scope};

/// The name of the step that gets information from outside, if there is one.
pub(crate) const FETCH: &str = "fetch";

pub(crate) fn decision_name() -> &'static str {
    reply_name::<Decision<()>>()
}

/// A command: a message about which one entity decides.
///
/// `#[command(entity = Type)]` on an `impl` block implements it; do not implement it by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a command",
    label = "not a command",
    note = "write `#[command(entity = YourEntity)]` on `impl {Self}`"
)]
pub trait Command: Message<Reply = Decision<Self::Accepted, Self::Rejected>> {
    /// The entity that decides.
    type Entity: Entity + Applies<Self::Accepted> + Applies<Self::Reversed>;

    /// The event of an accepted command.
    type Accepted: Message;

    /// The rejection.
    type Rejected: Rejection;

    /// The event that undoes an accepted command. [`Command::Accepted`] for a command without `undo`.
    type Reversed: Message;

    /// What `fetch` returns; `()` without it.
    type Fetched: Stored;

    /// Name, topic and steps of its saga.
    const DEFINITION: Definition;

    /// Whether it has a step `fetch`.
    #[doc(hidden)]
    const FETCHES: bool;

    /// Former names of its saga.
    const FORMER_NAMES: &'static [&'static str] = &[];

    /// The key of the entity.
    fn key(&self) -> <Self::Entity as Entity>::Key;

    /// Whether it has `authorize`.
    #[doc(hidden)]
    const AUTHORIZES: bool = false;

    /// Whether this caller may send the command, before any other code of it runs.
    ///
    /// # Errors
    ///
    /// If it may not: the command then fails as [`Unauthorized`](scoop_core::Unauthorized), and changes nothing.
    fn authorize(&self, caller: &Caller) -> Result<()> {
        let _ = caller;
        Ok(())
    }

    /// Gets information from outside, as an ordinary step.
    #[doc(hidden)]
    fn fetch<'a>(&'a self, scope: &'a mut Scope<'_>) -> BoxFuture<'a, Result<StepEnd>> {
        let _ = scope;
        Box::pin(std::future::ready(Ok(StepEnd::CONTINUE)))
    }

    /// The timeout of `fetch`.
    #[doc(hidden)]
    fn fetch_timeout() -> Option<Duration> {
        None
    }

    /// The retry policy of `fetch`.
    #[doc(hidden)]
    fn fetch_retry() -> Option<Retry> {
        None
    }

    /// Decides, as a function of these values alone. `id` is that of the command: of its message if a step launched it as a
    /// child, otherwise of its hierarchy.
    fn decide(
        &self,
        entity: &Self::Entity,
        fetched: &Self::Fetched,
        id: Uuid,
    ) -> Decision<Self::Accepted, Self::Rejected>;

    /// The event that undoes an accepted command in a rollback, if one is needed.
    fn undo(&self, entity: &Self::Entity, event: &Self::Accepted) -> Option<Self::Reversed> {
        let _ = (entity, event);
        None
    }
}

/// The saga of a command, for functions that take a saga: `builder.only::<Decider<ReserveStock>>()`.
pub struct Decider<C>(PhantomData<fn() -> C>);

impl<C> Default for Decider<C> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// A step of a [`Decider`].
#[doc(hidden)]
pub struct DeciderStep<C> {
    decides: bool,
    command: PhantomData<fn() -> C>,
}

impl<C> Clone for DeciderStep<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for DeciderStep<C> {}

impl<C> DeciderStep<C> {
    const FETCH: Self = Self { decides: false, command: PhantomData };
    const DECIDE: Self = Self { decides: true, command: PhantomData };
}

impl<C: Command> Step for DeciderStep<C> {
    const ALL: &'static [Self] = if C::FETCHES { &[Self::FETCH, Self::DECIDE] } else { &[Self::DECIDE] };

    fn index(self) -> usize {
        if self.decides { Self::ALL.len() - 1 } else { 0 }
    }
}

impl<C: Command> Saga for Decider<C> {
    type Message = C;
    type Step = DeciderStep<C>;

    const DEFINITION: Definition = C::DEFINITION;
    const FORMER_NAMES: &'static [&'static str] = C::FORMER_NAMES;

    fn timeout(step: Self::Step) -> Option<Duration> {
        if step.decides { None } else { C::fetch_timeout() }
    }

    fn retry(step: Self::Step, what: RetryTarget) -> Option<Retry> {
        let fetches = !step.decides && what == RetryTarget::Step;
        if fetches { C::fetch_retry() } else { None }
    }

    fn stored_types() -> Vec<StoredType> {
        let entity = StoredType::of::<C::Entity>(format!("entity {}", C::Entity::NAME));
        vec![StoredType::of::<C::Fetched>(FETCH), entity]
    }

    fn invoke<'a>(
        &'a self,
        _: Self::Step,
        scope: &'a mut Scope<'_>,
        message: &'a C,
    ) -> BoxFuture<'a, Result<StepEnd>> {
        // The other step has no code of its own: the engine calls `decide` (`engine/decisions.rs`).
        Command::fetch(message, scope)
    }

    fn decisions() -> Option<CommandFunctions> {
        Some(CommandFunctions::of::<C>())
    }
}

/// The key of the entity of a command, with its type erased.
pub(crate) type KeyInTable = fn(&dyn Any) -> Box<Erased>;

/// [`Command::authorize`], with the type of the command erased.
pub(crate) type Authorize = fn(&dyn Any, &Caller) -> Result<()>;

/// [`Command::decide`], with the types of the command, its entity and the value of `fetch` erased.
pub(crate) type Decide = fn(&dyn Any, &dyn Any, Option<&Value>, Uuid) -> Outcome<ErasedDecision>;

/// The functions of a command, with its types erased.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct CommandFunctions {
    pub(crate) entity: EntityType,
    pub(crate) key: fn(&dyn Any) -> String,
    /// The functions of the entity if its states are in a table, and its key with the type erased.
    pub(crate) table: Option<(Table, KeyInTable)>,
    pub(crate) authorize: Option<Authorize>,
    pub(crate) decide: Decide,
    pub(crate) undo: fn(&dyn Any, &dyn Any, &Value) -> Outcome<Option<ErasedDecision>>,
}

/// The result of the code of a command that did not panic.
pub(crate) type Outcome<T> = std::result::Result<T, Undecidable>;

pub(crate) struct ErasedDecision {
    pub(crate) message: Option<DecidedMessage>,
    /// The decision as the reply of the command. None for one that undoes another.
    pub(crate) reply: Option<Value>,
    pub(crate) apply: Option<Box<Application>>,
}

/// Applies an event to the state of its entity.
pub(crate) type Application = dyn FnOnce(&mut dyn Any) + Send;

/// Why a command cannot be decided, although its code did not fail.
pub(crate) enum Undecidable {
    /// The event, or the rejection, cannot be written as JSON.
    Unwritable(serde_json::Error),
    /// The value that `fetch` returned, or the recorded decision, does not fit its type.
    Unreadable(serde_json::Error),
}

impl CommandFunctions {
    fn of<C: Command>() -> Self {
        fn command<C: Command>(message: &dyn Any) -> &C {
            message.downcast_ref().expect("the message was decoded by the handler of the command")
        }
        fn entity<C: Command>(state: &dyn Any) -> &C::Entity {
            state.downcast_ref().expect("the state is of the entity of the command")
        }
        Self {
            entity: EntityType::of::<C::Entity>(),
            key: |message| Command::key(command::<C>(message)).to_key(),
            table: Table::find::<C::Entity>().map(|table| {
                let key: KeyInTable = |message| Box::new(Command::key(command::<C>(message)));
                (table, key)
            }),
            authorize: C::AUTHORIZES
                .then_some(|message, caller| Command::authorize(command::<C>(message), caller)),
            decide: |message, state, fetched, id| {
                let fetched = C::Fetched::read_stored(fetched.unwrap_or(&Value::Null));
                let fetched = fetched.map_err(Undecidable::Unreadable)?;
                let decision = Command::decide(command::<C>(message), entity::<C>(state), &fetched, id);
                decided::<C>(decision).map_err(Undecidable::Unwritable)
            },
            undo: |message, state, recorded| {
                let recorded = C::Reply::read_stored(recorded).map_err(Undecidable::Unreadable)?;
                let Decision::Accepted(event) = recorded else { return Ok(None) };
                let event = Command::undo(command::<C>(message), entity::<C>(state), &event);
                let decided = event.map(|event| {
                    let message = DecidedMessage::of(&event).map_err(Undecidable::Unwritable)?;
                    Ok(ErasedDecision {
                        message: Some(message),
                        reply: None,
                        apply: Some(application::<C::Entity, _>(event)),
                    })
                });
                decided.transpose()
            },
        }
    }
}

fn decided<C: Command>(decision: C::Reply) -> serde_json::Result<ErasedDecision> {
    let reply = Some(Json::to_value(&decision)?);
    Ok(match decision {
        Decision::Accepted(event) => {
            let message = Some(DecidedMessage::of(&event)?);
            ErasedDecision { message, reply, apply: Some(application::<C::Entity, _>(event)) }
        }
        Decision::Rejected(rejection) => {
            ErasedDecision { message: rejection.to_message()?, reply, apply: None }
        }
    })
}

fn application<T: Applies<E> + 'static, E: Message>(event: E) -> Box<Application> {
    Box::new(move |state| {
        let state: &mut T = state.downcast_mut().expect("the state is of the entity of the command");
        state.apply(&event);
    })
}
