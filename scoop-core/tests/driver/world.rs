//! A model of the store and the engine: in memory, with one move after another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scoop_core::{
    Action, Call, ChildFailure, Conclusion, Context, Continuation, Definition, Emission, Event, EventKind,
    Execution, Failure, Fate, Instance, Lineage, Next, NextExecution, Path, Plan, RecordedStep, Returned,
    RollbackNames, RollbackProgress, Run, StepKind, Suspension, output_name,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::script::{Code, Element, End, Saga, Script, Since};

/// The number of moves after which a script counts as endless.
const MOVES_MAX: usize = 5_000;

/// The state that an engine keeps in memory between two moves of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The state of the run until it waits. Moves without user code are coalesced.
    Kept,
    /// None: every move begins with the stored state, as if the engine had died before it.
    Lost,
}

/// A stored event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) created_at: u64,
    /// `None` if no run wrote it.
    pub(crate) handler: Option<String>,
    pub(crate) lineage: Lineage,
    pub(crate) event: Event,
}

/// Code of a script that was called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Called {
    /// The number of rows before the call.
    pub(crate) rows_before: usize,
    pub(crate) lineage: Lineage,
    pub(crate) handler: String,
    pub(crate) step: String,
    pub(crate) code: Code,
    pub(crate) iteration: u32,
    /// For a child failure handler: the number of earlier calls, and the failure to handle.
    pub(crate) failure: Option<(u32, Failure)>,
    /// The context after the call.
    pub(crate) context: Context,
    /// The outputs of steps that it could read.
    pub(crate) outputs: BTreeMap<String, Value>,
    /// The messages whose emissions are recorded, except detached ones.
    pub(crate) emitted: Vec<Uuid>,
    pub(crate) returned: Option<Value>,
    /// Whether the step did not fail.
    pub(crate) ended_well: bool,
}

/// A fact that is not a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    Called(Box<Called>),
    SetAside { handler: String, reason: String },
}

/// The event log and the working set.
pub(crate) struct World<'a> {
    script: &'a Script,
    memory: Memory,
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<Note>,
    topics: BTreeMap<Uuid, String>,
    /// The definitions under which steps ended; their numbers are their positions.
    definitions: Vec<Arc<[RecordedStep]>>,
    /// The number of the definition of each SUSPENDED, by its time.
    ended_under: BTreeMap<u64, i32>,
    outputs: BTreeMap<(Lineage, String), Value>,
    runs: Vec<Entry>,
    calls: BTreeMap<(String, String, Code), usize>,
    set_aside: BTreeSet<String>,
    /// The runs that a cancellation request has reached, by request.
    asked: BTreeSet<(Uuid, usize)>,
    counter: u64,
}

/// A run in the working set.
struct Entry {
    lineage: Lineage,
    parent: Option<Uuid>,
    message: Uuid,
    topic: String,
    handler: String,
    state: State,
    begun: bool,
    rollback_requested: bool,
    cause: Option<Failure>,
    rollback_failure: Option<Failure>,
    rollback_started_at: u64,
    last: Option<Suspension>,
    /// The steps of the definition under which the newest step completed.
    recorded: Option<Arc<[RecordedStep]>>,
    suspensions: u32,
    execution: Execution,
    completions: BTreeMap<String, u32>,
    outputs: BTreeMap<String, Value>,
    context: Context,
    /// The context of the parent at its rollback request.
    told_with: Context,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Ready since this time.
    Ready(u64),
    Running,
    Waiting,
    /// Ended with a failure that the parent has not yet handled.
    Ended,
    SetAside,
}

impl<'a> World<'a> {
    /// Plays the script until no run is ready.
    pub(crate) fn play(script: &'a Script, memory: Memory) -> Self {
        let mut world = Self {
            script,
            memory,
            rows: vec![],
            notes: vec![],
            topics: BTreeMap::new(),
            definitions: vec![],
            ended_under: BTreeMap::new(),
            outputs: BTreeMap::new(),
            runs: vec![],
            calls: BTreeMap::new(),
            set_aside: BTreeSet::new(),
            asked: BTreeSet::new(),
            counter: 0,
        };
        for launch in &script.launches {
            let (message, root) = (world.id(), Lineage::root(world.id()));
            let context = with(Context::default(), &launch.context);
            world.write(None, &root, Event::new(EventKind::Emitted, message).with(context.clone()));
            world.deliver(message, &launch.topic, (&root, None), &context);
        }
        let mut moves = 0;
        while let Some(id) = world.next_ready() {
            world.claim(id);
            world.drive(id, &mut moves);
        }
        world
    }

    /// The code that was called, in order.
    pub(crate) fn called(&self) -> impl Iterator<Item = &Called> {
        self.notes.iter().filter_map(|note| match note {
            Note::Called(called) => Some(&**called),
            Note::SetAside { .. } => None,
        })
    }

    /// The handlers of a topic.
    pub(crate) fn handlers(&self, topic: &str) -> BTreeSet<String> {
        let sagas = self.script.sagas.iter();
        sagas.filter(|saga| saga.topic == topic).map(|saga| saga.name.clone()).collect()
    }

    /// The topic of a message.
    pub(crate) fn topic(&self, message: Uuid) -> &str {
        &self.topics[&message]
    }

    /// The runs that have not ended: their handlers, lineages and whether they were set aside.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = (&str, &Lineage, bool)> {
        let runs = self.runs.iter();
        let runs = runs.filter(|run| run.state != State::Ended);
        runs.map(|run| (&*run.handler, &run.lineage, run.state == State::SetAside))
    }

    /// Whether this is a step of some version of the handler's saga.
    pub(crate) fn is_own_step(&self, handler: &str, step: &str) -> bool {
        let mut sagas = self.script.sagas.iter();
        sagas.any(|saga| saga.name == handler && saga.steps.iter().any(|own| own.name == step))
    }

    fn drive(&mut self, id: Uuid, moves: &mut usize) {
        let mut kept = None;
        loop {
            *moves += 1;
            assert!(*moves < MOVES_MAX, "the script does not end");
            let mut run = match kept.take() {
                Some(run) if self.memory == Memory::Kept => run,
                _ => self.read(id),
            };
            let (handler, topic) = (self.entry(id).handler.clone(), self.entry(id).topic.clone());
            let saga = self.saga_at_hand(&handler, &topic);
            let definition = saga.definition();
            let (names, recorded) = (definition.recorded_steps(), &self.entry(id).recorded);
            run.recorded = recorded.clone().filter(|recorded| **recorded != *names);
            self.recall(&definition, &mut run);
            run.give_up = self.ask(id, &handler);
            let conclusion = match Continuation::of(&definition, &run) {
                Err(stuck) => return self.put_aside(id, stuck.to_string()),
                Ok(Continuation::Record(record)) => record.conclude(),
                Ok(Continuation::Call(call)) => self.call(saga, &run, call),
            };
            let conclusion = self.gather(&definition, conclusion);
            match self.settle(id, &run, &names, conclusion) {
                Some(after) => kept = Some(after),
                None => return,
            }
        }
    }

    /// The reasons for the run to give up now; each counts once.
    fn ask(&mut self, id: Uuid, handler: &str) -> Vec<Failure> {
        let mut reasons = vec![];
        for (index, request) in self.script.requests.iter().enumerate() {
            let concerns = request.handler == handler && self.rows.len() >= request.rows;
            if concerns && self.asked.insert((id, index)) {
                reasons.push(Failure::new("CancellationRequestedException", &request.reason, "script"));
            }
        }
        reasons
    }

    /// Coalesces the conclusion with the following moves without user code.
    fn gather(&self, definition: &Definition, mut conclusion: Conclusion) -> Conclusion {
        while self.memory == Memory::Kept && !conclusion.waits_for_children() {
            let Fate::GoesOn(run) = &mut conclusion.fate else {
                break;
            };
            // The conclusion is not in the log yet, so a plan read here would be incomplete during a rollback. But by
            // then the run has its plan.
            self.recall(definition, run);
            let Ok(Continuation::Record(record)) = Continuation::of(definition, run) else {
                break;
            };
            let following = record.conclude();
            conclusion = conclusion.followed_by(following);
        }
        conclusion
    }

    fn call(&mut self, saga: &Saga, run: &Run, call: Call<'_>) -> Conclusion {
        let (step, codes, iteration, failure) = match call.action() {
            Action::Invoke { step, iteration } => {
                let cleanup = saga.definition().steps[*step].kind == StepKind::Finally;
                (*step, vec![if cleanup { Code::Finally } else { Code::Invoke }], *iteration, None)
            }
            Action::Compensate { step, iteration, cause, finally, .. } => {
                self.check_cause(run, cause);
                let undo = saga.definition().steps[*step].compensated.then_some(Code::Undo);
                let cleanup = finally.then_some(Code::Finally);
                (*step, undo.into_iter().chain(cleanup).collect(), *iteration, None)
            }
            Action::HandleChildFailure { step, iteration, handler_iteration, failure } => {
                (*step, vec![Code::OnChildFailure], *iteration, Some((*handler_iteration, failure.clone())))
            }
        };
        let outputs = match call.action() {
            Action::Compensate { outputs, .. } => outputs.clone(),
            Action::Invoke { .. } | Action::HandleChildFailure { .. } => run.outputs.clone(),
        };
        let definition = saga.definition();
        let mut called = Called {
            rows_before: self.rows.len(),
            lineage: run.lineage.clone(),
            handler: saga.name.clone(),
            step: saga.step(&definition.steps[step].name).name.clone(),
            code: codes[0],
            iteration,
            failure,
            context: run.context.clone(),
            outputs,
            emitted: vec![],
            returned: None,
            ended_well: false,
        };
        let first = self.notes.len();
        let mut outcome = Ok(Returned::nothing());
        for code in codes {
            called.code = code;
            outcome = self.perform_after(outcome, saga, run, &mut called);
        }
        // The cleanup runs after a failed step, too; its emissions are lost with the step.
        let cleanup =
            called.code == Code::Invoke && !saga.step(&called.step).outcomes(Code::Finally).is_empty();
        if cleanup && outcome.is_err() {
            called.code = Code::Finally;
            let cleaned = self.perform(saga, run, &mut called);
            self.notes.push(Note::Called(Box::new(called.clone())));
            if let Err(another) = cleaned {
                outcome = outcome.map_err(|failure| failure.caused_by([another]));
            }
        }
        let conclusion = call.conclude(called.context.clone(), outcome);
        let ended_well = matches!(&conclusion.fate, Fate::GoesOn(after) if after.path == run.path);
        let scoped = |emission: &&Emission| emission.detached_root.is_none();
        let scoped: Vec<_> =
            conclusion.emissions.iter().filter(scoped).map(|emission| emission.message).collect();
        let returned = conclusion.values.first().map(|(_, value)| value.clone());
        for note in &mut self.notes[first..] {
            if let Note::Called(called) = note {
                called.ended_well = ended_well;
                called.emitted.clone_from(&scoped);
                called.returned.clone_from(&returned);
            }
        }
        conclusion
    }

    /// Performs the call if the one before succeeded, and combines their emissions.
    fn perform_after(
        &mut self,
        before: Result<Returned, Failure>,
        saga: &Saga,
        run: &Run,
        called: &mut Called,
    ) -> Result<Returned, Failure> {
        let mut before = before?;
        let outcome = self.perform(saga, run, called);
        self.notes.push(Note::Called(Box::new(called.clone())));
        let after = outcome?;
        before.emissions.extend(after.emissions);
        Ok(Returned { emissions: before.emissions, ..after })
    }

    /// Performs the outcome of this call in the script.
    fn perform(&mut self, saga: &Saga, run: &Run, called: &mut Called) -> Result<Returned, Failure> {
        let key = (called.handler.clone(), called.step.clone(), called.code);
        let before = self.calls.entry(key).or_insert(0);
        let outcomes = saga.step(&called.step).outcomes(called.code);
        let outcome = &outcomes[(*before).min(outcomes.len() - 1)];
        *before += 1;
        called.context = with(called.context.clone(), &outcome.sets);
        let mut emissions = vec![];
        for emit in &outcome.emits {
            let context = if emit.detached { Context::default() } else { called.context.clone() };
            emissions.push(Emission {
                message: self.id(),
                topic: emit.topic.clone(),
                payload: json!({ "from": called.handler }),
                detached_root: emit.detached.then(|| self.id()),
                context,
                required: None,
                wait: None,
                found_by: vec![],
            });
        }
        let next = match &outcome.end {
            End::Fail(text) => return Err(Failure::new("Error", text, &run.source)),
            End::Rethrow => {
                let failure = called.failure.as_ref();
                let (_, failure) = failure.expect("only a child failure can be rethrown");
                return Err(failure.clone());
            }
            End::Next(next) => Some(*next),
            End::ContinueAsNew => None,
            End::Well => [Code::Invoke, Code::Finally].contains(&called.code).then_some(Next::Continue),
        };
        Ok(Returned {
            next,
            output: outcome.returns.clone(),
            replies: vec![],
            emissions,
            wait: None,
            signals: vec![],
            as_new: (outcome.end == End::ContinueAsNew)
                .then(|| NextExecution { message: self.id(), payload: json!({ "from": called.handler }) }),
        })
    }

    /// Every compensation gets the cause of the rollback.
    fn check_cause(&self, run: &Run, cause: &Failure) {
        let turned_back = self
            .rows
            .iter()
            .find(|row| row.lineage == run.lineage && row.event.kind == EventKind::RollingBack);
        let recorded = turned_back.and_then(|row| row.event.exception.as_ref());
        assert_eq!(recorded, Some(cause), "why the compensation was called");
    }

    /// Reads the history of a run from the log, for its rollback plan.
    fn recall(&self, definition: &Definition, run: &mut Run) {
        if !run.needs_plan() {
            return;
        }
        let names = RollbackNames::of(definition);
        let (mut instances, mut last, mut emitted) = (vec![], None, vec![]);
        let (mut has_begun, mut former) = (false, 0);
        for row in self.rows.iter().filter(|row| row.lineage == run.lineage) {
            match row.event.kind {
                EventKind::Emitted => emitted.push(row.event.message),
                EventKind::Suspended => {
                    let step = row.event.step.clone().expect("a suspension has a step");
                    let emitted = std::mem::take(&mut emitted);
                    if names.matches(&step) {
                        has_begun |= row.event.handler_iteration.is_none();
                    } else {
                        let position = u32::try_from(instances.len()).expect("few instances");
                        let key = (run.lineage.clone(), output_name(&step, former + position));
                        instances.push(Instance {
                            step: step.clone(),
                            handler_iteration: row.event.handler_iteration,
                            definition: self.ended_under.get(&row.created_at).copied(),
                            emitted,
                            by_strategy: false,
                            output: self.outputs.get(&key).cloned(),
                        });
                    }
                    last = Some(Suspension {
                        step,
                        jump: row.event.jump.clone(),
                        iteration: 0,
                        handler_iteration: row.event.handler_iteration,
                    });
                    if row.event.as_new.is_some() {
                        former += u32::try_from(instances.len()).expect("few instances");
                        (instances, last) = (vec![], None);
                    }
                }
                _ => {}
            }
        }
        let plan = Plan::of(&names, instances);
        let known = plan.foreign(definition).into_iter().filter_map(|number| {
            Some((number, self.definitions.get(usize::try_from(number).ok()?)?.clone()))
        });
        let known = known.collect();
        run.set_rollback_plan(plan.knowing(known), RollbackProgress { last, has_begun });
    }

    /// The stored run.
    fn read(&self, id: Uuid) -> Run {
        let entry = self.entry(id);
        let source = format!("{}[w]", entry.handler);
        let mut run = Run::new(entry.lineage.clone(), entry.message, source);
        run.last = entry.last.clone();
        run.suspensions = entry.suspensions;
        run.execution = entry.execution;
        run.completions = entry.completions.clone();
        run.outputs = entry.outputs.clone();
        run.context = entry.context.clone();
        if let Some(cause) = &entry.cause {
            let (cause, rollback_requested) = (cause.clone(), entry.rollback_requested);
            run.path =
                Path::Backward { cause, rollback_requested, begun: false, failed_before: false, plan: None };
        }
        let children = self.runs.iter();
        let failed = children.filter(|run| run.parent == Some(id) && run.state == State::Ended);
        let mut failed: Vec<_> = failed.collect();
        failed.sort_by_key(|child| child.rollback_started_at);
        run.failed_children = failed.into_iter().map(Entry::as_failure).collect();
        run
    }

    /// Claims a run, and records its beginning.
    fn claim(&mut self, id: Uuid) {
        let entry = self.entry_mut(id);
        entry.state = State::Running;
        if std::mem::replace(&mut entry.begun, true) {
            return;
        }
        let (handler, lineage) = (entry.handler.clone(), entry.lineage.clone());
        let mut event = Event::new(EventKind::Seen, entry.message).with(entry.context.clone());
        if let Some(cause) = &entry.cause {
            event = Event::new(EventKind::RollingBack, entry.message).because_of(cause.clone());
            event = event.with(entry.told_with.clone());
        }
        self.write(Some(handler), &lineage, event);
        self.entry_mut(id).rollback_started_at = self.counter;
    }

    /// Persists a conclusion. Returns the run if it continues at once.
    fn settle(
        &mut self,
        id: Uuid,
        before: &Run,
        names: &[RecordedStep],
        conclusion: Conclusion,
    ) -> Option<Run> {
        let told_with = conclusion.context().cloned().unwrap_or_default();
        let undoing: Vec<_> =
            conclusion.rollback_requests.iter().flat_map(|message| self.to_be_undone(*message)).collect();
        let handler = self.entry(id).handler.clone();
        let kept = matches!(&conclusion.fate, Fate::GoesOn(run) if run.recorded.is_some());
        let steps = self.entry(id).recorded.clone().filter(|_| kept).unwrap_or_else(|| names.into());
        let definition = self.number_of(steps);
        for event in conclusion.events {
            let is_suspended = event.kind == EventKind::Suspended;
            match event.detached_root {
                Some(root) => self.write(None, &Lineage::root(root), event),
                None => self.write(Some(handler.clone()), &before.lineage, event),
            }
            if is_suspended {
                self.ended_under.insert(self.counter, definition);
            }
        }
        for (name, value) in conclusion.values {
            let doubled = self.outputs.insert((before.lineage.clone(), name), value);
            assert_eq!(doubled, None, "the name of an output is unique");
        }
        self.forget(id, before, &conclusion.fate);
        let mut waits = false;
        for emission in &conclusion.emissions {
            let (lineage, parent) = match emission.detached_root {
                Some(root) => (Lineage::root(root), None),
                None => (before.lineage.clone(), Some(id)),
            };
            let place = (&lineage, parent);
            let delivered = self.deliver(emission.message, &emission.topic, place, &emission.context);
            waits |= delivered && parent.is_some();
        }
        for mut entry in undoing {
            entry.parent = Some(id);
            entry.cause = conclusion.rollback_cause.clone();
            entry.told_with = told_with.clone();
            entry.context = entry.context.overlaid_by(&told_with);
            entry.state = State::Ready(self.tick());
            self.runs.push(entry);
            waits = true;
        }
        let now = self.counter;
        let entry = self.entry_mut(id);
        let turned_back = |fate: &Fate| !matches!(fate, Fate::GoesOn(run) if run.path == Path::Forward);
        if before.path == Path::Forward && turned_back(&conclusion.fate) {
            entry.rollback_started_at = now;
        }
        match conclusion.fate {
            Fate::GoesOn(run) => {
                entry.stand(&run);
                if run.recorded.is_none() {
                    entry.recorded = Some(names.into());
                }
                if waits {
                    entry.state = State::Waiting;
                }
                (!waits).then_some(run)
            }
            Fate::Committed => self.end(id, None),
            Fate::RolledBack { cause, rollback_requested } => {
                let noted = before.lineage.ids().len() > 2 && !rollback_requested;
                self.end(id, noted.then_some((cause, None)))
            }
            Fate::RollbackFailed { cause, failure, .. } => {
                let noted = before.lineage.ids().len() > 2;
                self.end(id, noted.then_some((cause, Some(failure))))
            }
        }
    }

    fn number_of(&mut self, steps: Arc<[RecordedStep]>) -> i32 {
        let known = self.definitions.iter().position(|known| *known == steps);
        let number = known.unwrap_or_else(|| {
            self.definitions.push(steps);
            self.definitions.len() - 1
        });
        i32::try_from(number).expect("few definitions")
    }

    /// Removes the children whose failures the run has handled.
    fn forget(&mut self, id: Uuid, before: &Run, fate: &Fate) {
        if before.failed_children.is_empty() {
            return;
        }
        let keeps_unrolled = matches!(fate, Fate::GoesOn(run) if !run.failed_children.is_empty());
        self.runs.retain(|child| {
            child.parent != Some(id)
                || child.state != State::Ended
                || keeps_unrolled && child.rollback_failure.is_some()
        });
    }

    /// Ends a run. With a failure to report, its entry stays until the parent has handled that.
    fn end(&mut self, id: Uuid, noted: Option<(Failure, Option<Failure>)>) -> Option<Run> {
        let parent = self.entry(id).parent;
        match noted {
            Some((cause, failure)) => {
                let entry = self.entry_mut(id);
                entry.state = State::Ended;
                entry.cause = Some(cause);
                entry.rollback_failure = failure;
            }
            None => self.runs.retain(|run| run.lineage.id() != id),
        }
        if let Some(parent) = parent {
            let at_work = |run: &Entry| run.parent == Some(parent) && run.state != State::Ended;
            if !self.runs.iter().any(at_work) {
                let ready = State::Ready(self.tick());
                self.entry_mut(parent).state = ready;
            }
        }
        None
    }

    /// The runs that handled this message and have not begun to roll back.
    fn to_be_undone(&self, message: Uuid) -> Vec<Entry> {
        let of = |kind| {
            let rows = self.rows.iter();
            rows.filter(move |row| row.event.kind == kind && row.event.message == message)
        };
        of(EventKind::Seen)
            .filter(|seen| !of(EventKind::RollingBack).any(|row| row.handler == seen.handler))
            .map(|seen| {
                let handler = seen.handler.clone().expect("a run has a handler");
                let topic = self.topics[&message].clone();
                let mut entry = Entry::new(seen.lineage.clone(), message, topic, handler);
                entry.rollback_requested = true;
                let mut committed = of(EventKind::Committed).filter(|row| row.handler == seen.handler);
                entry.context = committed.next().map(|row| row.event.context.clone()).unwrap_or_default();
                entry
            })
            .collect()
    }

    /// Starts a run for each handler of the topic. Returns whether there is one.
    fn deliver(
        &mut self,
        message: Uuid,
        topic: &str,
        (lineage, parent): (&Lineage, Option<Uuid>),
        context: &Context,
    ) -> bool {
        self.topics.insert(message, topic.to_owned());
        let mut handlers: Vec<String> = vec![];
        for saga in self.script.sagas.iter().filter(|saga| saga.topic == topic) {
            if !handlers.contains(&saga.name) {
                handlers.push(saga.name.clone());
            }
        }
        let delivered = !handlers.is_empty();
        for handler in handlers {
            let lineage = lineage.child(self.id());
            let mut entry = Entry::new(lineage, message, topic.to_owned(), handler);
            entry.parent = parent;
            entry.context = context.clone();
            entry.state = State::Ready(self.tick());
            self.runs.push(entry);
        }
        delivered
    }

    /// Sets a stuck run aside. It becomes ready again if the script has a version for stuck runs.
    fn put_aside(&mut self, id: Uuid, reason: String) {
        let handler = self.entry(id).handler.clone();
        let note = Note::SetAside { handler: handler.clone(), reason };
        self.notes.push(note);
        let mut sagas = self.script.sagas.iter();
        let remedy = sagas.any(|saga| saga.name == handler && saga.since == Since::Stuck);
        let again = remedy && self.set_aside.insert(handler);
        let ready = State::Ready(self.tick());
        self.entry_mut(id).state = if again { ready } else { State::SetAside };
    }

    /// The newest version of the saga.
    fn saga_at_hand(&self, handler: &str, topic: &str) -> &'a Saga {
        let sagas = self.script.sagas.iter();
        let mut versions = sagas.filter(|saga| saga.name == handler && saga.topic == topic);
        let at_hand = |saga: &&Saga| match saga.since {
            Since::Start => true,
            Since::Rows(rows) => self.rows.len() >= rows,
            Since::Stuck => self.set_aside.contains(handler),
        };
        versions.rfind(at_hand).expect("a run has a saga")
    }

    /// The run that has been ready for longest.
    fn next_ready(&self) -> Option<Uuid> {
        let ready = self.runs.iter().filter_map(|run| match run.state {
            State::Ready(since) => Some((since, run.lineage.id())),
            _ => None,
        });
        ready.min().map(|(_, id)| id)
    }

    fn write(&mut self, handler: Option<String>, lineage: &Lineage, event: Event) {
        let row = Row { created_at: self.tick(), handler, lineage: lineage.clone(), event };
        self.rows.push(row);
    }

    fn entry(&self, id: Uuid) -> &Entry {
        let mut runs = self.runs.iter();
        runs.find(|run| run.lineage.id() == id).expect("a run at work")
    }

    fn entry_mut(&mut self, id: Uuid) -> &mut Entry {
        let mut runs = self.runs.iter_mut();
        runs.find(|run| run.lineage.id() == id).expect("a run at work")
    }

    fn id(&mut self) -> Uuid {
        Uuid::from_u128(self.tick().into())
    }

    fn tick(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}

/// The context with these elements.
fn with(context: Context, elements: &[Element]) -> Context {
    let newer: BTreeMap<_, _> = elements.iter().cloned().collect();
    let newer = serde_json::to_string(&newer).and_then(|text| serde_json::from_str(&text));
    context.overlaid_by(&newer.expect("numbers are JSON"))
}

impl Entry {
    fn new(lineage: Lineage, message: Uuid, topic: String, handler: String) -> Self {
        Self {
            lineage,
            parent: None,
            message,
            topic,
            handler,
            state: State::Waiting,
            begun: false,
            rollback_requested: false,
            cause: None,
            rollback_failure: None,
            rollback_started_at: 0,
            last: None,
            recorded: None,
            suspensions: 0,
            execution: Execution::default(),
            completions: BTreeMap::new(),
            outputs: BTreeMap::new(),
            context: Context::default(),
            told_with: Context::default(),
        }
    }

    /// Takes over the state of the run.
    fn stand(&mut self, run: &Run) {
        self.last = run.last.clone();
        self.suspensions = run.suspensions;
        self.execution = run.execution;
        self.completions = run.completions.clone();
        self.outputs = run.outputs.clone();
        self.context = run.context.clone();
        if let Path::Backward { cause, .. } = &run.path {
            self.cause = Some(cause.clone());
        }
    }

    fn as_failure(&self) -> ChildFailure {
        ChildFailure {
            rolled_back: self.cause.clone().expect("a failed child has a cause"),
            rollback_failed: self.rollback_failure.clone(),
            rollback_requested: self.rollback_requested,
        }
    }
}
