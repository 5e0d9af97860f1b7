//! What a script says: sagas whose code is a list of outcomes, and messages to launch.

use scoop_core::{Definition, Next, StepDefinition, StepKind};
use serde_json::Value;

/// A script without its recorded part.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) sagas: Vec<Saga>,
    /// The messages that are launched from outside, in order.
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

/// That the runs of a handler give up, from when on so many rows are on record. Each does once.
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

/// Since when a version of a saga is the one at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Start,
    /// As soon as so many rows are on record.
    Rows(usize),
    /// As soon as a run of it was set aside.
    Stuck,
}

/// A step and the outcomes of its code: the n-th call has the n-th, any further call the last.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Its former name.
    pub(crate) was: Option<&'static str>,
    pub(crate) invoke: Vec<Outcome>,
    /// None if it is not compensated.
    pub(crate) undo: Option<Vec<Outcome>>,
    /// None if it does not handle the failures of its children.
    pub(crate) on_child_failure: Option<Vec<Outcome>>,
    /// None if it needs no cleaning up.
    pub(crate) finally: Option<Vec<Outcome>>,
}

/// Which code of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    Invoke,
    Undo,
    OnChildFailure,
    Finally,
}

/// What one call does.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// What it sets in the context, before it emits anything.
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

/// How a call ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum End {
    /// Well, and without a wish.
    #[default]
    Well,
    Next(Next),
    Fail(String),
    /// With the failure it was called with.
    Rethrow,
}

impl Saga {
    /// The saga as the protocol knows it: cleaning up is a step of its own.
    pub(crate) fn definition(&self) -> Definition {
        let steps = self.steps.iter().flat_map(|step| {
            let own = StepDefinition {
                name: step.name.clone().into(),
                was: step.was.map_or(&[], |was| vec![was].leak()),
                needs: &[],
                compensated: step.undo.is_some(),
                handles_child_failure: step.on_child_failure.is_some(),
                kind: StepKind::Code,
            };
            let cleanup = step.finally.as_ref().map(|_| StepDefinition {
                name: step.cleanup().into(),
                was: step.was.map_or(&[], |was| vec![&*cleanup_of(was).leak()].leak()),
                needs: &[],
                compensated: false,
                handles_child_failure: false,
                kind: StepKind::Finally,
            });
            std::iter::once(own).chain(cleanup)
        });
        Definition {
            saga: self.name.clone().into(),
            topic: self.topic.clone().into(),
            steps: steps.collect(),
        }
    }

    /// Whose code a step of the definition runs.
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
