//! Features that work behind a proxy, and settings that are refused there.

use std::time::Duration;

use scoop::prelude::*;
use scoop::requests::{CancelAnswer, RollbackAnswer};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgPool};

use crate::pgbouncer::PgBouncer;
use scoop_test_support::messages::{Root, SIMULATED};
use scoop_test_support::postgres::Database;
use scoop_test_support::{Ends as _, Gate, eventually};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "proxied.orders")]
struct Order {
    number: i32,
    parts: i32,
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "proxied.parts")]
struct Part {
    number: i32,
}

/// Three steps of the database, parts in between, and a nap.
struct Orders {
    program: &'static str,
}

#[saga(name = "proxied-orders")]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = withdraw)]
    async fn accept(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        note(scope, self.program, "accepted", order.number).await?;
        for number in 0..order.parts {
            scope.launch(Part { number }).await?;
        }
        Ok(())
    }

    async fn withdraw(&self, scope: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        note(scope, self.program, "withdrawn", order.number).await
    }

    #[step]
    async fn rest(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        note(scope, self.program, "rested", order.number).await?;
        scope.sleep(Duration::from_millis(20)).await?;
        Ok(())
    }

    #[step]
    async fn ship(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        note(scope, self.program, "shipped", order.number).await?;
        if order.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

struct Parts {
    program: &'static str,
}

#[saga(name = "proxied-parts")]
#[subscribes(Part)]
impl Parts {
    #[step(rollback = discard)]
    async fn make(&self, scope: &mut Scope<'_>, part: &Part) -> Result<()> {
        note(scope, self.program, "made", part.number).await
    }

    async fn discard(&self, scope: &mut Scope<'_>, part: &Part, _: &Failure) -> Result<()> {
        note(scope, self.program, "discarded", part.number).await
    }

    /// Does not touch the database.
    #[step]
    async fn polish(&self, _: &mut Scope<'_>, _: &Part) -> Result<()> {
        Ok(())
    }
}

/// Two ordinary statements, which sqlx prepares under names.
async fn note(scope: &mut Scope<'_>, program: &str, what: &str, number: i32) -> Result<()> {
    let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(scope.tx().await?).await?;
    sqlx::query("INSERT INTO note (program, backend, what, number) VALUES ($1, $2, $3, $4)")
        .bind(program)
        .bind(backend)
        .bind(what)
        .bind(number)
        .execute(scope.tx().await?)
        .await?;
    Ok(())
}

/// A saga with a step that the test can hold.
struct Held {
    gate: Gate,
}

#[saga(name = "proxied-held")]
#[subscribes(Root)]
impl Held {
    #[step(rollback = undo)]
    async fn hold(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        note(scope, "any", "held", 0).await?;
        self.gate.pass().await;
        Ok(())
    }

    async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        note(scope, "any", "let go", 0).await
    }

    #[step]
    async fn never(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
        Ok(())
    }
}

/// The steps that may have a transaction at once in each of two programs, and one session for the statements
/// that these wait for.
const SESSIONS: u32 = 5;

async fn database() -> Database {
    let db = Database::new().await;
    db.execute("CREATE TABLE note (program text, backend int, what text, number int)").await;
    db
}

fn server(db: &Database) -> PgConnectOptions {
    (*db.pool().connect_options()).clone()
}

/// A program with six connections, two of them for steps.
async fn program(db: &Database, proxy: &PgBouncer) -> scoop::Builder {
    Scoop::builder().postgres(proxy.pool(6).await).listen_directly(server(db))
}

/// A program with all these sagas.
async fn start(db: &Database, proxy: &PgBouncer) -> Result<Scoop> {
    let scoop = program(db, proxy).await.only::<Orders>().provide(Orders { program: "any" });
    Ok(scoop.only::<Parts>().provide(Parts { program: "any" }).start().await?)
}

async fn count(db: &Database, what: &str) -> i64 {
    db.number(&format!("SELECT count(*) FROM note WHERE what = '{what}'")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_programs_and_a_client_share_the_sessions_of_a_proxy() -> Result<()> {
    let db = database().await;
    let proxy = PgBouncer::in_front_of(&db, SESSIONS).await;
    // Each order needs both programs.
    let orders = program(&db, &proxy).await.only::<Orders>().provide(Orders { program: "first" });
    let parts = program(&db, &proxy).await.only::<Parts>().provide(Parts { program: "second" });
    let programs = [orders.start().await?, parts.start().await?];
    let client = Scoop::builder().postgres(proxy.pool(2).await).behind_proxy().client().await?;

    let order = |number| Order { number, parts: 5, fails: number % 5 == 0 };
    let mut launched = programs[0].launch_all((0..10).map(order)).await?;
    launched.extend(programs[1].launch_all((10..20).map(order)).await?);
    for number in 20..30 {
        launched.push(client.launch(order(number)).await?);
    }
    for (number, handle) in launched.iter().enumerate() {
        let outcome = client.find(handle.id()).await?.ends().await?;
        assert_eq!(outcome == Outcome::Committed, number % 5 != 0, "{}", handle.tree().await?);
        assert_eq!(matches!(outcome, Outcome::RolledBack(_)), number % 5 == 0);
    }
    for (what, expected) in [("accepted", 30), ("rested", 30), ("shipped", 24), ("withdrawn", 6)] {
        assert_eq!(count(&db, what).await, expected, "{what}");
    }
    assert_eq!((count(&db, "made").await, count(&db, "discarded").await), (150, 30));

    let backends = db.number("SELECT count(DISTINCT backend) FROM note").await;
    assert!((2..=i64::from(SESSIONS)).contains(&backends), "{backends} sessions");
    let shared = "SELECT count(*) FROM
        (SELECT FROM note GROUP BY backend HAVING count(DISTINCT program) = 2) shared";
    assert!(db.number(shared).await > 0, "no session served both programs");
    for program in programs {
        program.shutdown().await?;
    }
    Ok(())
}

/// A wide one, so that the claims, the settlements and the wake-ups are large.
#[tokio::test(flavor = "multi_thread")]
async fn a_fan_out_comes_back_together() -> Result<()> {
    let db = database().await;
    let proxy = PgBouncer::in_front_of(&db, 3).await;
    let scoop = start(&db, &proxy).await?;
    let order = scoop.launch(Order { number: 1, parts: 100, fails: false }).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    assert_eq!((count(&db, "made").await, count(&db, "shipped").await), (100, 1));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_is_rolled_back() -> Result<()> {
    let db = database().await;
    let proxy = PgBouncer::in_front_of(&db, 3).await;
    let gate = Gate::default();
    let scoop = program(&db, &proxy).await.only::<Held>().provide(Held { gate: gate.clone() });
    let scoop = scoop.start().await?;
    let root = scoop.launch(Root).await?;
    gate.arrivals(1).await;
    assert_eq!(scoop.cancel(root.id(), "enough").await?, CancelAnswer::Accepted);
    gate.open(1);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    // The step of the cancelled run was not committed.
    assert_eq!((count(&db, "held").await, count(&db, "let go").await), (0, 0));

    gate.open(1);
    let root = scoop.launch(Root).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    let answer = scoop.rollback(root.id(), "it came back").await?;
    assert_eq!(answer, RollbackAnswer::Accepted);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!((count(&db, "held").await, count(&db, "let go").await), (1, 1));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_exists_exactly_if_the_transaction_of_the_user_does() -> Result<()> {
    let db = database().await;
    let proxy = PgBouncer::in_front_of(&db, 3).await;
    let scoop = start(&db, &proxy).await?;
    let order = |number| Order { number, parts: 1, fails: false };
    let pool = proxy.pool(2).await;

    for (number, commits) in [(1, false), (2, true), (3, false), (4, true)] {
        let mut tx = pool.begin_with("BEGIN; DEALLOCATE ALL").await?;
        sqlx::query("INSERT INTO note (what, number) VALUES ('ordered', $1)")
            .bind(number)
            .execute(&mut *tx)
            .await?;
        let launched = scoop.launch(order(number)).in_transaction(&mut tx).await?;
        if commits {
            tx.commit().await?;
            assert_eq!(launched.ends().await?, Outcome::Committed);
        } else {
            tx.rollback().await?;
            let gone = launched.wait().await.expect_err("it was rolled back");
            assert!(gone.is_not_found() && gone.to_string().starts_with("there is no message "), "{gone}");
        }
    }
    assert_eq!((count(&db, "ordered").await, count(&db, "shipped").await), (2, 2));
    scoop.shutdown().await?;
    Ok(())
}

/// A session keeps no state that another program could find, and no transaction stays open unnoticed.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_behind_in_a_session() -> Result<()> {
    let db = database().await;
    let proxy = PgBouncer::in_front_of(&db, 3).await;
    let settings = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
        WHERE name IN ('plan_cache_mode', 'statement_timeout', 'lock_timeout', 'idle_session_timeout',
            'idle_in_transaction_session_timeout', 'transaction_isolation', 'tcp_keepalives_idle')";
    let fresh = db.texts(settings).await;
    let scoop = start(&db, &proxy).await?;
    for number in 0..20 {
        let order = scoop.launch(Order { number, parts: 1, fails: false }).await?;
        // Dropped at an arbitrary point.
        let _ = tokio::time::timeout(Duration::from_millis(1), order.wait()).await;
        let _ = tokio::time::timeout(Duration::from_millis(1), order.tree().into_future()).await;
    }
    scoop.shutdown().await?;

    let mut through = sqlx::PgConnection::connect_with(&proxy.options()).await?;
    let mut tx = through.begin().await?;
    let found: String = sqlx::query_scalar(settings).persistent(false).fetch_one(&mut *tx).await?;
    tx.rollback().await?;
    assert_eq!(found, fresh[0]);
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let idle = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    eventually("no lock and no transaction is left", async || {
        db.number(locks).await == 0 && db.number(idle).await == 0
    })
    .await;
    Ok(())
}

mod mistakes {
    use scoop::errors::SetupError;

    use super::*;

    async fn mistake(builder: scoop::Builder) -> SetupError {
        match builder.only::<Parts>().provide(Parts { program: "none" }).start().await {
            Ok(_) => panic!("it started"),
            Err(error) => match error.setup() {
                [mistake] => mistake.clone(),
                _ => panic!("{error}: {:?}", std::error::Error::source(&error)),
            },
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn listening_through_the_proxy_is_refused() {
        let db = database().await;
        for sessions in [1, 2, 5] {
            for settings in ["", "server_round_robin = 1"] {
                let pooling = format!("pool_mode = transaction\ndefault_pool_size = {sessions}\n{settings}");
                let proxy = PgBouncer::with(&db, &pooling).await;
                let unaware = Scoop::builder().postgres(proxy.pool(6).await);
                assert_eq!(mistake(unaware).await, SetupError::SharedSession, "{pooling}");
                let confused =
                    Scoop::builder().postgres(proxy.pool(6).await).listen_directly(proxy.options());
                assert_eq!(mistake(confused).await, SetupError::SharedSession, "{pooling}");
                let forgetful = Scoop::builder().postgres(proxy.pool(6).await).behind_proxy();
                assert_eq!(mistake(forgetful).await, SetupError::SharedSession, "{pooling}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn listening_through_a_proxy_with_sessions_in_turns_is_refused() -> Result<()> {
        let db = database().await;
        let settings = "pool_mode = transaction\ndefault_pool_size = 2\nserver_round_robin = 1";
        let proxy = PgBouncer::with(&db, settings).await;
        let pool = proxy.pool(6).await;
        // Both sessions exist before the check.
        let (one, other) = (pool.begin().await?, pool.begin().await?);
        one.rollback().await?;
        other.rollback().await?;
        assert_eq!(mistake(Scoop::builder().postgres(pool)).await, SetupError::SharedSession);
        Ok(())
    }

    /// Even while others keep the proxy busy.
    #[tokio::test(flavor = "multi_thread")]
    async fn listening_through_a_busy_proxy_is_refused() -> Result<()> {
        let db = database().await;
        let proxy = PgBouncer::in_front_of(&db, 5).await;
        let mut busy = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut connection = sqlx::PgConnection::connect_with(&proxy.options()).await?;
            busy.spawn(async move {
                loop {
                    sqlx::raw_sql("SELECT pg_sleep(0.001)").execute(&mut connection).await.expect("it is up");
                }
            });
        }
        for _ in 0..10 {
            let unaware = Scoop::builder().postgres(proxy.pool(6).await);
            assert_eq!(mistake(unaware).await, SetupError::SharedSession);
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn listening_elsewhere_is_refused() {
        let (db, other) = (database().await, database().await);
        let proxy = PgBouncer::in_front_of(&db, 3).await;
        let builder = Scoop::builder().postgres(proxy.pool(6).await).listen_directly(server(&other));
        assert_eq!(mistake(builder).await, SetupError::DatabaseMismatch);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_pool_that_remembers_prepared_statements_is_refused() -> Result<()> {
        let db = database().await;
        let proxy = PgBouncer::in_front_of(&db, 3).await;
        let pool = PgPool::connect_with(proxy.options().statement_cache_capacity(100)).await?;
        let builder = Scoop::builder().postgres(pool).listen_directly(server(&db));
        assert_eq!(mistake(builder).await, SetupError::StatementCacheEnabled);
        Ok(())
    }
}

/// A proxy that pools whole sessions counts as no proxy.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_pools_sessions_needs_nothing() -> Result<()> {
    let db = database().await;
    let proxy = PgBouncer::with(&db, "pool_mode = session\ndefault_pool_size = 8").await;
    let pool = PgPool::connect_with(proxy.options().statement_cache_capacity(100)).await?;
    let scoop = Scoop::builder().postgres(pool).only::<Parts>().provide(Parts { program: "first" });
    let scoop = scoop.start().await?;
    assert_eq!(scoop.launch(Part { number: 1 }).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

/// A worker with a lost direct session gets another one, and goes on meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_direct_session_is_replaced() -> Result<()> {
    let db = database().await;
    let proxy = PgBouncer::in_front_of(&db, 4).await;
    let scoop = start(&db, &proxy).await?;
    let holder = "SELECT l.pid::text FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let listening = db.texts(holder).await;
    db.execute(&format!("SELECT pg_terminate_backend({})", listening[0])).await;
    eventually("there is a new session", async || {
        db.texts(holder).await.iter().any(|session| !listening.contains(session))
    })
    .await;
    let order = scoop.launch(Order { number: 1, parts: 3, fails: true }).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    Ok(())
}
