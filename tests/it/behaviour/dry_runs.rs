//! Dry runs of requests while another session has locked all that the requests lock.

use std::fmt::Debug;
use std::time::Duration;

use scoop::requests::{RepairAnswer, Request, SignalAnswer};
use scoop::{Handle, RunId};

use super::*;
use crate::support::Database;

/// The rows that requests write.
const ROWS: &str = "
    SELECT 'event ' || e::text FROM scoop.message_event e
    UNION ALL SELECT 'run ' || r::text FROM scoop.run r WHERE r.handler <> 'none'
    UNION ALL SELECT 'intervention ' || i::text FROM scoop.intervention i
    UNION ALL SELECT 'signal ' || s::text FROM scoop.signal s
    ORDER BY 1";

/// The locks of requests, in all hierarchies.
const LOCKS: &str = "
    SELECT FROM scoop.message FOR UPDATE;
    SELECT FROM scoop.message_event FOR UPDATE;
    SELECT FROM scoop.run WHERE handler <> 'none' FOR UPDATE;
    SELECT pg_advisory_xact_lock(hashtextextended(root::text, 0))
    FROM (SELECT DISTINCT cooperation_lineage[1] AS root FROM scoop.message_event) hierarchies";

handler! {
    Sound: "sound-handler" on Child;
    step "act" act [rollback = undo] => done();
    rollback undo => done();
}

handler! {
    Failing: "root-handler" on Root;
    step "launch" launch [rollback = undo] => launches(Grandchild);
    step "fail" fail => fails(SIMULATED);
    rollback undo => done();
}

handler! {
    Unrepeatable: "grandchild-handler" on Grandchild;
    step "act" act [rollback = undo] => done();
    rollback undo => fails(SIMULATED);
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "dry-runs.paid")]
struct Paid {
    cents: u32,
}

handler! {
    Awaiting: "awaiting-handler" on Child2;

    #[step(awaits(Paid, by = order))]
    async fn collect(&self, _: &mut Scope<'_>, _: &Child2, paid: &Paid) -> Result<()> {
        assert!(paid.cents > 0);
        Ok(())
    }

    async fn order(&self, _: &mut Scope<'_>, _: &Child2) -> Result<String> {
        Ok("7".into())
    }
}

/// A client that does not wait for locks for long. No worker lives.
struct Asked {
    db: Database,
    client: Scoop,
}

impl Asked {
    async fn about(db: Database) -> Result<Self> {
        let client = db.scoop().retry_for(Duration::from_secs(10)).client().await?;
        Ok(Self { db, client })
    }

    /// Asserts that a dry run gets this answer while the locks of the request are held, and changes nothing; and that the request
    /// gets the same answer after that.
    async fn answers<A, E>(&self, request: impl Fn(&Scoop) -> Request<A, E>, expected: A) -> Result<()>
    where
        A: Copy + Debug + PartialEq + Send + 'static,
        E: From<RuntimeError> + std::error::Error + Send + Sync + 'static,
    {
        let before = self.db.texts(ROWS).await;
        let mut locked = self.db.pool().begin().await?;
        sqlx::raw_sql(LOCKS).execute(&mut *locked).await?;
        assert_eq!(request(&self.client).dry_run().await?, expected);
        locked.rollback().await?;
        assert_eq!(self.db.texts(ROWS).await, before, "{expected:?}");
        assert_eq!(request(&self.client).await?, expected);
        Ok(())
    }

    /// The run of this saga in the hierarchy whose rollback failed.
    async fn failed(&self, hierarchy: &Handle, saga: &str) -> Result<RunId> {
        let listed = self.client.operate().failures().list().await?;
        let mut failed = listed.iter().filter(|it| it.hierarchy() == hierarchy.id() && it.handler == saga);
        Ok(failed.next().unwrap_or_else(|| panic!("{saga} is not among {listed:?}")).id())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_of_locked_runs_is_checked_at_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Sound,)).await?;
    let later = scoop.launch(Child).delay(Duration::from_secs(3_600)).await?;
    let ended = scoop.launch(Child).await?;
    assert_eq!(ended.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;

    let asked = Asked::about(db).await?;
    for expected in [CancelAnswer::Accepted, CancelAnswer::AlreadyRequested] {
        asked.answers(|client| client.cancel(later.id(), "tried"), expected).await?;
    }
    for expected in [CancelAnswer::NothingToDo, CancelAnswer::AlreadyRequested] {
        asked.answers(|client| client.cancel(ended.id(), "tried"), expected).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_of_locked_runs_is_checked_at_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Sound, Failing, Unrepeatable)).await?;
    let (done, undone) = (scoop.launch(Child).await?, scoop.launch(Child).await?);
    for sound in [&done, &undone] {
        assert_eq!(sound.ends().await?, Outcome::Committed);
    }
    assert_eq!(scoop.rollback(undone.id(), "before").await?, RollbackAnswer::Accepted);
    assert!(matches!(undone.ends().await?, Outcome::RolledBack(_)));
    let broken = scoop.launch(Root).await?;
    assert!(matches!(broken.ends().await?, Outcome::RollbackFailed(_)));
    scoop.shutdown().await?;

    let asked = Asked::about(db).await?;
    for (hierarchy, expected) in [
        (&done, RollbackAnswer::Accepted),
        (&done, RollbackAnswer::StillRunning),
        (&undone, RollbackAnswer::AlreadyRolledBack),
        (&broken, RollbackAnswer::FailedBefore),
    ] {
        asked.answers(|client| client.rollback(hierarchy.id(), "tried"), expected).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn repair_of_locked_runs_is_checked_at_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Failing, Unrepeatable)).await?;
    let mut hierarchies = vec![];
    for _ in 0..3 {
        let hierarchy = scoop.launch(Root).await?;
        assert!(matches!(hierarchy.ends().await?, Outcome::RollbackFailed(_)));
        hierarchies.push(hierarchy);
    }
    scoop.shutdown().await?;

    let asked = Asked::about(db).await?;
    let [retried, skipped, resolved] = &hierarchies[..] else { panic!("there are three") };
    let above = asked.failed(retried, "root-handler").await?;
    asked.answers(|client| client.operate().failures().retry(above), RepairAnswer::FailedBelow).await?;
    let run = asked.failed(retried, "grandchild-handler").await?;
    for expected in [RepairAnswer::Accepted, RepairAnswer::StillRunning] {
        asked.answers(|client| client.operate().failures().retry(run), expected).await?;
    }
    let run = asked.failed(skipped, "grandchild-handler").await?;
    for expected in [RepairAnswer::Accepted, RepairAnswer::StillRunning] {
        asked.answers(|client| client.operate().failures().skip(run, "tried"), expected).await?;
    }
    let run = asked.failed(resolved, "grandchild-handler").await?;
    for expected in [RepairAnswer::Accepted, RepairAnswer::NotFailed] {
        asked.answers(|client| client.operate().failures().resolve(run, "tried"), expected).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_of_a_locked_stuck_run_is_checked_at_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Sound,)).await?;
    scoop.launch(Child).delay(Duration::from_secs(3_600)).await?;
    scoop.shutdown().await?;
    db.execute("UPDATE scoop.run SET state = 'stuck', reason = 'a test' WHERE handler = 'sound-handler'")
        .await;

    let asked = Asked::about(db).await?;
    let stuck = asked.client.operate().failures().stuck().await?;
    let [stuck] = &stuck[..] else { panic!("{stuck:?}") };
    asked
        .answers(|client| client.operate().failures().skip(stuck.id(), "tried"), RepairAnswer::Stuck)
        .await?;
    asked
        .answers(|client| client.operate().failures().resolve(stuck.id(), "tried"), RepairAnswer::Stuck)
        .await?;
    for expected in [RepairAnswer::Accepted, RepairAnswer::NotFailed] {
        asked.answers(|client| client.operate().failures().retry(stuck.id()), expected).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_to_a_locked_run_is_checked_at_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Awaiting,)).await?;
    let order = scoop.launch(Child2).await?;
    let tree =
        order.comes_to(|tree| tree.roots().iter().any(|it| it.state == RunState::AwaitingSignal)).await?;
    let run = tree.roots()[0].id();
    scoop.shutdown().await?;

    let asked = Asked::about(db).await?;
    let paid = || serde_json::json!({ "cents": 990 });
    for expected in [SignalAnswer::Accepted, SignalAnswer::NotAwaiting] {
        asked.answers(|client| client.operate().runs().signal_run(run, paid(), "tried"), expected).await?;
    }
    Ok(())
}
