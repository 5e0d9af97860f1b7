//! Functions for the code that the attributes generate. Not for users: they change without notice.

use std::marker::PhantomData;
use std::sync::Arc;

pub use inventory;
pub use scoop_core::{
    Application, CodedError, ContinueAsNew, Definition, Error, Failure, Message, Missed, NamedType, Next,
    Result, Schedule, Signal, StepDefinition, StepKind, TryOperator, With,
};
use scoop_core::{Json, Stored};
use serde_json::Value;
pub use uuid::Uuid;

use crate::Scope;
pub use crate::model::limits::Limits;
pub use crate::saga::defaults::{Boxed, always_due, awaits_nothing, nothing, unhandled};
pub use crate::saga::failed::{FilteredMessage, failed_topic, filtered};
pub use crate::saga::find_kind::{FindValue, find_kind};
use crate::saga::join::is_same;
pub use crate::saga::join::{
    Join, JoinMember, Joined, JoinedBy, JoinedSet, has_own_member_topic, key_text, same_key,
};
pub use crate::saga::retry::Retry;
pub use crate::saga::scope::Awaited;
pub use crate::saga::shape::StoredType;
pub use crate::saga::sql_entity::Table;
pub use crate::saga::tick::{LaunchProbe, ScheduledMessage, UserLaunched, scheduled};
pub use crate::saga::{
    EntityRegistration, Handled, HandledMessage, Handler, Registration, RetryTarget, Saga, Step, StepEnd,
};

/// Whether runs of a saga stay with the definition under which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The newest definition continues them.
    None,
    /// As long as a process with it lives.
    WhileLiving,
    /// Always: without such a process they are stuck.
    Always,
}

/// The result of decoding.
pub type Decoded<T> = serde_json::Result<T>;

/// Boxes the future of a function. The compiler reports a future that is not `Send` at the user's function, and
/// nowhere else, since the box is `Send` by its type.
pub fn boxed<'a, T>(code: impl Future<Output = Result<T, impl Into<Error>>> + Send + 'a) -> Boxed<'a, T> {
    Box::pin(async { code.await.map_err(Into::into) })
}

/// The topic of the message that a saga handles; of several, the first.
pub const fn topic<S: Saga>() -> &'static str {
    <S::Message as Handled>::MESSAGES[0].topic
}

/// The topic of a message that a step declares to launch.
pub const fn launched<M: Message>() -> &'static str {
    M::TOPIC
}

/// Whether no message before the one at `index` has its topic.
pub const fn has_own_topic<T: Handled>(index: usize) -> bool {
    let mut earlier = 0;
    while earlier < index {
        if is_same(T::MESSAGES[earlier].topic.as_bytes(), T::MESSAGES[index].topic.as_bytes()) {
            return false;
        }
        earlier += 1;
    }
    true
}

/// Executes a step that returns nothing.
pub fn unit<'a>(step: impl Future<Output = Result<(), impl Into<Error>>> + Send + 'a) -> Boxed<'a, StepEnd> {
    Box::pin(async {
        step.await.map_err(Into::into)?;
        Ok(StepEnd::CONTINUE)
    })
}

/// Executes a step that returns where to continue.
pub fn jump<'a, S: Saga>(
    step: impl Future<Output = Result<Next<S::Step>, impl Into<Error>>> + Send + 'a,
) -> Boxed<'a, StepEnd> {
    Box::pin(async {
        Ok(StepEnd { next: step.await.map_err(Into::into)?.map(Step::index), ..StepEnd::CONTINUE })
    })
}

/// Executes a step that returns where to continue, or the message of a new execution.
pub fn continue_as_new<'a, S: Saga<Message: Message>>(
    step: impl Future<Output = Result<ContinueAsNew<S::Step, S::Message>, impl Into<Error>>> + Send + 'a,
) -> Boxed<'a, StepEnd> {
    Box::pin(async {
        Ok(match step.await.map_err(Into::into)? {
            ContinueAsNew::Next(next) => StepEnd { next: next.map(Step::index), ..StepEnd::CONTINUE },
            ContinueAsNew::Message(message) => {
                StepEnd { as_new: Some(Json::to_value(&message)), ..StepEnd::CONTINUE }
            }
        })
    })
}

/// Records that a step begins which runs at most once.
pub fn begins<'s>(scope: &'s mut Scope<'_>) -> Boxed<'s, ()> {
    Box::pin(scope.begin_once())
}

/// A value that a step returns.
#[diagnostic::on_unimplemented(
    message = "step values are stored, and `{Self}` is not both `Serialize` and `Deserialize`",
    label = "cannot be stored",
    note = "write `#[derive(Serialize, Deserialize)]` on `{Self}`; if it is of another crate, \
            enable that crate's feature `serde`"
)]
pub trait StepValue: Stored {}

#[diagnostic::do_not_recommend]
impl<T: Stored> StepValue for T {}

/// The codec of the stored values of a type.
pub struct Codec<T> {
    write: fn(&T) -> serde_json::Result<Value>,
    read: fn(&Value) -> serde_json::Result<T>,
    stored_type: fn(&str) -> StoredType,
}

impl<T> Codec<T> {
    /// The value that `step` returned.
    pub fn of(&self, scope: &Scope<'_>, step: &str) -> Result<T> {
        scope.output(step, self.read)
    }

    /// The value that `step` returned, if it has run.
    pub fn any_of(&self, scope: &Scope<'_>, step: &str) -> Result<Option<T>> {
        scope.output_if_any(step, self.read)
    }
}

/// The codec of `T`. Only this function has the bound, so that the compiler reports one error for a type without it,
/// regardless of the number of functions that take its values.
pub fn stored<T: StepValue>() -> Codec<T> {
    Codec {
        write: |value| Json::to_value(value),
        read: |value| T::read_stored(value),
        stored_type: |step| StoredType::of::<T>(step),
    }
}

/// The type of the values that `step` returns, or of the signal that it awaits.
pub fn shape_of<T>(codec: Codec<T>, step: &str) -> StoredType {
    (codec.stored_type)(step)
}

/// Executes a step that returns a value for its compensation and for later steps.
pub fn output<'a, T: 'a>(
    codec: Codec<T>,
    step: impl Future<Output = Result<T, impl Into<Error>>> + Send + 'a,
) -> Boxed<'a, StepEnd> {
    Box::pin(async move {
        Ok(StepEnd { output: Some((codec.write)(&step.await.map_err(Into::into)?)), ..StepEnd::CONTINUE })
    })
}

/// Executes a step that returns where to continue, and a value.
pub fn jump_with<'a, S: Saga, T: 'a>(
    codec: Codec<T>,
    step: impl Future<Output = Result<With<S::Step, T>, impl Into<Error>>> + Send + 'a,
) -> Boxed<'a, StepEnd> {
    Box::pin(async move {
        let With { next, value } = step.await.map_err(Into::into)?;
        let output = Some((codec.write)(&value));
        Ok(StepEnd { next: next.map(Step::index), output, ..StepEnd::CONTINUE })
    })
}

/// Executes a child failure handler that returns nothing: the run continues as the step had determined.
pub fn handled<'a>(
    handler: impl Future<Output = Result<(), impl Into<Error>>> + Send + 'a,
) -> Boxed<'a, Option<Next>> {
    Box::pin(async {
        handler.await.map_err(Into::into)?;
        Ok(None)
    })
}

/// Executes a child failure handler that returns where to continue.
pub fn handled_by<'a, S: Saga>(
    handler: impl Future<Output = Result<Next<S::Step>, impl Into<Error>>> + Send + 'a,
) -> Boxed<'a, Option<Next>> {
    Box::pin(async { Ok(Some(handler.await.map_err(Into::into)?.map(Step::index))) })
}

/// What the function returns that `by` names.
#[diagnostic::on_unimplemented(
    message = "the key of a signal is a text, and `{Self}` is none",
    label = "does not return a text",
    note = "let the function that `by` names return `Result<String>`, as in `Ok(order.id.to_string())`"
)]
pub trait SignalKeyText: Into<String> {}

#[diagnostic::do_not_recommend]
impl<K: Into<String>> SignalKeyText for K {}

/// The signal of a type that a step awaits, with the key that this function returns.
pub fn awaited<'a, S: Signal, K: SignalKeyText>(
    key: impl Future<Output = Result<K, impl Into<Error>>> + Send + 'a,
) -> Boxed<'a, Option<Awaited>> {
    Box::pin(async {
        let key = key.await.map_err(Into::into)?.into();
        Ok(Some(Awaited { name: S::NAME, key }))
    })
}

/// The name of a signal.
pub const fn name_of_signal<S: Signal>() -> &'static str {
    S::NAME
}

/// Determines whether a saga has a default: `Probe::<S>::new().instance()` is `Some` exactly if `S: Default`, since
/// an inherent method takes precedence over that of a trait.
pub struct Probe<S>(PhantomData<S>);

impl<S> Probe<S> {
    /// A probe for `S`.
    #[allow(clippy::new_without_default, reason = "only generated code makes one")]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<S: Default> Probe<S> {
    /// The default of the saga.
    pub fn instance(&self) -> Option<S> {
        Some(S::default())
    }
}

/// The default method of [`Probe`].
pub trait NotDefault<S> {
    /// `None`: this saga must be provided.
    fn instance(&self) -> Option<S> {
        None
    }
}

impl<S> NotDefault<S> for Probe<S> {}

/// A saga with its types erased.
pub fn erase<S: Saga>(saga: Option<S>) -> Option<Arc<dyn Handler>> {
    Some(Arc::new(saga?))
}
