//! The trait that `#[saga]` implements, and its form without types that the engine runs.

mod absent;
pub(crate) mod command;
pub(crate) mod defaults;
pub(crate) mod failed;
mod find_kind;
pub(crate) mod join;
pub(crate) mod launch_options;
pub(crate) mod launched_topics;
#[doc(hidden)]
pub mod private;
pub(crate) mod registry;
pub(crate) mod replies;
pub(crate) mod retry;
pub(crate) mod scope;
pub(crate) mod shape;
pub(crate) mod signal;
pub(crate) mod sql_entity;
pub(crate) mod stop_signal;
pub(crate) mod tick;

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use scoop_core::wait::WaitPlan;
use scoop_core::{Definition, Entity, Failure, JoinIncomplete, Message, Next, Result, Schedule};
use serde_json::Value;

use self::shape::StoredType;
use crate::model::limits::Limits;
use crate::model::pause::PauseTarget;
use crate::model::subscribed_saga::MessageSettings;
use crate::{Retry, Scope};

/// A saga: a handler of one message type, written as a list of steps.
///
/// `#[saga]` on an `impl` block implements it; do not implement it by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a saga",
    label = "not a saga",
    note = "write `#[saga]` and `#[subscribes(YourMessage)]` on `impl {Self}`",
    note = "the saga of a command is `Decider<{Self}>`"
)]
pub trait Saga: Send + Sync + Sized + 'static {
    /// The message type that it handles; of several types, the enum of these.
    type Message: Handled;

    /// Its steps, as an enum.
    type Step: Step;

    /// Name, topic and steps, as data. Of several topics it has the first.
    const DEFINITION: Definition;

    /// Former names of the saga: it takes over the runs that are stored under them.
    const FORMER_NAMES: &'static [&'static str] = &[];

    /// How its messages are joined, if they are.
    #[doc(hidden)]
    const JOIN: Option<private::Join> = None;

    /// Its limits.
    const LIMITS: Limits = Limits::NONE;

    /// Whether its runs stay with the definition under which they began.
    #[doc(hidden)]
    const PIN: private::Pin = private::Pin::None;

    /// Its schedule, if it has one.
    const SCHEDULE: Option<Schedule> = None;

    /// The timeout of a step; `None` is no limit.
    fn timeout(step: Self::Step) -> Option<Duration> {
        let _ = step;
        None
    }

    /// The retry policy of a step or its compensation; `None` is no retry.
    fn retry(step: Self::Step, what: RetryTarget) -> Option<Retry> {
        let _ = (step, what);
        None
    }

    /// The time for which the saga sleeps after the code of the step; `None` is no sleep.
    fn sleep(step: Self::Step) -> Option<Duration> {
        let _ = step;
        None
    }

    /// Whom its runs wait for after a launch, if neither the launch nor the message says so: `#[saga(wait = ..)]`.
    fn wait() -> Option<WaitPlan> {
        None
    }

    /// The topics on which a step declares to launch messages: `#[step(launches(..))]`. `None` if it declares none.
    fn launches(step: Self::Step) -> Option<&'static [&'static str]> {
        let _ = step;
        None
    }

    /// The shapes of the values of its steps, each with the name of the step.
    #[doc(hidden)]
    fn stored_types() -> Vec<StoredType> {
        vec![]
    }

    /// The decisions of a command.
    #[doc(hidden)]
    fn decisions() -> Option<command::CommandFunctions> {
        None
    }

    /// Executes a step.
    fn invoke<'a>(
        &'a self,
        step: Self::Step,
        scope: &'a mut Scope<'_>,
        message: &'a Self::Message,
    ) -> BoxFuture<'a, Result<StepEnd>>;

    /// The time before which a step must not run. Called only for a step that has a step of kind
    /// [`StepKind::Wait`](scoop_core::StepKind::Wait) before it.
    fn due<'a>(
        &'a self,
        step: Self::Step,
        scope: &'a mut Scope<'_>,
        message: &'a Self::Message,
    ) -> BoxFuture<'a, Result<SystemTime>> {
        let _ = (step, scope, message);
        private::always_due()
    }

    /// The key of the signal before which a step must not run. Called as [`Saga::due`]. By default a step awaits none.
    fn awaits<'a>(
        &'a self,
        step: Self::Step,
        scope: &'a mut Scope<'_>,
        message: &'a Self::Message,
    ) -> BoxFuture<'a, Result<Option<private::Awaited>>> {
        let _ = (step, scope, message);
        private::awaits_nothing()
    }

    /// How long a step awaits its signal; `None` is no limit.
    fn within(step: Self::Step) -> Option<Duration> {
        let _ = step;
        None
    }

    /// The key of a message under [`Saga::LIMITS`], if these are by key.
    #[doc(hidden)]
    fn limit_key(&self, message: &Self::Message) -> Option<String> {
        let _ = message;
        None
    }

    /// Cleans up after a step. Called only for a step that has a step of kind
    /// [`StepKind::Finally`](scoop_core::StepKind::Finally) after it.
    fn finally<'a>(
        &'a self,
        step: Self::Step,
        scope: &'a mut Scope<'_>,
        message: &'a Self::Message,
    ) -> BoxFuture<'a, Result<()>> {
        let _ = (step, scope, message);
        private::nothing()
    }

    /// Compensates a completed step. A step without a compensation leaves nothing to undo.
    fn compensate<'a>(
        &'a self,
        step: Self::Step,
        scope: &'a mut Scope<'_>,
        message: &'a Self::Message,
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<()>> {
        let _ = (step, scope, message, failure);
        private::nothing()
    }

    /// Handles the failure of a child of a step. `None` continues as the step had determined. By default the failure
    /// becomes that of the step.
    fn on_child_failure<'a>(
        &'a self,
        step: Self::Step,
        scope: &'a mut Scope<'_>,
        message: &'a Self::Message,
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<Option<Next>>> {
        let _ = (step, scope, message);
        private::unhandled(failure)
    }
}

/// The messages that a saga handles, as one type. Every [`Message`] is one; of several types `#[saga]` generates an enum.
///
/// This trait does not inherit the bounds of a message. So the compiler reports a message that cannot be stored where
/// the type is defined, and not at each saga again.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a message",
    label = "not a message",
    note = "write `#[derive(Message, Serialize, Deserialize)]` on `{Self}`"
)]
pub trait Handled: Sized + Send + Sync + 'static {
    /// The types of messages, each with its topic; never empty.
    #[doc(hidden)]
    const MESSAGES: &'static [HandledMessage<Self>];
}

#[diagnostic::do_not_recommend]
impl<M: Message> Handled for M {
    const MESSAGES: &'static [HandledMessage<M>] = &[HandledMessage::of::<M>()];
}

/// A type of messages that a saga handles; its functions take it as `T`.
#[doc(hidden)]
pub struct HandledMessage<T> {
    /// [`Message::TOPIC`].
    pub(crate) topic: &'static str,
    /// Decodes the message from its stored payload.
    decode: fn(&Value) -> Result<T, DecodeError>,
    stored_types: fn() -> Vec<StoredType>,
    message_type: fn() -> MessageType,
    settings: fn() -> MessageSettings,
}

/// The reason for which a payload is not a message of a saga.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It does not fit the type.
    #[error(transparent)]
    Unfit(#[from] serde_json::Error),
    /// It is a set of joined messages that was not complete in time.
    #[error(transparent)]
    Incomplete(JoinIncomplete),
}

impl<T> HandledMessage<T> {
    /// The message type `M`.
    pub const fn of<M: Message>() -> Self
    where
        T: From<M>,
    {
        Self {
            topic: M::TOPIC,
            decode: |payload| Ok(T::from(M::read_stored(payload)?)),
            stored_types: || {
                let (topic, many) = (M::TOPIC, if M::MANY_REPLIES { "replies" } else { "reply" });
                let reply = StoredType::of::<M::Reply>(format!("{many} to {topic}"));
                vec![StoredType::of::<M>(format!("message {topic}")), reply]
            },
            message_type: || (TypeId::of::<M>(), std::any::type_name::<M>()),
            settings: MessageSettings::of::<M>,
        }
    }
}

/// The steps of one saga, as an enum. `#[saga]` generates it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step of a saga",
    note = "`Next` takes the enum that `#[saga]` generates: for `impl Checkout` that is `CheckoutStep`"
)]
pub trait Step: Copy + Send + Sync + 'static {
    /// The variant of each step of [`Saga::DEFINITION`]. A step of the user may be two or three of those steps, one
    /// after another: see [`StepKind`](scoop_core::StepKind).
    const ALL: &'static [Self];

    /// The position in [`Saga::DEFINITION`] of the first of them, which is the target of a jump to this step.
    fn index(self) -> usize;
}

/// The target of a [retry policy](Saga::retry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryTarget {
    /// The step.
    Step,
    /// Its compensation.
    Compensation,
}

/// The result of a successful step: where to continue, and the returned value.
#[derive(Debug)]
pub struct StepEnd {
    pub(crate) next: Next,
    pub(crate) output: Option<serde_json::Result<Value>>,
    /// The message of a new execution, in place of the next step.
    pub(crate) as_new: Option<serde_json::Result<Value>>,
}

impl StepEnd {
    pub(crate) const CONTINUE: Self = Self { next: Next::Continue, output: None, as_new: None };
}

/// A saga whose types are erased: steps are positions, the message is `Any`.
pub trait Handler: Send + Sync + 'static {
    /// Decodes the payload of a message on `topic` as the saga's message type.
    ///
    /// # Errors
    ///
    /// If the payload does not fit the type, or is an incomplete set.
    fn decode(&self, topic: &str, payload: &Value) -> Result<Box<dyn Any + Send + Sync>, DecodeError>;

    /// The shapes of the types that it reads from the database and writes there: its messages with their topics, their
    /// replies, and the values of its steps.
    fn types(&self) -> Vec<String>;

    /// See [`Saga::timeout`].
    fn timeout(&self, step: usize) -> Option<Duration>;

    /// See [`Saga::retry`].
    fn retry(&self, step: usize, what: RetryTarget) -> Option<Retry>;

    /// See [`Saga::sleep`].
    fn sleep(&self, step: usize) -> Option<Duration>;

    /// See [`Saga::wait`].
    fn wait(&self) -> Option<WaitPlan> {
        None
    }

    /// See [`Saga::launches`].
    fn launches(&self, step: usize) -> Option<&'static [&'static str]> {
        let _ = step;
        None
    }

    /// See [`Saga::decisions`].
    fn decisions(&self) -> Option<command::CommandFunctions>;

    /// See [`Saga::invoke`].
    fn invoke<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<StepEnd>>;

    /// See [`Saga::due`].
    fn due<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<SystemTime>>;

    /// See [`Saga::awaits`].
    fn awaits<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<Option<private::Awaited>>>;

    /// See [`Saga::within`].
    fn within(&self, step: usize) -> Option<Duration>;

    /// See [`Saga::LIMITS`].
    fn limits(&self) -> Limits;

    /// See [`Saga::PIN`].
    fn pin(&self) -> private::Pin {
        private::Pin::None
    }

    /// See [`Saga::limit_key`].
    fn limit_key(&self, message: &(dyn Any + Send + Sync)) -> Option<String>;

    /// See [`Saga::finally`].
    fn finally<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<()>>;

    /// See [`Saga::compensate`].
    fn compensate<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<()>>;

    /// See [`Saga::on_child_failure`].
    fn on_child_failure<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<Option<Next>>>;
}

impl<S: Saga> Handler for S {
    fn decode(&self, topic: &str, payload: &Value) -> Result<Box<dyn Any + Send + Sync>, DecodeError> {
        let messages = S::Message::MESSAGES;
        // The only type may have another topic: that of the ticks of this saga.
        let message = messages.iter().find(|message| message.topic == topic).unwrap_or(&messages[0]);
        Ok(Box::new((message.decode)(payload)?))
    }

    fn types(&self) -> Vec<String> {
        types_of::<S>().iter().map(StoredType::text).collect()
    }

    fn timeout(&self, step: usize) -> Option<Duration> {
        S::timeout(S::Step::ALL[step])
    }

    fn retry(&self, step: usize, what: RetryTarget) -> Option<Retry> {
        S::retry(S::Step::ALL[step], what)
    }

    fn sleep(&self, step: usize) -> Option<Duration> {
        S::sleep(S::Step::ALL[step])
    }

    fn wait(&self) -> Option<WaitPlan> {
        S::wait()
    }

    fn launches(&self, step: usize) -> Option<&'static [&'static str]> {
        S::launches(S::Step::ALL[step])
    }

    fn decisions(&self) -> Option<command::CommandFunctions> {
        S::decisions()
    }

    fn invoke<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<StepEnd>> {
        Saga::invoke(self, S::Step::ALL[step], scope, typed::<S>(message))
    }

    fn due<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<SystemTime>> {
        Saga::due(self, S::Step::ALL[step], scope, typed::<S>(message))
    }

    fn awaits<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<Option<private::Awaited>>> {
        Saga::awaits(self, S::Step::ALL[step], scope, typed::<S>(message))
    }

    fn within(&self, step: usize) -> Option<Duration> {
        S::within(S::Step::ALL[step])
    }

    fn limits(&self) -> Limits {
        S::LIMITS
    }

    fn pin(&self) -> private::Pin {
        S::PIN
    }

    fn limit_key(&self, message: &(dyn Any + Send + Sync)) -> Option<String> {
        Saga::limit_key(self, typed::<S>(message))
    }

    fn finally<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<()>> {
        Saga::finally(self, S::Step::ALL[step], scope, typed::<S>(message))
    }

    fn compensate<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<()>> {
        Saga::compensate(self, S::Step::ALL[step], scope, typed::<S>(message), failure)
    }

    fn on_child_failure<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<Option<Next>>> {
        Saga::on_child_failure(self, S::Step::ALL[step], scope, typed::<S>(message), failure)
    }
}

fn types_of<S: Saga>() -> Vec<StoredType> {
    let messages = S::Message::MESSAGES.iter().flat_map(|message| (message.stored_types)());
    messages.chain(S::stored_types()).collect()
}

/// The message as [`Handler::decode`] of the same saga boxed it.
fn typed<S: Saga>(message: &(dyn Any + Send + Sync)) -> &S::Message {
    message.downcast_ref().expect("the message was decoded by this handler")
}

/// A type of messages, by its id and its name.
pub(crate) type MessageType = (TypeId, &'static str);

/// One saga of the linked program: what `#[saga]` submits to `inventory`.
pub struct Registration {
    pub(crate) definition: fn() -> Definition,
    pub(crate) schedule: fn() -> Option<Schedule>,
    pub(crate) former_names: fn() -> &'static [&'static str],
    pub(crate) saga_type: fn() -> (TypeId, &'static str),
    messages: fn() -> Vec<(&'static str, MessageType)>,
    settings: fn() -> Vec<MessageSettings>,
    join: fn() -> Option<private::Join>,
    pub(crate) limits: fn() -> Limits,
    #[cfg(feature = "testing")]
    pub(crate) types: fn() -> Vec<StoredType>,
    pub(crate) default: fn() -> Option<Arc<dyn Handler>>,
    pub(crate) package: &'static str,
}

inventory::collect!(Registration);

impl Registration {
    /// The saga as plain data. Of several topics it has the first.
    pub fn definition(&self) -> Definition {
        (self.definition)()
    }

    /// The collectors of its messages if it joins them, under this name of it: one for each topic, with the type of the
    /// messages on it.
    pub(crate) fn collectors(&self, saga: &str) -> Vec<(Definition, MessageType)> {
        (self.join)().map_or_else(Vec::new, |join| join::collectors(&join, saga).collect())
    }

    pub(crate) fn collectors_were(&self) -> Vec<String> {
        (self.former_names)().iter().map(|was| join::collector_name(was)).collect()
    }

    /// The collector of its messages, if it joins them.
    pub(crate) fn collector(&self) -> Option<join::Collector> {
        let definition = self.definition();
        let first = (self.former_names)().first().copied();
        Some(join::Collector::new(&(self.join)()?, first.unwrap_or(&definition.saga)))
    }

    pub(crate) fn topics(&self) -> Vec<(Definition, MessageType)> {
        let (definition, messages) = (self.definition(), (self.messages)());
        match &*messages {
            [(_, only)] => vec![(definition, *only)],
            messages => {
                let on = |topic: &'static str| Definition { topic: topic.into(), ..definition.clone() };
                messages.iter().map(|(topic, message)| (on(topic), *message)).collect()
            }
        }
    }

    pub(crate) fn settings(&self) -> Vec<MessageSettings> {
        (self.settings)()
    }

    /// The registration of `S` in this package; `default` returns an instance if `S` implements `Default`.
    pub const fn new<S: Saga>(package: &'static str, default: fn() -> Option<Arc<dyn Handler>>) -> Self {
        Self {
            definition: || S::DEFINITION,
            schedule: || S::SCHEDULE,
            former_names: || S::FORMER_NAMES,
            saga_type: || (TypeId::of::<S>(), std::any::type_name::<S>()),
            messages: || {
                S::Message::MESSAGES.iter().map(|message| (message.topic, (message.message_type)())).collect()
            },
            settings: || S::Message::MESSAGES.iter().map(|message| (message.settings)()).collect(),
            join: || S::JOIN,
            limits: || S::LIMITS,
            #[cfg(feature = "testing")]
            types: types_of::<S>,
            default,
            package,
        }
    }
}

/// One entity of the linked program: what `#[entity]` submits to `inventory`.
pub struct EntityRegistration {
    pub(crate) name: &'static str,
    /// The Rust type, and that of its keys.
    pub(crate) types: fn() -> [&'static str; 2],
    pub(crate) applications: fn() -> Vec<scoop_core::Application>,
}

inventory::collect!(EntityRegistration);

impl EntityRegistration {
    /// The registration of `E`.
    pub const fn new<E: Entity>() -> Self {
        let types = || [std::any::type_name::<E>(), std::any::type_name::<E::Key>()];
        Self { name: E::NAME, types, applications: E::applications }
    }
}

impl PauseTarget {
    /// A saga of this type.
    ///
    /// ```
    /// # extern crate scoop_runtime as scoop;
    /// # fn example<Courier: scoop::Saga>() {
    /// let courier = scoop::PauseTarget::saga::<Courier>();
    /// # }
    /// ```
    pub fn saga<S: Saga>() -> Self {
        Self::Handler(S::DEFINITION.saga.into())
    }
}
