//! The state of a run: everything that determines its next move.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::{
    Context, Definition, FAILURE_TEXT_BYTES_MAX, Failure, Lineage, Plan, RecordedStep, Rest, StepDefinition,
};

/// One run of a handler for one message, between two moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its place in the hierarchy.
    pub lineage: Lineage,
    /// The message it handles.
    pub message: Uuid,
    /// The handler and worker that execute it: the source of its failures.
    pub source: String,
    /// Its newest suspension; none before the first step has ended.
    pub last: Option<Suspension>,
    /// The number of completed steps and child failure handlers on the forward path.
    /// It numbers the instances, so each has a unique name. A new execution continues it.
    pub suspensions: u32,
    /// The newest execution: the history, the counts and the outputs of the run begin with it.
    pub execution: Execution,
    /// The number of completions of each step on the forward path, by recorded name; empty during a rollback.
    pub completions: BTreeMap<String, u32>,
    /// Forward or backward.
    pub path: Path,
    /// The children of the newest window that did not succeed, oldest failure first.
    pub failed_children: Vec<ChildFailure>,
    /// The newest output of each step, by step.
    pub outputs: BTreeMap<String, Value>,
    /// The steps of the definition under which the newest step of the forward path completed; `None` if that
    /// is the definition at hand. A comparison of the two determines the position at which the run continues.
    pub recorded: Option<Arc<[RecordedStep]>>,
    /// The context that travels beside its message.
    pub context: Context,
    /// Whether it has replied to the run that launched its message.
    pub replied: bool,
    /// The reasons to give up now: cancellation requests and missed deadlines. Empty if there are none.
    pub give_up: Vec<Failure>,
    /// The maximum stored bytes of each text of its failures.
    pub failure_text_bytes_max: usize,
}

/// One of the executions of a run, and where its history begins. Only a run that continued as new has more than the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// The number of executions before it.
    pub number: u32,
    /// The number of completed steps and child failure handlers before it.
    pub suspensions: u32,
    /// The time of the SUSPENDED before it, in microseconds since 1970: its history is later. `None` for the first
    /// execution, and until that SUSPENDED is stored.
    pub after: Option<i64>,
}

/// The path of a run, with the state of its rollback.
#[derive(Clone, Debug, PartialEq)]
pub enum Path {
    /// Step after step.
    Forward,
    /// In rollback.
    Backward {
        /// The cause of the rollback.
        cause: Failure,
        /// Whether the parent run requested the rollback, and so knows the failure already.
        rollback_requested: bool,
        /// Whether a part of the rollback is done. False if only a child failure handler has been suspended, which
        /// accepted children whose rollback failed.
        begun: bool,
        /// Whether a ROLLBACK_FAILED is recorded: the rollback continues after the intervention of an operator.
        failed_before: bool,
        /// The rollback plan; `None` until the history was read from the log. For a long history it covers one
        /// window.
        plan: Option<Arc<Plan>>,
    },
}

/// The newest SUSPENDED event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// The step, or the part of the rollback.
    pub step: String,
    /// The step chosen to run next; `None` for the one that follows in the definition. In the rollback of a long
    /// history: the position of the part in that history, see [`Window::read`](crate::Window::read).
    pub jump: Option<String>,
    /// The loop iteration of the step.
    pub iteration: u32,
    /// The number of earlier handler calls for its children's failures, if a child failure handler suspended.
    pub handler_iteration: Option<u32>,
}

/// The recorded progress of a rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollbackProgress {
    /// The newest suspension of the run, on either path.
    pub last: Option<Suspension>,
    /// Whether a part of the rollback was suspended, other than a child failure handler.
    pub has_begun: bool,
}

/// A child that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildFailure {
    /// The cause of its rollback.
    pub rolled_back: Failure,
    /// The failure of its rollback, if that failed.
    pub rollback_failed: Option<Failure>,
    /// Whether the parent run requested the rollback.
    pub rollback_requested: bool,
}

impl Run {
    /// A run before its first step.
    pub fn new(lineage: Lineage, message: Uuid, source: impl Into<String>) -> Self {
        Self {
            lineage,
            message,
            source: source.into(),
            last: None,
            suspensions: 0,
            execution: Execution::default(),
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

    /// The number of completions of this step on the forward path, under its name or a former one.
    ///
    /// Between two attempts of a step, neither a new program nor another step changes this number.
    pub fn completions_of(&self, step: &StepDefinition) -> u32 {
        step.all_names().filter_map(|name| self.completions.get(name)).sum()
    }

    /// The loop iteration of this step if it is next on the forward path.
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

    /// The messages that its rollback is about, and whose handlers were waited for by a strategy, so that some may not have ended.
    pub fn left(&self) -> Vec<Uuid> {
        match &self.path {
            Path::Backward { plan: Some(plan), .. } => plan.left(),
            Path::Backward { plan: None, .. } | Path::Forward => vec![],
        }
    }

    /// Records that of those messages every handler has ended.
    pub fn nothing_left(&mut self) {
        if let Path::Backward { plan: Some(plan), .. } = &mut self.path {
            Arc::make_mut(plan).nothing_left();
        }
    }

    /// The part of a long history before the window of the plan.
    pub fn rest(&self) -> Option<Rest> {
        match &self.path {
            Path::Backward { plan: Some(plan), .. } => plan.rest(),
            Path::Backward { plan: None, .. } | Path::Forward => None,
        }
    }

    /// The position of the plan in a long history, as recorded with its parts.
    pub(crate) fn mark(&self) -> Option<String> {
        match &self.path {
            Path::Backward { plan: Some(plan), .. } => plan.mark().map(str::to_owned),
            Path::Backward { plan: None, .. } | Path::Forward => None,
        }
    }

    /// Sets the plan for the next older window of a rollback.
    pub fn recall_rest(&mut self, read: Plan) {
        if let Path::Backward { plan, .. } = &mut self.path {
            let last = self.last.as_ref().map(|last| &last.step);
            let ended = last.filter(|last| plan.as_ref().is_some_and(|plan| plan.ends_with(last)));
            *plan = Some(Arc::new(read.after(ended.cloned())));
        }
    }

    /// Sets the recorded state of a rollback.
    pub fn set_rollback_plan(&mut self, read: Plan, progress: RollbackProgress) {
        if let Path::Backward { plan, begun, .. } = &mut self.path {
            *plan = Some(Arc::new(read));
            *begun = progress.has_begun;
            self.last = progress.last;
        }
    }

    /// The same run before the first step of a new execution.
    pub(crate) fn begin_execution(&mut self) {
        let number = self.execution.number.saturating_add(1);
        self.execution = Execution { number, suspensions: self.suspensions, after: None };
        (self.last, self.recorded) = (None, None);
        self.completions.clear();
        self.outputs.clear();
    }

    /// Whether the run is in rollback.
    pub fn is_backward(&self) -> bool {
        self.path != Path::Forward
    }

    /// The cause of the rollback, if one has started.
    pub fn cause(&self) -> Option<&Failure> {
        match &self.path {
            Path::Forward => None,
            Path::Backward { cause, .. } => Some(cause),
        }
    }

    /// The same run at the start of its rollback. Without a suspension there is no history to read or undo.
    pub(crate) fn start_rollback(mut self, cause: Failure) -> Self {
        // A child that rolled back is settled; a failed rollback still blocks the run.
        self.failed_children.retain(|child| child.rollback_failed.is_some());
        self.path = Path::Backward {
            cause,
            rollback_requested: false,
            begun: false,
            failed_before: false,
            plan: None,
        };
        // They number the instances of the forward path; the rollback plan names its own parts.
        self.completions.clear();
        // The reasons that ended the forward path do not end the rollback.
        self.give_up.clear();
        self
    }

    /// The failures of the children as one failure of the step that waited for them; `None` without failed children.
    /// It keeps the failure of the run itself among its causes.
    pub(crate) fn child_failure(&self) -> Option<Failure> {
        if self.failed_children.is_empty() {
            return None;
        }
        let step = self.last.as_ref().map_or("", |last| last.step.as_str());
        let failed_rollbacks: Vec<_> =
            self.failed_children.iter().filter_map(|child| child.rollback_failed.clone()).collect();
        if failed_rollbacks.is_empty() {
            return Some(Failure::child_rolled_back(Some(step), &self.source, self.rolled_back()));
        }
        let mut causes = failed_rollbacks;
        match &self.path {
            Path::Forward => {
                causes.push(Failure::child_rolled_back(None, &self.source, self.rolled_back()));
            }
            Path::Backward { cause, .. } => {
                let others = self.unreported_failures(cause);
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

    /// Failures of children that rolled back on their own, except those contained in `known`.
    fn unreported_failures(&self, known: &Failure) -> Vec<Failure> {
        let untold = self.failed_children.iter().filter(|child| !child.rollback_requested);
        let failures = untold.map(|child| &child.rolled_back);
        failures.filter(|failure| !known.contains(failure)).cloned().collect()
    }
}
