//! The rest of a run: its next move, and the conclusion from that move's outcome. The one rule.

mod child_failure;
mod stuck;

use std::panic::Location;

use serde_json::Value;
use uuid::Uuid;

use self::child_failure::RollbackPosition;
pub use self::stuck::Stuck;
use crate::changed_definition::{known, position_in, renamed_since, resume};
use crate::rollback::{Instance, Plan, RollbackNames, RollbackPart};
use crate::wait::WaitPlan;
use crate::{
    Context, Definition, Event, EventKind, Failure, FoundBy, Next, Path, RecordedStep, Run, SentSignal,
    StepKind, Suspension, Wait,
};

/// The next move of a run.
#[derive(Debug)]
pub enum Continuation<'a> {
    /// A call of user code.
    Call(Call<'a>),
    /// Events to append without user code.
    Record(Record<'a>),
}

/// A message that user code emitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Emission {
    /// Its id.
    pub message: Uuid,
    /// Its topic.
    pub topic: String,
    /// Its payload.
    pub payload: Value,
    /// The root id of its own hierarchy if it is detached. No run waits for a detached message.
    pub detached_root: Option<Uuid>,
    /// The initial context of its handlers.
    pub context: Context,
    /// Set if the launch requires a handler; without one the step fails.
    pub required: Option<Required>,
    /// Whom the run waits for, if not for all of its handlers.
    pub wait: Option<WaitPlan>,
    /// By what its runs are found.
    pub found_by: Vec<FoundBy>,
}

/// A launch that requires a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Required {
    /// The Rust type of the message.
    pub message: &'static str,
    /// The source location of the launch.
    pub at: &'static Location<'static>,
}

/// The outcome of user code that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct Returned {
    /// The step to run next; `None` keeps the earlier decision (child failure handlers only).
    pub next: Option<Next>,
    /// The value that it returned, for its compensation and later steps.
    pub output: Option<Value>,
    /// Its replies to the run that launched the message, in order, each with the name it is kept under.
    pub replies: Vec<(String, Value)>,
    /// The emitted messages, in order.
    pub emissions: Vec<Emission>,
    /// What the run waits for before its next move, besides its children.
    pub wait: Option<Wait>,
    /// The signals to send.
    pub signals: Vec<SentSignal>,
    /// The message of a new execution, in place of a next step (steps only).
    pub as_new: Option<NextExecution>,
}

/// The message with which a new execution of a run begins.
#[derive(Clone, Debug, PartialEq)]
pub struct NextExecution {
    /// The id of the message.
    pub message: Uuid,
    /// Its payload.
    pub payload: Value,
}

/// The conclusion from a move: what to persist, and the next state of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// The events to append, in order.
    pub events: Vec<Event>,
    /// The messages to publish; their events are among [`Conclusion::events`].
    pub emissions: Vec<Emission>,
    /// The messages whose handlers are requested to roll back.
    pub rollback_requests: Vec<Uuid>,
    /// The cause of these requests: the exception of their events.
    pub rollback_cause: Option<Failure>,
    /// The output of the step and its replies, each with the name it is stored under.
    pub values: Vec<(String, Value)>,
    /// What the run waits for, besides other runs. Its SUSPENDED has the same.
    pub wait: Option<Wait>,
    /// The signals to send.
    pub signals: Vec<SentSignal>,
    /// The message of the execution that begins after these events.
    pub as_new: Option<NextExecution>,
    /// The next state of the run.
    pub fate: Fate,
}

/// The state of a run after a move.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It continues, after the runs that it waits for have ended.
    GoesOn(Run),
    /// It succeeded.
    Committed,
    /// Its rollback is complete.
    RolledBack {
        /// The cause of the rollback.
        cause: Failure,
        /// Whether the parent run requested the rollback.
        rollback_requested: bool,
    },
    /// Its rollback failed.
    RollbackFailed {
        /// The cause of the rollback.
        cause: Failure,
        /// The failure of the rollback.
        failure: Failure,
        /// Whether the parent run requested the rollback.
        rollback_requested: bool,
    },
}

/// The user code to call.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The step itself.
    Invoke {
        /// The index of the step.
        step: usize,
        /// The loop iteration.
        iteration: u32,
    },
    /// The step's compensation.
    Compensate {
        /// The index of the step.
        step: usize,
        /// The loop iteration of the instance that it undoes.
        iteration: u32,
        /// The cause of the rollback.
        cause: Failure,
        /// The outputs of the steps at the completion of the instance, by step.
        outputs: std::collections::BTreeMap<String, Value>,
        /// Whether the cleanup after the step is still due.
        finally: bool,
    },
    /// The step's child failure handler.
    HandleChildFailure {
        /// The index of the step.
        step: usize,
        /// The loop iteration of the step that emitted.
        iteration: u32,
        /// The number of earlier calls.
        handler_iteration: u32,
        /// The failure of the children.
        failure: Failure,
    },
}

impl Action {
    /// The index of the step whose code is called.
    pub fn step(&self) -> usize {
        match self {
            Self::Invoke { step, .. }
            | Self::Compensate { step, .. }
            | Self::HandleChildFailure { step, .. } => *step,
        }
    }
}

/// A move that calls user code.
#[derive(Debug)]
pub struct Call<'a> {
    at: Position<'a>,
    action: Action,
}

/// A move that only appends events.
#[derive(Debug)]
pub struct Record<'a> {
    at: Position<'a>,
    kind: RecordKind,
}

/// A run at a named position.
#[derive(Debug)]
struct Position<'a> {
    definition: &'a Definition,
    run: &'a Run,
    /// The name under which the move is recorded.
    step: String,
    /// The number of earlier handler calls at this position, if the move handles failures of children.
    handler_iteration: Option<u32>,
    context: Context,
}

#[derive(Debug)]
enum RecordKind {
    Commit,
    Fail(Failure),
    RequestRollback(Vec<Uuid>),
    NothingToCompensate,
    FinishRollback,
}

impl<'a> Continuation<'a> {
    /// The next move of a run of this saga, after its children have ended.
    ///
    /// # Errors
    ///
    /// [`Stuck`] if the definition does not fit the recorded history of the run.
    pub fn of(definition: &'a Definition, run: &'a Run) -> Result<Self, Stuck> {
        let continuation = match &run.path {
            Path::Forward => forward(definition, run)?,
            Path::Backward { cause, plan, begun, .. } => {
                let names = RollbackNames::of(definition);
                let saga = || definition.saga.to_string();
                let plan = plan.as_ref().ok_or_else(|| Stuck::NoPlan { saga: saga() })?;
                backward(definition, run, Rollback { cause, begun: *begun, names: &names, plan })?
            }
        };
        Ok(if run.give_up.is_empty() { continuation } else { continuation.given_up(run) })
    }

    /// Replaces the next move by giving up, even if children of the run have failed.
    fn given_up(self, run: &Run) -> Self {
        let mut at = match self {
            Self::Call(call) => call.at,
            Self::Record(record) => record.at,
        };
        if !run.failed_children.is_empty() {
            at.handler_iteration = run.last.as_ref().and_then(|last| last.handler_iteration);
        }
        let mut reasons = run.give_up.clone();
        if run.is_backward() {
            // The rollback ends here, so no later event can contain these failures.
            reasons.extend(run.child_failure());
        }
        let failure = Failure::gave_up(&run.source, reasons);
        Self::Record(Record { at, kind: RecordKind::Fail(failure) })
    }
}

/// The next move on the forward path: the step that the newest suspension names, or its child failure handler.
fn forward<'a>(definition: &'a Definition, run: &'a Run) -> Result<Continuation<'a>, Stuck> {
    let Some(last) = &run.last else {
        return Ok(invoke(definition, run, 0, 0));
    };
    // Also before a failure is handled: afterwards the former order of the steps may no longer be known.
    let next = resume(definition, run, last)?;
    if let Some(failure) = run.child_failure() {
        return child_failure::of_step(definition, run, last, failure);
    }
    if next < definition.steps.len() {
        return Ok(invoke(definition, run, next, run.iteration_of(definition, next)));
    }
    let step = definition.last_step().unwrap_or_default();
    let at = Position::new(definition, run, step, last.handler_iteration);
    Ok(Continuation::Record(Record { at, kind: RecordKind::Commit }))
}

fn invoke<'a>(definition: &'a Definition, run: &'a Run, index: usize, iteration: u32) -> Continuation<'a> {
    let at = Position::new(definition, run, &*definition.steps[index].name, None);
    Continuation::Call(Call { at, action: Action::Invoke { step: index, iteration } })
}

#[derive(Clone, Copy)]
struct Rollback<'r> {
    cause: &'r Failure,
    begun: bool,
    names: &'r RollbackNames,
    plan: &'r Plan,
}

/// The next move of a rollback: the part of the plan after the last recorded one.
fn backward<'a>(
    definition: &'a Definition,
    run: &'a Run,
    rollback: Rollback<'_>,
) -> Result<Continuation<'a>, Stuck> {
    let Rollback { cause, begun, names, plan } = rollback;
    let last = run.last.as_ref().filter(|last| names.matches(&last.step));
    // A recorded part of an empty plan is the sentinel, where the rollback failed and an operator skipped it.
    let in_plan = |last: &&Suspension| !plan.parts().is_empty() && !plan.is_after(&last.step);
    let part = last.filter(|last| begun && in_plan(last)).map(|last| {
        let unknown = || Stuck::NoSuchPart { saga: definition.saga.to_string(), part: last.step.clone() };
        plan.position(&last.step).ok_or_else(unknown)
    });
    let part = part.transpose()?;
    let handled_before = last.and_then(|last| last.handler_iteration);
    if let Some(failure) = run.child_failure() {
        let at = RollbackPosition { part: part.unwrap_or(0), handled: handled_before.map_or(0, |it| it + 1) };
        return child_failure::of_rollback(definition, run, rollback, at, failure);
    }
    match plan.parts().get(part.map_or(0, |position| position + 1)) {
        Some(part) => undo(definition, run, cause, plan, part),
        None => {
            let step = last.map_or_else(|| names.sentinel(definition), |last| last.step.clone());
            let at = Position::new(definition, run, step, handled_before);
            Ok(Continuation::Record(Record { at, kind: RecordKind::FinishRollback }))
        }
    }
}

/// The move for one part of the rollback.
fn undo<'a>(
    definition: &'a Definition,
    run: &'a Run,
    cause: &Failure,
    plan: &Plan,
    part: &RollbackPart,
) -> Result<Continuation<'a>, Stuck> {
    let instance = plan.instance(part);
    // Also for the part that requests the rollback of children: an unknown name may not be a step at all, but a
    // rollback part that another definition named differently.
    let step = compensates(definition, plan, instance)?;
    let at = Position::new(definition, run, &part.name, None);
    if part.of_children {
        let kind = RecordKind::RequestRollback(instance.emitted.clone());
        return Ok(Continuation::Record(Record { at, kind }));
    }
    let Some(step) = step else {
        return Ok(Continuation::Record(Record { at, kind: RecordKind::NothingToCompensate }));
    };
    let cleanup = definition.steps.get(step + 1).filter(|next| next.kind == StepKind::Finally);
    let ran = |name: &str| {
        definition.step_index(name).is_some_and(|at| at == step || cleanup.is_some() && at == step + 1)
    };
    let finally = cleanup.is_some() && plan.is_cleanup_due(part, ran);
    if !definition.steps[step].compensated && !finally {
        return Ok(Continuation::Record(Record { at, kind: RecordKind::NothingToCompensate }));
    }
    let action = Action::Compensate {
        step,
        iteration: plan.iteration(part),
        cause: cause.clone(),
        outputs: plan.outputs(part),
        finally,
    };
    Ok(Continuation::Call(Call { at, action }))
}

/// The step to undo; `None` if it was removed and had no compensation.
fn compensates(definition: &Definition, plan: &Plan, completed: &Instance) -> Result<Option<usize>, Stuck> {
    match (known(definition, &completed.step), plan.recorded(completed)) {
        (Err(_), Some(removed)) => match removed_from(definition, removed)?.compensated {
            true => {
                let (saga, step) = (definition.saga.to_string(), completed.step.clone());
                Err(Stuck::NoCompensation { saga, step })
            }
            false => Ok(None),
        },
        (step, _) => step.map(Some),
    }
}

/// The recorded step if the definition has removed it. An error if a newer program renamed it.
fn removed_from<'a>(definition: &Definition, step: &'a RecordedStep) -> Result<&'a RecordedStep, Stuck> {
    match position_in(definition, step) {
        Some(_) => Err(renamed_since(&definition.saga, step)),
        None => Ok(step),
    }
}

impl Call<'_> {
    /// The user code to call.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// The name under which the call will be recorded.
    pub fn step(&self) -> &str {
        &self.at.step
    }

    /// The conclusion from the outcome of the call. `context` is the context after the call, even if it failed.
    pub fn conclude(mut self, context: Context, outcome: Result<Returned, Failure>) -> Conclusion {
        self.at.context = context;
        let returned = match outcome.and_then(|returned| self.check(returned)) {
            Ok(returned) => returned,
            Err(failure) => return self.at.fail(failure),
        };
        match self.action {
            Action::Invoke { step, iteration } => {
                let decision = match &returned.as_new {
                    Some(_) => Decision::ContinueAsNew,
                    None => Decision::of(step, returned.next.unwrap_or(Next::Continue)),
                };
                self.at.suspend(Some(step), iteration, decision, returned)
            }
            Action::HandleChildFailure { step, iteration, .. } if self.at.is_forward() => {
                let decision = returned.next.map_or(Decision::Unchanged, |next| Decision::of(step, next));
                self.at.suspend(None, iteration, decision, returned)
            }
            Action::HandleChildFailure { .. } | Action::Compensate { .. } => {
                self.at.suspend(None, 0, Decision::None, returned)
            }
        }
    }

    /// Rejects a jump beyond the last step, and children of an execution that ends: both are failures of the step.
    fn check(&self, returned: Returned) -> Result<Returned, Failure> {
        let steps = self.at.definition.steps.len();
        let launches = returned.emissions.iter().any(|emission| emission.detached_root.is_none());
        match returned.next {
            _ if returned.as_new.is_some() && launches => Err(Failure::new(
                "LaunchedBeforeAnew",
                format!(
                    "step `{}` launched a message and continued as new; launch it in a step before, whose children end \
                     before this one starts, or detach it",
                    self.at.step,
                ),
                &self.at.run.source,
            )),
            Some(Next::GoTo(index)) if index >= steps => Err(Failure::new(
                "IllegalArgumentException",
                format!("GoTo step index {index} is out of bounds (saga has {steps} steps)"),
                &self.at.run.source,
            )),
            _ => Ok(returned),
        }
    }
}

impl Record<'_> {
    /// The conclusion if the run fails instead.
    pub fn fail(self, failure: Failure) -> Conclusion {
        self.at.fail(failure)
    }

    /// The conclusion.
    pub fn conclude(self) -> Conclusion {
        let at = self.at;
        match self.kind {
            RecordKind::Commit => {
                let event = at.event(EventKind::Committed);
                Conclusion::ending(event, Fate::Committed)
            }
            RecordKind::Fail(failure) => at.fail(failure),
            RecordKind::RequestRollback(messages) => at.request_rollbacks(messages),
            RecordKind::NothingToCompensate => at.suspend(None, 0, Decision::None, Returned::nothing()),
            RecordKind::FinishRollback => {
                let (cause, rollback_requested) = at.rollback_cause();
                let event = at.event(EventKind::RolledBack);
                Conclusion::ending(event, Fate::RolledBack { cause, rollback_requested })
            }
        }
    }
}

/// The next position of a run after a call.
enum Decision {
    /// The step after this one in the definition at hand.
    Onward(usize),
    /// This step of the definition at hand.
    Jump(usize),
    /// The position decided before.
    Unchanged,
    /// No position: a rollback follows its plan.
    None,
    /// The first step of a new execution.
    ContinueAsNew,
}

impl Decision {
    fn of(step: usize, next: Next) -> Self {
        match next {
            Next::Continue => Self::Onward(step),
            Next::Repeat => Self::Jump(step),
            Next::GoTo(target) => Self::Jump(target),
        }
    }
}

impl<'a> Position<'a> {
    fn new(
        definition: &'a Definition,
        run: &'a Run,
        step: impl Into<String>,
        handler_iteration: Option<u32>,
    ) -> Self {
        Self { definition, run, step: step.into(), handler_iteration, context: run.context.clone() }
    }

    fn is_forward(&self) -> bool {
        self.run.path == Path::Forward
    }

    /// The cause of the rollback, and whether the parent run requested it.
    fn rollback_cause(&self) -> (Failure, bool) {
        match &self.run.path {
            Path::Backward { cause, rollback_requested, .. } => (cause.clone(), *rollback_requested),
            Path::Forward => unreachable!("a forward run has no rollback to finish"),
        }
    }

    fn event(&self, kind: EventKind) -> Event {
        let event = Event::new(kind, self.run.message).in_step(&self.step);
        event.handled(self.handler_iteration).with(self.context.clone())
    }

    /// Records the emissions and completes the position. `invoked` is the step that ran, if one did.
    fn suspend(
        self,
        invoked: Option<usize>,
        iteration: u32,
        decision: Decision,
        returned: Returned,
    ) -> Conclusion {
        let mut run = self.run.clone();
        let wait = Wait::with_strategies(returned.wait, &returned.emissions);
        let jump = match decision {
            Decision::Onward(_) | Decision::ContinueAsNew => None,
            Decision::None => run.mark(),
            Decision::Jump(target) => Some(self.definition.steps[target].name.to_string()),
            Decision::Unchanged => run.last.as_ref().and_then(|last| last.jump.clone()),
        };
        if let Decision::Onward(_) | Decision::Jump(_) = decision {
            run.recorded = None;
        }
        let mut events: Vec<_> = returned.emissions.iter().map(|emission| self.emitted(emission)).collect();
        let mut suspended = self.event(EventKind::Suspended);
        suspended.next_step = self.next_step(&decision);
        suspended.jump.clone_from(&jump);
        suspended.wait.clone_from(&wait);
        suspended.as_new = returned.as_new.as_ref().map(|next| next.message);
        events.push(suspended);

        if wait.as_ref().is_some_and(|wait| wait.signal().is_some()) {
            // A signal is for one wait. If the next one does not come, that of an earlier iteration does not count.
            run.outputs.remove(&self.step);
        }
        run.replied |= !returned.replies.is_empty();
        let mut values = returned.replies;
        if let (Some(output), Some(_)) = (returned.output, invoked) {
            run.outputs.insert(self.step.clone(), output.clone());
            values.push((crate::output_name(&self.step, run.suspensions), output));
        }
        run.context = self.context;
        if invoked.is_some() {
            *run.completions.entry(self.step.clone()).or_default() += 1;
        }
        match &mut run.path {
            Path::Forward => run.suspensions += 1,
            Path::Backward { begun, .. } => *begun |= self.handler_iteration.is_none(),
        }
        run.failed_children.clear();
        run.last =
            Some(Suspension { step: self.step, jump, iteration, handler_iteration: self.handler_iteration });
        if returned.as_new.is_some() {
            run.begin_execution();
        }
        let fate = Fate::GoesOn(run);
        Conclusion {
            events,
            emissions: returned.emissions,
            rollback_requests: vec![],
            rollback_cause: None,
            values,
            wait,
            signals: returned.signals,
            as_new: returned.as_new,
            fate,
        }
    }

    /// The position of the step that follows in the definition at hand, for readers of the log; `None` if no step
    /// is left.
    fn next_step(&self, decision: &Decision) -> Option<usize> {
        let next = match decision {
            Decision::Onward(step) => step + 1,
            Decision::Jump(target) => *target,
            Decision::ContinueAsNew => 0,
            Decision::Unchanged => {
                let last = self.run.last.as_ref()?;
                resume(self.definition, self.run, last).ok()?
            }
            Decision::None => return None,
        };
        (next < self.definition.steps.len()).then_some(next)
    }

    fn emitted(&self, emission: &Emission) -> Event {
        let event = Event::new(EventKind::Emitted, emission.message).with(emission.context.clone());
        match emission.detached_root {
            Some(root) => Event { detached_root: Some(root), ..event },
            None => event.in_step(&self.step),
        }
    }

    /// Starts the rollback of the run. Fails the rollback if it has started already.
    fn fail(self, failure: Failure) -> Conclusion {
        let failure = failure.bounded(self.run.failure_text_bytes_max);
        if self.is_forward() {
            let event = self.event(EventKind::RollingBack).because_of(failure.clone());
            let run = Run { context: self.context, ..self.run.clone() };
            return Conclusion::ending(event, Fate::GoesOn(run.start_rollback(failure)));
        }
        let (cause, rollback_requested) = self.rollback_cause();
        let event = self.event(EventKind::RollbackFailed).because_of(failure.clone());
        Conclusion::ending(event, Fate::RollbackFailed { cause, failure, rollback_requested })
    }

    /// Requests rollback for every message of the instance, with or without handlers.
    fn request_rollbacks(self, messages: Vec<Uuid>) -> Conclusion {
        let (cause, _) = self.rollback_cause();
        let because = Failure::parent_said_so(&self.run.source, cause);
        let because = because.bounded_for_requests(self.run.failure_text_bytes_max);
        let (step, context) = (self.step.clone(), self.context.clone());
        let rollback_request = |message: &Uuid| {
            let event = Event::new(EventKind::RollbackEmitted, *message).in_step(&step);
            event.because_of(because.clone()).with(context.clone())
        };
        let mut events: Vec<_> = messages.iter().map(rollback_request).collect();
        let mut conclusion = self.suspend(None, 0, Decision::None, Returned::nothing());
        events.append(&mut conclusion.events);
        let rollback_cause = (!messages.is_empty()).then_some(because);
        Conclusion { events, rollback_requests: messages, rollback_cause, ..conclusion }
    }
}

impl Returned {
    /// The outcome of code that does nothing.
    pub fn nothing() -> Self {
        Self {
            next: None,
            output: None,
            replies: vec![],
            emissions: vec![],
            wait: None,
            signals: vec![],
            as_new: None,
        }
    }
}

impl Conclusion {
    fn ending(event: Event, fate: Fate) -> Self {
        Self::of(vec![event], fate)
    }

    fn of(events: Vec<Event>, fate: Fate) -> Self {
        Self {
            events,
            emissions: vec![],
            rollback_requests: vec![],
            rollback_cause: None,
            values: vec![],
            wait: None,
            signals: vec![],
            as_new: None,
            fate,
        }
    }

    /// Whether the run waits before its next move: for other runs or for a time.
    pub fn waits(&self) -> bool {
        self.wait.is_some() || self.waits_for_children()
    }

    /// Whether the run waits for other runs before its next move.
    pub fn waits_for_children(&self) -> bool {
        !self.rollback_requests.is_empty()
            || self.emissions.iter().any(|emission| emission.detached_root.is_none())
    }

    /// The context of the run after these events.
    pub fn context(&self) -> Option<&Context> {
        let own = self.events.iter().rev().find(|event| event.kind != EventKind::Emitted);
        own.map(|event| &event.context)
    }

    /// This conclusion and the next one as a single one. The run must not wait after this one.
    #[must_use]
    pub fn followed_by(mut self, next: Conclusion) -> Self {
        debug_assert!(!self.waits(), "the next move must wait");
        self.events.extend(next.events);
        self.emissions.extend(next.emissions);
        self.values.extend(next.values);
        self.signals.extend(next.signals);
        let Self { events, emissions, values, signals, .. } = self;
        let as_new = self.as_new.or(next.as_new);
        Self { events, emissions, values, signals, as_new, ..next }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ChildFailure, Lineage, RollbackProgress, StepDefinition};

    #[test]
    fn advice_names_the_step_of_the_user_and_not_its_wait() {
        let (saga, step) = (|| "saga".to_owned(), || "consent (waiting for signal)".to_owned());
        let instead = "ask".to_owned();
        for stuck in [
            Stuck::Ambiguous { saga: saga(), step: step(), instead },
            Stuck::NoSuchStep { saga: saga(), step: step() },
        ] {
            assert!(stuck.to_string().ends_with(r#"say so: `#[step(was = "consent")]`"#), "{stuck}");
        }
    }

    const STEPS: &[StepDefinition] =
        &[StepDefinition::new("a"), StepDefinition::new("b").compensated().handling_child_failure()];
    static SAGA: Definition = Definition::new("saga", "topic", STEPS);

    fn run_after(step: &str, next: Option<usize>) -> Run {
        let lineage = Lineage::root(Uuid::from_u128(1)).child(Uuid::from_u128(2));
        let jump = next.map(|next| STEPS[next].name.to_string());
        let last = Suspension { step: step.into(), jump, iteration: 0, handler_iteration: None };
        Run { last: Some(last), ..Run::new(lineage, Uuid::from_u128(3), "saga[w]") }
    }

    fn call(run: &Run) -> Call<'_> {
        match Continuation::of(&SAGA, run).unwrap() {
            Continuation::Call(call) => call,
            Continuation::Record(record) => panic!("{record:?}"),
        }
    }

    fn conclude(run: &Run, returned: Returned) -> Conclusion {
        call(run).conclude(Context::default(), Ok(returned))
    }

    fn emission(detached_root: Option<Uuid>) -> Emission {
        let (message, topic) = (Uuid::from_u128(4), "elsewhere".into());
        Emission {
            message,
            topic,
            payload: json!(null),
            detached_root,
            context: Context::default(),
            required: None,
            wait: None,
            found_by: vec![],
        }
    }

    fn went_on(conclusion: Conclusion) -> Run {
        match conclusion.fate {
            Fate::GoesOn(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn call_names_its_step_and_its_recorded_position() {
        let said = |call: Call<'_>| (call.action().step(), call.step().to_owned());
        assert_eq!(said(call(&run_after("b", Some(0)))), (0, "a".into()));
        let forward = run_after("a", Some(1));
        assert_eq!(said(call(&forward)), (1, "b".into()));

        let rolled_back = Failure::new("T", "m", "child[w]");
        let failed = ChildFailure { rolled_back, rollback_failed: None, rollback_requested: false };
        let handles = Run { failed_children: vec![failed], ..run_after("b", None) };
        assert_eq!(said(call(&handles)), (1, "b".into()));
        assert!(matches!(call(&handles).action(), Action::HandleChildFailure { .. }));

        let completed = Instance {
            step: "b".into(),
            handler_iteration: None,
            definition: None,
            emitted: vec![],
            by_strategy: false,
            output: None,
        };
        let plan = Plan::of(&RollbackNames::of(&SAGA), vec![completed]);
        let children_told = run_after(&plan.parts()[0].name, None);
        let mut backward = children_told.clone().start_rollback(Failure::new("T", "m", "saga[w]"));
        backward.set_rollback_plan(plan, RollbackProgress { last: children_told.last, has_begun: true });
        assert_eq!(said(call(&backward)), (1, "Rollback of b[0,]".into()));
        assert!(matches!(call(&backward).action(), Action::Compensate { .. }));
    }

    #[test]
    fn empty_rollback_completes_after_a_skipped_part() {
        let mut backward = run_after("a", None).start_rollback(Failure::new("T", "m", "saga[w]"));
        let skipped = run_after("Rollback of a[0,]", None).last;
        backward.set_rollback_plan(Plan::default(), RollbackProgress { last: skipped, has_begun: true });
        let Ok(Continuation::Record(record)) = Continuation::of(&SAGA, &backward) else { panic!() };
        assert_eq!(record.conclude().events[0].kind, EventKind::RolledBack);
    }

    #[test]
    fn giving_up_during_a_rollback_includes_failed_rollbacks_of_children() {
        let failure = |kind| Failure::new(kind, "m", "child[w]");
        let failed = ChildFailure {
            rolled_back: failure("A"),
            rollback_failed: Some(failure("B")),
            rollback_requested: true,
        };
        let mut forward = run_after("a", Some(1));
        forward.give_up = vec![failure("Asked")];
        let mut backward = forward.clone().start_rollback(failure("Cause"));
        let progress = RollbackProgress { last: forward.last.clone(), has_begun: false };
        backward.set_rollback_plan(Plan::default(), progress);
        for run in [&mut forward, &mut backward] {
            run.give_up = vec![failure("Asked")];
            run.failed_children = vec![failed.clone()];
        }
        let told = |run: &Run| match Continuation::of(&SAGA, run).unwrap() {
            Continuation::Record(record) => record.conclude().events.remove(0).exception.unwrap(),
            Continuation::Call(call) => panic!("{call:?}"),
        };
        assert!(told(&forward).contains(&failure("Asked")) && !told(&forward).contains(&failure("B")));
        assert!(told(&backward).contains(&failure("Asked")) && told(&backward).contains(&failure("B")));
    }

    #[test]
    fn only_attached_emissions_and_rollback_requests_involve_others() {
        let run = run_after("a", Some(1));
        let returned = |emissions| Returned { emissions, ..Returned::nothing() };
        let alone = Some(Uuid::from_u128(5));
        for (emissions, involves) in [
            (vec![], false),
            (vec![emission(alone)], false),
            (vec![emission(None)], true),
            (vec![emission(alone), emission(None)], true),
        ] {
            assert_eq!(conclude(&run, returned(emissions)).waits_for_children(), involves);
        }
        let told = Conclusion { rollback_requests: vec![Uuid::nil()], ..conclude(&run, Returned::nothing()) };
        assert!(told.waits_for_children());
    }

    #[test]
    fn run_that_sleeps_waits_and_its_event_says_so() {
        let run = run_after("a", Some(1));
        let wait = Some(Wait::until(time::OffsetDateTime::UNIX_EPOCH));
        let asleep = conclude(&run, Returned { wait: wait.clone(), ..Returned::nothing() });
        assert!(asleep.waits() && !asleep.waits_for_children());
        assert_eq!((&asleep.wait, &asleep.events[0].wait), (&wait, &wait));
        assert!(!conclude(&run, Returned::nothing()).waits());
    }

    #[test]
    fn reply_flag_survives_later_steps() {
        let run = run_after("a", Some(0));
        assert!(!went_on(conclude(&run, Returned::nothing())).replied);
        let replies = vec![("reply".to_owned(), json!(7))];
        let replied = went_on(conclude(&run, Returned { replies, ..Returned::nothing() }));
        assert!(replied.replied);
        assert!(went_on(conclude(&replied, Returned::nothing())).replied);
    }

    #[test]
    fn step_completed_under_a_former_name_counts_for_its_completions() {
        let renamed = StepDefinition::new("c").formerly(&["b", "a"]);
        let first = went_on(conclude(&run_after("b", Some(0)), Returned::nothing()));
        let second = went_on(conclude(&first, Returned { next: Some(Next::GoTo(0)), ..Returned::nothing() }));
        let third = went_on(conclude(&second, Returned::nothing()));
        let counts = |run: &Run| [&STEPS[0], &STEPS[1], &renamed].map(|step| run.completions_of(step));
        assert_eq!([&first, &second, &third].map(counts), [[1, 0, 1], [1, 1, 2], [2, 1, 3]]);

        let rolled_back = Failure::new("T", "m", "child[w]");
        let failed = ChildFailure { rolled_back, rollback_failed: None, rollback_requested: false };
        let handled = went_on(conclude(
            &Run { failed_children: vec![failed], ..second.clone() },
            Returned { next: Some(Next::GoTo(1)), ..Returned::nothing() },
        ));
        assert_eq!(counts(&handled), counts(&second), "a child failure handler completes no step");
        assert!(third.start_rollback(Failure::new("T", "m", "saga[w]")).completions.is_empty());
    }

    #[test]
    fn consecutive_conclusions_combine_into_one() {
        let run = run_after("a", Some(1));
        let output = |value: u32| Returned { output: Some(json!(value)), ..Returned::nothing() };
        let first = conclude(&run, Returned { emissions: vec![emission(Some(Uuid::nil()))], ..output(1) });
        let after = went_on(first.clone());
        let second = match Continuation::of(&SAGA, &after).unwrap() {
            Continuation::Record(record) => record.conclude(),
            Continuation::Call(call) => panic!("{call:?}"),
        };
        let both = first.clone().followed_by(second.clone());
        assert_eq!(both.events, [first.events, second.events].concat());
        assert_eq!((both.emissions, both.values), (first.emissions, first.values));
        assert_eq!(both.fate, Fate::Committed);
    }
}
