//! The handler of sleep messages. It does nothing: a saga sleeps by waiting for this handler, which starts no sooner
//! than the end of the sleep.

use futures_util::future::{BoxFuture, FutureExt, ready};
use scoop_core::{Definition, Message, Result, SLEEP_HANDLER, SLEEP_STEP, SLEEP_TOPIC, StepDefinition};
use serde::{Deserialize, Serialize};

use crate::Scope;
use crate::saga::{Saga, Step, StepEnd};

/// The saga that handles sleeps. Every program runs it.
pub(crate) struct Sleeper;

/// A message of which a run only awaits the end.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sleep {}

impl Message for Sleep {
    const TOPIC: &'static str = SLEEP_TOPIC;
    type Reply = ();
}

#[derive(Clone, Copy)]
pub(crate) struct Sleeping;

impl Step for Sleeping {
    const ALL: &'static [Self] = &[Self];

    fn index(self) -> usize {
        0
    }
}

impl Saga for Sleeper {
    type Message = Sleep;
    type Step = Sleeping;

    const DEFINITION: Definition =
        Definition::new(SLEEP_HANDLER, SLEEP_TOPIC, const { &[StepDefinition::new(SLEEP_STEP)] });

    fn invoke<'a>(
        &'a self,
        _: Sleeping,
        _: &'a mut Scope<'_>,
        _: &'a Sleep,
    ) -> BoxFuture<'a, Result<StepEnd>> {
        ready(Ok(StepEnd::CONTINUE)).boxed()
    }
}
