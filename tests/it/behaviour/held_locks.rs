//! Workers that died, or stopped without dying, and the locks that show that they live.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection};

use super::*;
use crate::support::{Database, Gate, eventually};

struct RootHandler {
    gate: Gate,
    /// Holds up the whole runtime, as SIGSTOP does, until the other end is dropped.
    stopped: Option<Arc<Mutex<mpsc::Receiver<()>>>>,
}

#[saga(name = "root-handler")]
#[subscribes(Root)]
impl RootHandler {
    #[step(name = "0")]
    async fn zero(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
        if let Some(stopped) = &self.stopped {
            self.gate.pass().await;
            let _ = stopped.lock().unwrap().recv();
        } else {
            self.gate.pass().await;
        }
        Ok(())
    }
}

/// A program in a runtime of its own, in the middle of a step.
async fn program(db: &Database, saga: RootHandler) -> Result<(tokio::runtime::Runtime, scoop::HierarchyId)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let options = db.pool().connect_options();
    let launched = runtime.spawn(async move {
        let pool = PgPoolOptions::new().max_connections(5).connect_with((*options).clone()).await?;
        let scoop = Scoop::builder().postgres(pool).only::<RootHandler>().provide(saga).start().await?;
        let root = scoop.launch(Root).await?.id();
        // Dropping the handle would be a shutdown.
        std::mem::forget(scoop);
        Ok::<_, Error>(root)
    });
    Ok((runtime, launched.await??))
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_worker_whose_lock_another_role_takes_loses_its_runs() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let (doomed, root) = program(&db, RootHandler { gate: gate.clone(), stopped: None }).await?;
    gate.arrivals(1).await;

    let role = format!("connects_{}", uuid::Uuid::new_v4().simple());
    db.execute(&format!("CREATE ROLE {role} LOGIN")).await;
    let options = (*db.pool().connect_options()).clone().username(&role);
    let mut connection = PgConnection::connect_with(&options).await?;
    let keys: Vec<i64> = sqlx::query_scalar(
        "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks
         WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
    .fetch_all(&mut connection)
    .await?;
    let [key] = keys[..] else { panic!("{keys:?}") };
    let holding = tokio::spawn(async move {
        sqlx::query("SELECT pg_advisory_lock($1)")
            .bind(key)
            .execute(&mut connection)
            .await
            .map(|_| connection)
    });
    eventually("the other role waits for the lock", async || {
        db.number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").await == 1
    })
    .await;
    doomed.shutdown_background();
    let held = holding.await??;

    let survivor = db.start((RootHandler { gate: gate.clone(), stopped: None },)).await?;
    gate.open(1);
    let ended = survivor.find(root).await?.ends().await;
    survivor.shutdown().await?;
    held.close().await?;
    db.execute(&format!("DROP ROLE {role}")).await;
    assert_eq!(ended?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_worker_keeps_its_runs_until_its_session_is_ended() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let (resume, stopped) = mpsc::channel();
    let held_up = Arc::new(Mutex::new(stopped));
    let saga = RootHandler { gate: gate.clone(), stopped: Some(held_up.clone()) };
    let (stopped, root) = program(&db, saga).await?;
    gate.arrivals(1).await;
    // The runtime must not be held up before its program has launched.
    gate.open(1);
    eventually("the step holds up its runtime", async || held_up.try_lock().is_err()).await;

    let survivor = db.start((RootHandler { gate: gate.clone(), stopped: None },)).await?;
    gate.open(1);
    assert_eq!(survivor.launch(Root).await?.ends().await?, Outcome::Committed);
    gate.arrivals(1).await;
    let owner = "SELECT r.owner::text FROM scoop.run r WHERE r.state = 'running'";
    let [worker] = &db.texts(owner).await[..] else { panic!("the stopped worker has lost its run") };
    let end = format!("SELECT pg_terminate_backend(backend) FROM scoop.worker WHERE id = '{worker}'");
    db.execute(&end).await;
    gate.open(1);
    let ended = survivor.find(root).await?.ends().await;
    survivor.shutdown().await?;
    drop(resume);
    stopped.shutdown_background();
    assert_eq!(ended?, Outcome::Committed);
    Ok(())
}
