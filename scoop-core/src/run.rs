//! Where a run stands: all that is needed to tell what it does next.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::{
    Context, Definition, FAILURE_TEXT_BYTES_MAX, Failure, Lineage, Plan, RecordedStep, Rest, StepDefinition,
};

/// One execution of a handler for one message, between two moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its place in the hierarchy.
    pub lineage: Lineage,
    /// The message it handles.
    pub message: Uuid,
    /// Who runs it: the source of its failures.
    pub source: String,
    /// Its newest suspension; none before the first step has ended.
    pub last: Option<Suspension>,
    /// How many times a step or child failure handler came to its end on the way forward.
    /// Numbers the instances, so that each has a name that no other ever gets.
    pub suspensions: u32,
    /// The number of completions of each step on the way forward, by recorded name; empty on the way back.
    pub completions: BTreeMap<String, u32>,
    /// Forward or backward.
    pub path: Path,
    /// The children of the newest window that did not succeed, oldest failure first.
    pub failed_children: Vec<ChildFailure>,
    /// What the steps returned, by step; of each the newest.
    pub outputs: BTreeMap<String, Value>,
    /// The steps of the definition under which the newest step of the forward path completed; `None` if that
    /// is the definition at hand. Where the run continues follows from a comparison of the two.
    pub recorded: Option<Arc<[RecordedStep]>>,
    /// What travels with it without being its message.
    pub context: Context,
    /// Whether it has replied to the run that launched its message.
    pub replied: bool,
    /// Why it has to give up now: what was asked for, and what it missed. Empty if it has not.
    pub give_up: Vec<Failure>,
    /// How many bytes of each text of its failures are stored.
    pub failure_text_bytes_max: usize,
}

/// The way a run goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Path {
    /// Step after step.
    Forward,
    /// Undoing what was done.
    Backward {
        /// Why.
        cause: Failure,
        /// Whether the run above demanded it, which therefore knows the failure already.
        told: bool,
        /// Whether a part of the rollback has been done. Not yet, if all there is so far is a
        /// handler that gave in to children who could not be undone.
        begun: bool,
        /// Whether it is on record that it could not be undone, which is so once at most. Since
        /// then somebody has seen to it, and it goes on.
        failed_before: bool,
        /// How; `None` until somebody has read from the log what was done. Of a long history it has a part.
        plan: Option<Arc<Plan>>,
    },
}

/// The newest SUSPENDED event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// The step, or the part of the rollback.
    pub step: String,
    /// The step that was chosen to run next; `None` for the one that follows in the definition. In the rollback of a
    /// long history: where in it that part is, see [`Window::read`](crate::Window::read).
    pub jump: Option<String>,
    /// The loop iteration of the step.
    pub iteration: u32,
    /// How often its children's failures had been handled before, if this came from handling.
    pub handler_iteration: Option<u32>,
}

/// A child that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildFailure {
    /// Why it turned back.
    pub rolled_back: Failure,
    /// Why it could not be undone, if it could not.
    pub rollback_failed: Option<Failure>,
    /// Whether the run above had demanded that it turn back.
    pub told: bool,
}

impl Run {
    /// A run at its beginning.
    pub fn new(lineage: Lineage, message: Uuid, source: impl Into<String>) -> Self {
        Self {
            lineage,
            message,
            source: source.into(),
            last: None,
            suspensions: 0,
            completions: BTreeMap::new(),
            path: Path::Forward,
            failed_children: Vec::new(),
            outputs: BTreeMap::new(),
            recorded: None,
            context: Context::default(),
            replied: false,
            give_up: Vec::new(),
            failure_text_bytes_max: FAILURE_TEXT_BYTES_MAX,
        }
    }

    /// How often this step completed on the way forward, under its name or a former one.
    ///
    /// Between two attempts of a step that number changes neither with the program nor with what other steps do.
    pub fn completions_of(&self, step: &StepDefinition) -> u32 {
        step.all_names().filter_map(|name| self.completions.get(name)).sum()
    }

    /// The loop iteration in which this step runs if it is next on the way forward.
    pub fn iteration_of(&self, definition: &Definition, step: usize) -> u32 {
        let repeated = self.last.as_ref().filter(|last| definition.step_index(&last.step) == Some(step));
        repeated.map_or(0, |last| last.iteration + 1)
    }

    /// Whether the run rolls back and its history must be read: at first, and when all parts of a window are undone.
    pub fn needs_plan(&self) -> bool {
        match &self.path {
            Path::Forward => false,
            Path::Backward { plan: None, .. } => true,
            Path::Backward { plan: Some(plan), begun, .. } => self.last.as_ref().is_some_and(|last| {
                let ended = self.failed_children.is_empty() && plan.ends_with(&last.step);
                *begun && (ended || plan.is_newer_than(&last.step))
            }),
        }
    }

    /// What is left of a long history before what the plan has of it.
    pub fn rest(&self) -> Option<Rest> {
        match &self.path {
            Path::Backward { plan: Some(plan), .. } => plan.rest(),
            Path::Backward { plan: None, .. } | Path::Forward => None,
        }
    }

    /// Where in a long history the plan is, as recorded with its parts.
    pub(crate) fn mark(&self) -> Option<String> {
        match &self.path {
            Path::Backward { plan: Some(plan), .. } => plan.mark().map(str::to_owned),
            Path::Backward { plan: None, .. } | Path::Forward => None,
        }
    }

    /// Tells a run on its way back how to undo what is left.
    pub fn recall_rest(&mut self, read: Plan) {
        if let Path::Backward { plan, .. } = &mut self.path {
            let last = self.last.as_ref().map(|last| &last.step);
            let ended = last.filter(|last| plan.as_ref().is_some_and(|plan| plan.ends_with(last)));
            *plan = Some(Arc::new(read.after(ended.cloned())));
        }
    }

    /// Tells a run on its way back what is on record: how to undo it, its newest suspension, and
    /// whether a part of the rollback (other than a child failure handler) was suspended.
    pub fn recall(&mut self, read: Plan, last: Option<Suspension>, any_part_done: bool) {
        if let Path::Backward { plan, begun, .. } = &mut self.path {
            *plan = Some(Arc::new(read));
            *begun = any_part_done;
            self.last = last;
        }
    }

    /// Whether the run is on its way back.
    pub fn is_backward(&self) -> bool {
        self.path != Path::Forward
    }

    /// Why it turned back, if it has.
    pub fn cause(&self) -> Option<&Failure> {
        match &self.path {
            Path::Forward => None,
            Path::Backward { cause, .. } => Some(cause),
        }
    }

    /// The run turned back. Without a suspension there is nothing to read, nor to undo.
    pub(crate) fn turned_back(mut self, cause: Failure) -> Self {
        // What rolled back is settled; what could not roll back stays in the way.
        self.failed_children.retain(|child| child.rollback_failed.is_some());
        self.path = Path::Backward { cause, told: false, begun: false, failed_before: false, plan: None };
        // They number the instances of the way forward; the plan of the rollback has names for its parts.
        self.completions.clear();
        // What ended the way forward does not end the way back.
        self.give_up.clear();
        self
    }

    /// The failures of the children as the one failure of the step that waited for them, or
    /// nothing if all is well. What the run itself failed with stays part of the story.
    pub(crate) fn child_failure(&self) -> Option<Failure> {
        if self.failed_children.is_empty() {
            return None;
        }
        let step = self.last.as_ref().map_or("", |last| last.step.as_str());
        let unrolled: Vec<_> =
            self.failed_children.iter().filter_map(|child| child.rollback_failed.clone()).collect();
        if unrolled.is_empty() {
            return Some(Failure::child_rolled_back(Some(step), &self.source, self.rolled_back()));
        }
        let mut causes = unrolled;
        match &self.path {
            Path::Forward => {
                causes.push(Failure::child_rolled_back(None, &self.source, self.rolled_back()));
            }
            Path::Backward { cause, .. } => {
                let others = self.rolled_back_unheard(cause);
                if !others.is_empty() {
                    causes.push(Failure::child_rolled_back(None, &self.source, others));
                }
                if !causes.iter().any(|failure| failure.contains(cause)) {
                    causes.push(cause.clone());
                }
            }
        }
        Some(Failure::child_rollback_failed(step, &self.source, causes))
    }

    fn rolled_back(&self) -> Vec<Failure> {
        self.failed_children.iter().map(|child| child.rolled_back.clone()).collect()
    }

    /// Why the children turned back that nobody had told to, unless that is known already.
    fn rolled_back_unheard(&self, known: &Failure) -> Vec<Failure> {
        let untold = self.failed_children.iter().filter(|child| !child.told);
        let failures = untold.map(|child| &child.rolled_back);
        failures.filter(|failure| !known.contains(failure)).cloned().collect()
    }
}
