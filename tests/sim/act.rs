//! The code of the sagas. Each step executes the script in its message.

use std::time::Duration;

use scoop::launch::Emit as Emitting;
use scoop::prelude::*;
use scoop::{Child, ChildOutcome};
use uuid::Uuid;

use crate::scenario::{Emit, End, HANDLERS, Script, Turn};
use crate::world::{Alive, Call, Code};

macro_rules! messages {
    ($($name:ident $topic:literal,)*) => {$(
        #[derive(Message, Serialize, Deserialize)]
        #[message(topic = $topic, reply = Answer)]
        pub(crate) struct $name {
            pub(crate) emit: Emit,
        }
    )*};
}

messages! {
    Zero "zero",
    One "one",
    Two "two",
    Three "three",
}

/// A reply of a handler: the message that it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) run: Uuid,
}

/// The number of the call with this outcome. Each attempt leaves its own number in the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ContextKey, Serialize, Deserialize)]
pub(crate) struct Attempt(pub(crate) usize);

/// How often the run has jumped.
#[derive(ContextKey, Serialize, Deserialize)]
struct Jumps {
    run: Uuid,
    count: u32,
}

/// A planned failure.
#[derive(Debug, thiserror::Error, FailureCode, Serialize, Deserialize)]
#[error("planned: coded {number}")]
#[failure(code = "sim.planned")]
struct Planned {
    number: usize,
}

/// The prefix of every text of a planned failure.
pub(crate) const PLANNED: &str = "planned:";

macro_rules! marks {
    ($($name:ident)*) => {$(
        /// The value of a step: the place where it ran.
        #[derive(Debug, Serialize, Deserialize)]
        pub(crate) struct $name(pub(crate) Mark);

        impl Left for &$name {
            fn left(&self) -> Option<&Mark> {
                Some(&self.0)
            }
        }
    )*};
}

/// The value of an earlier step, if it ran.
pub(crate) trait Left {
    /// Its mark.
    fn left(&self) -> Option<&Mark>;
}

impl<T: Left> Left for Option<T> {
    fn left(&self) -> Option<&Mark> {
        self.as_ref().and_then(T::left)
    }
}

marks! { Mark0 Mark1 Mark2 Mark3 Mark4 Mark5 }

/// Where a step ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    run: Uuid,
    iteration: u32,
    key: Uuid,
}

/// The next step: by its number among the steps of the saga.
pub(crate) enum Wish {
    On,
    Repeat,
    Jump(usize),
}

impl Wish {
    pub(crate) fn next<S: Copy>(&self, steps: &[S]) -> Next<S> {
        match self {
            Self::Jump(step) => steps.get(*step).map_or(Next::Continue, |step| Next::goto(*step)),
            Self::Repeat => Next::Repeat,
            Self::On => Next::Continue,
        }
    }

    /// Like `next`, for steps that have other numbers in the scripts.
    pub(crate) fn next_of<S: Copy>(&self, steps: &[(usize, S)]) -> Next<S> {
        match self {
            Self::Jump(number) => {
                let step = steps.iter().find(|(known, _)| known == number);
                step.map_or(Next::Continue, |(_, step)| Next::goto(*step))
            }
            Self::Repeat => Next::Repeat,
            Self::On => Next::Continue,
        }
    }
}

/// One call of code.
pub(crate) struct Act<'a, 'b> {
    alive: &'a Alive,
    pub(crate) scope: &'a mut Scope<'b>,
    code: Code,
    /// The failure passed to it, for child failure handlers.
    failure: Option<&'a Failure>,
    emit: &'a Emit,
    /// The number of the step in the scripts.
    step: usize,
    /// The number of the call.
    number: usize,
}

impl<'a, 'b> Act<'a, 'b> {
    pub(crate) fn new(
        alive: &'a Alive,
        scope: &'a mut Scope<'b>,
        code: Code,
        emit: &'a Emit,
        step: usize,
    ) -> Self {
        let call = Call {
            run: scope.lineage().id(),
            handler: scope.handler().to_owned(),
            step: scope.step().to_owned(),
            code,
            iteration: scope.iteration(),
            attempt: scope.attempt(),
            key: scope.idempotency_key(),
            number: step,
            version: alive.version,
            jumps: false,
        };
        let mut notes = alive.world.notes();
        notes.calls.push(call);
        let number = notes.calls.len() - 1;
        drop(notes);
        Self { alive, scope, code, failure: None, emit, step, number }
    }

    /// Like `new`, for a call that handles a failure of children.
    pub(crate) fn handling(self, failure: &'a Failure) -> Self {
        Self { failure: Some(failure), ..self }
    }

    pub(crate) async fn run(mut self) -> Result<Wish> {
        self.alive.or_never().await;
        self.scope.set(Attempt(self.number))?;
        let Some(turn) = self.turn() else {
            return Err(Error::failure(self.failure.expect("only handlers run out of turns").clone()));
        };
        if turn.takes > 0 {
            tokio::time::sleep(Duration::from_millis(turn.takes.into())).await;
        }
        self.alive.or_never().await;
        self.look_at_children().await?;
        if self.scope.attempt() < turn.fails_first.into() {
            return Err(Error::msg(format!("{PLANNED} try again, {}", self.number)));
        }
        let wish = self.wish(&turn)?;
        for emit in &turn.emits {
            self.launch(emit).await?;
        }
        if turn.sleeps > 0 && self.code != Code::Finally {
            self.scope.sleep(Duration::from_millis(turn.sleeps.into())).await?;
        }
        self.alive.or_never().await;
        self.end(&turn, wish)
    }

    /// Its actions, if the script has a turn for it.
    pub(crate) fn turn(&self) -> Option<Turn> {
        let script = script_of(self.emit, self.scope.handler());
        let step = script.steps.get(self.step).cloned().unwrap_or_default();
        let iteration = self.scope.iteration() as usize;
        match self.code {
            Code::Step => Some(nth_or_last(&step.turns, iteration)),
            Code::Undo => Some(step.undo),
            Code::Finally => Some(step.finally),
            Code::OnChildFailure => {
                step.on_child_failure.get(self.scope.handler_iteration() as usize).cloned()
            }
        }
    }

    fn wish(&mut self, turn: &Turn) -> Result<Wish> {
        let script = script_of(self.emit, self.scope.handler());
        let turns = script.steps.get(self.step).map_or(0, |step| step.turns.len());
        match turn.end {
            End::Repeat if (self.scope.iteration() as usize) + 1 < turns => Ok(Wish::Repeat),
            End::Jump(to) => {
                let run = self.scope.lineage().id();
                let jumps = self.scope.get::<Jumps>()?.filter(|jumps| jumps.run == run);
                let count = jumps.map_or(0, |jumps| jumps.count);
                if count >= 2 || self.code == Code::Undo || self.code == Code::Finally {
                    return Ok(Wish::On);
                }
                self.scope.set(Jumps { run, count: count + 1 })?;
                self.alive.world.notes().calls[self.number].jumps = true;
                Ok(Wish::Jump(to.into()))
            }
            _ => Ok(Wish::On),
        }
    }

    fn end(self, turn: &Turn, wish: Wish) -> Result<Wish> {
        match turn.end {
            End::Fail => Err(Error::msg(format!("{PLANNED} plain {}", self.number))),
            End::FailCoded => Err(Planned { number: self.number }.into()),
            End::Panic => panic!("{PLANNED} panic {}", self.number),
            End::Rethrow => match self.failure {
                Some(failure) => Err(Error::failure(failure.clone())),
                None => Ok(wish),
            },
            End::Well | End::Repeat | End::Jump(_) => Ok(wish),
        }
    }

    async fn launch(&mut self, emit: &Emit) -> Result<()> {
        let message = launch(self.scope, emit).await?;
        self.alive.world.notes().messages.insert(message, emit.clone());
        Ok(())
    }

    /// Checks that all messages launched before have ended, with the expected replies.
    async fn look_at_children(&mut self) -> Result<()> {
        if !matches!(self.code, Code::Step | Code::OnChildFailure) {
            return Ok(());
        }
        let children = self.scope.children().await?;
        let mut answered = vec![];
        answered.extend(self.scope.replies::<Two>().await?.into_iter().map(|reply| reply.message_id));
        let committed = |message: &Uuid| {
            let mut of_message = children.iter().filter(|child| child.message_id == *message);
            of_message.any(|child| child.outcome == ChildOutcome::Committed)
        };
        if let Some(void) = answered.iter().find(|message| !committed(message)) {
            let place = format!("{} of {}", self.scope.step(), self.scope.lineage());
            self.alive
                .world
                .complain(self.number, format!("{void} has a reply in {place}, but did not commit"));
        }
        for child in children {
            self.check(&child, answered.contains(&child.message_id));
        }
        Ok(())
    }

    fn check(&self, child: &Child, answered: bool) {
        let Child { handler, message_id, outcome, .. } = child;
        let place = || format!("{} of {}", self.scope.step(), self.scope.lineage());
        let complain = |what: &str| {
            self.alive
                .world
                .complain(self.number, format!("I1: `{handler}` is {what} as {} begins", place()));
        };
        match outcome {
            ChildOutcome::Unfinished => complain("unfinished"),
            // A run that gave up waiting for some children may still have to handle the failures of others.
            ChildOutcome::NeverStarted if self.code == Code::Step => {
                complain("not even started");
            }
            ChildOutcome::Committed if handler == "delta" => {
                let emit = self.alive.world.notes().messages.get(message_id).cloned();
                let replies = emit.is_some_and(|emit| {
                    let script = script_of(&emit, handler);
                    script.steps.first().and_then(|step| step.turns.first()).is_some_and(|turn| turn.replies)
                });
                if replies && !answered {
                    complain("without an answer");
                }
            }
            _ => {}
        }
    }

    /// Checks that the mark of an earlier step is one of this run.
    pub(crate) fn remembers(&self, mark: Option<&Mark>) {
        let run = self.scope.lineage().id();
        if mark.is_none_or(|mark| mark.run != run) {
            self.alive.world.complain(
                self.number,
                format!("I6: {mark:?} is what {} of {run} remembers", self.scope.step()),
            );
        }
    }

    /// Checks that the mark is that of the execution to compensate.
    pub(crate) fn undoes(&self, mark: &Mark) {
        let (run, iteration) = (self.scope.lineage().id(), self.scope.iteration());
        if mark.run != run || mark.iteration != iteration {
            self.alive
                .world
                .complain(self.number, format!("I4: {mark:?} is given to what undoes {iteration} of {run}"));
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        let scope = &self.scope;
        Mark { run: scope.lineage().id(), iteration: scope.iteration(), key: scope.idempotency_key() }
    }
}

fn nth_or_last(turns: &[Turn], nth: usize) -> Turn {
    turns.get(nth).or(turns.last()).cloned().unwrap_or_default()
}

/// The handling of a message.
pub(crate) fn script_of(emit: &Emit, handler: &str) -> Script {
    let of_topic = HANDLERS.iter().filter(|(_, topic, _)| *topic == emit.topic);
    let mut scripts = of_topic.zip(&emit.scripts);
    scripts.find(|((name, ..), _)| *name == handler).map(|(_, script)| script.clone()).unwrap_or_default()
}

/// A launch, from a step or from outside, with the delay and the deadlines of the emission.
macro_rules! timed {
    ($launch:expr, $emit:expr) => {{
        let (mut launch, emit) = ($launch, $emit);
        let time = |ms: u32| Duration::from_millis(ms.into());
        let [forward, back, both] = emit.deadlines;
        if emit.delay > 0 {
            launch = launch.delay(time(emit.delay));
        }
        if forward > 0 {
            launch = launch.deadline(time(forward));
        }
        if back > 0 {
            launch = launch.rollback_deadline(time(back));
        }
        if both > 0 {
            launch = launch.total_deadline(time(both));
        }
        launch
    }};
}

async fn launch(scope: &mut Scope<'_>, emit: &Emit) -> Result<Uuid> {
    let said = emit.clone();
    let emitting = match emit.topic {
        0 => begin(scope, emit, Zero { emit: said }),
        1 => begin(scope, emit, One { emit: said }),
        2 => begin(scope, emit, Two { emit: said }),
        _ => begin(scope, emit, Three { emit: said }),
    };
    timed!(emitting, emit).await
}

fn begin<'s, M: Message>(scope: &'s mut Scope<'_>, emit: &Emit, message: M) -> Emitting<'s> {
    if emit.detached { scope.detach(message) } else { scope.launch(message) }
}

/// The launcher of a message from outside.
pub(crate) async fn launch_from_outside(
    scoop: &Scoop,
    emit: &Emit,
) -> Result<scoop::Handle, scoop::RuntimeError> {
    let emit_ = || emit.clone();
    match emit.topic {
        0 => outside(emit, scoop.launch(Zero { emit: emit_() })).await,
        1 => outside(emit, scoop.launch(One { emit: emit_() })).await,
        2 => outside(emit, scoop.launch(Two { emit: emit_() })).await,
        _ => outside(emit, scoop.launch(Three { emit: emit_() })).await,
    }
}

async fn outside<M: Message>(
    emit: &Emit,
    launch: scoop::launch::Launch<M>,
) -> Result<scoop::Handle, scoop::RuntimeError> {
    timed!(launch, emit).await
}
