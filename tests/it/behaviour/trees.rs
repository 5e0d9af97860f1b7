//! Trees and outcomes, as text and as data.

use std::time::Duration;

use scoop::requests::CancelAnswer;
use scoop::{EventKind, Handle, Status};

use super::*;
use crate::support::{Database, Gate, eventually};

#[derive(Debug, thiserror::Error)]
#[error("no chairs left\n└─ refund (on money): committed\u{1b}[1A")]
struct Forged;

/// The plan of a test for each saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Plan {
    Commit,
    FailAtOnce,
    FailLater,
    FailToUndo,
    FailWithForgedText,
    Sleep,
    Retry,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Order {
    plan: Plan,
}

struct Checkout;

#[saga(name = "checkout")]
#[subscribes(Order)]
impl Checkout {
    #[step(name = "reserve", rollback = release, retry(max = 3, backoff = "1h", when = is_to_retry))]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        match order.plan {
            Plan::FailAtOnce | Plan::Retry => Err(SIMULATED.into()),
            Plan::FailWithForgedText => Err(Forged.into()),
            Plan::Sleep => Ok(scope.sleep(Duration::from_secs(3600)).await?),
            Plan::Commit | Plan::FailLater | Plan::FailToUndo => {
                scope.launch(Child).await?;
                Ok(())
            }
        }
    }

    async fn release(&self, _: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        if order.plan == Plan::FailToUndo {
            return Err(IllegalStateException("the shelf is locked").into());
        }
        Ok(())
    }

    #[step(name = "confirm")]
    async fn confirm(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        match order.plan {
            Plan::FailLater | Plan::FailToUndo => Err(SIMULATED.into()),
            _ => Ok(()),
        }
    }
}

fn is_to_retry(error: &scoop::Error) -> bool {
    error.to_string().contains("Simulated")
}

handler! {
    Stock(gate): "stock" on Child;
    step "take" take => at_gate();
}

/// A program, with a gate that its children pass.
struct Shop {
    _db: Database,
    scoop: Scoop,
    gate: Gate,
}

impl Shop {
    async fn open() -> Result<Self> {
        let (db, gate) = (Database::new().await, Gate::default());
        let scoop = db.start((Checkout, Stock { gate: gate.clone() })).await?;
        Ok(Self { _db: db, scoop, gate })
    }

    async fn order(&self, plan: Plan) -> Result<Handle> {
        Ok(self.scoop.launch(Order { plan }).await?)
    }

    /// An order that has ended; its children do not wait.
    async fn ended(plan: Plan) -> Result<(Self, Handle, Outcome)> {
        let shop = Self::open().await?;
        shop.gate.open(1);
        let order = shop.order(plan).await?;
        let outcome = order.ends().await?;
        Ok((shop, order, outcome))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_ended_is_shown_as_completed_with_its_worker_and_times() -> Result<()> {
    let (_shop, order, outcome) = Shop::ended(Plan::Commit).await?;
    assert_eq!(outcome, Outcome::Committed);
    let tree = order.tree().await?;
    let [root] = tree.roots() else { panic!("{tree}") };
    let words: Vec<_> = root.events.iter().map(|event| (event.word(), event.subject())).collect();
    let expected = [
        ("began", None),
        ("completed", Some("reserve")),
        ("completed", Some("confirm")),
        ("committed", None),
    ];
    assert_eq!(words, expected, "{tree}");
    for event in &root.events {
        assert!(
            event.at.is_some() && event.duration.is_some() == (event.kind != EventKind::Seen),
            "{event:?}"
        );
        assert!(event.worker.as_ref().is_some_and(|worker| worker.starts_with("scoop-rs:")), "{event:?}");
    }
    assert_eq!(root.duration.map(|took| Some(root.began_at()? + took)), Some(root.events[3].at));
    let text = tree.to_string();
    assert!(text.contains(" completed reserve\n") && !text.contains("SUSPENDED"), "{text}");
    assert!(text.contains(&format!("run {}, took ", root.id())), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_run_names_its_children_and_a_running_one_its_worker() -> Result<()> {
    let shop = Shop::open().await?;
    let order = shop.order(Plan::Commit).await?;
    shop.gate.arrivals(1).await;
    let tree = order.tree().await?;
    let [root] = tree.roots() else { panic!("{tree}") };
    let left: Vec<_> = root.unfinished_children().collect();
    assert_eq!((left.len(), &*left[0].handler, &left[0].state), (1, "stock", &RunState::Running), "{tree}");
    assert_eq!((&left[0].worker, &root.worker), (&root.events[0].worker, &None), "{tree}");
    let text = tree.to_string();
    assert!(text.starts_with("checkout (on root-topic): waiting for 1 of 1 children: stock\n"), "{text}");
    assert!(text.contains(", executed by scoop-rs:"), "{text}");

    shop.gate.open(1);
    assert_eq!(order.ends().await?, Outcome::Committed);
    assert_eq!(order.tree().await?.roots()[0].unfinished_children().count(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_backs_off_shows_its_reason_and_next_attempt() -> Result<()> {
    let shop = Shop::open().await?;
    let order = shop.order(Plan::Retry).await?;
    let backs_off = |tree: &Tree| matches!(tree.roots()[0].state, RunState::Retrying { .. });
    let tree = order.comes_to(|tree| !tree.roots().is_empty() && backs_off(tree)).await?;
    let [root] = tree.roots() else { panic!("{tree}") };
    let due = root.wakes_at.expect("it is due");
    let pause = due.duration_since(root.began_at().expect("it has begun"))?;
    assert!(pause > Duration::from_secs(1700) && pause < Duration::from_secs(7200), "{pause:?}");
    assert_eq!(root.attempts, 1, "{tree}");
    let text = tree.to_string();
    assert!(text.starts_with("checkout (on root-topic): retrying, attempt 2 at 2"), "{text}");
    let line = text.lines().next().unwrap_or_default();
    assert!(
        line.contains("Z (in ") && line.contains("; attempt 1 failed: ") && line.contains("Simulated"),
        "{text}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_sleeps_says_until_when() -> Result<()> {
    let shop = Shop::open().await?;
    let order = shop.order(Plan::Sleep).await?;
    let sleeps = |tree: &Tree| tree.roots().iter().any(|run| run.sleeps_until().is_some());
    let tree = order.comes_to(sleeps).await?;
    let [root] = tree.roots() else { panic!("{tree}") };
    let slept = root.sleeps_until().expect("it sleeps").duration_since(root.began_at().expect("it began"))?;
    assert!(slept > Duration::from_secs(3500) && slept < Duration::from_secs(3700), "{slept:?}");
    let text = tree.to_string();
    assert!(text.starts_with("checkout (on root-topic): sleeping until 2"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_is_shown_as_pending_until_obeyed() -> Result<()> {
    let shop = Shop::open().await?;
    let order = shop.order(Plan::Commit).await?;
    shop.gate.arrivals(1).await;
    let answer = shop.scoop.cancel(order.id(), "the customer left").source("support").await?;
    assert_eq!(answer, CancelAnswer::Accepted);
    let tree = order.tree().await?;
    let [root] = tree.roots() else { panic!("{tree}") };
    for run in [root, &root.children[0]] {
        let [pending] = &*run.pending_cancellations else { panic!("{tree}") };
        assert!(run.giving_up, "{tree}");
        assert_eq!((&*pending.reason, &*pending.source), ("the customer left", "support"));
        assert!(pending.at.is_some());
    }
    let text = tree.to_string();
    assert!(text.starts_with("cancellation requested 2"), "{text}");
    assert_eq!(text.matches("giving up: cancellation requested 2").count(), 2, "{text}");
    assert_eq!(text.matches("Z by support: the customer left\n").count(), 3, "{text}");

    shop.gate.open(1);
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    let tree = order.tree().await?;
    assert!(tree.runs().iter().all(|run| !run.giving_up && run.pending_cancellations.is_empty()), "{tree}");
    assert_eq!(tree.cancellations().len(), 1);
    assert!(!tree.to_string().contains("giving up"), "{tree}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_of_a_part_is_shown_at_that_part() -> Result<()> {
    let shop = Shop::open().await?;
    let order = shop.order(Plan::Commit).await?;
    shop.gate.arrivals(1).await;
    let part = order.tree().await?.roots()[0].children[0].id();
    assert_eq!(shop.scoop.cancel(part, "not this one").await?, CancelAnswer::Accepted);
    let tree = order.tree().await?;
    let [root] = tree.roots() else { panic!("{tree}") };
    assert!(!root.giving_up && root.pending_cancellations.is_empty(), "{tree}");
    assert_eq!(root.children[0].pending_cancellations.len(), 1, "{tree}");
    assert_eq!(tree.cancellations().len(), 1);
    let above = order.tree().depth(1).await?;
    assert!(above.cancellations().is_empty(), "it concerns no run of that part: {above}");
    shop.gate.open(1);
    order.ends().await?;
    let text = order.tree().await?.to_string();
    assert_eq!(text.matches("cancellation requested by scoop: not this one").count(), 1, "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_nothing_to_undo_shows_no_rollback_of_a_step() -> Result<()> {
    let (_shop, order, outcome) = Shop::ended(Plan::FailWithForgedText).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)));
    let tree = order.tree().await?;
    let text = tree.to_string();
    assert!(!text.contains("Rollback of") && !text.contains("undone"), "{text}");
    let end = tree.roots()[0].events.last().expect("it has ended");
    assert_eq!(end.step.as_deref(), Some("Rollback of reserve[0,]"), "it is recorded");
    assert_eq!((end.word(), end.subject()), ("rolled back, nothing to undo", None));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_were_undone_are_named_as_they_are() -> Result<()> {
    let (_shop, order, _) = Shop::ended(Plan::FailLater).await?;
    let text = order.tree().await?.to_string();
    assert!(text.contains(" undid reserve\n") && text.contains(" undid take\n"), "{text}");
    assert!(!text.contains("Rollback of"), "{text}");
    let failed =
        concat!(" began to roll back in confirm: Simulated failure to test rollback, at ", file!(), ":");
    assert!(text.contains(failed), "{text}");
    assert!(!text.contains("undid confirm"), "it never completed\n{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn outcome_is_displayed_with_its_first_cause() -> Result<()> {
    let (_shop, _, outcome) = Shop::ended(Plan::FailLater).await?;
    assert_eq!(outcome.to_string(), "rolled back: Simulated failure to test rollback");
    let all = format!("{outcome:#}");
    let Outcome::RolledBack(failure) = &outcome else { panic!("{outcome}") };
    assert_eq!(all, format!("{outcome}\n{}", failure.report().trim_end()));

    let (_shop, order, outcome) = Shop::ended(Plan::FailToUndo).await?;
    let line = "rollback failed: the shelf is locked (because Simulated failure to test rollback)";
    assert_eq!(outcome.to_string(), line);
    let Outcome::RollbackFailed(failed) = &outcome else { panic!("{outcome}") };
    assert_eq!(failed.message, "the shelf is locked");
    assert_eq!(failed.cause.message, "Simulated failure to test rollback");
    let all = format!("{outcome:#}");
    for part in [failed.report(), failed.cause.report()] {
        assert!(all.starts_with(line) && all.contains(part.trim_end()), "{all}");
    }
    assert_eq!(Status::Ended(outcome).to_string(), line);
    assert_eq!(Status::Unfinished.to_string(), "unfinished");
    let text = order.tree().await?.to_string();
    assert!(
        text.starts_with("checkout (on root-topic): ROLLBACK FAILED: the shelf is locked (because "),
        "{text}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_an_error_cannot_forge_a_line() -> Result<()> {
    let (_shop, order, outcome) = Shop::ended(Plan::FailWithForgedText).await?;
    let text = order.tree().await?.to_string();
    for text in [text, outcome.to_string(), format!("{outcome:#}")] {
        assert!(text.contains(r"no chairs left"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("\n└─ refund"), "{text}");
    }
    assert_eq!(outcome.to_string().lines().count(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_run_shows_its_due_time() -> Result<()> {
    let shop = Shop::open().await?;
    let order = shop.scoop.launch(Order { plan: Plan::Commit }).delay(Duration::from_secs(3600)).await?;
    let tree = order.tree().await?;
    let [root] = tree.roots() else { panic!("{tree}") };
    assert!(root.wakes_at.is_some() && root.state == RunState::Pending, "{tree}");
    assert!(tree.to_string().starts_with("checkout (on root-topic): pending, due 2"), "{tree}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_is_shown_until_the_run_has_ended() -> Result<()> {
    let shop = Shop::open().await?;
    let order = shop.scoop.launch(Order { plan: Plan::Commit }).deadline(Duration::from_secs(3600)).await?;
    shop.gate.arrivals(1).await;
    let tree = order.tree().await?;
    assert!(tree.runs().iter().all(|run| run.deadline.is_some()), "{tree}");
    assert_eq!(tree.to_string().matches("gives up at its deadline, 2").count(), 2, "{tree}");
    shop.gate.open(1);
    order.ends().await?;
    let ended =
        async || order.tree().await.is_ok_and(|tree| tree.runs().iter().all(|run| run.deadline.is_none()));
    eventually("no deadline is left", ended).await;
    Ok(())
}
