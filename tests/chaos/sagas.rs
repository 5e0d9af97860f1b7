//! The sagas under test: they execute the plan in their message, and enter their effects in the ledgers.

use std::sync::Arc;

use std::time::Duration;

use scoop::prelude::*;
use scoop::{FailureCode, Interrupted};

use crate::ledger::{Outside, What, enter, enter_lap};
use crate::plan::{Child, End, Judgement, Plan, StepPlan};

/// The text of a planned panic.
pub(crate) const PLANNED_PANIC: &str = "a panic as planned";

/// The number of handlers that a worker registers.
pub(crate) const HANDLERS: i64 = 8;

/// A hierarchy of that number, or a part of it.
#[derive(Clone, Debug, Message, Serialize, Deserialize)]
#[message(topic = "chaos.job")]
pub(crate) struct Job {
    pub(crate) number: i64,
    pub(crate) plan: Plan,
}

/// An errand for two sagas.
#[derive(Clone, Debug, Message, Serialize, Deserialize)]
#[message(topic = "chaos.errand")]
pub(crate) struct Run {
    pub(crate) number: i64,
    pub(crate) fails: bool,
}

/// A visit: one saga waits to be admitted, and another one admits it.
#[derive(Clone, Debug, Message, Serialize, Deserialize)]
#[message(topic = "chaos.visit")]
pub(crate) struct Visit {
    pub(crate) number: i64,
}

/// The signal for visitors, under the id of their hierarchy.
#[derive(Clone, Debug, Signal, Serialize, Deserialize)]
#[signal(name = "chaos.admission", retention = "7 days")]
pub(crate) struct Admission {
    pub(crate) number: i64,
}

/// The order for an effect outside that takes place once or not at all.
#[derive(Clone, Debug, Message, Serialize, Deserialize)]
#[message(topic = "chaos.wager")]
pub(crate) struct Wager;

/// A lap, and the number of laps after it.
#[derive(Clone, Debug, Message, Serialize, Deserialize)]
#[message(topic = "chaos.lap")]
pub(crate) struct Lap {
    pub(crate) left: u32,
}

/// An error that disappears in a later attempt.
#[derive(Debug, thiserror::Error)]
#[error("a hiccup")]
struct Hiccup;

/// An error without a text.
#[derive(Debug)]
struct Unprintable;

impl std::error::Error for Unprintable {}

impl std::fmt::Display for Unprintable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("{PLANNED_PANIC}")
    }
}

/// Fails as often as planned.
fn hiccup(scope: &Scope<'_>, times: u32) -> Result<()> {
    if scope.attempt() < times { Err(Hiccup.into()) } else { Ok(()) }
}

fn is_hiccup(error: &Error) -> bool {
    error.downcast_ref::<Hiccup>().is_some()
}

/// Executes its plan.
pub(crate) struct Node {
    pub(crate) outside: Arc<Outside>,
}

impl Node {
    async fn perform(&self, scope: &mut Scope<'_>, job: &Job, step: usize) -> Result<Next<NodeStep>> {
        let plan = &job.plan.steps[step];
        if plan.in_database {
            enter(scope, job.number, What::Done).await?;
        }
        if plan.outside {
            self.outside.enter(scope, What::Done)?;
        }
        hiccup(scope, plan.hiccups)?;
        let is_last = scope.iteration() >= plan.repeats;
        match plan.end {
            End::Fails if is_last => return Err(Error::msg("it fails as planned")),
            End::Panics if is_last => panic!("{PLANNED_PANIC}"),
            End::FailsUnprintably if is_last => return Err(Unprintable.into()),
            _ => {}
        }
        launch(scope, job.number, plan).await?;
        Ok(if is_last { Next::Continue } else { Next::Repeat })
    }

    async fn undo(&self, scope: &mut Scope<'_>, job: &Job, step: usize) -> Result<()> {
        let plan = &job.plan.steps[step];
        if plan.in_database {
            enter(scope, job.number, What::Undone).await?;
        }
        if plan.outside {
            self.outside.enter(scope, What::Undone)?;
        }
        Ok(())
    }

    async fn judge(&self, scope: &mut Scope<'_>, job: &Job, step: usize, why: &Failure) -> Result<()> {
        // Whether a wager is interrupted is not planned.
        if why.root_causes().iter().all(|cause| cause.kind == Interrupted::CODE) {
            return Ok(());
        }
        match job.plan.steps[step].judgement {
            Judgement::Replace if scope.handler_iteration() == 0 => {
                scope.launch(Job { number: job.number, plan: Plan::default() }).await?;
                Ok(())
            }
            Judgement::Accept => Ok(()),
            _ => Err(Error::failure(why.clone())),
        }
    }
}

async fn launch(scope: &mut Scope<'_>, number: i64, plan: &StepPlan) -> Result<()> {
    for child in &plan.children {
        match child.clone() {
            Child::Node(plan) => scope.launch(Job { number, plan: *plan }).await?,
            Child::Errand { fails } => scope.launch(Run { number, fails }).await?,
            Child::Visit => scope.launch(Visit { number }).await?,
            Child::Wager => scope.launch(Wager).await?,
            Child::Laps(left) => scope.launch(Lap { left }).await?,
        };
    }
    if plan.sleep_ms > 0 {
        scope.sleep(Duration::from_millis(plan.sleep_ms)).await?;
    }
    Ok(())
}

#[saga]
#[subscribes(Job)]
impl Node {
    #[step(rollback = undo_first, on_child_failure = judge_first, finally = tidy_up,
           retry(max = 3, backoff = "2ms..20ms", when = is_worth_it))]
    async fn first(&self, scope: &mut Scope<'_>, job: &Job) -> Result<()> {
        self.perform(scope, job, 0).await.map(drop)
    }

    async fn undo_first(&self, scope: &mut Scope<'_>, job: &Job, _: &Failure) -> Result<()> {
        self.undo(scope, job, 0).await?;
        if job.plan.cannot_be_undone { Err(Error::msg("it cannot be undone")) } else { Ok(()) }
    }

    async fn judge_first(&self, scope: &mut Scope<'_>, job: &Job, why: &Failure) -> Result<()> {
        self.judge(scope, job, 0, why).await
    }

    async fn tidy_up(&self, scope: &mut Scope<'_>, job: &Job) -> Result<()> {
        enter(scope, job.number, What::TidiedUp).await
    }

    #[step(rollback = undo_second, on_child_failure = judge_second,
           retry(max = 3, backoff = "2ms..20ms", when = is_worth_it))]
    async fn second(&self, scope: &mut Scope<'_>, job: &Job) -> Result<Next<NodeStep>> {
        self.perform(scope, job, 1).await
    }

    async fn undo_second(&self, scope: &mut Scope<'_>, job: &Job, _: &Failure) -> Result<()> {
        self.undo(scope, job, 1).await
    }

    async fn judge_second(&self, scope: &mut Scope<'_>, job: &Job, why: &Failure) -> Result<()> {
        self.judge(scope, job, 1, why).await
    }

    #[step(rollback = undo_third, on_child_failure = judge_third, rollback_retry(max = 3, backoff = "2ms..20ms"),
           retry(max = 3, backoff = "2ms..20ms", when = is_worth_it))]
    async fn third(&self, scope: &mut Scope<'_>, job: &Job) -> Result<Next<NodeStep>> {
        self.perform(scope, job, 2).await
    }

    async fn undo_third(&self, scope: &mut Scope<'_>, job: &Job, _: &Failure) -> Result<()> {
        self.undo(scope, job, 2).await?;
        hiccup(scope, job.plan.clumsy)
    }

    async fn judge_third(&self, scope: &mut Scope<'_>, job: &Job, why: &Failure) -> Result<()> {
        self.judge(scope, job, 2, why).await
    }

    fn is_worth_it(error: &Error) -> bool {
        is_hiccup(error)
    }
}

/// Writes to the database, then does nothing there.
#[derive(Default)]
pub(crate) struct Carrier;

#[saga]
#[subscribes(Run)]
impl Carrier {
    #[step(rollback = bring_back)]
    async fn carry(&self, scope: &mut Scope<'_>, run: &Run) -> Result<()> {
        enter(scope, run.number, What::Done).await
    }

    async fn bring_back(&self, scope: &mut Scope<'_>, run: &Run, _: &Failure) -> Result<()> {
        enter(scope, run.number, What::Undone).await
    }

    #[step]
    async fn ring(&self, _: &mut Scope<'_>, run: &Run) -> Result<()> {
        if run.fails { Err(Error::msg("the recipient is not at home, as planned")) } else { Ok(()) }
    }
}

/// Handles the same message, and does nothing in the database.
pub(crate) struct Witness {
    pub(crate) outside: Arc<Outside>,
}

#[saga]
#[subscribes(Run)]
impl Witness {
    #[step(rollback = forget)]
    async fn watch(&self, scope: &mut Scope<'_>, _: &Run) -> Result<()> {
        self.outside.enter(scope, What::Done)
    }

    async fn forget(&self, scope: &mut Scope<'_>, _: &Run, _: &Failure) -> Result<()> {
        self.outside.enter(scope, What::Undone)
    }
}

/// Waits for a signal, which does not come if another visitor of its hierarchy has taken it.
#[derive(Default)]
pub(crate) struct Visitor;

#[saga]
#[subscribes(Visit)]
impl Visitor {
    #[step(rollback = leave)]
    async fn arrive(&self, scope: &mut Scope<'_>, visit: &Visit) -> Result<()> {
        enter(scope, visit.number, What::Done).await
    }

    #[step(awaits(Admission, by = hierarchy, within = "3s"), rollback = go_out)]
    async fn go_in(&self, scope: &mut Scope<'_>, visit: &Visit, admission: Option<&Admission>) -> Result<()> {
        if admission.is_some_and(|admission| admission.number != visit.number) {
            return Err(Error::msg("the admission is that of another hierarchy"));
        }
        enter(scope, visit.number, What::Done).await
    }

    async fn hierarchy(&self, scope: &mut Scope<'_>, _: &Visit) -> Result<String> {
        Ok(scope.lineage().root_id().to_string())
    }

    async fn leave(&self, scope: &mut Scope<'_>, visit: &Visit, _: &Failure) -> Result<()> {
        enter(scope, visit.number, What::Undone).await
    }

    async fn go_out(&self, scope: &mut Scope<'_>, visit: &Visit, _: &Failure) -> Result<()> {
        enter(scope, visit.number, What::Undone).await
    }
}

/// Handles the same message, and sends the signal.
#[derive(Default)]
pub(crate) struct Usher;

#[saga]
#[subscribes(Visit)]
impl Usher {
    #[step]
    async fn admit(&self, scope: &mut Scope<'_>, visit: &Visit) -> Result<()> {
        let hierarchy = scope.lineage().root_id().to_string();
        scope.signal(Admission { number: visit.number }, hierarchy)
    }
}

/// Has an effect outside at most once.
pub(crate) struct Gambler {
    pub(crate) outside: Arc<Outside>,
}

#[saga]
#[subscribes(Wager)]
impl Gambler {
    #[step(delivery = "at_most_once", rollback = take_back)]
    async fn stake(&self, scope: &mut Scope<'_>, _: &Wager) -> Result<()> {
        self.outside.enter(scope, What::Done)
    }

    async fn take_back(&self, scope: &mut Scope<'_>, _: &Wager, _: &Failure) -> Result<()> {
        self.outside.enter(scope, What::Undone)
    }
}

/// Goes on anew for each lap. Its executions but the newest one are not rolled back.
#[derive(Default)]
pub(crate) struct Runner;

#[saga]
#[subscribes(Lap)]
impl Runner {
    #[step]
    async fn run_lap(&self, scope: &mut Scope<'_>, lap: &Lap) -> Result<()> {
        enter_lap(scope, lap.left).await
    }

    #[step]
    async fn turn(&self, _: &mut Scope<'_>, lap: &Lap) -> Result<ContinueAsNew<RunnerStep, Lap>> {
        match lap.left {
            0 => Ok(Next::Continue.into()),
            left => Ok(Next::continue_as_new(Lap { left: left - 1 })),
        }
    }
}

/// A scheduled saga. Its entries are numbered downwards, one for each tick.
#[derive(Default)]
pub(crate) struct Clockwork;

#[saga(every = "300ms", missed = "all")]
#[subscribes(Tick)]
impl Clockwork {
    #[step]
    async fn strike(&self, scope: &mut Scope<'_>, tick: &Tick) -> Result<()> {
        enter(scope, -i64::try_from(tick.count())?, What::Done).await
    }
}
