//! Events of `tracing`: each one that the guide lists is reported once, after the commit.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use scoop::prelude::*;
use scoop::tree::{RunState, Tree};
use scoop::{Builder, Handle, InMemory};

use crate::support::events::{Events, Fields, Seen};
use crate::support::{Ends, eventually};
use shop::{
    Gated, Letter, LetterSaga, Order, OrderSaga, ParcelSaga, PricedSaga, Program, RenamedSaga, ShorterSaga,
    Slow, Visit, shop,
};

#[path = "../../../scoop-runtime/src/telemetry/tests/guide_events.rs"]
mod guide_events;
#[path = "../../../scoop-runtime/src/telemetry/tests/guide_metrics.rs"]
mod guide_metrics;
mod health;
mod metrics;
mod shop;
mod spans;
mod traces;

const SOON: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_secs(1_000_000);

/// The events of a run, by target and name, with the fields that are the same each time.
fn lines_of(events: &Events, names: &[&str], run: &Handle) -> Vec<String> {
    let line = |seen: &Seen| {
        let of = |field: &str| seen.fields.get(field).cloned().unwrap_or_default();
        let failure = of("failure");
        let failure = failure.split_once("]] ").map_or("", |(_, said)| said).to_owned();
        format!("{} {} {}: {failure}", seen.metadata.level(), of("event"), of("step"))
    };
    let of_run = events.below("scoop::run").into_iter();
    let of_run = of_run.filter(|seen| seen.fields.get("hierarchy") == Some(&run.id().to_string()));
    of_run.filter(|seen| names.contains(&seen.metadata.name())).map(|seen| line(&seen)).collect()
}

const OUTCOMES: [&str; 6] =
    ["failed", "cancelled", "deadline_missed", "rolled_back", "rollback_failed", "stuck"];

#[tokio::test(start_paused = true)]
async fn failed_saga_is_one_warning_with_step_and_failure() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    let order = shop.scoop.launch(Order { fails: true, ..Order::default() }).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(
        lines_of(&events, &OUTCOMES, &order),
        [
            "WARN failed charge: Error: card declined",
            "INFO rolled_back Rollback of reserve[0,]: Error: card declined"
        ]
    );
    let rolled_back = &events.of("rolled_back")[0];
    let shared = |field: &str| rolled_back.fields[field].clone();
    let tree = order.tree().await?;
    let run = &tree.roots()[0];
    assert_eq!(shared("run"), run.lineage.id().to_string());
    assert_eq!((shared("saga"), shared("topic")), ("telemetry-order".into(), "telemetry.orders".into()));
    assert_eq!((shared("attempt"), shared("rollback_requested")), ("0".into(), "false".into()));
    assert!(shared("failure").starts_with("[telemetry-order["), "{rolled_back:?}");
    let failed = &events.of("failed")[0];
    for seen in [failed, rolled_back] {
        assert!(!seen.fields["message"].contains("card declined"), "the failure is a field: {seen:?}");
    }
    assert_eq!(failed.fields["message"], "run failed in step `charge`, rolling back");
    Ok(())
}

#[derive(Default)]
struct Renamed;

#[saga(name = "telemetry-renamed", was = ["telemetry-old", "telemetry-older"])]
#[subscribes(Visit)]
impl Renamed {
    #[step]
    async fn welcome(&self, _: &mut Scope<'_>, _: &Visit) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn renamed_saga_is_counted_once_at_the_start() -> Result<()> {
    let (events, _guard) = Events::listen();
    let program = Program::start(&InMemory::new(), |it| it.only::<Renamed>()).await?;
    let started = &events.of("started")[0].fields;
    assert_eq!((&*started["sagas"], &*started["message"]), ("1", "worker started, sagas: 1"));
    program.scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn parent_of_a_failed_child_reports_the_failure_of_the_child() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    let order = shop.scoop.launch(Order { child: true, ..Order::default() }).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(
        lines_of(&events, &OUTCOMES, &order),
        [
            "INFO failed pack: Error: no box left",
            "INFO rolled_back pack: Error: no box left",
            "WARN failed reserve: Error: no box left",
            "INFO rolled_back Rollback of reserve[0,]: Error: no box left",
        ]
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn handled_failure_of_a_child_is_no_warning() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    let order = shop.scoop.launch(Order { child: true, handles: true, ..Order::default() }).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    assert_eq!(
        lines_of(&events, &OUTCOMES, &order),
        ["INFO failed pack: Error: no box left", "INFO rolled_back pack: Error: no box left"]
    );
    let late = Order { child: true, handles: true, late: true, ..Order::default() };
    let order = shop.scoop.launch(late).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    let missed = lines_of(&events, &["deadline_missed"], &order);
    assert!(missed.len() == 1 && missed[0].starts_with("INFO deadline_missed pack: "), "{missed:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failure_of_a_run_names_the_root_run() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    let order = shop.scoop.launch(Order { child: true, ..Order::default() }).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    let root = order.tree().await?.roots()[0].lineage.id().to_string();
    for name in ["failed", "rolled_back"] {
        let seen = events.of(name);
        let sagas: Vec<_> =
            seen.iter().map(|seen| (&*seen.fields["saga"], &*seen.fields["is_root"])).collect();
        assert_eq!(sagas, [("telemetry-parcel", "false"), ("telemetry-order", "true")], "{name}");
        assert!(seen.iter().all(|seen| seen.fields["root"] == root), "{seen:?}");
        assert_eq!(seen.iter().filter(|seen| seen.fields["run"] == root).count(), 1, "{seen:?}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cancelled_run_and_missed_deadline_are_reported_when_they_take_effect() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    let sleeping = Order { sleeps: true, ..Order::default() };
    let asleep = |tree: &Tree| tree.roots().iter().all(|run| run.state == RunState::Sleeping);
    let order = shop.scoop.launch(sleeping.clone()).await?;
    order.comes_to(asleep).await?;
    assert_eq!(lines_of(&events, &OUTCOMES, &order), [""; 0]);
    shop.scoop.cancel(order.id(), "customer left").source("till").await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    let own = |lines: Vec<String>| -> Vec<String> {
        lines.into_iter().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect()
    };
    let outcomes_of = |order| own(lines_of(&events, &OUTCOMES, order));
    assert_eq!(outcomes_of(&order), ["INFO cancelled charge", "INFO rolled_back Rollback of reserve[0,]"]);
    assert!(
        events.of("cancelled")[0].fields["failure"]
            .contains("[till] CancellationRequestedException: customer left")
    );

    let order = shop.scoop.launch(sleeping).deadline(SOON).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(
        outcomes_of(&order),
        ["WARN deadline_missed charge", "INFO rolled_back Rollback of reserve[0,]"]
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failed_rollback_is_an_error_with_a_remedy() -> Result<()> {
    let (events, _guard) = Events::listen();
    let saga = OrderSaga::default();
    saga.broken.store(true, Ordering::Relaxed);
    let shop = Program::start(&InMemory::new(), |it| it.only::<OrderSaga>().provide(saga.clone())).await?;
    let order = shop.scoop.launch(Order { fails: true, ..Order::default() }).await?;
    assert!(matches!(order.ends().await?, Outcome::RollbackFailed(_)));
    let run = order.tree().await?.roots()[0].lineage.id();
    shop.scoop.operate().failures().retry(run).await?;
    let tree = order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_))).await?;
    assert_eq!(
        tree.to_string().matches("rollback failed in reserve: it is not wanted back").count(),
        2,
        "{tree}"
    );
    assert_eq!(
        lines_of(&events, &OUTCOMES, &order),
        [
            "WARN failed charge: Error: card declined",
            "ERROR rollback_failed Rollback of reserve[0,]: Error: it is not wanted back",
            "ERROR rollback_failed Rollback of reserve[0,]: Error: it is not wanted back",
        ]
    );
    let failed = events.of("rollback_failed");
    assert_eq!(failed.iter().map(|seen| &*seen.fields["again"]).collect::<Vec<_>>(), ["false", "true"]);
    assert!(
        failed.iter().all(|seen| seen.fields["advice"].contains("operate().failures().skip")),
        "{failed:?}"
    );
    saga.broken.store(false, Ordering::Relaxed);
    shop.scoop.operate().failures().retry(run).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(events.of("rolled_back").len(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stuck_run_is_an_error_with_a_remedy() -> Result<()> {
    let (events, _guard) = Events::listen();
    let database = InMemory::new();
    let (before, order) = asleep(&database, "").await?;
    before.scoop.shutdown().await?;
    let shorter = Program::start(&database, |it| it.only::<ShorterSaga>()).await?;
    shorter.scoop.cancel(order.id(), "").await?;
    eventually("the run is stuck", async || !events.of("stuck").is_empty()).await;
    let stuck = &events.of("stuck")[0];
    assert!(stuck.fields["reason"].contains("saga `telemetry-order`"), "{stuck:?}");
    assert!(stuck.fields["advice"].contains("start a program whose saga fits"), "{stuck:?}");
    Ok(())
}

/// An order that sleeps, and the program that has begun it.
async fn asleep(database: &InMemory, secret: &str) -> Result<(Program, Handle)> {
    let shop = shop(database).await?;
    let order = shop.scoop.launch(Order { sleeps: true, secret: secret.into(), ..Order::default() }).await?;
    order.comes_to(|tree| tree.roots().iter().all(|run| run.state == RunState::Sleeping)).await?;
    let client = Scoop::builder().in_memory_database(database).client().await?;
    let order = client.find(order.id()).await?;
    Ok((shop, order))
}

#[tokio::test(start_paused = true)]
async fn first_retry_of_a_step_is_info_and_later_ones_are_debug() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    let order = shop.scoop.launch(Order { retries: 3, ..Order::default() }).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    let retried = events.of("retried");
    let attempts = retried.iter().map(|seen| (seen.metadata.level().as_str(), &*seen.fields["attempt"]));
    assert_eq!(attempts.collect::<Vec<_>>(), [("INFO", "0"), ("DEBUG", "1"), ("DEBUG", "2")]);
    assert_eq!(retried[0].fields["reason"], "step `charge`: postgres://shop:***@bank/db is busy");
    assert_eq!(retried[0].fields["infrastructure"], "false");
    assert_eq!(lines_of(&events, &OUTCOMES, &order), [""; 0]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn every_function_of_a_saga_runs_in_the_span_of_its_run() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    let order = shop.scoop.launch(Order { fails: true, ..Order::default() }).await?;
    order.ends().await?;
    let run = order.tree().await?.roots()[0].lineage.id().to_string();
    shop.scoop.launch(Order { child: true, ..Order::default() }).await?.ends().await?;
    let mut functions = BTreeSet::new();
    let expected: BTreeSet<_> =
        ["attempt", "hierarchy", "is_root", "kind", "root", "run", "saga", "step", "topic"].into();
    for seen in events.below("shop") {
        let (name, span): (_, Fields) = seen.span.clone().expect("it is in a span");
        assert_eq!((name, span.keys().copied().collect::<BTreeSet<_>>()), ("step", expected.clone()));
        assert_eq!((&*span["saga"], &*span["topic"]), ("telemetry-order", "telemetry.orders"));
        if span["hierarchy"] == order.id().to_string() {
            assert_eq!(span["run"], run);
        }
        functions.insert(format!("{} in {} of {}", seen.fields["message"], span["kind"], span["step"]));
    }
    let functions: Vec<_> = functions.iter().map(String::as_str).collect();
    assert_eq!(
        functions,
        [
            "charging in step of charge",
            "giving back in compensation of Rollback of reserve[0,]",
            "reserving in step of reserve",
            "shrugging in child_failure of reserve",
            "tidying in finally of Rollback of reserve[0,]",
            "tidying in finally of reserve (finally)",
        ]
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn repeated_settlement_reports_no_outcome_twice() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    shop.link.fail_before("settle", 3);
    let order = shop.scoop.launch(Order { fails: true, ..Order::default() }).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    assert_eq!((events.of("failed").len(), events.of("rolled_back").len()), (1, 1));
    let failed = events.of("operation_failed");
    assert_eq!(failed.len(), 3);
    assert!(failed.iter().all(|seen| seen.fields["operation"] == "settlement"), "{failed:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn outcome_with_a_lost_answer_is_reported_once() -> Result<()> {
    let shop = shop(&InMemory::new()).await?;
    // The answer to each settlement in turn, until there are no more of them.
    for lost in 0.. {
        let (events, _guard) = Events::listen();
        shop.link.fail_once_after("settle", lost);
        let order = shop.scoop.launch(Order { child: true, ..Order::default() }).await?;
        assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
        // The end is recorded before the worker has looked it up; nothing is reported later.
        tokio::time::sleep(5 * SOON).await;
        let reported = ["failed", "rolled_back"].map(|name| events.of(name).len());
        assert_eq!(reported, [2, 2], "without answer {lost}: {}", events.text("scoop"));
        if events.of("operation_failed").is_empty() {
            assert!(lost > 2, "there are more settlements");
            return Ok(());
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn payloads_and_passwords_are_in_no_event() -> Result<()> {
    const SECRETS: [&str; 2] = ["chairs for the king", "hunter2"];
    let (events, _guard) = Events::listen();
    let database = InMemory::new();
    // A run with a payload that no longer fits, one with a payload that never did, and a step that names a connection
    // string.
    let (before, order) = asleep(&database, SECRETS[0]).await?;
    let retried = Order { retries: 2, fails: true, secret: SECRETS[0].into(), ..Order::default() };
    before.scoop.launch(retried).await?.ends().await?;
    before.scoop.shutdown().await?;
    let priced = Program::start(&database, |it| it.only::<PricedSaga>()).await?;
    let misfit = priced.scoop.launch(Order { secret: SECRETS[0].into(), ..Order::default() }).await?;
    let Outcome::RolledBack(failure) = misfit.ends().await? else { panic!("it fits") };
    assert!(failure.report().contains(SECRETS[0]), "it is recorded: {}", failure.report());
    assert_eq!(lines_of(&events, &["rolled_back"], &misfit).len(), 1);
    database.advance(NEVER);
    order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::Stuck { .. })).await?;
    eventually("the run is stuck", async || !events.of("stuck").is_empty()).await;
    let text = events.text("scoop");
    assert!(text.contains("does not fit the message type of saga `telemetry-order`"), "{text}");
    assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn value_of_a_failure_that_its_type_does_not_read_is_one_warning() -> Result<()> {
    let (events, _guard) = Events::listen();
    let post = Program::start(&InMemory::new(), |it| it.only::<LetterSaga>()).await?;
    for _ in 0..2 {
        assert!(matches!(post.scoop.launch(Letter).await?.ends().await?, Outcome::RolledBack(_)));
    }
    let [warning] = &events.of("failure_unread")[..] else { panic!("there is one") };
    assert_eq!(warning.fields["code"], "telemetry.torn");
    assert!(warning.fields["type_name"].ends_with("::Torn"), "{}", warning.fields["type_name"]);
    assert!(!events.text("scoop").contains("hunter2"));
    post.scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn signal_that_no_saga_awaits_is_one_warning() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = Program::start(&InMemory::new(), |it| it.only::<OrderSaga>()).await?;
    for key in ["7", "8"] {
        assert_eq!(shop.scoop.signal(Unheard, key).await?, 0);
    }
    shop.scoop.shutdown().await?;
    let [warning] = &events.of("unawaited")[..] else { panic!("there is one") };
    assert_eq!(warning.fields["message"], "signal sent that no living program awaits: `unheard`");
    Ok(())
}

/// No saga awaits it.
#[derive(Signal, Serialize, Deserialize)]
struct Unheard;

/// Events that need a database, or a faulty program.
const NOT_PROVOKED: [&str; 25] = [
    "scoop::embedded stop_failed",
    "scoop::pause pause_began",
    "scoop::pause pause_ended",
    "scoop::retention pruned",
    "scoop::retention unarchived",
    "scoop::retention undeletable",
    "scoop::run cleanup_lost",
    "scoop::run handed_over",
    "scoop::run refused",
    "scoop::run signal_refused",
    "scoop::run unreadable",
    "scoop::signal delivery_locked",
    "scoop::signal delivery_refused",
    "scoop::worker claim_refused",
    "scoop::worker engine_failed",
    "scoop::worker join_refused",
    "scoop::worker limit_names_left_out",
    "scoop::worker missed_skipped",
    "scoop::worker no_sagas",
    "scoop::worker saga_missing",
    "scoop::worker saga_unlisted",
    "scoop::worker schedule_unfit",
    "scoop::worker schedule_unlisted",
    "scoop::worker session_gone",
    "scoop::worker worker_unlisted",
];

#[tokio::test(start_paused = true)]
async fn provoked_events_are_those_of_the_guide() -> Result<()> {
    let (events, _guard) = Events::listen();
    outcomes().await?;
    faults(&events).await?;
    let provoked_rows =
        events.below("scoop::").into_iter().filter(|seen| seen.metadata.is_event()).map(|seen| {
            let fields = seen.metadata.fields().iter().map(|field| field.name());
            let fields = fields.filter(|field| !["event", "message"].contains(field));
            let [target, level] = [seen.metadata.target(), seen.metadata.level().as_str()].map(str::to_owned);
            assert_eq!(seen.fields["event"], seen.metadata.name(), "the name is a field, too");
            (target, seen.metadata.name().to_owned(), level, fields.map(str::to_owned).collect())
        });
    let (provoked, listed) = (provoked_rows.collect::<BTreeSet<guide_events::Row>>(), guide_events::rows());
    let unlisted: Vec<_> = provoked.difference(&listed).collect();
    assert!(unlisted.is_empty(), "not in the guide: {unlisted:#?}");
    let missing = listed.difference(&provoked).map(|(target, name, ..)| format!("{target} {name}"));
    assert_eq!(missing.collect::<Vec<_>>(), NOT_PROVOKED);
    Ok(())
}

/// Runs that end in every way.
async fn outcomes() -> Result<()> {
    let (database, saga) = (InMemory::new(), OrderSaga::default());
    let program = |it: Builder| it.only::<OrderSaga>().only::<ParcelSaga>().provide(saga.clone());
    let shop = Program::start(&database, program).await?;
    let launch = |order| shop.scoop.launch(order);
    launch(Order { retries: 2, fails: true, ..Order::default() }).await?.ends().await?;
    let malformed = traces::Forged(serde_json::Value::Null);
    launch(Order::default()).trace_headers(Some(""), None).with(malformed).await?.ends().await?;
    launch(Order { child: true, ..Order::default() }).await?.ends().await?;
    launch(Order { child: true, late: true, ..Order::default() }).await?.ends().await?;
    shop.scoop.launch(Visit).await?.ends().await?;
    let sleeping = Order { sleeps: true, ..Order::default() };
    launch(sleeping.clone()).deadline(SOON).await?.ends().await?;
    let cancelled = launch(sleeping.clone()).await?;
    shop.scoop.cancel(cancelled.id(), "").await?;
    cancelled.ends().await?;
    saga.broken.store(true, Ordering::Relaxed);
    launch(Order { fails: true, ..Order::default() }).await?.ends().await?;
    shop.scoop.signal(Unheard, "7").await?;
    let (before, order) = asleep(&database, "").await?;
    before.scoop.shutdown().await?;
    shop.scoop.shutdown().await?;
    let priced = Program::start(&database, |it| it.only::<PricedSaga>()).await?;
    database.advance(NEVER);
    order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::Stuck { .. })).await?;
    priced.scoop.shutdown().await?;
    let letters = InMemory::new();
    let post = Program::start(&letters, |it| it.only::<LetterSaga>()).await?;
    post.scoop.launch(Letter).await?.ends().await?;
    post.scoop.shutdown().await?;
    let build =
        |it: Builder, id: &str| it.only::<LetterSaga>().service("post").build(id).retain_handlers([""; 0]);
    let post = Program::start(&letters, |it| build(it, "1").only::<Slow>()).await?;
    let without_slow = Program::start(&letters, |it| build(it, "2")).await?;
    post.scoop.shutdown().await?;
    without_slow.scoop.shutdown().await?;
    let slow = Program::start(&InMemory::new(), |it| it.only::<Slow>()).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    slow.scoop.shutdown().await?;
    Ok(())
}

/// All faults between the engine and the database.
async fn faults(events: &Events) -> Result<()> {
    let (database, gated) = (InMemory::new(), Gated::default());
    let program = |it: Builder| it.only::<Gated>().only::<OrderSaga>().provide(gated.clone());
    let (doomed, other) =
        (Program::start(&database, program).await?, Program::start(&database, program).await?);
    let visit = doomed.scoop.launch(Visit).await?;
    gated.0.arrivals(1).await;
    doomed.die();
    gated.0.arrivals(1).await;
    other.process.disconnect();
    eventually("a new session", async || !events.of("session_renewed").is_empty()).await;
    gated.0.open(3);
    Scoop::builder().in_memory_database(&database).client().await?.find(visit.id()).await?.ends().await?;

    let expect = async |name: &'static str| {
        eventually(name, async || !events.of(name).is_empty()).await;
    };
    other.link.fail_after("launch_here", 1);
    other.scoop.launch(Order::default()).await?.ends().await?;
    expect("launch_unknown").await;
    other.link.fail_before("release", 1);
    other.scoop.launch(Order { retries: 1, ..Order::default() }).await?.ends().await?;
    expect("release_failed").await;
    other.link.fail_after("settle", 1);
    other.scoop.launch(Order::default()).await?.ends().await?;
    expect("discarded").await;
    let renamed = Program::start(&database, |it| it.only::<RenamedSaga>()).await?;
    expect("saga_renamed").await;
    renamed.scoop.shutdown().await?;
    other.scoop.shutdown().await?;

    let gated = Gated::default();
    let cut_off = Program::start(&database, |it| it.only::<Gated>().provide(gated.clone())).await?;
    cut_off.scoop.launch(Visit).await?;
    gated.0.arrivals(1).await;
    cut_off.link.fail_before("settle", usize::MAX);
    cut_off.link.fail_before("leave", usize::MAX);
    gated.0.open(1);
    cut_off.scoop.shutdown().await?;
    expect("outcome_unknown").await;

    let database = InMemory::new();
    let unlucky = shop(&database).await?;
    unlucky.link.fail_after("claim", usize::MAX);
    Scoop::builder().in_memory_database(&database).client().await?.launch(Order::default()).await?;
    tokio::time::sleep(Duration::from_secs(300)).await;
    expect("in_doubt_too_often").await;
    Ok(())
}
