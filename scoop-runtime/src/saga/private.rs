//! Functions for the code that the attributes generate. Not for users: they change without notice.

use std::marker::PhantomData;
use std::sync::Arc;

pub use inventory;
pub use scoop_core::{
    CodedError, Definition, Error, Failure, Message, Missed, Next, QuestionMark, Result, Schedule,
    StepDefinition, StepKind, With,
};
use scoop_core::{Json, Stored};
use serde_json::Value;

use crate::Scope;
pub use crate::saga::retry::Retry;
use crate::saga::shape;
pub use crate::saga::tick::{LaunchProbe, ScheduledMessage, UserLaunched, scheduled};
pub use crate::saga::{Handled, Handler, Registration, RetryTarget, Saga, Step, StepEnd};

/// Requires that the future is `Send`. The compiler reports the bound at the user's function, and the declared return
/// type keeps it from being reported again further out.
pub fn send<F: Future + Send>(future: F) -> impl Future<Output = F::Output> + Send {
    future
}

/// The topic of the message that a saga handles.
pub const fn topic<S: Saga>() -> &'static str {
    <S::Message as Handled>::TOPIC
}

/// The end of a step that returns nothing.
pub fn done((): ()) -> StepEnd {
    StepEnd { next: Next::Continue, output: None }
}

/// The end of a step that returns where to continue.
pub fn jump<S: Step>(next: Next<S>) -> StepEnd {
    StepEnd { next: next.map(Step::index), output: None }
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
    shape: fn() -> String,
}

/// The codec of `T`. Only this function has the bound, so that the compiler reports one error for a type without it,
/// regardless of the number of functions that take its values.
pub fn stored<T: StepValue>() -> Codec<T> {
    Codec {
        write: |value| serde_json::to_value(Json(value)),
        read: |value| T::read_stored(value),
        shape: shape::of::<T>,
    }
}

/// The shape of the values that `step` returns.
pub fn shape_of<T>(codec: Codec<T>, step: &str) -> String {
    format!("{step}\n{}", (codec.shape)())
}

/// The end of a step that returns a value for its compensation and for later steps.
pub fn output<T>(codec: Codec<T>, value: T) -> Result<StepEnd> {
    Ok(StepEnd { next: Next::Continue, output: Some((codec.write)(&value)) })
}

/// The end of a step that returns where to continue, and a value.
pub fn jump_with<S: Step, T>(codec: Codec<T>, with: With<S, T>) -> Result<StepEnd> {
    Ok(StepEnd { next: with.next.map(Step::index), ..output(codec, with.value)? })
}

/// The value that `step` returned, if it has run.
pub fn value_if_any<T>(codec: Codec<T>, scope: &Scope<'_>, step: &str) -> Result<Option<T>> {
    scope.output_if_any(step, codec.read)
}

/// The value that `step` returned.
pub fn value_of<T>(codec: Codec<T>, scope: &Scope<'_>, step: &str) -> Result<T> {
    scope.output(step, codec.read)
}

/// The result of a child failure handler that returns nothing: the run continues as the step had determined.
pub fn handled<S: Step>((): ()) -> Option<Next<S>> {
    None
}

/// The result of a child failure handler that returns where to continue.
pub fn handled_by<S: Step>(next: Next<S>) -> Option<Next<S>> {
    Some(next)
}

/// The result of an unhandled child failure, which becomes the failure of the step.
pub fn unhandled<S: Step>(failure: &Failure) -> Result<Option<Next<S>>> {
    Err(Error::failure(failure.clone()))
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
