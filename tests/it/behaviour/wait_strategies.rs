//! Launches whose handlers are waited for by a strategy: for some of them, for a time, or by a rule of the program's own.

use std::time::Duration;

use scoop::wait::{
    AtLeast, ChildState, Only, Registered, Verdict, WaitFacts, WaitPlan, WaitStrategy, Window, Without,
};

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

/// What the saga that asks does.
#[derive(Clone, Default, Message, Serialize, Deserialize)]
#[message(topic = "strategies.ask")]
struct Ask {
    plan: Plan,
    quote: Quote,
    /// Whether its last step fails.
    fails_later: bool,
    /// Whether a handler of failures accepts them.
    accepts: bool,
    /// Whether it launches a message without a strategy, too.
    asks_for_more: bool,
}

#[derive(Clone, Default, Serialize, Deserialize)]
enum Plan {
    #[default]
    Registered,
    AtLeast(usize),
    AtLeastWithin(usize, Duration),
    AtLeastLeavingOthers(usize),
    Only(Vec<String>),
    Without(Vec<String>),
    First,
    Window(Duration),
    WithinBeyondDeadline,
    Unstorable,
}

/// The handlers of this name that fail, and those that wait for the gate.
#[derive(Clone, Default, Message, Serialize, Deserialize)]
#[message(topic = "strategies.quote")]
struct Quote {
    fails: Vec<String>,
    waits: Vec<String>,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "strategies.more")]
struct More;

/// A strategy of the program: waits for the first handler that ends.
#[derive(Serialize, Deserialize)]
struct First;

impl WaitStrategy for First {
    const NAME: &'static str = "strategies.first";

    fn decide(&self, facts: &WaitFacts) -> Verdict {
        let ended = facts.children.iter().find(|child| !child.state.is_unfinished());
        match ended.map(|child| child.state) {
            Some(ChildState::Committed) => Verdict::GoOn,
            Some(_) => Verdict::GiveUp("the first one failed".into()),
            None => Verdict::Wait,
        }
    }

    fn describe(&self) -> String {
        "the first handler that ends".into()
    }
}

scoop::wait_strategy!(First);

impl Plan {
    fn wait(&self) -> WaitPlan {
        match self.clone() {
            Self::Registered => Registered.into(),
            Self::AtLeast(count) => AtLeast(count).into(),
            Self::AtLeastWithin(count, limit) => AtLeast(count).within(limit),
            Self::AtLeastLeavingOthers(count) => AtLeast(count).leave_others(),
            Self::Only(names) => Only::these(names).into(),
            Self::Without(names) => Without::these(names).into(),
            Self::First => First.into(),
            Self::Window(length) => Window::of(length).into(),
            Self::WithinBeyondDeadline => AtLeast(1).within(NEVER),
            Self::Unstorable => Only::these(["a\0b"]).into(),
        }
    }
}

#[derive(Clone, Default)]
struct Asker(Notes);

#[saga(name = "asker")]
#[subscribes(Ask)]
impl Asker {
    #[step(rollback = withdraw, on_child_failure = decide)]
    async fn ask(&self, scope: &mut Scope<'_>, ask: &Ask) -> Result<()> {
        if ask.asks_for_more {
            scope.launch(More).await?;
        }
        let launch = scope.launch(ask.quote.clone()).wait(ask.plan.wait());
        match ask.plan {
            Plan::WithinBeyondDeadline => launch.deadline(Duration::from_secs(60)).await?,
            _ => launch.await?,
        };
        Ok(())
    }

    async fn withdraw(&self, _: &mut Scope<'_>, _: &Ask, _: &Failure) -> Result<()> {
        self.0.add("withdraw");
        Ok(())
    }

    async fn decide(&self, _: &mut Scope<'_>, ask: &Ask, failure: &Failure) -> Result<()> {
        if !ask.accepts {
            return Err(failure.clone().into());
        }
        self.0.add("accept");
        Ok(())
    }

    #[step]
    async fn choose(&self, _: &mut Scope<'_>, ask: &Ask) -> Result<()> {
        self.0.add("choose");
        match ask.fails_later {
            true => Err(Error::msg("nothing fits")),
            false => Ok(()),
        }
    }
}

macro_rules! quoter {
    ($ty:ident, $name:literal) => {
        #[derive(Clone, Default)]
        struct $ty(Notes, Gate);

        #[saga(name = $name)]
        #[subscribes(Quote)]
        impl $ty {
            #[step(rollback = withdraw)]
            async fn answer(&self, _: &mut Scope<'_>, quote: &Quote) -> Result<()> {
                if quote.waits.iter().any(|name| name == $name) {
                    self.1.pass().await;
                }
                match quote.fails.iter().any(|name| name == $name) {
                    true => Err(Error::msg(concat!($name, " has none"))),
                    false => Ok(()),
                }
            }

            async fn withdraw(&self, _: &mut Scope<'_>, _: &Quote, _: &Failure) -> Result<()> {
                self.0.add(concat!("undo ", $name));
                Ok(())
            }

            #[step]
            async fn end(&self, _: &mut Scope<'_>, _: &Quote) -> Result<()> {
                self.0.add($name);
                Ok(())
            }
        }
    };
}

quoter!(Alpha, "alpha");
quoter!(Beta, "beta");
quoter!(Gamma, "gamma");
quoter!(Delta, "delta");

/// Which strategy a launch of `Broad` has.
#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "strategies.chosen")]
enum Chosen {
    Plain,
    OfMessage,
    OfLaunch,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "strategies.chosen-by-saga")]
struct ChosenBySaga;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "strategies.plain")]
struct Plain;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "strategies.any", wait = Only::these(["strategies-quick"]).within("1h"))]
struct Any;

#[derive(Clone)]
struct Broad(Notes);

#[saga(name = "strategies-broad")]
#[subscribes(Chosen)]
impl Broad {
    #[step]
    async fn ask(&self, scope: &mut Scope<'_>, chosen: &Chosen) -> Result<()> {
        match chosen {
            Chosen::Plain => scope.launch(Plain).await?,
            Chosen::OfMessage => scope.launch(Any).await?,
            Chosen::OfLaunch => scope.launch(Any).wait(Registered).await?,
        };
        Ok(())
    }

    #[step]
    async fn end(&self, _: &mut Scope<'_>, _: &Chosen) -> Result<()> {
        self.0.add("broad");
        Ok(())
    }
}

#[derive(Clone)]
struct Narrow(Notes);

#[saga(name = "strategies-narrow", wait = Only::these(["strategies-slow"]))]
#[subscribes(ChosenBySaga)]
impl Narrow {
    #[step]
    async fn ask(&self, scope: &mut Scope<'_>, _: &ChosenBySaga) -> Result<()> {
        scope.launch(Plain).await.map(drop)
    }

    #[step]
    async fn end(&self, _: &mut Scope<'_>, _: &ChosenBySaga) -> Result<()> {
        self.0.add("narrow");
        Ok(())
    }
}

#[derive(Clone)]
struct Slow(Notes, Gate);

#[saga(name = "strategies-slow")]
#[subscribes(any(Plain, Any))]
impl Slow {
    #[step]
    async fn wait(&self, _: &mut Scope<'_>, _: &SlowMessage) -> Result<()> {
        self.1.pass().await;
        self.0.add("slow");
        Ok(())
    }
}

#[derive(Default)]
struct Quick;

#[saga(name = "strategies-quick")]
#[subscribes(any(Plain, Any))]
impl Quick {
    #[step]
    async fn end(&self, _: &mut Scope<'_>, _: &QuickMessage) -> Result<()> {
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Lister(Notes, Gate);

#[saga(name = "lister")]
#[subscribes(More)]
impl Lister {
    #[step(rollback = unlist)]
    async fn list(&self, _: &mut Scope<'_>, _: &More) -> Result<()> {
        self.1.pass().await;
        self.0.add("list");
        Ok(())
    }

    async fn unlist(&self, _: &mut Scope<'_>, _: &More, _: &Failure) -> Result<()> {
        self.0.add("undo list");
        Ok(())
    }
}

/// A program with all sagas, and what they note.
struct Program {
    db: Database,
    scoop: scoop::Scoop,
    notes: Notes,
    gate: Gate,
    more: Gate,
}

impl Program {
    async fn start() -> Result<Self> {
        let (db, notes, gate, more) =
            (Database::new().await, Notes::default(), Gate::default(), Gate::default());
        let builder =
            db.scoop().only::<Asker>().only::<Alpha>().only::<Beta>().only::<Gamma>().only::<Lister>();
        let builder = builder.provide(Asker(notes.clone())).provide(Alpha(notes.clone(), gate.clone()));
        let builder =
            builder.provide(Beta(notes.clone(), gate.clone())).provide(Gamma(notes.clone(), gate.clone()));
        let builder = builder.provide(Lister(notes.clone(), more.clone()));
        let scoop = builder.poll_interval(NEVER).start().await?;
        Ok(Self { db, scoop, notes, gate, more })
    }

    async fn ask(&self, ask: Ask) -> Result<scoop::Handle> {
        Ok(self.scoop.launch(ask).await?)
    }

    /// Once this is noted, all notes but those, sorted.
    async fn noted(&self, last: &str) -> Vec<String> {
        eventually(last, async || self.notes.all().iter().any(|note| note == last)).await;
        self.notes.all()
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// All that a failure is because of.
fn told(failure: &Failure) -> String {
    failure.root_causes().iter().map(|cause| &*cause.message).collect::<Vec<_>>().join("\n")
}

fn waiting(quoters: &[&str]) -> Quote {
    Quote { waits: names(quoters), ..Quote::default() }
}

fn failing(quoters: &[&str]) -> Quote {
    Quote { fails: names(quoters), ..Quote::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn enough_handlers_committed_run_goes_on_and_the_others_are_undone() -> Result<()> {
    let program = Program::start().await?;
    let quote = waiting(&["gamma"]);
    let root = program.ask(Ask { plan: Plan::AtLeast(2), quote, ..Ask::default() }).await?;
    assert!(program.noted("choose").await.iter().all(|note| !note.contains("gamma")));
    program.gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    let tree = root.comes_to(|tree| tree.runs().iter().all(|run| run.state.phase().is_finished())).await?;
    let gamma = tree.runs().into_iter().find(|run| run.handler == "gamma").expect("it has begun");
    let RunState::RolledBack(failure) = &gamma.state else { panic!("{gamma:?}") };
    let why = failure.root_causes()[0].message.clone();
    assert_eq!(why, "its launcher goes on without it: it waited for at least 2 handlers");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_that_do_not_matter_run_goes_on_without_them() -> Result<()> {
    let program = Program::start().await?;
    let quote = failing(&["beta"]);
    let root = program.ask(Ask { plan: Plan::AtLeast(2), quote, ..Ask::default() }).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    let mut notes = program.notes.all();
    notes.sort_unstable();
    assert_eq!(notes, ["alpha", "choose", "gamma"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn number_cannot_be_reached_step_fails_and_all_are_undone() -> Result<()> {
    let program = Program::start().await?;
    let quote = Quote { fails: names(&["alpha", "beta"]), waits: names(&["gamma"]) };
    let root = program.ask(Ask { plan: Plan::AtLeast(2), quote, ..Ask::default() }).await?;
    let cancelled = |tree: &Tree| tree.runs().iter().any(|run| run.handler == "gamma" && run.giving_up);
    root.comes_to(cancelled).await?;
    program.gate.open(1);
    let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it goes on") };
    let text = told(&failure);
    assert!(text.contains("waited for at least 2 handlers"), "{text}");
    assert!(text.contains("of 3 handlers 0 committed, and 1 can still commit"), "{text}");
    assert!(text.contains("alpha has none") && text.contains("beta has none"), "{text}");
    let notes = program.notes.all();
    assert_eq!(notes.last().map(String::as_str), Some("withdraw"), "{notes:?}");
    assert!(!notes.contains(&"choose".to_owned()), "{notes:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_is_over_launch_has_failed_and_a_handler_of_failures_may_accept_that() -> Result<()> {
    let program = Program::start().await?;
    let (plan, quote) = (Plan::AtLeastWithin(3, Duration::from_millis(300)), waiting(&["gamma"]));
    let root = program.ask(Ask { plan, quote, accepts: true, ..Ask::default() }).await?;
    program.gate.arrivals(1).await;
    let cancelled = |tree: &Tree| tree.runs().iter().any(|run| run.handler == "gamma" && run.giving_up);
    root.comes_to(cancelled).await?;
    program.gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    let notes = program.notes.all();
    assert_eq!(notes[notes.len() - 2..], ["accept", "choose"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_left_they_run_on_and_a_later_rollback_undoes_them_first() -> Result<()> {
    let program = Program::start().await?;
    let (plan, quote) = (Plan::AtLeastLeavingOthers(2), waiting(&["gamma"]));
    let root = program.ask(Ask { plan: plan.clone(), quote: quote.clone(), ..Ask::default() }).await?;
    program.noted("choose").await;
    program.gate.open(1);
    program.noted("gamma").await;
    assert_eq!(root.ends().await?, Outcome::Committed);

    let root = program.ask(Ask { plan, quote, fails_later: true, ..Ask::default() }).await?;
    program.gate.arrivals(2).await;
    let gives_up = |tree: &Tree| tree.runs().iter().any(|run| run.handler == "gamma" && run.giving_up);
    root.comes_to(gives_up).await?;
    assert!(!program.notes.all().contains(&"withdraw".to_owned()));
    let says = async || {
        let explained =
            program.scoop.operate().runs().explain(root.id()).await.map(|explained| explained.to_string());
        explained.is_ok_and(|text| text.contains("waits for handlers that a strategy had left under way"))
    };
    eventually("its explanation says why it waits", says).await;
    program.gate.open(1);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    let notes = program.notes.all();
    assert_eq!(notes.iter().filter(|note| note.starts_with("undo")).count(), 2, "{notes:?}");
    assert_eq!(notes.last().map(String::as_str), Some("withdraw"), "{notes:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_handler_is_waited_for_and_its_failure_counts() -> Result<()> {
    let program = Program::start().await?;
    let only = |name: &str| Plan::Only(names(&[name]));
    let quote = Quote { fails: names(&["beta"]), waits: names(&["gamma"]) };
    let root = program.ask(Ask { plan: only("alpha"), quote: quote.clone(), ..Ask::default() }).await?;
    program.noted("choose").await;
    program.gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);

    for (name, why) in
        [("beta", "`beta` has failed: beta has none"), ("delta", "`delta` is no handler of it")]
    {
        let root = program.ask(Ask { plan: only(name), quote: quote.clone(), ..Ask::default() }).await?;
        program.gate.open(1);
        let Outcome::RolledBack(failure) = root.ends().await? else { panic!("{name}") };
        assert!(told(&failure).contains(why), "{failure}");
    }
    let plan = Plan::Without(names(&["beta", "gamma"]));
    let root = program.ask(Ask { plan, quote, ..Ask::default() }).await?;
    program.gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_without_a_strategy_is_waited_for_beside_one_with() -> Result<()> {
    let program = Program::start().await?;
    let quote = waiting(&["gamma"]);
    let ask = Ask { plan: Plan::AtLeastLeavingOthers(1), quote, asks_for_more: true, ..Ask::default() };
    let root = program.ask(ask).await?;
    program.more.arrivals(1).await;
    program.noted("beta").await;
    root.comes_to(|tree| {
        tree.runs().iter().any(|run| run.handler == "asker" && run.state == RunState::Waiting)
    })
    .await?;
    assert!(!program.notes.all().contains(&"choose".to_owned()));
    program.more.open(1);
    program.noted("choose").await;
    let notes = program.notes.all();
    let place = |note: &str| notes.iter().position(|noted| noted == note);
    assert!(place("list").is_some() && place("list") < place("choose"), "{notes:?}");
    program.gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn strategy_of_the_program_decides() -> Result<()> {
    let program = Program::start().await?;
    let quote = waiting(&["beta", "gamma"]);
    let root = program.ask(Ask { plan: Plan::First, quote, ..Ask::default() }).await?;
    program.noted("choose").await;
    program.gate.open(2);
    assert_eq!(root.ends().await?, Outcome::Committed);
    // Another program: runs that were cancelled may have left the gate open.
    let program = Program::start().await?;
    let quote = Quote { fails: names(&["alpha"]), waits: names(&["beta", "gamma"]) };
    let root = program.ask(Ask { plan: Plan::First, quote, ..Ask::default() }).await?;
    root.comes_to(|tree| tree.runs().iter().any(|run| run.handler == "gamma" && run.giving_up)).await?;
    program.gate.open(2);
    let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it goes on") };
    assert!(told(&failure).contains("the first one failed"), "{failure}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn mistaken_strategy_launch_fails_and_says_why() -> Result<()> {
    let program = Program::start().await?;
    for (plan, why) in [
        (Plan::AtLeast(0), "at least 0 handlers are no condition"),
        (Plan::Only(vec![]), "it names no handler"),
        (Plan::WithinBeyondDeadline, "its limit is later than the deadline of this launch"),
        (Plan::Unstorable, "it contains a NUL character"),
    ] {
        let root = program.ask(Ask { plan, ..Ask::default() }).await?;
        let Outcome::RolledBack(failure) = root.ends().await? else { panic!("{why}") };
        let text = failure.to_string();
        assert!(text.contains("saga `asker`, step `ask`: a message for topic `strategies.quote`"), "{text}");
        assert!(text.contains(why), "{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_while_a_strategy_waits_all_give_up() -> Result<()> {
    let program = Program::start().await?;
    let quote = waiting(&["beta", "gamma"]);
    let root = program.ask(Ask { plan: Plan::AtLeast(3), quote, ..Ask::default() }).await?;
    program.gate.arrivals(2).await;
    root.comes_to(|tree| {
        tree.runs().iter().any(|run| run.handler == "asker" && run.state == RunState::Waiting)
    })
    .await?;
    assert_eq!(program.scoop.cancel(root.id(), "enough").await?, CancelAnswer::Accepted);
    program.gate.open(2);
    let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it goes on") };
    assert!(failure.to_string().contains("enough"), "{failure}");
    assert_eq!(program.db.unfinished().await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn window_handlers_that_register_in_it_take_part_and_those_that_have_not_begun_are_dropped()
-> Result<()> {
    let program = Program::start().await?;
    program.scoop.operate().handlers().register("strategies.quote", "ghost").await?;
    let quote = waiting(&["beta"]);
    let plan = Plan::Window(Duration::from_millis(2_500));
    let root = program.ask(Ask { plan, quote, ..Ask::default() }).await?;
    let late = program.db.scoop().only::<Delta>().provide(Delta(program.notes.clone(), Gate::default()));
    let late = late.start().await?;
    let notes = program.noted("delta").await;
    assert!(!notes.contains(&"choose".to_owned()), "{notes:?}");
    let is_dropped = |tree: &Tree| tree.runs().iter().all(|run| run.handler != "ghost");
    root.comes_to(is_dropped).await?;
    assert!(!program.notes.all().contains(&"choose".to_owned()), "it waits for the one that has begun");
    program.gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    let mut notes = program.notes.all();
    assert_eq!(notes.pop().as_deref(), Some("choose"));
    notes.sort_unstable();
    assert_eq!(notes, ["alpha", "beta", "delta", "gamma"]);
    late.shutdown().await?;
    Ok(())
}

/// Whether the launcher waits although the quick handler has ended.
fn waits_for_the_slow_one(tree: &Tree) -> bool {
    let is =
        |handler: &str, state| tree.runs().iter().any(|run| run.handler == handler && run.state == state);
    is("strategies-quick", RunState::Committed) && tree.runs()[0].state == RunState::Waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn strategy_is_that_of_the_launch_or_else_of_the_message_the_saga_or_the_program() -> Result<()> {
    let (db, notes, gate) = (Database::new().await, Notes::default(), Gate::default());
    let builder = db.scoop().only::<Broad>().only::<Narrow>().only::<Slow>().only::<Quick>();
    let builder = builder
        .provide(Slow(notes.clone(), gate.clone()))
        .default_wait(AtLeast(1).within(NEVER).leave_others());
    let scoop = builder.provide(Broad(notes.clone())).provide(Narrow(notes.clone())).start().await?;
    for (message, goes_on) in [(Chosen::Plain, true), (Chosen::OfMessage, true), (Chosen::OfLaunch, false)] {
        let before = notes.all().len();
        let root = scoop.launch(message).await?;
        gate.arrivals(1).await;
        if goes_on {
            eventually("it goes on", async || notes.all().len() > before).await;
        } else {
            root.comes_to(waits_for_the_slow_one).await?;
        }
        gate.open(1);
        assert_eq!(root.ends().await?, Outcome::Committed);
        eventually("both have ended", async || notes.all().len() == before + 2).await;
        let order = if goes_on { ["broad", "slow"] } else { ["slow", "broad"] };
        assert_eq!(notes.all()[before..], order);
    }
    let (root, before) = (scoop.launch(ChosenBySaga).await?, notes.all().len());
    gate.arrivals(1).await;
    root.comes_to(waits_for_the_slow_one).await?;
    gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(notes.all()[before..], ["slow", "narrow"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn strategy_that_no_program_has_run_is_stuck_and_says_why() -> Result<()> {
    let program = Program::start().await?;
    let quote = waiting(&["alpha", "beta", "gamma"]);
    let root = program.ask(Ask { plan: Plan::First, quote, ..Ask::default() }).await?;
    program.gate.arrivals(3).await;
    let is_waiting = |tree: &Tree| tree.runs()[0].state == RunState::Waiting;
    let tree = root.comes_to(is_waiting).await?;
    let text = tree.to_string();
    assert!(text.contains("waits for the first handler that ends of `strategies.quote`"), "{text}");
    let explanation = program.scoop.operate().runs().explain(root.id()).await?.to_string();
    assert!(
        explanation.contains("by its strategy for the first handler that ends of `strategies.quote`"),
        "{explanation}"
    );

    let rename = |from: &str, to: &str| {
        format!(
            "UPDATE scoop.run SET suspended = ROW(NULL, (suspended).definition, (suspended).iteration, NULL, \
             replace((suspended).wait::text, '\"{from}\"', '\"{to}\"')::jsonb) WHERE handler = 'asker'"
        )
    };
    program.db.execute(&rename("strategies.first", "strategies.unknown")).await;
    program.gate.open(1);
    let is_stuck = |tree: &Tree| matches!(&tree.runs()[0].state, RunState::Stuck { reason } if reason.contains("strategies.unknown"));
    let tree = root.comes_to(is_stuck).await?;
    let RunState::Stuck { reason } = &tree.runs()[0].state else { unreachable!("it is stuck") };
    assert!(
        reason.contains("`scoop::wait_strategy!`") && reason.contains("the first handler that ends"),
        "{reason}"
    );

    program.db.execute(&rename("strategies.unknown", "strategies.first")).await;
    program.scoop.operate().failures().retry(tree.runs()[0].lineage.id()).await?;
    program.noted("choose").await;
    program.gate.open(2);
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_without_a_program_holds_up_no_launch_that_has_failed() -> Result<()> {
    let program = Program::start().await?;
    program.scoop.operate().handlers().register("strategies.quote", "ghost").await?;
    let plan = Plan::AtLeastWithin(4, Duration::from_millis(300));
    let root = program.ask(Ask { plan, ..Ask::default() }).await?;
    let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it goes on") };
    assert!(told(&failure).contains("not within the limit"), "{failure}");
    let notes = program.notes.all();
    assert_eq!(notes.iter().filter(|note| note.starts_with("undo")).count(), 3, "{notes:?}");

    let plan = Plan::AtLeastLeavingOthers(3);
    let root = program.ask(Ask { plan, fails_later: true, ..Ask::default() }).await?;
    assert!(
        matches!(root.ends().await?, Outcome::RolledBack(_)),
        "its rollback does not wait for the pending one"
    );
    assert_eq!(program.db.unfinished().await, 0);
    Ok(())
}

/// Notes the runs that have failed.
#[derive(Clone)]
struct Watch(Notes);

#[saga(name = "strategies-watch")]
#[subscribes(Failed)]
impl Watch {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        self.0.add(failed.saga.clone());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_handler_that_was_left_is_reported_and_that_of_a_cancelled_one_is_not() -> Result<()> {
    let program = Program::start().await?;
    let failed = Notes::default();
    let watch = program.db.scoop().only::<Watch>().provide(Watch(failed.clone())).start().await?;
    let fails = Quote { waits: names(&["gamma"]), fails: names(&["gamma"]) };
    for (plan, quote) in [(Plan::AtLeast(2), waiting(&["gamma"])), (Plan::AtLeastLeavingOthers(2), fails)] {
        let before = program.notes.all().len();
        let root = program.ask(Ask { plan, quote, ..Ask::default() }).await?;
        eventually("it goes on", async || program.notes.all()[before..].contains(&"choose".to_owned())).await;
        program.gate.open(1);
        root.comes_to(|tree| tree.runs().iter().all(|run| run.state.phase().is_finished())).await?;
    }
    eventually("it is reported", async || !failed.all().is_empty()).await;
    eventually("all have ended", async || program.db.unfinished().await == 0).await;
    assert_eq!(failed.all(), ["gamma"]);
    watch.shutdown().await?;
    Ok(())
}
