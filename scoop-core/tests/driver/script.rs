//! The content of a script: sagas whose code is a list of outcomes, and messages to launch.

use scoop_core::{Definition, Next, StepDefinition, StepKind};
use serde_json::Value;

/// A script without its recorded part.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) sagas: Vec<Saga>,
    /// In their order.
    pub(crate) launches: Vec<Launch>,
    pub(crate) requests: Vec<Request>,
}

/// A message that is launched from outside.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) topic: String,
    pub(crate) context: Vec<Element>,
}

/// An element of a context: its key and its value.
pub(crate) type Element = (String, u64);

/// A cancellation request for all runs of a handler, from this number of rows on. Each run gives up once.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) handler: String,
    pub(crate) rows: usize,
    pub(crate) reason: String,
}

/// A version of a saga.
#[derive(Debug)]
pub(crate) struct Saga {
    pub(crate) name: String,
    pub(crate) topic: String,
    pub(crate) since: Since,
    pub(crate) steps: Vec<Step>,
}

/// The condition under which a version of a saga becomes the one at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Start,
    /// This number of rows is recorded.
    Rows(usize),
    /// A run of the saga was set aside.
    Stuck,
}

/// A step and the outcomes of its code: the n-th call has the n-th outcome, any further call the last.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Its former name.
    pub(crate) was: Option<&'static str>,
    pub(crate) invoke: Vec<Outcome>,
    /// `None` without a compensation.
    pub(crate) undo: Option<Vec<Outcome>>,
    /// `None` without a child failure handler.
    pub(crate) on_child_failure: Option<Vec<Outcome>>,
    /// `None` without a cleanup.
    pub(crate) finally: Option<Vec<Outcome>>,
}

/// A piece of code of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    Invoke,
    Undo,
    OnChildFailure,
    Finally,
}

/// The effects of one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// The context elements that it sets before it emits.
    pub(crate) sets: Vec<Element>,
    pub(crate) emits: Vec<Emit>,
    pub(crate) returns: Option<Value>,
    pub(crate) end: End,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Emit {
    pub(crate) topic: String,
    pub(crate) detached: bool,
}

/// The end of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum End {
    /// Success without a choice of the next step.
    #[default]
    Well,
    Next(Next),
    /// Success, and a new execution.
    ContinueAsNew,
    Fail(String),
    /// The failure that it was called with.
    Rethrow,
}

impl Saga {
    /// The saga for the protocol, in which a cleanup is a separate step.
    pub(crate) fn definition(&self) -> Definition {
        let steps = self.steps.iter().flat_map(|step| {
            let own = StepDefinition {
                name: step.name.clone().into(),
                was: step.was.map_or(&[], |was| vec![was].leak()),
                compensated: step.undo.is_some(),
                handles_child_failure: step.on_child_failure.is_some(),
                ..StepDefinition::new("")
            };
            let cleanup = step.finally.as_ref().map(|_| StepDefinition {
                name: step.cleanup().into(),
                was: step.was.map_or(&[], |was| vec![&*cleanup_of(was).leak()].leak()),
                ..StepDefinition::new("").of_kind(StepKind::Finally)
            });
            std::iter::once(own).chain(cleanup)
        });
        Definition {
            saga: self.name.clone().into(),
            topic: self.topic.clone().into(),
            steps: steps.collect(),
        }
    }

    /// The step whose code a step of the definition runs.
    pub(crate) fn step(&self, name: &str) -> &Step {
        let mut steps = self.steps.iter();
        steps.find(|step| step.name == name || step.cleanup() == name).expect("a step of the saga")
    }
}

fn cleanup_of(step: &str) -> String {
    format!("{step} (finally)")
}

impl Step {
    /// The name of the step that cleans up after this one.
    pub(crate) fn cleanup(&self) -> String {
        cleanup_of(&self.name)
    }

    pub(crate) fn outcomes(&self, code: Code) -> &[Outcome] {
        let outcomes = match code {
            Code::Invoke => Some(&self.invoke),
            Code::Undo => self.undo.as_ref(),
            Code::OnChildFailure => self.on_child_failure.as_ref(),
            Code::Finally => self.finally.as_ref(),
        };
        outcomes.map_or(&[], Vec::as_slice)
    }
}
