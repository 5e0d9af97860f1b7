//! Launching, waiting for children, rolling back, sleeping.

use std::time::{Duration, SystemTime};

use scoop::pauses::PauseTarget;
use scoop::prelude::*;
use scoop::{EventKind, InMemory};

#[derive(Message, Serialize, Deserialize)]
struct Order {
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
struct Reserve(u32);

#[derive(Default)]
struct OrderSaga;

#[saga(name = "order")]
#[subscribes(Order)]
impl OrderSaga {
    #[step(rollback = give_back)]
    async fn reserve(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
        for item in 0..3 {
            scope.launch(Reserve(item)).await?;
        }
        Ok(())
    }

    async fn give_back(&self, _: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn rest(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
        scope.sleep(Duration::from_secs(14 * 24 * 60 * 60)).await
    }

    #[step]
    async fn ship(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        if order.fails { Err(Error::msg("no ship")) } else { Ok(()) }
    }
}

#[derive(Default)]
struct ReserveSaga;

#[saga(name = "reserve")]
#[subscribes(Reserve)]
impl ReserveSaga {
    #[step(rollback = undo)]
    async fn reserve(&self, _: &mut Scope<'_>, _: &Reserve) -> Result<()> {
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Reserve, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn launch_with_a_used_key_is_known_as_that() -> Result<()> {
    let scoop = Scoop::builder().in_memory_database(&InMemory::new()).only::<ReserveSaga>().start().await?;
    let first = scoop.launch(Reserve(1)).unique("one").await?;
    let again = scoop.launch(Reserve(1)).unique("one").await?;
    assert_eq!(again.id(), first.id());
    let told = [first, again].map(|it| (it.is_of_earlier_launch(), it.may_be_of_earlier_launch()));
    assert_eq!(told, [(false, false), (true, true)]);
    assert!(!scoop.launch(Reserve(1)).await?.is_of_earlier_launch());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn two_weeks_pass_at_once() -> Result<()> {
    let database = InMemory::new();
    let start = database.now();
    let scoop = Scoop::builder()
        .in_memory_database(&database)
        .only::<OrderSaga>()
        .only::<ReserveSaga>()
        .start()
        .await?;
    assert_eq!(scoop.launch(Order { fails: false }).await?.wait().await?, Outcome::Committed);
    let passed = database.now().duration_since(start)?;
    assert!(passed >= Duration::from_secs(14 * 24 * 60 * 60), "{passed:?}");
    // The clock of the runtime is paused: it moves at once when all tasks sleep. A busy engine would move it more often.
    let moves = tokio::runtime::Handle::current().metrics().worker_park_count(0);
    assert!(moves < 14 * 24 * 60 * 60, "the clock has moved {moves} times");
    assert_eq!(database.working_set(), []);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failed_hierarchy_is_undone_children_first() -> Result<()> {
    let database = InMemory::starting_at(SystemTime::UNIX_EPOCH);
    let scoop = Scoop::builder()
        .in_memory_database(&database)
        .only::<OrderSaga>()
        .only::<ReserveSaga>()
        .start()
        .await?;
    let order = scoop.launch(Order { fails: true }).await?;
    assert!(matches!(order.wait().await?, Outcome::RolledBack(_)));
    let log = database.event_log_of(order.id());
    let undone = log.iter().filter(|event| event.kind == EventKind::RolledBack);
    let undone: Vec<_> = undone.map(|event| event.handler.as_deref().unwrap_or_default()).collect();
    assert_eq!(undone, ["reserve", "reserve", "reserve", "order"], "{log:#?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn request_that_needs_a_database_says_so() -> Result<()> {
    let scoop = Scoop::builder().in_memory().only::<OrderSaga>().only::<ReserveSaga>().start().await?;
    let order = scoop.launch(Order { fails: false }).await?;
    order.wait().await?;
    let run = order.tree().await?.roots()[0].id();
    let operate = scoop.operate();
    let target = PauseTarget::topic("orders");
    let refused = [
        operate.pauses().pause(&target).await.map(drop),
        operate.pauses().resume(&target).await.map(drop),
        operate.pauses().drained(&target).await.map(drop),
        operate.retention().prune().await.map(drop),
        operate.handlers().retire("orders", "order").await.map(drop),
        operate.handlers().redeliver("orders").await.map(drop),
        operate.runs().relaunch(order.id(), "again").await.map(drop),
        operate.runs().signal_run(run, serde_json::json!({}), "by hand").await.map(drop),
    ];
    for (nth, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err("there is no database").to_string();
        assert!(error.contains(" needs PostgreSQL, and this program runs in memory"), "{nth}: {error}");
    }
    let error = operate.retention().prune().await.unwrap_err().to_string();
    assert!(
        error.starts_with("a deletion of hierarchies needs PostgreSQL, and this program runs in memory"),
        "{error}"
    );
    scoop.shutdown().await?;
    Ok(())
}
