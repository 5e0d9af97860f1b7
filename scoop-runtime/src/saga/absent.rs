//! A saga that no living program has: its pending runs end without its code.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt, ready};
use scoop_core::{Definition, Error, Failure, Next, RecordedStep, Result, StepDefinition};
use serde_json::Value;

use super::command::CommandFunctions;
use super::registry::RunnableSaga;
use super::retry::Retry;
use super::{DecodeError, Handler, RetryTarget, StepEnd};
use crate::Scope;
use crate::model::limits::Limits;
use crate::saga::scope::Awaited;

impl RunnableSaga {
    /// A saga with these recorded steps, and without their code.
    pub(crate) fn absent(topic: &str, name: &str, steps: Vec<RecordedStep>) -> Self {
        let step = |step: RecordedStep| StepDefinition {
            name: step.name.into(),
            ..StepDefinition::new("").of_kind(step.kind)
        };
        let steps: Vec<_> = steps.into_iter().map(step).collect();
        let definition =
            Definition { saga: name.to_owned().into(), topic: topic.to_owned().into(), steps: steps.into() };
        Self::new(definition, Arc::new(AbsentSaga))
    }
}

/// The code of such a saga. None of it is called for a run that gives up before it begins; otherwise the run goes back to its
/// queue.
pub(super) struct AbsentSaga;

fn absent<'a, T: 'a + Send>() -> BoxFuture<'a, Result<T>> {
    ready(Err(Error::infrastructure("no living program has the saga"))).boxed()
}

impl Handler for AbsentSaga {
    fn decode(&self, _: &str, _: &Value) -> Result<Box<dyn Any + Send + Sync>, DecodeError> {
        Ok(Box::new(()))
    }

    fn types(&self) -> Vec<String> {
        vec![]
    }

    fn timeout(&self, _: usize) -> Option<Duration> {
        None
    }

    fn retry(&self, _: usize, _: RetryTarget) -> Option<Retry> {
        None
    }

    fn sleep(&self, _: usize) -> Option<Duration> {
        None
    }

    fn decisions(&self) -> Option<CommandFunctions> {
        None
    }

    fn invoke<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<StepEnd>> {
        absent()
    }

    fn due<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<SystemTime>> {
        absent()
    }

    fn awaits<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<Option<Awaited>>> {
        absent()
    }

    fn within(&self, _: usize) -> Option<Duration> {
        None
    }

    fn limits(&self) -> Limits {
        Limits::NONE
    }

    fn limit_key(&self, _: &(dyn Any + Send + Sync)) -> Option<String> {
        None
    }

    fn finally<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<()>> {
        absent()
    }

    fn compensate<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
        _: &'a Failure,
    ) -> BoxFuture<'a, Result<()>> {
        absent()
    }

    fn on_child_failure<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
        _: &'a Failure,
    ) -> BoxFuture<'a, Result<Option<Next>>> {
        absent()
    }
}
