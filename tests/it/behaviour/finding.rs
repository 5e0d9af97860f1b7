//! Lists of runs: filters, pages and their places; lookup by a unique key.

use std::time::Duration;

use scoop::operate::RunCursor;
use scoop::operate::{RunPage, WaitKind};
use scoop::{Handle, RunPhase};

use super::*;
use crate::support::{Database, Gate};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq)]
enum Plan {
    Commit,
    Fail,
    Sleep,
    Launch,
    Retry,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "finding.order")]
struct Order {
    plan: Plan,
}

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("none are left")]
#[failure(code = "out-of-stock")]
struct OutOfStock;

#[derive(Default)]
struct Orders;

#[saga(name = "orders")]
#[subscribes(Order)]
impl Orders {
    #[step(name = "place", rollback = undo, retry(max = 3, backoff = "1h..1h", when = is_away))]
    async fn place(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        match order.plan {
            Plan::Commit => {}
            Plan::Fail => return Err(OutOfStock.into()),
            Plan::Sleep => scope.sleep(Duration::from_secs(3_600)).await?,
            Plan::Launch => drop(scope.launch(Item).await?),
            Plan::Retry => return Err(SIMULATED.into()),
        }
        Ok(())
    }

    fn is_away(error: &Error) -> bool {
        error.downcast_ref::<RuntimeException>().is_some()
    }

    #[step(name = "end")]
    async fn end(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "finding.item")]
struct Item;

handler! {
    Items(gate): "items" on Item;
    step "take" take => at_gate().silently();
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "finding.bill")]
struct Bill;

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "finding.paid", retention = "1 day")]
struct Paid;

handler! {
    Bills: "bills" on Bill;
    step "send" send => done().silently();

    #[step(name = "pay", awaits(Paid, by = key))]
    async fn pay(&self, _: &mut Scope<'_>, _: &Bill, _: &Paid) -> Result<()> {
        Ok(())
    }

    async fn key(&self, _: &mut Scope<'_>, _: &Bill) -> Result<String> {
        Ok("order 7".into())
    }
}

async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
    let scoop = db.scoop().only::<Orders>().only::<Items>().poll_interval(NEVER);
    Ok(scoop.provide(Items { gate: gate.clone() }).start().await?)
}

/// The sagas and states in a page.
fn words(page: &RunPage) -> Vec<String> {
    page.runs.iter().map(|run| format!("{} {}", run.handler, run.phase)).collect()
}

fn is(state: RunState) -> impl Fn(&Tree) -> bool {
    move |tree| tree.roots().iter().any(|run| run.state == state)
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_runs_are_counted_by_the_step_after_which_they_are() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().only::<Bills>().start().await?;
    for plan in [Plan::Sleep, Plan::Sleep, Plan::Retry, Plan::Commit] {
        let order = scoop.launch(Order { plan }).await?;
        let rests = |state: &RunState| {
            matches!(state, RunState::Sleeping | RunState::Retrying { .. } | RunState::Committed)
        };
        order.comes_to(|tree| tree.roots().iter().any(|run| rests(&run.state))).await?;
    }
    scoop.launch(Bill).await?.comes_to(is(RunState::AwaitingSignal)).await?;
    let positions =
        scoop.operate().runs().positions(&["orders", "bills", "items"].map(str::to_owned)).await?;
    let mut told: Vec<_> = positions
        .iter()
        .map(|it| format!("{} {} {:?} {:?} {}", it.count, it.handler, it.step, it.awaits, it.steps.len()))
        .collect();
    told.sort();
    let expected = [
        r#"1 bills Some("pay (waiting for signal)") Some("finding.paid") 3"#,
        "1 orders None None 0",
        r#"2 orders Some("place") None 2"#,
    ];
    assert_eq!(told, expected);
    assert!(positions.iter().all(|it| it.jump.is_none() && !it.is_capped), "{positions:?}");
    Ok(())
}

/// One hierarchy in each state, launched in this order.
async fn one_of_each(scoop: &Scoop, gate: &Gate) -> Result<[Handle; 5]> {
    let launched = async |plan| scoop.launch(Order { plan }).await;
    let committed = launched(Plan::Commit).await?;
    assert_eq!(committed.ends().await?, Outcome::Committed);
    let failed = launched(Plan::Fail).await?;
    assert!(matches!(failed.ends().await?, Outcome::RolledBack(_)));
    let sleeping = launched(Plan::Sleep).await?;
    sleeping.comes_to(is(RunState::Sleeping)).await?;
    let waiting = launched(Plan::Launch).await?;
    waiting.comes_to(is(RunState::Waiting)).await?;
    gate.arrivals(1).await;
    let retried = launched(Plan::Retry).await?;
    let retries = |tree: &Tree| tree.roots().iter().any(|run| matches!(run.state, RunState::Retrying { .. }));
    retried.comes_to(retries).await?;
    Ok([committed, failed, sleeping, waiting, retried])
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_unfinished_first_and_newest_first() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let [committed, failed, .., retried] = one_of_each(&scoop, &gate).await?;
    let page = scoop.operate().runs().list().await?;
    let all = [
        "orders retrying",
        "items running",
        "orders waiting",
        "orders sleeping",
        "orders rolled back",
        "orders committed",
    ];
    assert_eq!(words(&page), all);
    assert_eq!(page.next, None);

    let [first, item, parent, sleeper, undone, done] = &page.runs[..] else { panic!("six runs") };
    assert_eq!((first.hierarchy, first.attempts), (retried.id(), 1));
    assert!(first.reason.as_ref().is_some_and(|reason| reason.contains("Simulated")), "{first:?}");
    assert_eq!((first.waits_for, sleeper.waits_for), (Some(WaitKind::Time), Some(WaitKind::Time)));
    assert!(sleeper.wakes_at > Some(sleeper.since), "{sleeper:?}");
    assert_eq!(item.parent, Some(parent.run));
    assert!(item.worker.is_some() && item.waits_for.is_none());
    assert_eq!(parent.waits_for, Some(WaitKind::Children));
    assert_eq!((undone.hierarchy, done.hierarchy), (failed.id(), committed.id()));
    let failure = undone.failure.as_ref().expect("it has failed");
    assert_eq!((&*failure.code, &*failure.headline), ("out-of-stock", "none are left"));
    assert_eq!((&*done.topic, done.parent, &done.failure), ("finding.order", None, &None));
    gate.open(1);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_choose_among_the_runs() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let [committed, ..] = one_of_each(&scoop, &gate).await?;
    let runs = || scoop.operate().runs().list();
    for (filtered, expected) in [
        (runs().handler("items"), &["items running"][..]),
        (runs().handler("nobody"), &[]),
        (runs().topic("finding.item"), &["items running"]),
        (runs().state(RunPhase::Sleeping), &["orders sleeping"]),
        (runs().state(RunPhase::Committed), &["orders committed"]),
        (
            runs().state(RunPhase::Waiting).state(RunPhase::RolledBack),
            &["orders waiting", "orders rolled back"],
        ),
        (runs().failed_with("out-of-stock"), &["orders rolled back"]),
        (runs().failed_with("out"), &[]),
        (runs().waiting_for(WaitKind::Children), &["orders waiting"]),
        (runs().waiting_for(WaitKind::Time), &["orders retrying", "orders sleeping"]),
        (runs().waiting_for(WaitKind::Slot), &[]),
        (runs().roots().topic("finding.item"), &[]),
        (runs().roots().state(RunPhase::Waiting), &["orders waiting"]),
    ] {
        assert_eq!(words(&filtered.await?), expected);
    }
    let done = &scoop.operate().runs().list().state(RunPhase::Committed).await?.runs[0];
    assert_eq!(done.hierarchy, committed.id());
    let later = done.since + Duration::from_micros(1);
    assert_eq!(words(&runs().since(done.since).state(RunPhase::Committed).await?), ["orders committed"]);
    assert_eq!(words(&runs().since(later).state(RunPhase::Committed).await?), [""; 0]);
    assert_eq!(words(&runs().until(later).await?), ["orders committed"]);
    assert_eq!(words(&runs().until(done.since).await?), [""; 0]);
    gate.open(1);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_any_size_together_are_the_list() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    one_of_each(&scoop, &gate).await?;
    for _ in 0..4 {
        assert_eq!(scoop.launch(Order { plan: Plan::Commit }).await?.ends().await?, Outcome::Committed);
    }
    let all = scoop.operate().runs().list().page(100).await?.runs;
    assert_eq!(all.len(), 10);
    for size in 1..=11 {
        let (mut listed, mut next) = (vec![], None::<RunCursor>);
        loop {
            let page = scoop.operate().runs().list().page(size).after(next).await?;
            assert!(page.runs.len() <= size);
            listed.extend(page.runs);
            // as a text, as it is in a URL
            next = page.next.map(|next| next.to_string().parse()).transpose()?;
            if next.is_none() {
                break;
            }
        }
        let ids = |runs: &[scoop::operate::RunSummary]| runs.iter().map(|run| run.run).collect::<Vec<_>>();
        assert_eq!(ids(&listed), ids(&all), "pages of {size}");
    }
    gate.open(1);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_is_undone_later_is_listed_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default()).await?;
    let order = scoop.launch(Order { plan: Plan::Commit }).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    scoop.rollback(order.id(), "came back").await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    let page = scoop.operate().runs().list().await?;
    assert_eq!(words(&page), ["orders rolled back"]);
    assert!(page.runs[0].failure.as_ref().is_some_and(|why| why.headline.contains("came back")), "{page:?}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_without_a_program_wait_for_one() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default()).await?;
    let sleeping = scoop.launch(Order { plan: Plan::Sleep }).await?;
    sleeping.comes_to(is(RunState::Sleeping)).await?;
    scoop.shutdown().await?;
    let client = db.client();
    client.launch(Order { plan: Plan::Commit }).await?;
    let page = client.operate().runs().list().waiting_for(WaitKind::Program).await?;
    assert_eq!(words(&page), ["orders pending"]);
    assert_eq!(words(&client.operate().runs().list().waiting_for(WaitKind::Slot).await?), [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_await_a_signal_are_listed_with_its_key() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().only::<Bills>().poll_interval(NEVER).start().await?;
    let sleeping = scoop.launch(Order { plan: Plan::Sleep }).await?;
    sleeping.comes_to(is(RunState::Sleeping)).await?;
    let bill = scoop.launch(Bill).await?;
    bill.comes_to(is(RunState::AwaitingSignal)).await?;
    let page = scoop.operate().runs().list().waiting_for(WaitKind::Signal).await?;
    assert_eq!(words(&page), ["bills awaiting signal"]);
    let awaited = page.runs[0].awaits.as_ref().expect("it awaits a signal");
    assert_eq!((&*awaited.name, &*awaited.key), ("finding.paid", "order 7"));
    let page =
        scoop.operate().runs().list().waiting_for(WaitKind::Signal).waiting_for(WaitKind::Time).await?;
    assert_eq!(words(&page), ["bills awaiting signal", "orders sleeping"]);
    scoop.signal(Paid, "order 7").await?;
    assert_eq!(bill.ends().await?, Outcome::Committed);
    assert_eq!(words(&scoop.operate().runs().list().waiting_for(WaitKind::Signal).await?), [""; 0]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_wait_for_a_slot_are_listed_without_the_one_that_has_it() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = db.scoop().only::<Items>().concurrency(1).poll_interval(NEVER);
    let scoop = scoop.provide(Items { gate: gate.clone() }).start().await?;
    let first = scoop.launch(Item).await?;
    gate.arrivals(1).await;
    let client = db.client();
    let (second, third) = (client.launch(Item).await?, client.launch(Item).await?);
    let page = client.operate().runs().list().waiting_for(WaitKind::Slot).await?;
    assert_eq!(words(&page), ["items pending"; 2]);
    assert_eq!([page.runs[0].hierarchy, page.runs[1].hierarchy], [third.id(), second.id()]);
    gate.open(3);
    for item in [first, second, third] {
        assert_eq!(item.ends().await?, Outcome::Committed);
    }
    assert_eq!(words(&client.operate().runs().list().waiting_for(WaitKind::Slot).await?), [""; 0]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_is_found_by_its_unique_key() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default()).await?;
    let order = scoop.launch(Order { plan: Plan::Commit }).unique("order 7").await?;
    assert_eq!(scoop.find_by_key::<Order>("order 7").await?.id(), order.id());
    assert_eq!(scoop.operate().runs().find_by_key("finding.order", "order 7").await?.id(), order.id());
    for (topic, key) in [("finding.order", "order 8"), ("finding.item", "order 7")] {
        let Err(error) = scoop.operate().runs().find_by_key(topic, key).await else { panic!("it was found") };
        assert!(error.is_not_found(), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&format!("topic `{topic}` with the key `{key}`")), "{text}");
    }
    assert_eq!(order.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
