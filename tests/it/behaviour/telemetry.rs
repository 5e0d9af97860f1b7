//! Events and connections of a program on PostgreSQL.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use scoop::Handle;
use scoop::pauses::PauseTarget;
use scoop::retention::Retention;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::*;
use crate::support::events::Events;
use crate::support::{Database, eventually};

const SECRETS: [&str; 2] = ["chairs for the king", "hunter2"];

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Order {
    secret: String,
    sleeps: bool,
}

impl Order {
    fn new() -> Self {
        Self { secret: SECRETS[0].into(), sleeps: false }
    }
}

#[derive(Default)]
struct OrderSaga;

#[saga(name = "order")]
#[subscribes(Order)]
impl OrderSaga {
    #[step]
    async fn rest(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        if order.sleeps { scope.sleep(Duration::from_secs(1_000_000)).await } else { Ok(()) }
    }

    #[step(finally = tidy)]
    async fn charge(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
        if scope.attempt() == 0 {
            return Err(Error::infrastructure("postgres://till:hunter2@bank/shop is away"));
        }
        Err(SIMULATED.into())
    }

    /// The constraint is looked at when the transaction is committed.
    async fn tidy(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        let insert = sqlx::query("INSERT INTO effect VALUES ($1)").bind(&order.secret);
        insert.execute(scope.tx().await?).await?;
        Ok(())
    }
}

async fn database() -> Database {
    let db = Database::new().await;
    db.execute(
        "CREATE TABLE known (what text PRIMARY KEY);
         CREATE TABLE effect (what text REFERENCES known DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    db
}

/// A pool with these changes to how it connects.
async fn pool(db: &Database, change: impl FnOnce(PgConnectOptions) -> PgConnectOptions) -> Result<PgPool> {
    let options = change((*db.pool().connect_options()).clone());
    Ok(PgPoolOptions::new().max_connections(6).connect_with(options).await?)
}

async fn names(db: &Database) -> Vec<String> {
    db.texts(
        "SELECT DISTINCT application_name FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE '%scoop' ORDER BY 1",
    )
    .await
}

#[tokio::test]
async fn connections_of_the_engine_bear_the_name_of_the_program() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((OrderSaga,)).await?;
    let program = std::env::current_exe()?;
    let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    assert_eq!(names(&db).await, [format!("{program}/scoop")]);
    scoop.shutdown().await?;

    let db = Database::new().await;
    let till = pool(&db, |it| it.application_name("till")).await?;
    let scoop = Scoop::builder().postgres(till.clone()).only::<OrderSaga>().start().await?;
    assert_eq!(names(&db).await, ["till/scoop"]);
    let of_steps: String = sqlx::query_scalar("SHOW application_name").fetch_one(&till).await?;
    assert_eq!(of_steps, "till");
    scoop.shutdown().await?;
    till.close().await;
    Ok(())
}

#[tokio::test]
async fn start_on_tables_that_are_there_gives_no_notice() -> Result<()> {
    let db = Database::new().await;
    let (events, _guard) = Events::listen();
    db.start((OrderSaga,)).await?.shutdown().await?;
    assert_eq!(events.of("started").len(), 1);
    let notices = events.text("sqlx::postgres::notice");
    assert_eq!(notices, "");
    Ok(())
}

#[tokio::test]
async fn cleanup_that_cannot_be_committed_is_reported() -> Result<()> {
    let db = database().await;
    let (events, _guard) = Events::listen();
    let scoop = db.start((OrderSaga,)).await?;
    let order = scoop.launch(Order::new()).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    // The end is known before it is reported.
    scoop.shutdown().await?;
    let steps_of =
        |name| events.of(name).into_iter().map(|seen| seen.fields["step"].clone()).collect::<Vec<_>>();
    assert_eq!(["cleanup_lost", "failed", "rolled_back"].map(steps_of), [["charge"], ["charge"], ["charge"]]);
    let retried = &events.of("retried")[0];
    assert_eq!((&*retried.fields["step"], &*retried.fields["infrastructure"]), ("charge", "true"));
    assert!(events.of("cleanup_lost")[0].fields["reason"].contains("violates foreign key constraint"));
    Ok(())
}

/// Current thread: the recorder is that of a thread.
#[tokio::test]
async fn time_in_the_queue_and_connections_are_measured() -> Result<()> {
    let db = database().await;
    db.start((OrderSaga,)).await?.shutdown().await?;
    // Launched while no program has the saga, the run is claimed from its queue.
    let order = db.client().launch(Order { sleeps: true, ..Order::new() }).await?;
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let held = db.pool().acquire().await?;
    let scoop = db.start((OrderSaga,)).await?;
    order.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Sleeping)).await?;
    // Once: a look sets gauges to 0 until they are reported again.
    let metrics = snapshotter.snapshot().into_vec();
    let of = |name: &str, label: &str| {
        let is_it =
            |key: &::metrics::Key| key.name() == name && key.labels().map(|label| label.value()).eq([label]);
        let found = metrics.iter().find(|(key, ..)| is_it(key.key()));
        found.map(|(.., value)| value).unwrap_or_else(|| panic!("{name} of {label} is not reported"))
    };
    let gauge = |name: &str, label: &str| match of(name, label) {
        DebugValue::Gauge(value) => value.into_inner(),
        other => panic!("{name}: {other:?}"),
    };
    let DebugValue::Histogram(waited) = of("scoop_queue_seconds", "order") else { panic!("no histogram") };
    assert!(waited.len() == 1 && waited[0].into_inner() > 0.0, "{waited:?}");
    for (pool, used_min) in [("engine", 0.0), ("steps", 1.0)] {
        let [open, used] = ["scoop_connections", "scoop_connections_used"].map(|name| gauge(name, pool));
        assert!(open >= 1.0 && used >= used_min && used <= open, "{pool}: {used} of {open}");
    }
    drop(held);
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "metered.jobs")]
struct Job;

#[derive(Default)]
struct Jobs;

#[saga(name = "metered-jobs", queue = 1)]
#[subscribes(Job)]
impl Jobs {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, _: &Job) -> Result<()> {
        Ok(())
    }
}

/// Current thread: the recorder is that of a thread.
#[tokio::test]
async fn length_of_a_queue_and_refused_launches_are_reported() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Jobs,)).await?;
    scoop.operate().pauses().pause(PauseTarget::Everything).await?;
    let job = scoop.launch(Job).await?;
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    assert!(scoop.launch(Job).await.is_err_and(|error| error.is_queue_full()));
    let reported = || {
        let metrics = snapshotter.snapshot().into_vec().into_iter();
        let value = |name: &str, value: DebugValue| match value {
            DebugValue::Gauge(value) => Some((name.to_owned(), value.into_inner().to_string())),
            DebugValue::Counter(count) => Some((name.to_owned(), count.to_string())),
            DebugValue::Histogram(_) => None,
        };
        let of_jobs = metrics.filter(|(key, ..)| key.key().labels().any(|it| it.value() == "metered-jobs"));
        of_jobs.filter_map(|(key, .., it)| value(key.key().name(), it)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(reported()["scoop_refused_launches_total"], "1");
    scoop.shutdown().await?;
    let scoop = db.start((Jobs,)).await?;
    // The former program may have reported its queue before the launch.
    let mut seen = BTreeMap::new();
    eventually("the queue is reported", async || {
        seen.extend(reported());
        ["scoop_queue_length", "scoop_queue_limit"].map(|name| seen.get(name).map(|it| &**it))
            == [Some("1"); 2]
    })
    .await;
    scoop.operate().pauses().resume(PauseTarget::Everything).await?;
    assert_eq!(job.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test]
async fn pauses_and_deletions_are_reported() -> Result<()> {
    let db = Database::new().await;
    let (events, _guard) = Events::listen();
    let scoop = db.start((Jobs,)).await?;
    scoop.operate().pauses().pause(PauseTarget::Everything).await?;
    scoop.operate().pauses().resume(PauseTarget::Everything).await?;
    scoop.launch(Job).await?.ends().await?;
    db.grow_older(Duration::from_secs(40 * 24 * 3_600)).await;
    assert_eq!(scoop.operate().retention().prune().await?.hierarchies, 1);
    scoop.shutdown().await?;
    let often = Retention::default().every(Duration::from_millis(10));
    let refuses = Scoop::builder().postgres(db.pool().clone()).retention(often);
    let refuses = refuses.archive_with(|_| async { Err::<(), _>("no room") });
    let scoop = refuses.only::<Jobs>().start().await?;
    scoop.launch(Job).await?.ends().await?;
    db.grow_older(Duration::from_secs(40 * 24 * 3_600)).await;
    eventually("it is not archived", async || !events.of("unarchived").is_empty()).await;
    scoop.shutdown().await?;
    for name in ["pause_began", "pause_ended", "pruned"] {
        assert_eq!(events.of(name).len(), 1, "{name}");
    }
    Ok(())
}

/// A run that sleeps, the record of which no program can read.
async fn unreadable(db: &Database, scoop: &Scoop) -> Result<Handle> {
    let order = scoop.launch(Order { sleeps: true, ..Order::new() }).await?;
    order.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Sleeping)).await?;
    db.execute(&format!("UPDATE scoop.run SET outputs = '\"{}\"' WHERE handler = 'order'", SECRETS[0])).await;
    scoop.cancel(order.id(), "enough").await?;
    Ok(order)
}

#[tokio::test]
async fn payloads_and_passwords_are_in_no_event() -> Result<()> {
    let db = database().await;
    let (events, _guard) = Events::listen();
    let with_password = pool(&db, |it| it.password(SECRETS[1])).await?;
    let builder = Scoop::builder().postgres(with_password.clone()).poll_interval(Duration::from_millis(50));
    let scoop = builder.only::<OrderSaga>().start().await?;
    scoop.launch(Order::new()).await?.ends().await?;

    let order = unreadable(&db, &scoop).await?;
    let tree = order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::Stuck { .. })).await?;
    assert!(tree.to_string().contains(SECRETS[0]), "it is recorded: {tree}");
    eventually("it is reported", async || !events.of("unreadable").is_empty()).await;
    let run = tree.roots()[0].lineage.id().to_string();
    assert_eq!(events.of("unreadable")[0].fields["run"], run);

    // All connections of the engine end, until it has noticed in both ways.
    let noticed = async || {
        db.texts(
            "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
             WHERE datname = current_database() AND application_name LIKE '%/scoop'",
        )
        .await;
        ["session_lost", "operation_failed"].iter().all(|name| !events.of(name).is_empty())
    };
    eventually("the lost connections are reported", noticed).await;
    eventually("there is a session again", async || !events.of("session_renewed").is_empty()).await;
    scoop.shutdown().await?;
    with_password.close().await;

    let text = events.text("scoop");
    assert!(text.contains("postgres://till:***@bank/shop is away"), "{text}");
    assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
    Ok(())
}
