//! The trait that `#[saga]` implements, and its form without types that the engine runs.

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Definition, Failure, Message, Next, Result};
use serde_json::Value;

use crate::{Scope, private};

/// A saga: a handler of one message type, written as a list of steps.
///
/// `#[saga]` on an `impl` block implements it; nobody else needs to.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a saga",
    label = "not a saga",
    note = "write `#[saga]` and `#[subscribes(YourMessage)]` on `impl {Self}`"
)]
pub trait Saga: Send + Sync + Sized + 'static {
    /// What it handles.
    type Message: Message;

    /// Its steps, as an enum.
    type Step: Step;

    /// Name, topic and steps, as data.
    const DEFINITION: Definition;

    /// How long a step may take; `None` is without limit.
    fn timeout(step: Self::Step) -> Option<Duration> {
        let _ = step;
        None
    }

    /// Run a step.
    fn invoke(
        &self,
        step: Self::Step,
        scope: &mut Scope<'_>,
        message: &Self::Message,
    ) -> impl Future<Output = Result<StepEnd>> + Send;

    /// Undo a step that was completed. A step without compensation leaves nothing to undo.
    fn compensate(
        &self,
        step: Self::Step,
        scope: &mut Scope<'_>,
        message: &Self::Message,
        failure: &Failure,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (step, scope, message, failure);
        async { Ok(()) }
    }

    /// Handle the failure of what a step launched. `None` goes on as the step had wished. Where
    /// nobody handles it, the failure is the step's own.
    fn on_child_failure(
        &self,
        step: Self::Step,
        scope: &mut Scope<'_>,
        message: &Self::Message,
        failure: &Failure,
    ) -> impl Future<Output = Result<Option<Next<Self::Step>>>> + Send {
        let _ = (step, scope, message);
        async { private::unhandled(failure) }
    }
}

/// The steps of one saga. `#[saga]` makes an enum of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step of a saga",
    note = "`Next` takes the enum that `#[saga]` generates: for `impl Checkout` that is `CheckoutStep`"
)]
pub trait Step: Copy + Send + Sync + 'static {
    /// All of them, in the order of the saga.
    const ALL: &'static [Self];

    /// The position in the saga.
    fn index(self) -> usize;
}

/// How a step ended well: where to go, and what it returned.
#[derive(Debug)]
pub struct StepEnd {
    pub(crate) next: Next,
    pub(crate) output: Option<Value>,
}

/// A saga whose types are erased: steps are positions, the message is `Any`.
pub trait Handler: Send + Sync + 'static {
    /// The payload as the saga's message type.
    ///
    /// # Errors
    ///
    /// When the payload does not fit the type.
    fn decode(&self, payload: &Value) -> Result<Box<dyn Any + Send + Sync>, serde_json::Error>;

    /// How long the step may take.
    fn timeout(&self, step: usize) -> Option<Duration>;

    /// See [`Saga::invoke`].
    fn invoke<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<StepEnd>>;

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
    fn decode(&self, payload: &Value) -> Result<Box<dyn Any + Send + Sync>, serde_json::Error> {
        use serde::Deserialize;
        Ok(Box::new(S::Message::deserialize(payload)?))
    }

    fn timeout(&self, step: usize) -> Option<Duration> {
        S::timeout(S::Step::ALL[step])
    }

    fn invoke<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<StepEnd>> {
        Saga::invoke(self, S::Step::ALL[step], scope, typed::<S>(message)).boxed()
    }

    fn compensate<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<()>> {
        Saga::compensate(self, S::Step::ALL[step], scope, typed::<S>(message), failure).boxed()
    }

    fn on_child_failure<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<Option<Next>>> {
        let step = S::Step::ALL[step];
        let handled = Saga::on_child_failure(self, step, scope, typed::<S>(message), failure);
        async move { Ok(handled.await?.map(|next| next.map(Step::index))) }.boxed()
    }
}

/// The message as [`Handler::decode`] of the same saga boxed it.
fn typed<S: Saga>(message: &(dyn Any + Send + Sync)) -> &S::Message {
    message.downcast_ref().expect("a message is decoded by the handler that it is given to")
}

/// One saga of the linked program: what `#[saga]` submits to `inventory`.
pub struct Registration {
    pub(crate) definition: fn() -> Definition,
    pub(crate) saga_type: fn() -> (TypeId, &'static str),
    pub(crate) message_type: fn() -> (TypeId, &'static str),
    pub(crate) default: fn() -> Option<Arc<dyn Handler>>,
}

inventory::collect!(Registration);

impl Registration {
    /// The registration of `S`, which `default` makes if it can be made from nothing.
    pub const fn new<S: Saga>(default: fn() -> Option<Arc<dyn Handler>>) -> Self {
        Self {
            definition: || S::DEFINITION,
            saga_type: || (TypeId::of::<S>(), std::any::type_name::<S>()),
            message_type: || (TypeId::of::<S::Message>(), std::any::type_name::<S::Message>()),
            default,
        }
    }
}
