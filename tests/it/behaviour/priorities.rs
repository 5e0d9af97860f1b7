//! The order of claims by the priorities of runs.

use std::time::Duration;

use scoop::Priority;
use scoop::operate::{WaitKind, WaitReason};
use serde_json::json;

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "priorities.job")]
struct Job {
    name: String,
}

fn job(name: &str) -> Job {
    Job { name: name.into() }
}

/// Notes its name, and stops.
#[derive(Clone, Default)]
struct Jobs {
    gate: Gate,
    notes: Notes,
}

#[saga(name = "prioritized-jobs")]
#[subscribes(Job)]
impl Jobs {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, job: &Job) -> Result<()> {
        self.notes.add(&job.name);
        self.gate.pass().await;
        Ok(())
    }
}

/// The same for another saga.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "priorities.chore")]
struct Chore {
    name: String,
}

struct Chores {
    jobs: Jobs,
}

#[saga(name = "prioritized-chores")]
#[subscribes(Chore)]
impl Chores {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, chore: &Chore) -> Result<()> {
        self.jobs.notes.add(&chore.name);
        self.jobs.gate.pass().await;
        Ok(())
    }
}

/// A program with one slot.
async fn start(db: &Database, jobs: &Jobs) -> Result<Scoop> {
    let scoop = db.scoop().only::<Jobs>().only::<Chores>().concurrency(1).poll_interval(NEVER);
    Ok(scoop.provide(jobs.clone()).provide(Chores { jobs: jobs.clone() }).start().await?)
}

/// The same, after a first run has taken the slot.
async fn busy(db: &Database, jobs: &Jobs) -> Result<Scoop> {
    let scoop = start(db, jobs).await?;
    scoop.launch(job("first")).await?;
    jobs.gate.arrivals(1).await;
    Ok(scoop)
}

/// Lets all runs pass, and returns the names of those after the first in their order.
async fn order(jobs: &Jobs, count: usize) -> Vec<String> {
    jobs.gate.open(count + 1);
    eventually("all have begun", async || jobs.notes.all().len() == count + 1).await;
    jobs.notes.all().split_off(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn high_run_comes_before_a_backlog_and_a_low_one_after_it() -> Result<()> {
    let (db, jobs) = (Database::new().await, Jobs::default());
    let scoop = busy(&db, &jobs).await?;
    scoop.launch(job("low")).priority(Priority::Low).await?;
    for name in ["one", "two"] {
        scoop.launch(job(name)).await?;
    }
    scoop.launch_untyped("priorities.job", json!({ "name": "high" })).priority(Priority::High).await?;
    scoop.launch(job("three")).priority(Priority::Normal).await?;
    assert_eq!(order(&jobs, 5).await, ["high", "one", "two", "three", "low"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_of_one_saga_holds_up_no_run_of_another() -> Result<()> {
    let (db, jobs) = (Database::new().await, Jobs::default());
    let scoop = busy(&db, &jobs).await?;
    let chore = |name: &str| Chore { name: name.into() };
    scoop.launch(chore("oldest")).priority(Priority::Low).await?;
    scoop.launch(job("one")).await?;
    scoop.launch(chore("newest")).priority(Priority::Low).await?;
    scoop.launch(job("high")).priority(Priority::High).await?;
    // The saga with the oldest run gets the slot, and its priorities decide which of its runs.
    assert_eq!(order(&jobs, 4).await, ["oldest", "high", "one", "newest"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn explanation_of_a_run_has_its_priority_and_those_that_it_overtakes() -> Result<()> {
    let (db, jobs) = (Database::new().await, Jobs::default());
    let scoop = busy(&db, &jobs).await?;
    for name in ["one", "two"] {
        scoop.launch(job(name)).await?;
    }
    let high = scoop.launch(job("high")).priority(Priority::High).await?;
    let low = scoop.launch(job("low")).priority(Priority::Low).await?;
    for (run, priority, ahead, text) in [
        (&high, Priority::High, 0, "Its priority is high."),
        (&low, Priority::Low, 3, "Its priority is low."),
    ] {
        let explained = scoop.operate().runs().explain(run.id()).await?;
        let WaitReason::Slot { ahead: before, queued, .. } = explained.runs[0].reason else {
            panic!("{explained}");
        };
        assert_eq!((explained.runs[0].priority, before, queued), (priority, ahead, 4), "{explained}");
        assert!(explained.to_string().contains(text), "{explained}");
    }
    let later = scoop.launch(job("later")).priority(Priority::High).delay(NEVER).await?;
    assert_eq!(
        scoop.operate().runs().explain(later.id()).await?.runs[0].priority,
        Priority::High,
        "while it waits"
    );
    assert_eq!(order(&jobs, 4).await, ["high", "one", "two", "low"]);
    scoop.shutdown().await?;
    Ok(())
}

mod inherited {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "priorities.order")]
    struct Order;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "priorities.item")]
    struct Item {
        name: String,
    }

    fn item(name: &str) -> Item {
        Item { name: name.into() }
    }

    /// Launches items in each part.
    struct Orders;

    #[saga(name = "prioritized-orders")]
    #[subscribes(Order)]
    impl Orders {
        #[step(rollback = undo)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
            scope.launch(item("child")).await?;
            scope.launch(item("low child")).priority(Priority::Low).await?;
            scope.launch(item("normal child")).priority(Priority::Normal).await?;
            scope.detach(item("of its own")).await?;
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
            scope.launch(item("child of a compensation")).await?;
            Ok(())
        }

        #[step]
        async fn two(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
            scope.set(Priority::Low)?;
            scope.launch(item("child of a changed run")).await?;
            Ok(())
        }

        #[step]
        async fn three(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
            Err(Error::msg("no stock"))
        }
    }

    #[derive(Clone, Default)]
    struct Items {
        notes: Notes,
    }

    #[saga(name = "prioritized-items")]
    #[subscribes(Item)]
    impl Items {
        #[step(rollback = undo)]
        async fn take(&self, scope: &mut Scope<'_>, item: &Item) -> Result<()> {
            self.notes.add(format!("{}: {}", item.name, Priority::of(scope.context()).name()));
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, item: &Item, _: &Failure) -> Result<()> {
            self.notes.add(format!("{} undone: {}", item.name, Priority::of(scope.context()).name()));
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn messages_of_a_hierarchy_have_its_priority_unless_they_set_another() -> Result<()> {
        let (db, items) = (Database::new().await, Items::default());
        let scoop = db.scoop().only::<Orders>().only::<Items>().provide(Orders).provide(items.clone());
        let scoop = scoop.start().await?;
        let order = scoop.launch(Order).priority(Priority::High).await?;
        assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
        eventually("the detached one ended", async || items.notes.all().len() == 10).await;
        let mut notes = items.notes.all();
        notes.sort();
        let expected = [
            "child of a changed run undone: low",
            "child of a changed run: low",
            "child of a compensation: low",
            "child undone: low",
            "child: high",
            "low child undone: low",
            "low child: low",
            "normal child undone: low",
            "normal child: normal",
            "of its own: normal",
        ];
        assert_eq!(notes, expected);
        scoop.shutdown().await?;
        Ok(())
    }
}

mod of_a_key {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "priorities.call")]
    struct Call {
        customer: u32,
        name: String,
    }

    #[derive(Clone, Default)]
    struct Calls {
        gate: Gate,
        notes: Notes,
    }

    #[saga(name = "prioritized-calls", concurrency(1, by = customer))]
    #[subscribes(Call)]
    impl Calls {
        #[step]
        async fn answer(&self, _: &mut Scope<'_>, call: &Call) -> Result<()> {
            self.notes.add(&call.name);
            self.gate.pass().await;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn high_run_of_a_reached_key_is_the_next_one() -> Result<()> {
        let (db, calls) = (Database::new().await, Calls::default());
        let scoop = db.scoop().only::<Calls>().poll_interval(NEVER).provide(calls.clone()).start().await?;
        let call = |name: &str| Call { customer: 7, name: name.into() };
        scoop.launch(call("first")).await?;
        calls.gate.arrivals(1).await;
        scoop.launch(call("low")).priority(Priority::Low).await?;
        scoop.launch(call("normal")).await?;
        let high = scoop.launch(call("high")).priority(Priority::High).await?;
        eventually("all wait for the limit", async || {
            let page = scoop.operate().runs().list().waiting_for(WaitKind::Limit).await;
            page.is_ok_and(|page| page.runs.len() == 3)
        })
        .await;
        let explained = scoop.operate().runs().explain(high.id()).await?;
        let WaitReason::Limit { ahead, queued, .. } = explained.runs[0].reason else {
            panic!("{explained}");
        };
        assert_eq!((ahead, queued), (0, 3), "{explained}");
        for _ in 0..3 {
            calls.gate.open(1);
            calls.gate.arrivals(1).await;
        }
        calls.gate.open(1);
        eventually("all have begun", async || calls.notes.all().len() == 4).await;
        assert_eq!(calls.notes.all(), ["first", "high", "normal", "low"]);
        scoop.shutdown().await?;
        Ok(())
    }
}
