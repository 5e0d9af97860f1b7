//! The rows that the statements leave, alone and concurrently.

mod function_plans;
mod limit_claims;
mod limit_names;
mod limit_pages;
mod limit_reads;
mod oldest_transaction;
mod query_plans;
mod settle_equivalence;
mod signal_sweep;
mod store_contract;
mod topology;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use scoop_core::{Continuation, Definition, Priority, StepDefinition};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, PgPool};
use tokio::runtime::Builder;
use uuid::Uuid;

use super::pool::READ_COMMITTED;
use super::*;
use crate::embedded::Embedded;
use crate::model::backoff::Backoff;
use crate::model::program::Program;
use crate::model::retention::Retention;
use crate::model::run::RowState;
use crate::model::subscribed_saga::SubscribedSaga;
use crate::store::queue_limit::QUEUE_MAX;
use crate::store::types::{UNKNOWN_MAX, UNKNOWN_TOO_OFTEN};
use crate::store::{
    ClaimKey, ClaimQueues, ClaimStorage as _, ClaimedRun, Claimer, FreeStorage as _, LaunchResult,
    LaunchStorage as _, NewMessage, ParentRef, QueueCursors, Registered, SettleStorage as _, Settlement,
    SubscriptionStorage as _, WakeOptions, WakeStorage as _,
};

/// What a worker of these tests says of its program.
const NO_PROGRAM: &Program = &Program { service: String::new(), build: String::new(), retained: None };

/// Pauses that no test waits for.
pub(super) const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };

/// The server of all tests: that of `DATABASE_URL`, else a private one until the process ends.
static SERVER: LazyLock<(PgConnectOptions, Option<Embedded>)> = LazyLock::new(|| {
    if let Ok(url) = std::env::var("DATABASE_URL") {
        return (url.parse().expect("DATABASE_URL is a URL"), None);
    }
    // Not on the thread of a test, which belongs to a runtime already.
    let start = std::thread::spawn(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be had");
        runtime.block_on(Embedded::start()).expect("a private server starts")
    });
    let server = start.join().expect("the start of a server does not panic");
    (server.connect_options(), Some(server))
});

pub(crate) async fn database(name: &str) -> PgPool {
    let (server, _) = &*SERVER;
    let name = format!("{name}_{}", std::process::id());
    execute(server, format!("CREATE DATABASE {name}")).await;
    PgPool::connect_with(server.clone().database(&name)).await.expect("the database answers")
}

pub(crate) async fn done(pool: PgPool) {
    let database = pool.connect_options().get_database().unwrap().to_owned();
    pool.close().await;
    execute(&SERVER.0, format!("DROP DATABASE {database} WITH (FORCE)")).await;
}

async fn execute(server: &PgConnectOptions, statement: String) {
    let mut session = server.connect().await.expect("the server answers");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut session).await.expect("the statement succeeds");
}

#[tokio::test]
async fn every_statement_fits_the_tables_of_any_schema() {
    let pool = database("statements").await;
    for schema in ["scoop", "another_1", "order", "Weird \"Name"].map(|name| Schema::new(name).unwrap()) {
        migrate(&pool, &schema).await.unwrap();
        let of_operators =
            scoop_operate::statements().into_iter().map(|(name, text)| (name, schema.qualify(&text)));
        for (name, text) in Statements::new(&schema).all().into_iter().chain(of_operators) {
            let prepared = (&pool).prepare(text).await;
            assert!(prepared.is_ok(), "{name} in {schema:?}: {:?}", prepared.err());
        }
    }
    done(pool).await;
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Sum(pub(super) u32);

impl scoop_core::ContextKey for Sum {
    const KEY: &'static str = "Sum";
}

/// A store, a worker registered in it, and a message with a context value that a saga handles.
async fn launching_at_once(pool: &PgPool) -> (PostgresStore, Uuid, NewMessage) {
    let (store, worker, launched) = launching(pool).await;
    let mut context = scoop_core::Context::default();
    context.set(Sum(7)).unwrap();
    (store, worker, launched.with(context))
}

/// The same, with a message that has been due for long.
async fn launching(pool: &PgPool) -> (PostgresStore, Uuid, NewMessage) {
    let schema = Schema::new("scoop").unwrap();
    migrate(pool, &schema).await.unwrap();
    let sessions = Sessions::new(pool, 2, &ConnectionSettings::default());
    let (store, worker) = (PostgresStore::new(sessions, &schema), Uuid::now_v7());
    store.register_alone(pool, worker, 1).await;
    store
        .register(&SubscribedSaga::pairs(&["a".into()], &["saga".into()]), Retention::default())
        .await
        .unwrap();
    let payload = serde_json::json!({ "order": 7, "rates": [0.5, 1e30, null], "of": { "b": "\u{1F6D2}" } });
    let mut context = scoop_core::Context::default();
    context.set(scoop_core::SleepUntil::new(time::OffsetDateTime::UNIX_EPOCH)).unwrap();
    (store, worker, NewMessage::new("a", payload, 0).with(context))
}

/// As of a process that is stopped in the middle of its start.
#[tokio::test]
async fn session_that_idles_in_a_transaction_with_locks_is_ended() {
    let pool = database("idle_locks").await;
    let (store, ..) = launching(&pool).await;
    let mut stopped = store.sessions().begin_with(READ_COMMITTED).await.unwrap();
    sqlx::query("SELECT FROM scoop.worker FOR UPDATE").execute(&mut *stopped).await.unwrap();
    let lock =
        tokio::time::timeout(Duration::from_secs(60), pool.execute("SELECT FROM scoop.worker FOR UPDATE"));
    assert!(lock.await.expect("the lock is free").is_ok());
    assert!(stopped.commit().await.is_err());
    done(pool).await;
}

/// What a client has dropped would hold one of the few connections of the engine.
#[tokio::test]
async fn transaction_that_only_reads_has_a_time_limit_and_writes_nothing() {
    let pool = database("reads").await;
    let (store, ..) = launching(&pool).await;
    let mut reading = store.sessions().begin_snapshot().await.unwrap();
    let limits = "SELECT concat_ws(' ', current_setting('statement_timeout'),
                                   current_setting('client_connection_check_interval'))";
    let limits: String = sqlx::query_scalar(limits).fetch_one(&mut *reading).await.unwrap();
    assert_eq!(limits, "1min 1s");
    let written = sqlx::query("DELETE FROM scoop.worker").execute(&mut *reading).await.unwrap_err();
    let code = written.as_database_error().and_then(|error| error.code());
    assert_eq!(code.as_deref(), Some("25006"), "read-only: {written}");
    drop(reading);
    done(pool).await;
}

/// The queue of `saga`, whose last step is `one`.
fn queues() -> ClaimQueues {
    let queues = ClaimQueues::unreserved(&["a".to_owned()], &["saga".to_owned()]);
    ClaimQueues { last_steps: vec!["one".into()], definitions: vec![7], ..queues }
}

/// Up to ten runs of `saga`, by a worker that has none.
pub(super) async fn claim(
    store: &PostgresStore,
    worker: Uuid,
    progress: &mut QueueCursors,
) -> Vec<ClaimedRun> {
    let claimed = store.claim(claimer(worker), &queues(), 10, &BTreeMap::new(), progress).await.unwrap();
    claimed.into_iter().map(|claimed| claimed.expect("it can be read")).collect()
}

/// The row and the events of a run, without ids and times.
async fn rows_of(pool: &PgPool, key: ClaimKey) -> (String, String) {
    sqlx::query_as(
        "SELECT (to_jsonb(r) - '{id,root,lineage,message_id,ready_at,queued_at,began_at,last_event_at}'::text[])::text,
                (SELECT jsonb_agg(to_jsonb(e) - '{id,message_id,cooperation_lineage,created_at}'::text[]
                                  ORDER BY created_at)::text
                 FROM scoop.message_event e WHERE e.message_id = r.message_id)
         FROM scoop.run r
         WHERE r.id = $1 AND r.last_event_at = (
             SELECT max(created_at) FROM scoop.message_event e WHERE e.message_id = r.message_id)",
    )
    .bind(key.id)
    .fetch_one(pool)
    .await
    .unwrap()
}

fn claimer(worker: Uuid) -> Claimer<'static> {
    Claimer { worker, identifier: "w" }
}

fn options(slots: usize, commits: bool) -> WakeOptions {
    WakeOptions { slots, commits }
}

/// A worker launches a message and claims some of its runs, by the statement for one message or by that for many.
async fn launch_here(
    store: &PostgresStore,
    session: &mut PgConnection,
    one: bool,
    worker: Uuid,
    launched: &NewMessage,
) -> LaunchResult {
    match one {
        true => store.launch_one_claimed(session, claimer(worker), 0, launched).await.unwrap(),
        false => {
            let launched = std::slice::from_ref(launched);
            store.launch_deduplicated(session, launched, claimer(worker), 0).await.unwrap()
        }
    }
}

fn without_beginning(claimed: &ClaimedRun) -> String {
    format!("{claimed:?}").replace(&format!("{:?}", claimed.began_at), "")
}

#[tokio::test]
async fn run_claimed_at_launch_is_as_any_claim_leaves_it() {
    let pool = database("claimed_at_launch").await;
    for one in [true, false] {
        let (store, worker, mut launched) = launching_at_once(&pool).await;
        let key = launched.reserve_local_run("saga");
        let mut session = pool.acquire().await.unwrap();
        let launch = launch_here(&store, &mut session, one, worker, &launched).await;
        assert_eq!((launch.launched, launch.handlers, launch.claimed), (1, vec![], vec![key.id]));
        let here = launched.claimed(key, "saga".into(), "w");

        let (_, _, ordinary) = launching_at_once(&pool).await;
        store.launch(&pool, &[ordinary]).await.unwrap();
        let claimed = claim(&store, worker, &mut QueueCursors::default()).await;
        let [claimed] = &claimed[..] else { panic!("one was ready: {claimed:?}") };

        assert_eq!(rows_of(&pool, key).await, rows_of(&pool, claimed.key).await);
        let values = |claimed: &ClaimedRun| {
            let ids = claimed.run.lineage.ids().iter().chain([&claimed.run.message]);
            // Spaces in JSON as the server writes it.
            let text = without_beginning(claimed).replace(": ", ":");
            ids.fold(text, |text, id| text.replace(&id.to_string(), "id"))
        };
        assert_eq!(values(&here), values(claimed));
    }
    done(pool).await;
}

#[tokio::test]
async fn launch_claims_only_the_runs_that_have_a_slot() {
    let pool = database("room_at_launch").await;
    let mut left = vec![];
    for one in [true, false] {
        let (store, worker, mut launched) = launching_at_once(&pool).await;
        store
            .register(&SubscribedSaga::pairs(&["a".into()], &["second".into()]), Retention::default())
            .await
            .unwrap();
        let key = launched.reserve_local_run("saga");
        // An unregistered handler gets no run.
        launched.reserve_local_run("absent");
        let mut session = pool.acquire().await.unwrap();
        let launch = launch_here(&store, &mut session, one, worker, &launched).await;
        assert_eq!(
            (launch.launched, launch.handlers, launch.claimed),
            (1, vec!["second".into()], vec![key.id])
        );
        let rows = left_by(&pool, launched.id).await;
        assert_eq!(rows.len(), 2, "{rows:?}");
        left.push(rows.into_iter().map(|row| row.replace(&worker.to_string(), "worker")).collect::<Vec<_>>());
    }
    assert_eq!(left[0], left[1]);
    done(pool).await;
}

/// There are three statements for it, beside the one of those that begin at once (above).
#[tokio::test]
async fn a_launch_leaves_the_same_whichever_way_it_goes() {
    let pool = database("ways_to_launch").await;
    let due = async || {
        let (store, _, launched) = launching(&pool).await;
        store
            .register(&SubscribedSaga::pairs(&["a".into()], &["second".into()]), Retention::default())
            .await
            .unwrap();
        (store, launched)
    };
    let late = async || {
        let (store, mut launched) = due().await;
        let mut context = scoop_core::Context::default();
        for seconds in [2, 1] {
            let at = time::OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(seconds);
            let kind = [scoop_core::DeadlineKind::Absolute, scoop_core::DeadlineKind::HappyPath];
            let deadline = scoop_core::Deadline::new(at, "test".to_owned());
            context.tighten(kind[usize::from(seconds == 1)], deadline).unwrap();
        }
        launched = launched.with(context);
        (store, launched)
    };
    let plain = async || {
        let (store, launched) = due().await;
        (store, launched.with(scoop_core::Context::default()))
    };
    let (mut one, mut many, mut general) = (vec![], vec![], vec![]);
    for kept in [&mut one, &mut many, &mut general] {
        *kept = vec![plain().await, due().await, late().await];
    }
    let ids = |kept: &[(PostgresStore, NewMessage)]| {
        kept.iter().map(|(_, launched)| launched.id).collect::<Vec<_>>()
    };
    let (ids, store) = ([ids(&one), ids(&many), ids(&general)], one[0].0.clone());
    let of = |kept: Vec<(PostgresStore, NewMessage)>| {
        kept.into_iter().map(|(_, launched)| launched).collect::<Vec<_>>()
    };
    for launched in of(one) {
        let mut launch = store.launch(&pool, &[launched]).await.unwrap();
        launch.handlers.sort();
        assert_eq!((launch.launched, launch.handlers), (1, vec!["saga".into(), "second".into()]));
    }
    let mut launch = store.launch(&pool, &of(many)).await.unwrap();
    launch.handlers.sort();
    assert_eq!((launch.launched, launch.handlers), (3, vec!["saga".into(), "second".into()]));
    store.launch_any(&pool, &of(general)).await.unwrap();

    let mut left = vec![];
    for ids in ids {
        let mut rows = vec![];
        for id in ids {
            rows.push(left_by(&pool, id).await);
        }
        left.push(rows);
    }
    assert_eq!(left[0], left[2]);
    assert_eq!(left[1], left[2]);
    assert!(left[0].iter().all(|runs| runs.len() == 2), "{left:?}");
    done(pool).await;
}

/// The runs of a message with their event, but for ids and times that the server sets.
async fn left_by(pool: &PgPool, message: Uuid) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT jsonb_build_array(
             to_jsonb(r) - '{id,root,lineage,message_id,last_event_at,ready_at,queued_at,began_at}'::text[],
             CASE WHEN r.state = 'ready' AND r.ready_at <> r.last_event_at THEN r.ready_at END,
             r.last_event_at = e.created_at, r.lineage = e.cooperation_lineage || r.id,
             to_jsonb(e) - '{id,message_id,cooperation_lineage,created_at}'::text[], m.topic, m.payload)::text
         FROM scoop.run r
         JOIN scoop.message_event e ON e.message_id = r.message_id AND e.type = 'EMITTED'
         JOIN scoop.message m ON m.id = r.message_id
         WHERE r.message_id = $1
         ORDER BY r.handler",
    )
    .bind(message)
    .fetch_all(pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn unregistered_worker_claims_nothing_at_launch() {
    let pool = database("unlisted_launch").await;
    for one in [true, false] {
        let (store, worker, mut launched) = launching_at_once(&pool).await;
        store.deregister(worker, BACKOFF).await.unwrap();
        launched.reserve_local_run("saga");
        let mut session = pool.acquire().await.unwrap();
        let launch = launch_here(&store, &mut session, one, worker, &launched).await;
        assert_eq!((launch.launched, launch.handlers, launch.claimed), (1, vec!["saga".into()], vec![]));
        let heir = Uuid::now_v7();
        store.register_alone(&pool, heir, 2).await;
        assert_eq!(claim(&store, heir, &mut QueueCursors::default()).await.len(), 1);
    }
    done(pool).await;
}

/// Otherwise a run would be released before its launch has answered.
#[tokio::test]
async fn runs_in_flight_are_read_when_no_launch_is_under_way() {
    let pool = database("disown_at_launch").await;
    for one in [true, false] {
        let (store, worker, mut launched) = launching_at_once(&pool).await;
        let key = launched.reserve_local_run("saga");
        let mut tx = pool.begin().await.unwrap();
        let launch = launch_here(&store, &mut tx, one, worker, &launched).await;
        assert_eq!(launch.claimed, [key.id]);

        let in_flight: Arc<std::sync::Mutex<Vec<Uuid>>> = Arc::default();
        let disowning = tokio::spawn({
            let (store, in_flight) = (store.clone(), in_flight.clone());
            async move { store.reconcile(worker, || in_flight.lock().unwrap().clone(), BACKOFF).await }
        });
        blocked(&pool).await;
        in_flight.lock().unwrap().push(key.id);
        tx.commit().await.unwrap();
        assert_eq!(disowning.await.unwrap().unwrap().freed.runs, 0);
        in_flight.lock().unwrap().clear();
        assert_eq!(
            store.reconcile(worker, || in_flight.lock().unwrap().clone(), BACKOFF).await.unwrap().freed.runs,
            1
        );
    }
    done(pool).await;
}

/// The worker was deleted. While it reconciles, it registers again and launches a message.
#[tokio::test(flavor = "multi_thread")]
async fn unregistered_worker_releases_nothing() {
    let pool = database("disown_unlisted").await;
    let (store, worker, mut launched) = launching(&pool).await;
    let key = launched.reserve_local_run("saga");
    store.deregister(worker, BACKOFF).await.unwrap();
    let launched = [launched];
    let comes_back = async || {
        store.register_alone(&pool, worker, 2).await;
        store.launch_and_claim(claimer(worker), 0, &launched).await.unwrap().claimed
    };
    let in_flight = || {
        let claimed = || tokio::runtime::Handle::current().block_on(comes_back());
        assert_eq!(tokio::task::block_in_place(claimed), [key.id]);
        vec![]
    };
    assert_eq!(store.reconcile(worker, in_flight, BACKOFF).await.unwrap().freed.runs, 0);
    assert_eq!(comes_back().await, [key.id]);
    assert_eq!(
        store.reconcile(worker, Vec::new, BACKOFF).await.unwrap().freed.runs,
        1,
        "a registered worker releases a run that is not in flight"
    );
    done(pool).await;
}

async fn waiting(pool: &PgPool, store: &PostgresStore, launched: NewMessage) -> Vec<ParentRef> {
    let again = || NewMessage::new("a", serde_json::Value::Null, 4);
    store.launch(pool, &[launched, again(), again()]).await.unwrap();
    let wait = r#"UPDATE scoop.run SET state = 'waiting', epoch = 2, step = 'one', suspended = ROW(NULL, 7, NULL, 2, NULL), suspensions = 1,
                    context = '{"Sum": 7}'
                WHERE topic = 'a' RETURNING root, id, last_event_at + interval '1 hour' AS at"#;
    let rows = sqlx::query(wait).fetch_all(pool).await.unwrap();
    let mut parents: Vec<_> = rows.iter().map(|row| ParentRef::from_row(row).unwrap()).collect();
    parents.sort_by_key(|parent| parent.id);
    parents
}

#[tokio::test]
async fn run_claimed_at_wake_up_is_as_any_claim_leaves_it() {
    let pool = database("claimed_at_wake_up").await;
    let (store, worker, launched) = launching(&pool).await;
    let parents = waiting(&pool, &store, launched).await;
    let woken = store.wake_and_claim(&parents, claimer(worker), &queues(), options(1, false)).await.unwrap();
    let [Ok(here)] = &woken.claimed[..] else { panic!("there was room for one: {:?}", woken.claimed) };
    assert_eq!((here.key.id, woken.handlers.len()), (parents[0].id, 2));
    let again = store.wake_and_claim(&parents, claimer(worker), &queues(), options(3, false)).await.unwrap();
    assert_eq!((again.claimed.len(), again.handlers.len()), (0, 0), "no run wakes twice");

    let held = "UPDATE scoop.run SET state = 'ready', owner = NULL, epoch = 2 WHERE id = $1";
    sqlx::query(held).bind(here.key.id).execute(&pool).await.unwrap();
    let claimed = claim(&store, worker, &mut QueueCursors::default()).await;
    let claimed = claimed.into_iter().find(|claimed| claimed.key.id == here.key.id);
    assert_eq!(without_beginning(here), without_beginning(&claimed.unwrap()));
    let late =
        "SELECT bool_and(last_event_at > now() + interval '59 minutes') FROM scoop.run WHERE topic = 'a'";
    assert!(sqlx::query_scalar::<_, bool>(late).fetch_one(&pool).await.unwrap(), "the child was later");
    done(pool).await;
}

async fn committed(pool: &PgPool, run: Uuid) -> Vec<String> {
    let events = "
        SELECT (to_jsonb(e) - '{id,message_id,cooperation_lineage,created_at}'::text[])::text
        FROM scoop.message_event e
        WHERE scoop.run_id(cooperation_lineage) = $1 AND type = 'COMMITTED'";
    sqlx::query_scalar(events).bind(run).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn run_committed_at_wake_up_is_as_any_end_leaves_it() {
    const STEPS: &[StepDefinition] = &[StepDefinition::new("one")];
    static SAGA: Definition = Definition::new("saga", "a", STEPS);
    let pool = database("commits_at_wake_up").await;
    let (store, worker, launched) = launching(&pool).await;
    let parents = waiting(&pool, &store, launched).await;

    let woken =
        store.wake_and_claim(&parents[..1], claimer(worker), &queues(), options(1, false)).await.unwrap();
    let [Ok(claimed)] = &woken.claimed[..] else { panic!("there was room for it: {:?}", woken.claimed) };
    let Continuation::Record(end) = Continuation::of(&SAGA, &claimed.run).unwrap() else {
        panic!("no step is left")
    };
    let (flags, stored) = (claimed.flags, &claimed.run.context);
    let settlement = Settlement::new(claimed.key, &claimed.run, flags, stored, end.conclude());
    assert!(
        store
            .settle("w", &[settlement])
            .await
            .unwrap()
            .values()
            .all(|settled| settled.state == RowState::Ended)
    );

    let woken =
        store.wake_and_claim(&parents[1..], claimer(worker), &queues(), options(1, true)).await.unwrap();
    assert_eq!((woken.claimed.len(), woken.handlers.len()), (0, 0));
    assert!(woken.committed.iter().all(|it| it.parent.is_none()));
    let committed_roots: Vec<_> = woken.committed.iter().map(|it| it.root).collect();
    assert_eq!(committed_roots, parents[1..].iter().map(|parent| parent.root).collect::<Vec<_>>());
    let [settled] = &committed(&pool, parents[0].id).await[..] else { panic!("it has committed") };
    assert!(settled.contains(r#"{"Sum": 7}"#) && settled.contains(r#"iteration": 2"#), "{settled}");
    for parent in &parents[1..] {
        assert_eq!(committed(&pool, parent.id).await, std::slice::from_ref(settled));
    }
    let left = "SELECT count(*) FROM scoop.run WHERE topic = 'a'";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&pool).await.unwrap(), 0);
    let late = "SELECT bool_and(created_at > now() + interval '59 minutes') FROM scoop.message_event
                WHERE type = 'COMMITTED'";
    assert!(sqlx::query_scalar::<_, bool>(late).fetch_one(&pool).await.unwrap(), "the child was later");
    let again = store.wake_and_claim(&parents, claimer(worker), &queues(), options(3, true)).await.unwrap();
    assert_eq!((again.committed.len(), again.claimed.len(), again.handlers.len()), (0, 0, 0));
    done(pool).await;
}

#[tokio::test]
async fn parent_with_a_step_left_wakes_and_does_not_commit() {
    let pool = database("wakes_not_commits").await;
    let (store, worker, launched) = launching(&pool).await;
    let parents = waiting(&pool, &store, launched).await;
    let id = parents[0].id;
    let left_to_do = [
        "UPDATE scoop.run SET suspended.jump = 'one' WHERE id = $1",
        "UPDATE scoop.run SET suspended.definition = 8 WHERE id = $1",
        "UPDATE scoop.run SET reserved_for = 7 WHERE id = $1",
        "UPDATE scoop.run SET step = 'another' WHERE id = $1",
        "UPDATE scoop.run SET rolling_back = true, failure = '{}' WHERE id = $1",
        "UPDATE scoop.run SET giving_up = true WHERE id = $1",
        "UPDATE scoop.run SET give_up_at = now() WHERE id = $1",
        "INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, state, failure, last_event_at)
         SELECT root, message_id, id, lineage || message_id, message_id, 'b', 'b', 'ended', '{}', now()
         FROM scoop.run WHERE id = $1",
    ];
    for what in left_to_do {
        let mut tx = pool.begin().await.unwrap();
        sqlx::query("DELETE FROM scoop.run WHERE parent = $1").bind(id).execute(&mut *tx).await.unwrap();
        let wait = "UPDATE scoop.run SET state = 'waiting', owner = NULL, step = 'one', suspended = ROW(NULL, 7, NULL, NULL, NULL), reserved_for = 0,
                    rolling_back = false, failure = NULL, giving_up = false, give_up_at = NULL WHERE id = $1";
        sqlx::query(wait).bind(id).execute(&mut *tx).await.unwrap();
        sqlx::query(what).bind(id).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        let woken =
            store.wake_and_claim(&parents[..1], claimer(worker), &queues(), options(0, true)).await.unwrap();
        assert_eq!((woken.committed.len(), &woken.handlers[..]), (0, &["saga".to_owned()][..]), "{what}");
        assert!(committed(&pool, id).await.is_empty(), "{what}");
    }
    // Nor does one of a saga that this worker does not have, or one that an unregistered worker asks for.
    let others = ClaimQueues { handlers: vec!["other".into()], ..queues() };
    for (parent, worker, queues) in [(1, worker, others), (2, Uuid::now_v7(), queues())] {
        let parent = &parents[parent..=parent];
        let woken = store.wake_and_claim(parent, claimer(worker), &queues, options(0, true)).await.unwrap();
        assert_eq!((woken.committed.len(), woken.handlers.len()), (0, 1));
    }
    done(pool).await;
}

/// Else the rows of workers that neither has seen would be locked in no order, by a publication of limits, for example.
#[tokio::test]
async fn change_of_the_topology_waits_for_the_one_before_also_without_workers() {
    let pool = database("topology_lock").await;
    let (store, worker, _) = launching(&pool).await;
    sqlx::query("DELETE FROM scoop.worker").execute(&pool).await.unwrap();
    let mut first = store.sessions().begin_with(READ_COMMITTED).await.unwrap();
    store.lock_topology(&mut first).await.unwrap();
    let second = async {
        let mut tx = store.sessions().begin_with(READ_COMMITTED).await.unwrap();
        store.lock_topology(&mut tx).await.unwrap();
        let seen: Vec<Uuid> =
            sqlx::query_scalar("SELECT id FROM scoop.worker").fetch_all(&mut *tx).await.unwrap();
        tx.rollback().await.unwrap();
        seen
    };
    let meanwhile = async {
        blocked(&pool).await;
        let registered = Registered {
            worker,
            topics: &[],
            handlers: &[],
            definitions: &[],
            started_at: None,
            program: NO_PROGRAM,
        };
        store.register_on(&mut first, 1, registered).await.unwrap();
        first.commit().await.unwrap();
    };
    let (seen, ()) = tokio::join!(second, meanwhile);
    assert_eq!(seen, [worker]);
    done(pool).await;
}

/// Reaping waits for that row, and so sweeps after the commits of this statement.
#[tokio::test]
async fn wake_up_that_may_commit_locks_the_row_of_its_worker() {
    let pool = database("holds_at_wake_up").await;
    let (store, worker, launched) = launching(&pool).await;
    let parents = waiting(&pool, &store, launched).await;
    for (parent, commits) in [(&parents[..1], false), (&parents[1..2], true)] {
        let mut tx = pool.begin().await.unwrap();
        let lock = sqlx::query("SELECT FROM scoop.run WHERE id = $1 FOR UPDATE").bind(parent[0].id);
        lock.execute(&mut *tx).await.unwrap();
        let meanwhile = async {
            blocked(&pool).await;
            let strike_out = sqlx::query("SELECT FROM scoop.worker WHERE id = $1 FOR UPDATE NOWAIT");
            let is_claimed = strike_out.bind(worker).execute(&pool).await.is_err();
            tx.rollback().await.unwrap();
            is_claimed
        };
        let queues = queues();
        let waking = store.wake_and_claim(parent, claimer(worker), &queues, options(0, commits));
        let (woken, is_claimed) = tokio::join!(waking, meanwhile);
        assert_eq!((woken.unwrap().committed.len(), is_claimed), (usize::from(commits), commits));
    }
    done(pool).await;
}

async fn blocked(pool: &PgPool) {
    let blocked = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let since = std::time::Instant::now();
    while sqlx::query_scalar::<_, i64>(blocked).fetch_one(pool).await.unwrap() == 0 {
        assert!(since.elapsed().as_secs() < 30, "no session waits for a lock");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn worker_without_registration_or_handler_claims_nothing_at_wake_up() {
    let pool = database("unlisted_wake_up").await;
    let (store, worker, launched) = launching(&pool).await;
    let parents = waiting(&pool, &store, launched).await;
    for (worker, handler) in [(Uuid::now_v7(), "saga"), (worker, "other")] {
        let queues = ClaimQueues { handlers: vec![handler.into()], ..queues() };
        let woken =
            store.wake_and_claim(&parents, claimer(worker), &queues, options(3, false)).await.unwrap();
        assert_eq!((woken.claimed.len(), woken.handlers.len()), (0, 3));
        let wait = "UPDATE scoop.run SET state = 'waiting' WHERE topic = 'a'";
        sqlx::query(wait).execute(&pool).await.unwrap();
    }
    done(pool).await;
}

#[test]
fn a_schema_name_without_room_in_the_texts_is_refused_with_the_reason() {
    let why = |name: &str| Schema::new(name).unwrap_err().to_string();
    assert!(why("").contains("it is empty"));
    assert!(why("a\0b").contains("NUL"));
    assert!(why("a\nb").contains("control characters"));
    assert!(why("it's").contains('\''));
    assert!(why("pg_mine").contains("pg_"));
    assert!(why(&"x".repeat(58)).contains("58 bytes, and 57 are possible"));
    for good in ["order", "Weird \"Name", "1st", "a-b", "a.b", &"x".repeat(57)] {
        assert!(Schema::new(good).is_ok(), "{good}");
    }
    assert_eq!(Schema::new("a\"b").unwrap().quoted(), "\"a\"\"b\"");
}

async fn launch_in(store: &PostgresStore, transaction: &mut PgConnection) -> Uuid {
    let launched = NewMessage::new("a", serde_json::Value::Null, 0);
    store.launch(&mut *transaction, std::slice::from_ref(&launched)).await.unwrap();
    launched.id
}

async fn claimed_messages(store: &PostgresStore, worker: Uuid, progress: &mut QueueCursors) -> Vec<Uuid> {
    claim(store, worker, progress).await.iter().map(|claimed| claimed.run.message).collect()
}

#[tokio::test]
async fn run_of_a_transaction_that_commits_late_is_claimed_by_the_next_claim() {
    let pool = database("late_commit").await;
    let (store, worker, _) = launching(&pool).await;
    let mut progress = QueueCursors::default();
    let claim = async |progress: &mut QueueCursors| claimed_messages(&store, worker, progress).await;
    assert!(claim(&mut progress).await.is_empty());
    let (mut slow, mut aborted) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    let hidden = launch_in(&store, &mut slow).await;
    launch_in(&store, &mut aborted).await;
    for _ in 0..3 {
        let visible = launch_in(&store, &mut pool.acquire().await.unwrap()).await;
        assert_eq!(claim(&mut progress).await, [visible]);
        // So that the position is later than the hidden run, also by more than a clock may be read too early.
        wait_for_clock(&pool).await;
    }
    aborted.rollback().await.unwrap();
    assert!(claim(&mut progress).await.is_empty());
    slow.commit().await.unwrap();
    assert_eq!(claim(&mut progress).await, [hidden]);
    assert!(claim(&mut progress).await.is_empty());
    done(pool).await;
}

/// Waits until the clock of the server is so much later that no allowance for a late transaction covers it.
async fn wait_for_clock(pool: &PgPool) {
    sqlx::raw_sql("SELECT pg_sleep(0.03)").execute(pool).await.unwrap();
}

/// A run with an old time, which was not visible before: as long as it holds its queue, the next claims find it.
#[tokio::test]
async fn run_that_another_session_has_locked_is_claimed_once_it_is_free() {
    let pool = database("late_lock").await;
    let (store, worker, _) = launching(&pool).await;
    let mut progress = QueueCursors::default();
    assert!(claimed_messages(&store, worker, &mut progress).await.is_empty());
    let locked = launch_in(&store, &mut pool.acquire().await.unwrap()).await;
    let mut lock = pool.begin().await.unwrap();
    sqlx::raw_sql("SELECT FROM scoop.run WHERE handler = 'saga' FOR UPDATE")
        .execute(&mut *lock)
        .await
        .unwrap();
    for _ in 0..3 {
        let visible = launch_in(&store, &mut pool.acquire().await.unwrap()).await;
        assert_eq!(claimed_messages(&store, worker, &mut progress).await, [visible]);
        assert!(progress.has_left());
        wait_for_clock(&pool).await;
    }
    lock.rollback().await.unwrap();
    assert_eq!(claimed_messages(&store, worker, &mut progress).await, [locked]);
    assert!(!progress.has_left());
    done(pool).await;
}

#[tokio::test]
async fn run_for_which_a_claim_had_no_slot_is_claimed_by_the_next_one() {
    let pool = database("left_over").await;
    let (store, worker, _) = launching(&pool).await;
    let mut progress = QueueCursors::default();
    assert!(claimed_messages(&store, worker, &mut progress).await.is_empty());
    let mut launched = vec![];
    for _ in 0..15 {
        launched.push(launch_in(&store, &mut pool.acquire().await.unwrap()).await);
    }
    wait_for_clock(&pool).await;
    assert_eq!(claimed_messages(&store, worker, &mut progress).await, launched[..10]);
    wait_for_clock(&pool).await;
    assert_eq!(claimed_messages(&store, worker, &mut progress).await, launched[10..]);
    done(pool).await;
}

/// Claims have gone on from there.
#[tokio::test]
async fn run_launched_for_a_past_time_is_ready_from_now_on() {
    let pool = database("past_due").await;
    let (store, worker, _) = launching(&pool).await;
    let past = time::OffsetDateTime::UNIX_EPOCH;
    let mut progress = QueueCursors::default();
    assert!(claimed_messages(&store, worker, &mut progress).await.is_empty());
    wait_for_clock(&pool).await;
    let mut context = scoop_core::Context::default();
    context.set(scoop_core::SleepUntil::new(past)).unwrap();
    let launched = NewMessage::new("a", serde_json::Value::Null, 0).with(context);
    store.launch(&pool, std::slice::from_ref(&launched)).await.unwrap();
    assert_eq!(claimed_messages(&store, worker, &mut progress).await, [launched.id]);
    done(pool).await;
}

#[tokio::test]
async fn of_many_handlers_those_are_found_that_have_something_ready() {
    let pool = database("handlers_ready").await;
    let (store, _, _) = launching(&pool).await;
    let names = |names: &str| names.split(' ').map(str::to_owned).collect::<Vec<_>>();
    // `b` handles two topics; `x` is of another program.
    let (topics, handlers) = (names("t t u t t t"), names("a b b c d e"));
    store.register(&SubscribedSaga::pairs(&topics, &handlers), Retention::default()).await.unwrap();
    store.register(&SubscribedSaga::pairs(&names("t"), &names("x")), Retention::default()).await.unwrap();
    let ready = async |topic: &str, handler: &str, seconds: f64| {
        let insert = "
            INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, last_event_at)
            SELECT id, id, ARRAY[id, id], id, $1, $2, now() - $3 * interval '1 second', now()
            FROM (SELECT gen_random_uuid() AS id) ids";
        sqlx::query(insert).bind(topic).bind(handler).bind(seconds).execute(&pool).await.unwrap();
    };
    let all = ClaimQueues::unreserved(&topics, &handlers);
    let found = async |progress: &mut QueueCursors| {
        let (queues, look) = store.queues_ready(&all, progress).await.unwrap();
        progress.record_scan(&all, &queues, &look);
        let mut found: Vec<_> =
            queues.each().map(|(topic, handler, _)| format!("{topic}/{handler}")).collect();
        found.sort();
        found.join(" ")
    };
    let mut progress = QueueCursors::default();
    assert_eq!(found(&mut progress).await, "");
    for (topic, handler) in [("t", "a"), ("t", "b"), ("u", "b"), ("t", "d"), ("t", "x")] {
        ready(topic, handler, 0.0).await;
    }
    ready("t", "e", -3000.0).await;
    assert_eq!(found(&mut progress).await, "t/a t/b t/d u/b", "e is to begin later");
    assert_eq!(found(&mut progress).await, "t/a t/b t/d u/b", "none is claimed");
    sqlx::raw_sql("DELETE FROM scoop.run WHERE topic = 't' AND handler IN ('b', 'd')")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(found(&mut progress).await, "t/a u/b");
    ready("t", "c", 0.0).await;
    ready("t", "d", 0.0).await;
    assert_eq!(found(&mut progress).await, "t/a t/c t/d u/b");
    for level in [Priority::High, Priority::Low] {
        let mut progress = QueueCursors::default();
        sqlx::raw_sql("DELETE FROM scoop.run WHERE state = 'ready'").execute(&pool).await.unwrap();
        assert_eq!(found(&mut progress).await, "", "{level:?}");
        ready("t", "d", 0.0).await;
        let set = "UPDATE scoop.run SET context = jsonb_build_object('scoop.priority', $1::text) WHERE handler = 'd'";
        sqlx::query(set).bind(level.name()).execute(&pool).await.unwrap();
        assert_eq!(found(&mut progress).await, "t/d", "{level:?}");
    }
    done(pool).await;
}

/// Each claim and settlement writes such a row, and prepares the conditions of all indexes.
#[tokio::test]
async fn rows_of_unfinished_runs_have_few_columns_and_indexes() {
    let pool = database("narrow").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let counted = "SELECT (SELECT count(*) FROM pg_attribute
                           WHERE attrelid = 'scoop.run'::regclass AND attnum > 0 AND NOT attisdropped),
                          (SELECT count(*) FROM pg_index WHERE indrelid = 'scoop.run'::regclass)";
    let (columns, indexes): (i64, i64) = sqlx::query_as(counted).fetch_one(&pool).await.unwrap();
    assert!(columns <= 38 && indexes <= 8, "{columns} columns, {indexes} indexes");
    done(pool).await;
}

#[test]
fn attempts_with_unknown_results_end_at_the_same_number_in_views_and_texts() {
    let views = include_str!("../../../../migrations/0003_views.sql");
    assert_eq!(views.matches("unknown_attempts >=").count(), 1);
    assert!(views.contains(&format!("(r.tries).unknown_attempts >= {UNKNOWN_MAX} THEN 'operator'")));
    assert!(UNKNOWN_TOO_OFTEN.contains(&format!("results of {UNKNOWN_MAX} of its attempts")));
}

#[test]
fn longest_queue_that_is_counted_is_the_same_in_statement_and_attribute() {
    let attribute = include_str!("../../../../../scoop-macros/src/saga/limits.rs");
    let list = include_str!("../../../../sql/queue_list.sql");
    assert_eq!(list.matches(&format!("least(l.queue, {QUEUE_MAX})")).count(), 2);
    assert!(attribute.contains("const QUEUE_MAX: u32 = 100_000;"));
    assert_eq!(QUEUE_MAX, 100_000);
}

#[tokio::test]
async fn large_hierarchy_is_deleted_with_as_many_locks_as_a_small_one() {
    let hierarchy = include_str!("../../../../../benches/sql/large_hierarchy.sql");
    let mut locks = vec![];
    for runs in [20, 2_000] {
        let pool = database(&format!("prune_locks_{runs}")).await;
        launching(&pool).await;
        let mut session = pool.acquire().await.unwrap();
        let made = format!("SET bench.copies = '{runs}'; {hierarchy}; BEGIN");
        sqlx::raw_sql(AssertSqlSafe(made)).execute(&mut *session).await.unwrap();
        let deleted: (String, i64) = sqlx::query_as(
            "SELECT verdict, message_count FROM scoop.prune(md5('large hierarchy')::uuid, 3600, 3600, false, false)",
        )
        .fetch_one(&mut *session)
        .await
        .unwrap();
        assert_eq!(deleted, ("deleted".to_owned(), runs));
        let held = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()";
        locks.push(sqlx::query_scalar::<_, i64>(held).fetch_one(&mut *session).await.unwrap());
        session.close().await.unwrap();
        done(pool).await;
    }
    assert_eq!(locks[0], locks[1], "locked rows are in no table of locks");
}
