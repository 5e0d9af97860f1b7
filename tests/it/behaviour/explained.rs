//! What a run waits for: each reason, as data and in words.

use std::time::{Duration, SystemTime};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use scoop::operate::{Delay, Explanation, RunExplanation, WaitKind, WaitReason};
use scoop::requests::RepairAnswer;
use scoop::{EventKind, RunPhase};

use super::*;
use crate::support::{Database, Gate, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq)]
enum Plan {
    Commit,
    Fail,
    FailToUndo,
    Sleep,
    Retry,
    Gate,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "explained.order")]
struct Order {
    plan: Plan,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "explained.item")]
struct Item {
    plan: Plan,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "explained.paid", retention = "1 day")]
struct Paid;

/// Waits for what an item does.
#[derive(Default)]
struct Orders;

#[saga(name = "orders")]
#[subscribes(Order)]
impl Orders {
    #[step(name = "place", rollback = undo)]
    async fn place(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        scope.launch(Item { plan: order.plan }).await?;
        Ok(())
    }

    #[step(name = "end")]
    async fn end(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
        Ok(())
    }
}

struct Items {
    gate: Gate,
}

#[saga(name = "items")]
#[subscribes(Item)]
impl Items {
    #[step(name = "take", rollback = undo, retry(max = 3, backoff = "1h..1h", when = is_away))]
    async fn take(&self, scope: &mut Scope<'_>, item: &Item) -> Result<()> {
        match item.plan {
            Plan::Sleep => scope.sleep(Duration::from_secs(3_600)).await?,
            Plan::Retry => return Err(SIMULATED.into()),
            Plan::Gate => self.gate.pass().await,
            _ => {}
        }
        Ok(())
    }

    fn is_away(error: &Error) -> bool {
        error.downcast_ref::<RuntimeException>().is_some()
    }

    #[step(name = "check")]
    async fn check(&self, _: &mut Scope<'_>, item: &Item) -> Result<()> {
        match item.plan {
            Plan::Fail | Plan::FailToUndo => Err(IllegalStateException("broken").into()),
            _ => Ok(()),
        }
    }

    async fn undo(&self, _: &mut Scope<'_>, item: &Item, _: &Failure) -> Result<()> {
        if item.plan == Plan::FailToUndo {
            Err(IllegalStateException("cannot be undone").into())
        } else {
            Ok(())
        }
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "explained.cart")]
struct Cart {
    items: u32,
}

/// Waits for many items, none of which can be undone.
#[derive(Default)]
struct Carts;

#[saga(name = "carts")]
#[subscribes(Cart)]
impl Carts {
    #[step]
    async fn fill(&self, scope: &mut Scope<'_>, cart: &Cart) -> Result<()> {
        for _ in 0..cart.items {
            scope.launch(Item { plan: Plan::FailToUndo }).await?;
        }
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "explained.bill")]
struct Bill;

handler! {
    Bills: "bills" on Bill;
    step "send" send => done();

    #[step(name = "pay", awaits(Paid, by = key))]
    async fn pay(&self, _: &mut Scope<'_>, _: &Bill, _: &Paid) -> Result<()> {
        Ok(())
    }

    async fn key(&self, _: &mut Scope<'_>, _: &Bill) -> Result<String> {
        Ok("order 7".into())
    }
}

async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
    let scoop = db.scoop().only::<Orders>().only::<Items>().only::<Bills>().poll_interval(NEVER);
    Ok(scoop.provide(Items { gate: gate.clone() }).start().await?)
}

/// The only run of an explanation.
fn only(explanation: Explanation) -> RunExplanation {
    assert_eq!(explanation.runs.len(), 1, "{explanation}");
    explanation.runs.into_iter().next().expect("there is one")
}

fn child_is(wanted: impl Fn(&RunState) -> bool) -> impl Fn(&Tree) -> bool {
    move |tree| tree.runs().iter().any(|run| run.handler == "items" && wanted(&run.state))
}

/// Whether the words have these parts, in this order.
fn assert_says(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not there:\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_is_followed_to_the_child_that_blocks_it() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let order = scoop.launch(Order { plan: Plan::Sleep }).deadline(Duration::from_secs(7_200)).await?;
    order.comes_to(child_is(|state| *state == RunState::Sleeping)).await?;
    let explanation = scoop.operate().runs().explain(order.id()).await?;
    assert_eq!(explanation.hierarchy, order.id());
    let run = only(explanation);
    let text = run.to_string();
    let WaitReason::Children { unfinished: 1, blocking, blocking_count: 1, .. } = &run.reason else {
        panic!("{run:?}")
    };
    let [item] = &blocking[..] else { panic!("{run:?}") };
    assert_eq!((&*item.handler, item.phase), ("items", RunPhase::Sleeping));
    assert_says(
        &text,
        &[
            "of `orders` waits for 1 child, for ",
            ". Below it, run ",
            " of `items` is sleeping until 2",
            ". Its deadline is 2",
            " It goes on when all its children have ended.",
        ],
    );

    let item = only(scoop.operate().runs().explain(item.run).await?);
    let WaitReason::Time { delay: Delay::Sleep, until } = item.reason else { panic!("{item:?}") };
    assert!(until > item.read_at);
    assert_says(
        &item.to_string(),
        &["of `items` sleeps until 2", "); it has slept for ", "It goes on at that time."],
    );
    let message = only(scoop.operate().runs().explain(item.run.message_id).await?);
    assert_eq!(message.run.run, item.run.run);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_explained_with_the_last_failure() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let item = scoop.launch(Item { plan: Plan::Retry }).await?;
    item.comes_to(child_is(|state| matches!(state, RunState::Retrying { .. }))).await?;
    let run = only(scoop.operate().runs().explain(item.id()).await?);
    assert!(matches!(run.reason, WaitReason::Time { delay: Delay::Backoff, .. }), "{run:?}");
    let last = "1 attempt has failed, the last one: ";
    assert_says(&run.to_string(), &["is retried at 2", "its last event was ", last, "Simulated"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn running_step_is_explained_by_its_worker() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let order = scoop.launch(Order { plan: Plan::Gate }).await?;
    gate.arrivals(1).await;
    let parent = only(scoop.operate().runs().explain(order.id()).await?);
    assert_says(&parent.to_string(), &["of `items` has been running for "]);
    let WaitReason::Children { blocking, .. } = parent.reason else { panic!("it waits") };
    let run = only(scoop.operate().runs().explain(blocking[0].run).await?);
    let WaitReason::Executing { worker: Some(worker) } = &run.reason else { panic!("{run:?}") };
    assert!(worker.is_alive && Some(&worker.identifier) == run.run.worker.as_ref(), "{run:?}");
    assert_says(&run.to_string(), &["is executed by worker scoop-rs:", "It goes on when the step ends."]);
    gate.open(1);
    assert_eq!(order.ends().await?, Outcome::Committed);
    let ended = only(scoop.operate().runs().explain(order.id()).await?);
    assert_eq!((&ended.reason, ended.kind()), (&WaitReason::Ended, None));
    assert_says(&ended.to_string(), &["of `orders` committed at 2", "Nothing is left to do."]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn awaited_signal_is_explained_with_its_key() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let bill = scoop.launch(Bill).await?;
    bill.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)).await?;
    let run = only(scoop.operate().runs().explain(bill.id()).await?);
    let WaitReason::Signal { signal, .. } = &run.reason else { panic!("{run:?}") };
    assert_eq!((&*signal.name, &*signal.key), ("explained.paid", "order 7"));
    assert_says(
        &run.to_string(),
        &[
            "awaits the signal `explained.paid` with the key `order 7`",
            "It goes on when the signal `explained.paid` is sent with the key `order 7`",
        ],
    );
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_waits_for_an_operator() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let item = scoop.launch(Item { plan: Plan::FailToUndo }).await?;
    assert!(matches!(item.ends().await?, Outcome::RollbackFailed(_)));
    let run = only(scoop.operate().runs().explain(item.id()).await?);
    assert!(matches!(run.reason, WaitReason::Operator { .. }), "{run:?}");
    assert_says(
        &run.to_string(),
        &["waits for an operator", "cannot be undone", "An operator has to decide"],
    );
    assert_eq!(run.to_string().matches("cannot be undone").count(), 1, "{run}");
    let undone = scoop.launch(Item { plan: Plan::Fail }).await?;
    assert!(matches!(undone.ends().await?, Outcome::RolledBack(_)));
    let run = only(scoop.operate().runs().explain(undone.id()).await?);
    assert_eq!(run.reason, WaitReason::Ended);
    assert_says(&run.to_string(), &["was rolled back at 2", "The reason is ", "broken"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_is_listed_and_counted_until_it_is_settled() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let item = scoop.launch(Item { plan: Plan::FailToUndo }).await?;
    assert!(matches!(item.ends().await?, Outcome::RollbackFailed(_)));
    let listed = async || -> Result<_> {
        let waiting = scoop.operate().runs().list().waiting_for(WaitKind::Operator).await?.runs;
        assert_eq!(scoop.operate().runs().list().state(RunPhase::RollbackFailed).await?.runs, waiting);
        let counts = scoop.operate().runs().count().await?;
        assert!(counts.finished.iter().all(|it| it.phase != RunPhase::RollbackFailed), "{counts:?}");
        let counted = counts.unfinished.into_iter().map(|it| (it.handler, it.phase, it.count, it.oldest));
        Ok((waiting, counted.collect::<Vec<_>>()))
    };
    let (runs, counted) = listed().await?;
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!((&*run.handler, run.phase), ("items", RunPhase::RollbackFailed));
    assert_eq!(counted, [("items".to_owned(), RunPhase::RollbackFailed, 1, Some(run.since))]);

    // It fails again.
    assert_eq!(scoop.operate().failures().retry(run.run).await?, RepairAnswer::Accepted);
    item.comes_to(|tree: &Tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_))).await?;
    let (runs, counted) = listed().await?;
    assert_eq!((runs.len(), counted.len()), (1, 1), "{runs:?}");
    assert_eq!((counted[0].1, counted[0].2), (RunPhase::RollbackFailed, 1));
    assert_eq!(runs[0].phase, RunPhase::RollbackFailed);
    let text = scoop.operate().runs().explain(run.run).await?.to_string();
    assert!(!text.contains("It is rolling back.") && !text.contains("because of"), "{text}");

    assert_eq!(scoop.operate().failures().resolve(run.run, "by hand").await?, RepairAnswer::Accepted);
    assert_eq!(listed().await?, (vec![], vec![]));
    let tree = item.tree().await?;
    assert_eq!(tree.roots()[0].events.last().map(scoop::tree::RunEvent::word), Some("resolved"), "{tree}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_that_an_operator_skipped_or_resolved_is_listed_and_explained_as_that() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    for (decision, settled) in
        [("skip", "1 part skipped by an operator"), ("resolve", "resolved by an operator")]
    {
        let item = scoop.launch(Item { plan: Plan::FailToUndo }).await?;
        assert!(matches!(item.ends().await?, Outcome::RollbackFailed(_)));
        let run = item.tree().await?.roots()[0].id();
        let answer = match decision {
            "skip" => scoop.operate().failures().skip(run, "by hand").await?,
            _ => scoop.operate().failures().resolve(run, "by hand").await?,
        };
        assert_eq!(answer, RepairAnswer::Accepted);
        let tree =
            item.comes_to(|tree: &Tree| matches!(tree.roots()[0].state, RunState::RolledBack(_))).await?;
        let text = only(scoop.operate().runs().explain(run).await?).to_string();
        assert_says(&text, &["was rolled back at 2", &format!("Z, {settled}. The reason is ")]);
        let listed = scoop.operate().runs().list().state(RunPhase::RolledBack).await?.runs;
        assert_eq!((listed[0].run, listed[0].settled().as_deref()), (run, Some(settled)));
        assert!(listed[0].about().starts_with(&format!("{settled}; ")), "{}", listed[0].about());
        let marks = tree.timeline().into_iter().filter(|bar| bar.kind == scoop::tree::BarKind::Intervention);
        assert_eq!(marks.map(|bar| bar.name).collect::<Vec<_>>(), [decision], "{tree}");
    }
    scoop.shutdown().await?;
    Ok(())
}

/// Current thread: the recorder is that of a thread.
#[tokio::test]
async fn rollback_that_failed_for_the_first_time_is_in_the_gauge() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let item = scoop.launch(Item { plan: Plan::FailToUndo }).await?;
    assert!(matches!(item.ends().await?, Outcome::RollbackFailed(_)));
    scoop.shutdown().await?;
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    // The gauges are set at the start.
    let scoop = start(&db, &gate).await?;
    let gauge = || {
        let metrics = snapshotter.snapshot().into_vec().into_iter();
        let mut own = metrics.filter(|(key, ..)| key.key().name() == "scoop_failed_rollbacks");
        own.next().map(|(.., value)| value)
    };
    let mut seen = None;
    eventually("the gauge is set", async || {
        seen = gauge();
        seen.is_some()
    })
    .await;
    assert_eq!(seen, Some(DebugValue::Gauge(1.0.into())));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_that_failed_because_of_a_child_is_explained_by_the_child() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let order = scoop.launch(Order { plan: Plan::FailToUndo }).await?;
    assert!(matches!(order.ends().await?, Outcome::RollbackFailed(_)));
    let child = order.tree().await?.roots()[0].children[0].id();
    let run = only(scoop.operate().runs().explain(order.id()).await?);
    let WaitReason::Operator { failed_below, .. } = &run.reason else { panic!("{run:?}") };
    assert_eq!(failed_below.iter().map(|below| below.run).collect::<Vec<_>>(), [child]);
    assert_eq!(run.kind(), Some(WaitKind::Operator));
    let decide = format!(
        "decide about what failed below it: `retry`, `skip` or `resolve` the run {child} of `items`."
    );
    assert_says(&run.to_string(), &[&decide]);
    assert_eq!(scoop.operate().failures().retry(run.run.run).await?, RepairAnswer::FailedBelow);
    let run = only(scoop.operate().runs().explain(child).await?);
    assert!(matches!(&run.reason, WaitReason::Operator { failed_below, .. } if failed_below.is_empty()));
    assert_eq!(scoop.operate().failures().skip(child, "accepted").await?, RepairAnswer::Accepted);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_above_a_settled_compensation_is_shown_with_its_reason() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let order = scoop.launch(Order { plan: Plan::FailToUndo }).await?;
    let Outcome::RollbackFailed(failed) = order.ends().await? else { panic!("it was undone") };
    assert_eq!(failed.to_string(), "cannot be undone (because broken (and 1 other cause))");
    let headline_of = async |state: RunPhase| {
        let runs = scoop.operate().runs().list().handler("orders").state(state).await?.runs;
        Ok::<_, Error>(runs[0].failure.as_ref().map(|failure| failure.headline.clone()))
    };
    assert_eq!(headline_of(RunPhase::RollbackFailed).await?.as_deref(), Some("cannot be undone"));

    let child = order.tree().await?.roots()[0].children[0].id();
    assert_eq!(scoop.operate().failures().skip(child, "by hand").await?, RepairAnswer::Accepted);
    let outcome = order.ends().await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
    assert_eq!(outcome.to_string(), "rolled back: broken (and 1 other cause)");
    assert_eq!(headline_of(RunPhase::RolledBack).await?.as_deref(), Some("broken"));
    let text = only(scoop.operate().runs().explain(order.id()).await?).to_string();
    assert_says(&text, &["was rolled back at 2", "The reason is ", ": broken."]);
    let text = order.tree().await?.to_string();
    assert_says(&text, &["orders (on explained.order): rolled back: broken (and 1 other cause)"]);

    let mut events = scoop.operate().events().since(SystemTime::UNIX_EPOCH).recorded();
    let mut headlines = vec![];
    while let Some(event) = events.next().await {
        let event = event?;
        let is_asked = [EventKind::RollingBack, EventKind::RollbackFailed].contains(&event.kind);
        let failure = event.failure.filter(|_| is_asked && event.handler.as_deref() == Some("orders"));
        headlines.extend(failure.map(|failure| failure.headline));
    }
    assert_eq!(headlines, ["broken", "cannot be undone"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_gives_up_is_explained_by_its_cancellation_or_its_deadline() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let gives_up = |run: &RunExplanation, text: &str| {
        assert!(run.giving_up, "{run}");
        assert_says(&run.to_string(), &[text]);
    };
    let cancelled = scoop.launch(Order { plan: Plan::Gate }).await?;
    gate.arrivals(1).await;
    let parent = only(scoop.operate().runs().explain(cancelled.id()).await?);
    assert!(!parent.giving_up && !parent.cancelled, "{parent}");
    let WaitReason::Children { blocking, .. } = &parent.reason else { panic!("{parent}") };
    let child = blocking[0].run;
    scoop.cancel(cancelled.id(), "enough").await?;
    for id in [parent.run.run, child] {
        let run = only(scoop.operate().runs().explain(id).await?);
        assert!(run.cancelled, "{run}");
        gives_up(&run, " It gives up as soon as it can: it was cancelled. ");
    }

    let late = scoop.launch(Order { plan: Plan::Gate }).deadline(Duration::from_secs(2)).await?;
    gate.arrivals(1).await;
    eventually("its deadline has passed", async || {
        only(scoop.operate().runs().explain(late.id()).await.expect("the database answers")).giving_up
    })
    .await;
    let run = only(scoop.operate().runs().explain(late.id()).await?);
    assert!(!run.cancelled, "{run}");
    gives_up(&run, " It gives up as soon as it can: it has missed its deadline, 2");
    let WaitReason::Children { blocking, .. } = &run.reason else { panic!("{run}") };
    let child = only(scoop.operate().runs().explain(blocking[0].run).await?);
    assert_says(&child.to_string(), &["Its deadline is over: it gives up when the step ends."]);
    gate.open(2);
    assert!(matches!(cancelled.ends().await?, Outcome::RolledBack(_)));
    assert!(matches!(late.ends().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_that_failed_because_of_many_children_names_the_first_ten() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = db.scoop().only::<Carts>().only::<Items>().provide(Items { gate }).start().await?;
    for (items, named, has_more) in [(10, 10, false), (12, 10, true)] {
        let cart = scoop.launch(Cart { items }).await?;
        assert!(matches!(cart.ends().await?, Outcome::RollbackFailed(_)));
        let tree = cart.tree().await?;
        let failed = |run: &RunInfo| (run.events.last().and_then(|event| event.at), run.id());
        let mut children: Vec<_> = tree.roots()[0].children.iter().map(failed).collect();
        children.sort_unstable();
        let first: Vec<_> = children.into_iter().map(|(_, id)| id).take(named).collect();
        let run = only(scoop.operate().runs().explain(cart.id()).await?);
        let WaitReason::Operator { failed_below, has_more_below, .. } = &run.reason else {
            panic!("{run:?}")
        };
        let failed_below: Vec<_> = failed_below.iter().map(|below| below.run).collect();
        assert_eq!((failed_below, *has_more_below), (first, has_more), "the first failures");
        assert_eq!(run.to_string().contains(", then more runs."), has_more, "{run}");
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_a_program_says_which_saga_is_missing() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    start(&db, &gate).await?.shutdown().await?;
    let client = db.client();
    let bill = client.launch(Bill).await?;
    let run = only(client.operate().runs().explain(bill.id()).await?);
    assert_eq!(run.reason, WaitReason::Program { definition: None, why: None });
    assert_says(
        &run.to_string(),
        &["no living worker has saga `bills`", "a program starts that has saga `bills`"],
    );
    let later = client.launch(Bill).delay(Duration::from_secs(60)).await?;
    let run = only(client.operate().runs().explain(later.id()).await?);
    assert!(matches!(run.reason, WaitReason::Time { delay: Delay::Start, .. }), "{run:?}");
    assert_says(&run.to_string(), &["of `bills` begins at 2", "; it has waited for "]);
    let counts = client.operate().runs().count().await?;
    assert_eq!(counts.unfinished_in(RunPhase::Pending), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn full_worker_is_explained_by_the_queue() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = db.scoop().only::<Items>().concurrency(1).poll_interval(NEVER);
    let scoop = scoop.provide(Items { gate: gate.clone() }).start().await?;
    let first = scoop.launch(Item { plan: Plan::Gate }).await?;
    gate.arrivals(1).await;
    let client = db.client();
    let second = client.launch(Item { plan: Plan::Gate }).await?;
    let third = client.launch(Item { plan: Plan::Gate }).await?;
    let run = only(client.operate().runs().explain(third.id()).await?);
    let WaitReason::Slot { ahead: 1, queued: 2, is_suspect: false, workers } = &run.reason else {
        panic!("{run:?}")
    };
    assert_eq!(workers.len(), 1);
    assert_says(&run.to_string(), &["waits for a free slot", "1 run is ahead of it in its queue of 2"]);
    gate.open(3);
    for item in [first, second, third] {
        assert_eq!(item.ends().await?, Outcome::Committed);
    }
    let counts = scoop.operate().runs().count().await?;
    let committed: Vec<_> = counts.finished.iter().map(|it| (&*it.handler, it.phase, it.count)).collect();
    assert_eq!(committed, [("items", RunPhase::Committed, 3)]);
    assert!(counts.per_second(RunPhase::Committed) > 0.0);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_the_first_sagas_say_that_others_may_be_left_out() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let order = scoop.launch(Order { plan: Plan::Commit }).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    let failed = scoop.launch(Item { plan: Plan::Fail }).await?;
    assert!(matches!(failed.ends().await?, Outcome::RolledBack(_)));
    let bill = scoop.launch(Bill).await?;
    bill.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)).await?;
    let (items, orders) = (("items", RunPhase::Committed), ("orders", RunPhase::Committed));
    let undone = ("items", RunPhase::RolledBack);
    for (sagas, finished, is_complete) in [
        (1, vec![items, undone], false),
        (2, vec![items, undone, orders], false),
        (3, vec![items, undone, orders], true),
    ] {
        let counts = scoop.operate().runs().count().sagas(sagas).await?;
        let found: Vec<_> = counts.finished.iter().map(|it| (&*it.handler, it.phase)).collect();
        assert_eq!((found, counts.is_complete), (finished, is_complete), "{sagas}");
        assert_eq!(counts.unfinished_in(RunPhase::AwaitingSignal), 1);
    }
    assert!(scoop.operate().runs().count().await?.is_complete);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn count_that_ends_at_its_limit_is_explained_as_that_or_more() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = db.scoop().only::<Items>().concurrency(1).poll_interval(NEVER);
    let scoop = scoop.provide(Items { gate: gate.clone() }).start().await?;
    scoop.launch(Item { plan: Plan::Gate }).await?;
    gate.arrivals(1).await;
    let client = db.client();
    client.launch_all((0..1_001).map(|_| Item { plan: Plan::Commit })).await?;
    let last = client.launch(Item { plan: Plan::Commit }).await?;
    let run = only(client.operate().runs().explain(last.id()).await?);
    let ahead = "1000 or more runs are ahead of it in its queue of 1000 or more";
    assert_says(&run.to_string(), &["waits for a free slot", ahead]);
    gate.open(1);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_was_cancelled_before_it_began_is_mentioned_where_it_is_missing() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    // The handler of the items is registered, and no program has it.
    start(&db, &gate).await?.shutdown().await?;
    let scoop = db.scoop().only::<Orders>().start().await?;
    let order = scoop.launch(Order { plan: Plan::Commit }).await?;
    let tree = order.comes_to(child_is(|state| *state == RunState::Pending)).await?;
    let (child, message) = {
        let item = &tree.roots()[0].children[0];
        (item.id(), item.message_id)
    };
    scoop.cancel(order.id(), "a test").await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    let Err(error) = scoop.operate().runs().explain(child).await else { panic!("it is deleted") };
    assert!(error.is_not_found(), "{error:?}");
    assert_says(&error.to_string(), &["cancelled before it began"]);
    let explanation = scoop.operate().runs().explain(message).await?;
    assert!(explanation.runs.is_empty());
    assert_says(&explanation.to_string(), &["cancelled", "before they began"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn id_of_nothing_and_message_without_a_handler_are_explained_as_such() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Bills>().poll_interval(NEVER).start().await?;
    let Err(error) = scoop.operate().runs().explain(uuid::Uuid::from_u128(7)).await else {
        panic!("there is nothing")
    };
    assert!(error.is_not_found(), "{error:?}");
    let item = scoop.launch(Item { plan: Plan::Commit }).await?;
    let explanation = scoop.operate().runs().explain(item.id()).await?;
    assert!(explanation.runs.is_empty());
    assert_says(&explanation.to_string(), &["no handler was subscribed"]);
    scoop.shutdown().await?;
    Ok(())
}
