//! Infrastructure failures below a step: the disk is full, all connections are taken.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;

use super::*;
use crate::support::{Database, Gate, eventually};

handler! {
    Writing: "writing" on Root;
    #[step]
    async fn write(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
        Ok(())
    }

    // Does not touch the database, and is recorded together with others.
    step "think" think => done();
}

/// While this is there, the server behaves on every new event as if its disk were full.
const FULL_DISK: &str = "
    CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file: no space left on device' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER no_space BEFORE INSERT ON scoop.message_event
        FOR EACH ROW WHEN (NEW.type IN ('SUSPENDED', 'COMMITTED')) EXECUTE FUNCTION no_space();";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_delays_and_loses_nothing() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE effect (n int)").await;
    let scoop = db.start((Writing,)).await?;
    db.execute(FULL_DISK).await;
    let root = scoop.launch(Root).await?;
    let claimed = "SELECT coalesce(max(epoch), 0) FROM scoop.run";
    eventually("the step was tried again", async || db.number(claimed).await > 1).await;
    assert_eq!(root.status().await?, scoop::Status::Unfinished);

    db.execute("DROP FUNCTION no_space CASCADE").await;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
    Ok(())
}

struct Hoarding {
    gate: Gate,
}

#[saga(name = "hoarding")]
#[subscribes(Root)]
impl Hoarding {
    #[step]
    async fn hold(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        scope.tx().await?;
        self.gate.pass().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_hold_all_their_connections_leave_the_engine_its_own() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let saga = Hoarding { gate: gate.clone() };
    let scoop = db.scoop().only::<Hoarding>().only::<Writing>().provide(saga).start().await?;
    db.execute("CREATE TABLE effect (n int)").await;
    let roots = scoop.launch_all((0..6).map(|_| Root)).await?;
    // Two of five connections are for steps. The others still serve operations without a
    // transaction.
    gate.arrivals(2).await;
    assert_eq!(roots[0].status().await?, scoop::Status::Unfinished);
    gate.open(6);
    for root in &roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_others_have_emptied_only_delays() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE effect (n int)").await;
    let options = PgPoolOptions::new().max_connections(5).acquire_timeout(Duration::from_secs(2));
    let pool = options.connect_with((*db.pool().connect_options()).clone()).await?;
    let scoop = Scoop::builder().postgres(pool.clone()).only::<Writing>().start().await?;
    let mut taken = vec![];
    for _ in 0..5 {
        taken.push(pool.acquire().await?);
    }
    let root = scoop.launch(Root).await?;
    let attempts = "SELECT coalesce(max((tries).attempts), 0)::bigint FROM scoop.run";
    eventually("the step got no connection", async || db.number(attempts).await > 0).await;
    assert_eq!(db.number("SELECT count(*) FROM effect").await, 0);
    drop(taken);
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Default)]
struct Detaching;

#[saga(name = "detaching-on-shaky-ground")]
#[subscribes(Root)]
impl Detaching {
    /// The first time the server closes the connection.
    #[step]
    async fn detach(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        if scope.attempt() == 0 {
            let ended = "SELECT pg_terminate_backend(pg_backend_pid())";
            assert!(sqlx::query(ended).execute(scope.tx().await?).await.is_err());
        }
        scope.detach_unique(Child, "once").await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connection_in_an_operation_of_a_step_fails_no_saga() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Detaching,)).await?;
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    assert_eq!(db.number("SELECT count(*) FROM scoop.message WHERE topic = 'child-topic'").await, 1);
    Ok(())
}

struct Impatient {
    gate: Gate,
}

#[saga(name = "impatient")]
#[subscribes(Root)]
impl Impatient {
    #[step]
    async fn write(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        sqlx::raw_sql("SET LOCAL lock_timeout = '50ms'").execute(scope.tx().await?).await?;
        self.gate.pass().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lock_on_a_run_fails_no_step_with_a_short_lock_timeout() -> Result<()> {
    let gate = Gate::default();
    let run = Run::launch((Impatient { gate: gate.clone() },), Root).await?;
    gate.arrivals(1).await;
    let others = run.db.another_pool(1).await;
    let mut tx = others.begin().await?;
    sqlx::query("SELECT FROM scoop.run FOR UPDATE").execute(&mut *tx).await?;
    gate.open(1);
    let waiting = |query: &str| {
        format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND wait_event_type = 'Lock' AND query LIKE '{query}'"
        )
    };
    // The settlement waits for the lock and fails. Then the statement that hands the run back
    // waits.
    eventually("the step is given back", async || {
        run.db.number(&waiting("-- Makes runs ready that this worker holds%")).await > 0
    })
    .await;
    tx.commit().await?;
    gate.open(10);
    assert_eq!(run.root.ends().await?, Outcome::Committed);
    Ok(())
}
