//! The sagas of the simulation: what their code does stands in the message.

use std::time::Duration;

use scoop::prelude::*;
use scoop::{Child, ChildOutcome, Emit as Emitting};
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

/// What handlers answer: to which message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    run: Uuid,
}

/// The number of the call whose outcome this is: each attempt leaves its own in the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ContextKey, Serialize, Deserialize)]
pub(crate) struct Attempt(pub(crate) usize);

/// How often the run has jumped.
#[derive(ContextKey, Serialize, Deserialize)]
struct Jumps {
    run: Uuid,
    count: u32,
}

/// What was planned to go wrong.
#[derive(Debug, thiserror::Error, FailureCode, Serialize, Deserialize)]
#[error("planned: coded {number}")]
#[failure(code = "sim.planned")]
struct Planned {
    number: usize,
}

/// How every text of a planned failure begins.
pub(crate) const PLANNED: &str = "planned:";

macro_rules! marks {
    ($($name:ident)*) => {$(
        /// What a step returns: where it ran.
        #[derive(Debug, Serialize, Deserialize)]
        pub(crate) struct $name(Mark);
    )*};
}

marks! { Mark0 Mark1 Mark2 }

/// Where a step ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    run: Uuid,
    iteration: u32,
    key: Uuid,
}

/// Where to go: a step by its number among those of the saga.
enum Wish {
    On,
    Repeat,
    Jump(usize),
}

impl Wish {
    fn next<S: Copy>(&self, steps: &[S]) -> Next<S> {
        match self {
            Self::Jump(step) => steps.get(*step).map_or(Next::Continue, |step| Next::goto(*step)),
            Self::Repeat => Next::Repeat,
            Self::On => Next::Continue,
        }
    }
}

/// One call of code.
struct Act<'a, 'b> {
    alive: &'a Alive,
    scope: &'a mut Scope<'b>,
    code: Code,
    /// What it was called with, for child failure handlers.
    failure: Option<&'a Failure>,
    emit: &'a Emit,
    /// Which of the steps of the saga, and how many there are.
    step: usize,
    number: usize,
}

impl<'a, 'b> Act<'a, 'b> {
    fn new(alive: &'a Alive, scope: &'a mut Scope<'b>, code: Code, emit: &'a Emit, step: usize) -> Self {
        let call = Call {
            run: scope.lineage().id(),
            handler: scope.handler().to_owned(),
            step: scope.step().to_owned(),
            code,
            iteration: scope.iteration(),
            attempt: scope.attempt(),
            key: scope.idempotency_key(),
        };
        let mut notes = alive.world.notes();
        notes.calls.push(call);
        let number = notes.calls.len() - 1;
        drop(notes);
        Self { alive, scope, code, failure: None, emit, step, number }
    }

    async fn run(mut self) -> Result<Wish> {
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

    /// What it does, if the script has a turn for it.
    fn turn(&self) -> Option<Turn> {
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

    /// Whatever was launched before has ended, and who was to answer has.
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
            // Whoever gave up waiting for some of them may still have to handle what others failed with.
            ChildOutcome::NeverStarted
                if self.code == Code::Step && !self.alive.world.notes().dropped.contains(&**handler) =>
            {
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

    /// The mark of an earlier step is one of this run.
    fn remembers(&self, mark: Option<&Mark>) {
        let run = self.scope.lineage().id();
        if mark.is_none_or(|mark| mark.run != run) {
            self.alive.world.complain(
                self.number,
                format!("I6: {mark:?} is what {} of {run} remembers", self.scope.step()),
            );
        }
    }

    /// The mark is that of the very execution that is undone.
    fn undoes(&self, mark: &Mark) {
        let (run, iteration) = (self.scope.lineage().id(), self.scope.iteration());
        if mark.run != run || mark.iteration != iteration {
            self.alive
                .world
                .complain(self.number, format!("I4: {mark:?} is given to what undoes {iteration} of {run}"));
        }
    }

    fn mark(&self) -> Mark {
        let scope = &self.scope;
        Mark { run: scope.lineage().id(), iteration: scope.iteration(), key: scope.idempotency_key() }
    }
}

fn nth_or_last(turns: &[Turn], nth: usize) -> Turn {
    turns.get(nth).or(turns.last()).cloned().unwrap_or_default()
}

/// What a handler does with a message.
pub(crate) fn script_of(emit: &Emit, handler: &str) -> Script {
    let of_topic = HANDLERS.iter().filter(|(_, topic, _)| *topic == emit.topic);
    let mut scripts = of_topic.zip(&emit.scripts);
    scripts.find(|((name, ..), _)| *name == handler).map(|(_, script)| script.clone()).unwrap_or_default()
}

async fn launch(scope: &mut Scope<'_>, emit: &Emit) -> Result<Uuid> {
    let said = emit.clone();
    match emit.topic {
        0 => with(emit, begin(scope, emit, Zero { emit: said })).await,
        1 => with(emit, begin(scope, emit, One { emit: said })).await,
        2 => with(emit, begin(scope, emit, Two { emit: said })).await,
        _ => with(emit, begin(scope, emit, Three { emit: said })).await,
    }
}

fn begin<'s, M: Message>(scope: &'s mut Scope<'_>, emit: &Emit, message: M) -> Emitting<'s, M> {
    if emit.detached { scope.detach(message) } else { scope.launch(message) }
}

async fn with<M: Message>(emit: &Emit, mut emitting: Emitting<'_, M>) -> Result<Uuid> {
    let time = |ms: u32| Duration::from_millis(ms.into());
    let [forward, back, both] = emit.deadlines;
    if emit.delay > 0 {
        emitting = emitting.delay(time(emit.delay));
    }
    if forward > 0 {
        emitting = emitting.deadline(time(forward));
    }
    if back > 0 {
        emitting = emitting.rollback_deadline(time(back));
    }
    if both > 0 {
        emitting = emitting.total_deadline(time(both));
    }
    emitting.await
}

/// Begins an act of a saga.
macro_rules! act {
    ($self:ident, $scope:ident, $code:ident, $message:ident, $step:literal) => {
        Act::new(&$self.0, $scope, Code::$code, &$message.emit, $step)
    };
}

pub(crate) struct Alpha(pub(crate) Alive);

#[saga(name = "alpha")]
#[subscribes(Zero)]
impl Alpha {
    #[step(rollback = undo_first, on_child_failure = handle_first)]
    async fn first(&self, scope: &mut Scope<'_>, message: &Zero) -> Result<With<AlphaStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    #[step(rollback = undo_second, on_child_failure = handle_second, finally = clean_up_second)]
    async fn second(&self, scope: &mut Scope<'_>, message: &Zero, first: &Mark0) -> Result<Mark1> {
        let act = act!(self, scope, Step, message, 1);
        act.remembers(Some(&first.0));
        let mark = Mark1(act.mark());
        act.run().await?;
        Ok(mark)
    }

    #[step(rollback = undo_third, retry(max = 1, backoff = "30ms"))]
    async fn third(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        first: &Mark0,
        second: Option<&Mark1>,
    ) -> Result<With<AlphaStep, Mark2>> {
        let act = act!(self, scope, Step, message, 2);
        act.remembers(Some(&first.0));
        if let Some(second) = second {
            act.remembers(Some(&second.0));
        }
        let mark = Mark2(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    const STEPS: [AlphaStep; 3] = [AlphaStep::First, AlphaStep::Second, AlphaStep::Third];

    async fn undo_first(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        mark: &Mark0,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn undo_second(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        mark: &Mark1,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 1);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn undo_third(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        mark: &Mark2,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 2);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn handle_first(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        failure: &Failure,
    ) -> Result<Next<AlphaStep>> {
        let act = act!(self, scope, OnChildFailure, message, 0);
        Ok(Act { failure: Some(failure), ..act }.run().await?.next(&Self::STEPS))
    }

    async fn handle_second(&self, scope: &mut Scope<'_>, message: &Zero, failure: &Failure) -> Result<()> {
        let act = act!(self, scope, OnChildFailure, message, 1);
        Act { failure: Some(failure), ..act }.run().await.map(drop)
    }

    async fn clean_up_second(&self, scope: &mut Scope<'_>, message: &Zero) -> Result<()> {
        act!(self, scope, Finally, message, 1).run().await.map(drop)
    }
}

pub(crate) struct Beta(pub(crate) Alive);

#[saga(name = "beta")]
#[subscribes(One)]
impl Beta {
    #[step(
        rollback = undo_first,
        retry(max = 2, backoff = "20ms..1s"),
        rollback_retry(max = 1, backoff = "10ms")
    )]
    async fn first(&self, scope: &mut Scope<'_>, message: &One) -> Result<With<BetaStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    #[step(rollback = undo_second)]
    async fn second(
        &self,
        scope: &mut Scope<'_>,
        message: &One,
        first: &Mark0,
    ) -> Result<With<BetaStep, Mark1>> {
        let act = act!(self, scope, Step, message, 1);
        act.remembers(Some(&first.0));
        let mark = Mark1(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    const STEPS: [BetaStep; 2] = [BetaStep::First, BetaStep::Second];

    async fn undo_first(
        &self,
        scope: &mut Scope<'_>,
        message: &One,
        mark: &Mark0,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn undo_second(
        &self,
        scope: &mut Scope<'_>,
        message: &One,
        mark: &Mark1,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 1);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }
}

pub(crate) struct Gamma(pub(crate) Alive);

#[saga(name = "gamma")]
#[subscribes(One)]
impl Gamma {
    #[step(rollback = undo_first, on_child_failure = handle_first, finally = clean_up_first)]
    async fn first(&self, scope: &mut Scope<'_>, message: &One) -> Result<Mark0> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        act.run().await?;
        Ok(mark)
    }

    #[step]
    async fn second(&self, scope: &mut Scope<'_>, message: &One, first: &Mark0) -> Result<Next<GammaStep>> {
        let act = act!(self, scope, Step, message, 1);
        act.remembers(Some(&first.0));
        Ok(act.run().await?.next(&Self::STEPS))
    }

    const STEPS: [GammaStep; 2] = [GammaStep::First, GammaStep::Second];

    async fn undo_first(
        &self,
        scope: &mut Scope<'_>,
        message: &One,
        mark: &Mark0,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn handle_first(&self, scope: &mut Scope<'_>, message: &One, failure: &Failure) -> Result<()> {
        let act = act!(self, scope, OnChildFailure, message, 0);
        Act { failure: Some(failure), ..act }.run().await.map(drop)
    }

    async fn clean_up_first(&self, scope: &mut Scope<'_>, message: &One) -> Result<()> {
        act!(self, scope, Finally, message, 0).run().await.map(drop)
    }
}

pub(crate) struct Delta(pub(crate) Alive);

#[saga(name = "delta")]
#[subscribes(Two)]
impl Delta {
    #[step(rollback = undo_first)]
    async fn first(&self, scope: &mut Scope<'_>, message: &Two) -> Result<With<DeltaStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        if act.scope.iteration() == 0 && act.turn().is_some_and(|turn| turn.replies) {
            let run = act.scope.lineage().id();
            act.scope.reply(message, Answer { run })?;
        }
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    #[step(rollback = undo_second, rollback_retry(max = 2, backoff = "5ms"))]
    async fn second(
        &self,
        scope: &mut Scope<'_>,
        message: &Two,
        first: &Mark0,
    ) -> Result<With<DeltaStep, Mark1>> {
        let act = act!(self, scope, Step, message, 1);
        act.remembers(Some(&first.0));
        let mark = Mark1(act.mark());
        Ok(act.run().await?.next(&[DeltaStep::Second, DeltaStep::Second]).with(mark))
    }

    const STEPS: [DeltaStep; 2] = [DeltaStep::Second, DeltaStep::Second];

    async fn undo_first(
        &self,
        scope: &mut Scope<'_>,
        message: &Two,
        mark: &Mark0,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn undo_second(
        &self,
        scope: &mut Scope<'_>,
        message: &Two,
        mark: &Mark1,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 1);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }
}

pub(crate) struct Zeta(pub(crate) Alive);

#[saga(name = "zeta")]
#[subscribes(Two)]
impl Zeta {
    #[step(rollback = undo, sleep = "50ms")]
    async fn only(&self, scope: &mut Scope<'_>, message: &Two) -> Result<With<ZetaStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&[ZetaStep::Only]).with(mark))
    }

    async fn undo(&self, scope: &mut Scope<'_>, message: &Two, mark: &Mark0, _: &Failure) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }
}

pub(crate) struct Epsilon(pub(crate) Alive);

#[saga(name = "epsilon")]
#[subscribes(Three)]
impl Epsilon {
    #[step(rollback = undo, retry(max = 1, backoff = "40ms"))]
    async fn only(&self, scope: &mut Scope<'_>, message: &Three) -> Result<With<EpsilonStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&[EpsilonStep::Only]).with(mark))
    }

    async fn undo(&self, scope: &mut Scope<'_>, message: &Three, mark: &Mark0, _: &Failure) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }
}

/// All of them as plain data, and the one that sleeps.
pub(crate) fn definitions() -> Vec<scoop::Definition> {
    vec![
        Alpha::DEFINITION,
        Beta::DEFINITION,
        Gamma::DEFINITION,
        Delta::DEFINITION,
        Zeta::DEFINITION,
        Epsilon::DEFINITION,
    ]
}

/// What launches a message from outside.
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
    mut launch: scoop::Launch<M>,
) -> Result<scoop::Handle, scoop::RuntimeError> {
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
    launch.await
}
