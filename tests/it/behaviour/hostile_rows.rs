//! Rows that another program has written into the tables: they stop their own run, and no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use scoop::operate::StuckRun;
use scoop::requests::RepairAnswer;
use scoop::{Handle, Status};
use uuid::Uuid;

use super::*;
use crate::support::{Database, Gate, eventually, in_a_process_that_dies};

#[derive(Message, Serialize, Deserialize)]
struct Work;

#[derive(Debug, Serialize, Deserialize)]
struct Weight(f64);

handler! {
    /// The second step waits for a gate.
    Worker(gate): "worker" on Work;
    #[step(rollback = undo)]
    async fn begin(&self, _: &mut Scope<'_>, _: &Work) -> Result<Weight> {
        Ok(Weight(1.5))
    }

    step "finish" finish => at_gate();
    rollback undo => done();
}

handler! {
    /// Fails in its second step, within the transaction of the step.
    Failing(gate): "failing" on Child;
    #[step(rollback = undo)]
    async fn begin(&self, scope: &mut Scope<'_>, _: &Child) -> Result<Weight> {
        scope.tx().await?;
        Ok(Weight(1.5))
    }

    step "fail" fail => at_gate().then(fails(SIMULATED));

    async fn undo(&self, _: &mut Scope<'_>, _: &Child, weight: &Weight, _: &Failure) -> Result<()> {
        assert!(weight.0 > 1.0);
        Ok(())
    }
}

/// The tables, with both sagas listed and no worker.
async fn tables() -> Result<Database> {
    let db = Database::new().await;
    start(&db, &Gate::default()).await?.shutdown().await?;
    Ok(db)
}

async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
    let (worker, failing) = (Worker { gate: gate.clone() }, Failing { gate: gate.clone() });
    let builder = db.scoop().only::<Worker>().provide(worker).only::<Failing>().provide(failing);
    Ok(builder.start().await?)
}

/// A worker whose run has completed its first step, and waits at the gate in the second.
async fn at_the_gate(db: &Database, gate: &Gate, message: impl Message) -> Result<(Scoop, Handle)> {
    let scoop = start(db, gate).await?;
    let root = scoop.launch(message).await?;
    gate.arrivals(1).await;
    Ok((scoop, root))
}

/// The only stuck run, once there is one.
async fn stuck(scoop: &Scoop) -> Result<StuckRun> {
    let listed = async || scoop.operate().failures().stuck().await.is_ok_and(|runs| runs.len() == 1);
    eventually("a run is stuck", listed).await;
    Ok(scoop.operate().failures().stuck().await?.remove(0))
}

/// That other runs are not concerned.
async fn others_finish(scoop: &Scoop, gate: &Gate) -> Result<()> {
    gate.open(40);
    let others = scoop.launch_all((0..40).map(|_| Work)).await?;
    for other in others {
        assert_eq!(other.ends().await?, Outcome::Committed);
    }
    Ok(())
}

/// Records the beginning of a run as another program would.
async fn forge_beginning(db: &Database, root: &Handle, handler: &str) {
    db.execute(&format!(
        "INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
         SELECT e.message_id, 'SEEN', '{handler}', ARRAY['{root}', gen_random_uuid()]::uuid[]
         FROM scoop.message_event e WHERE e.type = 'EMITTED' AND e.cooperation_lineage[1] = '{root}'",
        root = root.id(),
    ))
    .await;
}

/// A run whose end another program has recorded is stuck.
async fn forged_end(message: impl Message, outcome: &str) -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, root) = at_the_gate(&db, &gate, message).await?;
    db.execute(&format!(
        "INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
         SELECT r.root, r.id, r.lineage, r.message_id, r.topic, r.handler, '{outcome}', now()
         FROM scoop.run r WHERE r.root = '{}'",
        root.id(),
    ))
    .await;
    gate.open(1);
    let run = stuck(&scoop).await?;
    assert!(run.reason.contains("ended_run_pkey"), "{}", run.reason);
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn event_forged_before_the_first_claim_stops_its_own_run_only() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let client = db.client();
    let before = client.launch_all((0..3).map(|_| Work)).await?;
    let root = client.launch(Work).await?;
    let after = client.launch_all((0..3).map(|_| Work)).await?;
    forge_beginning(&db, &root, "worker").await;
    gate.open(6);
    let scoop = start(&db, &gate).await?;
    for other in before.iter().chain(&after) {
        assert_eq!(other.ends().await?, Outcome::Committed);
    }
    let run = stuck(&scoop).await?;
    assert!(run.reason.contains("one_per_handler"), "{}", run.reason);
    others_finish(&scoop, &gate).await?;

    db.execute("DELETE FROM scoop.message_event WHERE type = 'SEEN' AND coroutine_identifier IS NULL").await;
    scoop.operate().failures().retry(run.lineage.id()).await?;
    gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

/// A worker has no such times, and the server cannot calculate with them.
#[tokio::test(flavor = "multi_thread")]
async fn infinite_times_stop_no_other_run() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    start(&db, &gate).await?.shutdown().await?;
    let client = db.client();
    let (past, never) = (client.launch(Work).await?, client.launch(Work).await?);
    for (root, time) in [(&past, "-infinity"), (&never, "infinity")] {
        let update = format!(
            "UPDATE scoop.run SET ready_at = '{time}', give_up_at = 'infinity' WHERE root = '{}'",
            root.id()
        );
        db.execute(&update).await;
    }
    let scoop = start(&db, &gate).await?;
    gate.open(1);
    assert_eq!(past.ends().await?, Outcome::Committed);
    others_finish(&scoop, &gate).await?;
    let tree = never.tree().await?;
    assert_eq!(tree.roots()[0].state, RunState::Pending);
    assert!(tree.to_string().contains("pending, due 9999-12-31T00:00:00.000Z"), "{tree}");
    scoop.shutdown().await?;
    Ok(())
}

/// The times that its own events are written with come from the row.
#[tokio::test(flavor = "multi_thread")]
async fn infinite_time_of_the_last_event_stops_no_other_run() -> Result<()> {
    for time in ["infinity", "-infinity", "294276-12-31 23:59:59.999999Z"] {
        let (db, gate) = (tables().await?, Gate::default());
        let root = db.client().launch(Work).await?;
        db.execute(&format!("UPDATE scoop.run SET last_event_at = '{time}' WHERE root = '{}'", root.id()))
            .await;
        let scoop = start(&db, &gate).await?;
        gate.open(1);
        let ends_or_is_stuck = async || {
            let ended = tokio::time::timeout(Duration::from_millis(50), root.wait()).await;
            ended.is_ok() || scoop.operate().failures().stuck().await.is_ok_and(|runs| runs.len() == 1)
        };
        eventually("it ends, or is stuck", ends_or_is_stuck).await;
        others_finish(&scoop, &gate).await?;
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_the_lineage_of_another_is_stuck_and_listed() -> Result<()> {
    for damage in [
        "lineage = ARRAY[NULL, id]",
        "lineage = ARRAY[root, gen_random_uuid()]",
        "lineage = ARRAY[gen_random_uuid(), id]",
        "parent = gen_random_uuid()",
    ] {
        let (db, gate) = (tables().await?, Gate::default());
        db.drop_rules().await;
        let root = db.client().launch(Work).await?;
        db.execute(&format!("UPDATE scoop.run SET {damage} WHERE root = '{}'", root.id())).await;
        let scoop = start(&db, &gate).await?;
        let run = stuck(&scoop).await?;
        assert_eq!(run.hierarchy(), root.id(), "{damage}");
        others_finish(&scoop, &gate).await?;

        db.execute("UPDATE scoop.run SET lineage = ARRAY[root, id], parent = NULL WHERE state = 'stuck'")
            .await;
        db.execute("DELETE FROM scoop.message_event e WHERE type = 'SEEN' AND EXISTS (SELECT FROM scoop.run r WHERE r.message_id = e.message_id)").await;
        db.execute("UPDATE scoop.run SET epoch = unclaimed_epoch WHERE state = 'stuck'").await;
        scoop.operate().failures().retry(run.lineage.id()).await?;
        gate.open(1);
        assert_eq!(root.ends().await?, Outcome::Committed, "{damage}");
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_its_message_is_stuck_and_listed() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let root = db.client().launch(Work).await?;
    db.execute("UPDATE scoop.run SET message_id = gen_random_uuid() WHERE handler = 'worker'").await;
    let scoop = start(&db, &gate).await?;
    assert_eq!(stuck(&scoop).await?.hierarchy(), root.id());
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

/// A request of a client or of the run above, forged as that of another run.
#[tokio::test(flavor = "multi_thread")]
async fn second_request_to_roll_back_a_message_is_refused_where_it_enters() -> Result<()> {
    let db = tables().await?;
    let root = db.client().launch(Work).await?;
    for (kind, refused) in [("EMITTED", true), ("ROLLBACK_EMITTED", false), ("ROLLBACK_EMITTED", true)] {
        let forged = format!(
            "INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, exception)
             SELECT message_id, '{kind}', gen_random_uuid()::text, ARRAY['{root}', gen_random_uuid()]::uuid[], '{{}}'
             FROM scoop.message_event WHERE type = 'EMITTED'",
            root = root.id(),
        );
        let forged = sqlx::query(sqlx::AssertSqlSafe(forged)).execute(db.pool()).await;
        let refusal = forged.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(refusal.contains("one_per_message"), refused, "{kind}: {refusal}");
    }
    Ok(())
}

/// The rows of all forged failures of rollbacks.
const FAILED: &str = "
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, step, rolling_back, failure, rollback_failure, ready_at, last_event_at,
         epoch)
    SELECT e.cooperation_lineage[1], scoop.run_id(e.cooperation_lineage), e.cooperation_lineage, e.message_id, m.topic,
           coalesce(e.coroutine_name, 'unknown'), 'failed', e.step, true, '{}', e.exception, e.created_at, e.created_at, 1
    FROM scoop.message_event e
    JOIN scoop.message m ON m.id = e.message_id
    WHERE e.type = 'ROLLBACK_FAILED'";

/// Neither a page of nothing else nor a count ends with them.
#[tokio::test(flavor = "multi_thread")]
async fn failed_rollbacks_without_a_record_keep_no_other_from_being_listed() -> Result<()> {
    let db = tables().await?;
    db.drop_rules().await;
    let client = db.client();
    let root = client.launch(Work).await?;
    db.execute(&format!(
        "INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, exception)
         VALUES ('{}', 'ROLLBACK_FAILED', 'one', 'pay', ARRAY['{}', gen_random_uuid()]::uuid[], '{{}}')",
        root.message_id(),
        root.id()
    ))
    .await;
    db.execute(FAILED).await;
    db.execute(
        "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, ready_at, last_event_at)
         SELECT gen_random_uuid(), gen_random_uuid(), '{}', gen_random_uuid(), 'unknown', repeat('x', 255), 'failed', at::timestamptz,
                now()
         FROM unnest('{infinity,infinity,9999-12-31,now,4713-01-01 BC}'::text[]) at",
    )
    .await;
    let mut listed: Vec<scoop::operate::FailedRollback> = vec![];
    loop {
        let page = client.operate().failures().list().limit(2);
        let page = match listed.last() {
            Some(last) => page.after(last).await?,
            None => page.await?,
        };
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    assert_eq!(listed.len(), 6);
    assert_eq!(
        listed.iter().filter(|failed| failed.topic == "unknown" && failed.step == "unknown").count(),
        5
    );
    let one = listed.iter().find(|failed| failed.handler == "one").expect("it is listed");
    assert_eq!((&*one.step, one.hierarchy()), ("pay", root.id()));
    let counts = client.operate().runs().count().await?.unfinished;
    let awaiting = counts.iter().filter(|count| count.phase == scoop::RunPhase::RollbackFailed);
    assert_eq!(awaiting.map(|count| count.count).sum::<usize>(), 6);
    let forged = listed.iter().find(|failed| failed.handler != "one").expect("they are listed");
    assert!(client.operate().failures().retry(forged.id()).await.is_err());
    Ok(())
}

/// A rollback that failed is listed with what can be read of its record.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_failures_are_listed() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    db.drop_rules().await;
    let (scoop, root) = at_the_gate(&db, &gate, Work).await?;
    let nested = format!("'{}{}'", "[".repeat(200), "]".repeat(200));
    let forged = [
        ("NULL", "'one'"),
        ("'7'", "'two'"),
        ("'{\"message\": 7}'", "NULL"),
        ("'{\"type\": 1e400}'", "'three'"),
        (&nested, "'four'"),
    ];
    for (exception, handler) in forged {
        db.execute(&format!(
            "INSERT INTO scoop.message_event
                 (message_id, type, coroutine_name, step, cooperation_lineage, exception)
             SELECT message_id, 'ROLLBACK_FAILED', {handler}, NULL, ARRAY['{root}', gen_random_uuid()]::uuid[], {exception}
             FROM scoop.message_event WHERE type = 'EMITTED' AND cooperation_lineage[1] = '{root}'",
            root = root.id(),
        ))
        .await;
    }
    db.execute(FAILED).await;
    let listed = scoop.operate().failures().list().await?;
    gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(listed.len(), 5);
    assert!(listed.iter().all(|failed| failed.hierarchy() == root.id()));
    assert!(scoop.operate().runs().list().await?.runs.iter().any(|run| run.hierarchy == root.id()));
    let mut events = scoop.operate().events().since(SystemTime::UNIX_EPOCH).follow();
    for _ in 0..forged.len() {
        while events.next().await.expect("a stream has no end")?.kind != scoop::EventKind::RollbackFailed {}
    }
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

/// Counts of attempts whose sum the server cannot compute.
#[tokio::test(flavor = "multi_thread")]
async fn forged_attempts_keep_no_tree_from_being_read() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, root) = at_the_gate(&db, &gate, Work).await?;
    db.execute(&format!(
        "UPDATE scoop.run SET tries.attempts = 2147483647, tries.retries = 1 WHERE root = '{}'",
        root.id()
    ))
    .await;
    let tree = root.tree().await?.to_string();
    assert!(tree.contains("attempt 2147483649"), "{tree}");
    gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
struct Pair;

/// The compensation of both handlers of a pair.
fn undo_one_of_a_pair(is_mended: &AtomicBool) -> Result<()> {
    match is_mended.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(IllegalStateException("it is broken").into()),
    }
}

handler! {
    /// Fails, and so does its compensation until it is mended.
    LeftOfPair { is_mended: Arc<AtomicBool> }: "left-of-pair" on Pair;
    step "begin" begin [rollback = undo] => done();
    step "fail" fail => fails(SIMULATED);

    async fn undo(&self, _: &mut Scope<'_>, _: &Pair, _: &Failure) -> Result<()> {
        undo_one_of_a_pair(&self.is_mended)
    }
}

handler! {
    /// The same.
    RightOfPair { is_mended: Arc<AtomicBool> }: "right-of-pair" on Pair;
    step "begin" begin [rollback = undo] => done();
    step "fail" fail => fails(SIMULATED);

    async fn undo(&self, _: &mut Scope<'_>, _: &Pair, _: &Failure) -> Result<()> {
        undo_one_of_a_pair(&self.is_mended)
    }
}

/// Another program has changed the row of the run of one handler.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_record_of_a_failed_rollback_refuses_its_own_repair_and_no_other() -> Result<()> {
    for (change, what) in
        [("step = NULL", "its row names no step"), ("context = '7'", "its context cannot be decoded")]
    {
        let (db, is_mended) = (Database::new().await, Arc::<AtomicBool>::default());
        let left = LeftOfPair { is_mended: is_mended.clone() };
        let right = RightOfPair { is_mended: is_mended.clone() };
        let builder = db.scoop().only::<LeftOfPair>().provide(left).only::<RightOfPair>().provide(right);
        let scoop = builder.start().await?;
        let root = scoop.launch(Pair).await?;
        assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
        is_mended.store(true, Ordering::SeqCst);
        let run_of = async |handler: &str| -> Result<Uuid> {
            let listed = scoop.operate().failures().list().await?;
            let failed = listed.iter().find(|failed| failed.handler == handler);
            Ok(failed.expect("it is listed").lineage.id())
        };
        let (left, right) = (run_of("left-of-pair").await?, run_of("right-of-pair").await?);

        db.drop_rules().await;
        let intact = "CREATE TABLE intact AS SELECT r.id, r.step, r.context FROM scoop.run r";
        db.execute(&format!("{intact} WHERE handler = 'left-of-pair'")).await;
        db.execute(&format!("UPDATE scoop.run SET {change} WHERE handler = 'left-of-pair'")).await;
        for refused in [
            scoop.operate().failures().retry(left).await,
            scoop.operate().failures().skip(left, "").await,
            scoop.operate().failures().resolve(left, "").await,
        ] {
            let error = refused.expect_err("the record is damaged");
            let expected = format!("the failed rollback of run {left} cannot be repaired: {what}; ");
            assert!(error.is_damaged() && error.to_string().starts_with(&expected), "{error}");
        }
        assert_eq!(scoop.operate().failures().retry(right).await?, RepairAnswer::Accepted);

        let restore = "SET step = intact.step, context = intact.context FROM intact WHERE r.id = intact.id";
        db.execute(&format!("UPDATE scoop.run r {restore}")).await;
        assert_eq!(scoop.operate().failures().retry(left).await?, RepairAnswer::Accepted);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        scoop.shutdown().await?;
    }
    Ok(())
}

/// More workers than the server has room for locks.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_dead_workers_are_reaped_beside_a_living_one() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    db.execute(
        "INSERT INTO scoop.worker (id, lock_key, backend, backend_since, role, topics, handlers, definitions, started_at)
         SELECT gen_random_uuid(), 100000000000 + n, 999999, now(), 10, '{}', '{}', '{}', now()
         FROM generate_series(1, 8000) n",
    )
    .await;
    let scoop = start(&db, &gate).await?;
    assert!(scoop.operate().handlers().workers().await?.iter().any(|worker| worker.is_alive));
    others_finish(&scoop, &gate).await?;
    eventually("all of them are reaped", async || db.number("SELECT count(*) FROM scoop.worker").await == 1)
        .await;
    scoop.shutdown().await?;
    Ok(())
}

/// Counts that overflow, and lists that the server cannot read, in rows of a worker that dies.
#[tokio::test(flavor = "multi_thread")]
async fn forged_attempts_of_a_run_keep_no_other_from_being_taken_over() -> Result<()> {
    for forged in [
        "tries.unknown_attempts = 2147483647, tries.attempts = 1",
        "tries.attempts = 2147483647, tries.retries = 2147483647",
        "tries.attempts = 1, tries.tried_under = '{{1,2},{3,4}}'",
    ] {
        let (db, gate) = (tables().await?, Gate::default());
        let root = in_a_process_that_dies(&db, {
            let (db, gate, forged) = (db.pool().clone(), gate.clone(), forged.to_owned());
            move |builder: scoop::Builder| async move {
                let worker = Worker { gate: gate.clone() };
                let scoop = builder.only::<Worker>().provide(worker).start().await?;
                let roots = scoop.launch_all([Work, Work]).await?;
                gate.arrivals(2).await;
                let forge = format!("UPDATE scoop.run SET {forged} WHERE root = $1");
                let first: Uuid = roots[0].id().into();
                sqlx::query(sqlx::AssertSqlSafe(forge)).bind(first).execute(&db).await?;
                Ok((scoop, roots[1].id()))
            }
        })
        .await?;
        gate.open(10);
        let scoop = start(&db, &gate).await?;
        assert_eq!(scoop.find(root).await?.ends().await?, Outcome::Committed, "{forged}");
        scoop.shutdown().await?;
    }
    Ok(())
}

/// The check of lineages fails on them with an error of another class.
#[tokio::test(flavor = "multi_thread")]
async fn lineage_of_two_dimensions_stops_its_own_run_only() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    db.drop_rules().await;
    db.execute(
        "INSERT INTO scoop.message (id, topic, payload) SELECT gen_random_uuid(), topic, 'null' FROM scoop.handler
         WHERE handler = 'worker';
         INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
         SELECT root, run, ARRAY[ARRAY[root, run]], m.id, m.topic, 'worker', now()
         FROM scoop.message m, gen_random_uuid() root, gen_random_uuid() run",
    )
    .await;
    let scoop = start(&db, &gate).await?;
    others_finish(&scoop, &gate).await?;
    assert_eq!(stuck(&scoop).await?.handler, "worker");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_an_unregistered_owner_goes_on_with_the_next_worker() -> Result<()> {
    for owner in ["gen_random_uuid()", "NULL"] {
        let (db, gate) = (tables().await?, Gate::default());
        db.drop_rules().await;
        let root = db.client().launch(Work).await?;
        db.execute(&format!(
            "UPDATE scoop.run SET state = 'running', owner = {owner} WHERE root = '{}'",
            root.id()
        ))
        .await;
        gate.open(1);
        let scoop = start(&db, &gate).await?;
        assert_eq!(root.ends().await?, Outcome::Committed, "{owner}");
        scoop.shutdown().await?;
    }
    Ok(())
}

/// A client would wait for it for ever.
#[tokio::test(flavor = "multi_thread")]
async fn ended_run_without_a_parent_leaves_the_working_set() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    db.drop_rules().await;
    let root = db.client().launch(Work).await?;
    db.execute(&format!(
        "INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, state, failure, last_event_at)
         SELECT root, gen_random_uuid(), v.parent, lineage, message_id, topic, handler, 'ended', '{{}}', last_event_at
         FROM scoop.run CROSS JOIN (VALUES (NULL), (gen_random_uuid())) AS v (parent) WHERE root = '{}'",
        root.id(),
    ))
    .await;
    gate.open(1);
    let scoop = start(&db, &gate).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    assert_eq!(db.unfinished().await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_of_a_run_is_shown_with_its_own_state() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    db.drop_rules().await;
    let root = db.client().launch(Work).await?;
    db.execute(
        "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, last_event_at)
         SELECT root, gen_random_uuid(), lineage, message_id, topic, handler, 'infinity', last_event_at
         FROM scoop.run WHERE state = 'ready'",
    )
    .await;
    gate.open(1);
    let scoop = start(&db, &gate).await?;
    let tree = root.comes_to(|tree| tree.runs().iter().any(|run| run.state == RunState::Committed)).await?;
    assert!(tree.to_string().contains("pending, due 9999-12-31"), "{tree}");
    scoop.shutdown().await?;
    Ok(())
}

/// By another process that took it for dead, or by hand.
#[tokio::test(flavor = "multi_thread")]
async fn worker_whose_row_is_deleted_registers_again() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, root) = at_the_gate(&db, &gate, Work).await?;
    db.execute("DELETE FROM scoop.worker").await;
    let workers = async || db.number("SELECT count(*) FROM scoop.worker").await == 1;
    eventually("it is registered", workers).await;
    gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

/// Each process reads the rows of all.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_row_of_a_worker_is_refused_or_hurts_no_other() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let scoop = start(&db, &gate).await?;
    let stranger = "INSERT INTO scoop.worker
             (id, lock_key, backend, role, topics, handlers, definitions, started_at, topology)
         SELECT gen_random_uuid(), lock_key, backend, role, {lists}, 'infinity', 9223372036854775807
         FROM scoop.worker LIMIT 1";
    for lists in [
        "'{NULL}', '{x}', '{1}'",
        "'{x}', '{x}', '{NULL}'",
        "'{x}', '{x}', '{}'",
        "'{{x}}', '{x}', '{1}'",
        "'{{x}}', '{{x}}', '{{1}}'",
        "'{x,y}', '{x,y}', '{{1,2}}'",
        "'[2:2]={x}', '{x}', '{1}'",
        "'{x}', '[0:0]={x}', '{1}'",
        "'{x}', '{x}', '[2:2]={1}'",
    ] {
        let refused =
            sqlx::query(sqlx::AssertSqlSafe(stranger.replace("{lists}", lists))).execute(db.pool()).await;
        let refused = refused.expect_err(lists).to_string();
        let has_other_form = lists.contains("{{") || lists.contains('=');
        assert!(!has_other_form || refused.contains("sagas_are_lists"), "{lists}: {refused}");
    }
    db.execute(&stranger.replace("{lists}", "'{x}', '{x}', '{1}'")).await;
    let another = start(&db, &gate).await?;
    scoop.shutdown().await?;
    others_finish(&another, &gate).await?;
    another.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn former_names_in_another_form_are_refused() -> Result<()> {
    let db = tables().await?;
    for was in ["'{{x}}'", "'[2:2]={x}'", "'{NULL}'"] {
        let forged = format!("UPDATE scoop.handler SET was = {was} WHERE handler = 'worker'");
        let refused = sqlx::query(sqlx::AssertSqlSafe(forged)).execute(db.pool()).await;
        let refused = refused.expect_err(was).to_string();
        assert!(refused.contains("former_names_are_a_list") || was.contains("{{"), "{was}: {refused}");
    }
    for was in ["'{}'", "'{x,y}'", "NULL"] {
        db.execute(&format!("UPDATE scoop.handler SET was = {was} WHERE handler = 'worker'")).await;
    }
    Ok(())
}

/// Each process reads these rows of all.
#[tokio::test(flavor = "multi_thread")]
async fn lists_and_texts_beyond_those_of_programs_are_refused() -> Result<()> {
    let db = tables().await?;
    let names = |characters, count| format!("array_fill(repeat('x', {characters}), ARRAY[{count}])");
    let limit = |handlers| {
        format!("INSERT INTO scoop.run_limit (saga, handlers, concurrency) VALUES ('zz', {handlers}, 1)")
    };
    let was = |was| format!("UPDATE scoop.handler SET was = {was} WHERE handler = 'worker'");
    let worker = |topics: &str, handlers: &str| {
        format!(
            "INSERT INTO scoop.worker (id, lock_key, backend, role, topics, handlers, definitions, started_at)
             SELECT gen_random_uuid(), 7, 0, 10, topics, handlers, array_fill(1, ARRAY[cardinality(handlers)]), now()
             FROM (SELECT {topics} AS topics, {handlers} AS handlers) AS lists"
        )
    };
    let pause = |reason, source| {
        let reason = format!("repeat('x', {reason}), repeat('x', {source})");
        format!("INSERT INTO scoop.pause (kind, name, reason, source) VALUES ('topic', 'zz', {reason})")
    };
    let schedule = |cron, zone| {
        format!(
            "INSERT INTO scoop.schedule (topic, handler, cron, zone, missed, overlap, next_at)
             VALUES ('t', 'h', repeat('x', {cron}), repeat('x', {zone}), 'skip', 'skip', 'infinity')"
        )
    };
    let odd = |handlers: &str| limit(format!("'{handlers}'"));
    for (forged, constraint) in [
        (odd("[5:6]={a,b}"), "run_limit_handlers_check"),
        (odd("{{a},{b}}"), "run_limit_handlers_check"),
        (odd("{a,NULL}"), "run_limit_handlers_check"),
        (limit(names(1_000, 1_000)), "names_are_few"),
        (limit(names(1, 1_001)), "names_are_few"),
        (was(names(1_000, 1_000)), "former_names_are_few"),
        (was(names(1, 1_001)), "former_names_are_few"),
        (worker(&names(1, 100_001), &names(1, 100_001)), "sagas_are_not_too_many"),
        (worker(&names(17_000, 1_000), &names(1, 1_000)), "sagas_are_not_too_many"),
        (worker(&names(1, 1_000), &names(17_000, 1_000)), "sagas_are_not_too_many"),
        (pause(1_000_001, 1), "texts_are_short"),
        (pause(1, 1_000_001), "texts_are_short"),
        (schedule(100_001, 3), "texts_are_short"),
        (schedule(9, 1_001), "texts_are_short"),
    ] {
        let refused = sqlx::query(sqlx::AssertSqlSafe(forged.clone())).execute(db.pool()).await;
        let refused = refused.expect_err(&forged).to_string();
        assert!(refused.contains(&format!("\"{constraint}\"")), "{forged}: {refused}");
    }
    // What programs may write.
    db.execute(&limit(names(180, 1_000))).await;
    db.execute(&was(names(180, 1_000))).await;
    db.execute(&worker(&names(63, 20_000), &names(720, 20_000))).await;
    db.execute(&pause(4_000, 4_000)).await;
    db.execute(&schedule(9, 3)).await;
    Ok(())
}

/// The server has no stack for a search in so many levels, and a program reads 127.
#[tokio::test(flavor = "multi_thread")]
async fn failures_of_many_levels_hide_no_other_run_and_no_event() -> Result<()> {
    let db = tables().await?;
    db.drop_rules().await;
    let scoop = db.client();
    let (root, repeated) = (scoop.launch(Work).await?, scoop.launch(Work).await?);
    let nested = |levels: usize| format!("'{}{{}}{}'", "{\"causes\":[".repeat(levels), "]}".repeat(levels));
    let usual = "'{\"type\": \"usual\", \"source\": \"bank\", \"message\": \"closed\"}'".to_owned();
    for (handler, exception) in [("one", nested(6_000)), ("two", nested(70)), ("three", usual)] {
        db.execute(&format!(
            "INSERT INTO scoop.message_event
                 (message_id, type, coroutine_name, step, cooperation_lineage, exception)
             SELECT message_id, 'ROLLBACK_FAILED', '{handler}', 'pay', ARRAY['{root}', gen_random_uuid()]::uuid[], {exception}
             FROM scoop.message_event WHERE type = 'EMITTED' AND cooperation_lineage[1] = '{root}'",
            root = root.id(),
        ))
        .await;
    }
    db.execute(FAILED).await;
    db.execute(&format!(
        "UPDATE scoop.run SET rolling_back = true, failure = '{{}}', rollback_failure = {} WHERE root = '{root}'",
        nested(6_000),
        root = repeated.id(),
    ))
    .await;

    let found = scoop.operate().runs().list().failed_with("usual").await?.runs;
    assert_eq!(found.iter().map(|run| &*run.handler).collect::<Vec<_>>(), ["three"]);
    assert_eq!(scoop.operate().runs().list().failed_with("TooDeep").await?.runs.len(), 3);
    let listed = scoop.operate().failures().list().await?;
    let mut codes: Vec<_> = listed.into_iter().map(|failed| (failed.handler, failed.failure.kind)).collect();
    codes.sort();
    let codes: Vec<_> = codes.iter().map(|(handler, code)| (&**handler, &**code)).collect();
    assert_eq!(codes, [("one", "TooDeep"), ("three", "usual"), ("two", "TooDeep")]);
    let tree = repeated.tree().await?;
    assert_eq!((tree.runs().len(), tree.unreadable().len()), (1, 0), "{tree}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_and_reasons_beyond_those_of_programs_are_cut_in_lists() -> Result<()> {
    let db = tables().await?;
    db.drop_rules().await;
    let scoop = db.client();
    let root = scoop.launch(Work).await?;
    // Little as it is stored; much as it is stored, and little as a text; as large as programs write.
    let random = |rows| format!("(SELECT string_agg(md5(n::text), '') FROM generate_series(1, {rows}) AS n)");
    for (handler, message) in
        [("one", "repeat('x', 3000000)".to_owned()), ("two", random(30_000)), ("three", random(4_000))]
    {
        db.execute(&format!(
            "INSERT INTO scoop.message_event
                 (message_id, type, coroutine_name, step, cooperation_lineage, exception)
             SELECT message_id, 'ROLLBACK_FAILED', '{handler}', 'pay', ARRAY['{root}', gen_random_uuid()]::uuid[],
                    jsonb_build_object('type', 'large', 'source', 'bank', 'message', {message})
             FROM scoop.message_event WHERE type = 'EMITTED' AND cooperation_lineage[1] = '{root}'",
            root = root.id(),
        ))
        .await;
    }
    db.execute(FAILED).await;
    db.execute(
        "UPDATE scoop.run SET state = 'stuck', reason = repeat('x', 1000000) WHERE handler = 'worker'",
    )
    .await;

    let (mut codes, mut sizes) = (vec![], vec![]);
    for failed in scoop.operate().failures().list().await? {
        sizes.push(failed.failure.message.len());
        codes.push((failed.handler, failed.failure.kind));
    }
    codes.sort();
    let of = |handler: &str, code: &str| (handler.to_owned(), code.to_owned());
    let expected = [of("one", "TooLarge"), of("three", "large"), of("two", "TooLarge")];
    assert_eq!(codes, expected);
    sizes.sort_unstable();
    assert!(sizes[1] < 200 && sizes[2] == 128_000, "{sizes:?}");
    let stuck = scoop.operate().failures().stuck().await?.remove(0);
    assert_eq!(stuck.reason, "x".repeat(10_000));

    let (mut codes, mut reasons) = (vec![], vec![]);
    for run in scoop.operate().runs().list().await?.runs {
        codes.extend(run.failure.map(|failure| (run.handler, failure.code)));
        reasons.extend(run.reason);
    }
    codes.sort();
    assert_eq!((codes, reasons), (expected.to_vec(), vec![stuck.reason.clone()]));
    assert!(scoop.operate().runs().explain(stuck.id()).await?.to_string().len() < 20_000);
    assert!(root.tree().await?.to_string().len() < 20_000);

    let (mut codes, mut events) = (vec![], scoop.operate().events().since(SystemTime::UNIX_EPOCH).recorded());
    while let Some(event) = events.next().await {
        let event = event?;
        codes.extend(event.failure.map(|failure| (event.handler.unwrap_or_default(), failure.code)));
    }
    codes.sort();
    assert_eq!(codes, expected);
    let mut events = scoop.operate().events().since(SystemTime::UNIX_EPOCH).without_failures().recorded();
    while let Some(event) = events.next().await {
        assert_eq!(event?.failure, None);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_with_more_failures_than_a_page_may_have_come_once() -> Result<()> {
    let db = tables().await?;
    let scoop = db.client();
    let root = scoop.launch(Work).await?;
    db.execute(&format!(
        "INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, exception)
         SELECT e.message_id, 'SUSPENDED', 'large', ARRAY['{root}', gen_random_uuid()]::uuid[],
                jsonb_build_object('type', 'large', 'source', 'bank', 'message', random.text)
         FROM generate_series(1, 100) AS n, scoop.message_event e,
              (SELECT string_agg(md5(n::text), '') AS text FROM generate_series(1, 4000) AS n) AS random
         WHERE e.type = 'EMITTED' AND e.cooperation_lineage[1] = '{root}'",
        root = root.id(),
    ))
    .await;
    let stored = "SELECT sum(pg_column_size(exception)) FROM scoop.message_event";
    assert!(db.number(stored).await > 2 * 4_194_304);
    let (mut ids, mut events) = (vec![], scoop.operate().events().since(SystemTime::UNIX_EPOCH).recorded());
    while let Some(event) = events.next().await {
        let event = event?;
        ids.extend(event.failure.map(|failure| (event.id, failure.code)));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 100);
    assert!(ids.iter().all(|(_, code)| code == "large"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_that_compress_well_are_left_out_by_the_size_that_readers_get() -> Result<()> {
    let db = tables().await?;
    let scoop = db.client();
    let root = scoop.launch(Work).await?;
    // As programs write it, and as another table has it: compressed to about 9 kB.
    db.execute(&format!(
        "CREATE TABLE another (failure jsonb);
         INSERT INTO another
         SELECT jsonb_build_object('type', 'large', 'source', 'bank', 'message', repeat('x', 750000));
         INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, exception)
         SELECT e.message_id, 'SUSPENDED', 'large', ARRAY['{root}', gen_random_uuid()]::uuid[], failure
         FROM scoop.message_event e,
              (SELECT failure FROM another
               UNION ALL SELECT jsonb_set(failure, '{{source}}', '\"shop\"') FROM another) AS large
         WHERE e.type = 'EMITTED' AND e.cooperation_lineage[1] = '{root}'",
        root = root.id(),
    ))
    .await;
    let compressed =
        "SELECT count(*) FROM scoop.message_event WHERE pg_column_compression(exception) IS NOT NULL";
    assert_eq!(db.number(compressed).await, 1, "programs write no compressed failure");
    let (mut codes, mut events) = (vec![], scoop.operate().events().since(SystemTime::UNIX_EPOCH).recorded());
    while let Some(event) = events.next().await {
        codes.extend(event?.failure.map(|failure| failure.code));
    }
    assert_eq!(codes, ["TooLarge", "TooLarge"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_end_makes_its_run_stuck() -> Result<()> {
    forged_end(Work, "committed").await
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_end_of_a_rollback_makes_its_run_stuck() -> Result<()> {
    forged_end(Child, "rolled_back").await
}

#[tokio::test(flavor = "multi_thread")]
async fn value_beyond_all_numbers_makes_its_run_stuck() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, _) = at_the_gate(&db, &gate, Child).await?;
    db.execute("UPDATE scoop.return_value SET value = '1e400'").await;
    gate.open(1);
    let run = stuck(&scoop).await?;
    assert!(run.reason.contains("out of range"), "{}", run.reason);
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn value_beyond_all_numbers_in_the_working_set_makes_its_run_stuck() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, _) = at_the_gate(&db, &gate, Child).await?;
    assert!(scoop.shutdown_within(Duration::ZERO).await.is_err(), "it was in a step");
    db.execute(r#"UPDATE scoop.run SET outputs = '{"begin": 1e400}'"#).await;
    let scoop = start(&db, &gate).await?;
    let run = stuck(&scoop).await?;
    assert!(run.reason.contains("out of range"), "{}", run.reason);
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_step_in_the_history_makes_its_run_stuck() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, root) = at_the_gate(&db, &gate, Child).await?;
    db.execute(&format!(
        "INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, step)
         SELECT message_id, 'SUSPENDED', coroutine_name, cooperation_lineage, 'nowhere'
         FROM scoop.message_event WHERE type = 'SEEN' AND cooperation_lineage[1] = '{}'",
        root.id(),
    ))
    .await;
    gate.open(1);
    let run = stuck(&scoop).await?;
    assert!(run.reason.contains("`nowhere`"), "{}", run.reason);
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_request_to_cancel_is_carried_out() -> Result<()> {
    for exception in ["NULL", "'\"text\"'", "'{\"message\": 7}'"] {
        let (db, gate) = (tables().await?, Gate::default());
        let root = db.client().launch(Work).await?;
        db.execute(&format!(
            "INSERT INTO scoop.message_event (message_id, type, cooperation_lineage, exception)
             SELECT message_id, 'CANCELLATION_REQUESTED', cooperation_lineage, {exception}
             FROM scoop.message_event WHERE type = 'EMITTED'",
        ))
        .await;
        assert_eq!(db.client().cancel(root.id(), "too late").await?, CancelAnswer::Accepted);
        let scoop = start(&db, &gate).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)), "{exception}");
        others_finish(&scoop, &gate).await?;
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn event_with_an_incomplete_lineage_stops_no_other_run() -> Result<()> {
    for kind in ["SEEN", "SUSPENDED", "COMMITTED", "ROLLED_BACK", "CANCELLATION_REQUESTED"] {
        let (db, gate) = (tables().await?, Gate::default());
        let root = db.client().launch(Work).await?;
        let own = root.id();
        for lineage in ["{}".to_owned(), format!("{{{own}}}"), format!("{{{own},NULL}}"), "{NULL}".to_owned()]
        {
            // Each of them is about a message of its own: a message has most events once.
            sqlx::query(
                "INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
                 VALUES (gen_random_uuid(), $1::scoop.message_event_type, 'worker', $2::text::uuid[])
                 ON CONFLICT DO NOTHING",
            )
            .bind(kind)
            .bind(lineage)
            .execute(db.pool())
            .await?;
        }
        gate.open(1);
        let scoop = start(&db, &gate).await?;
        let ends_or_is_stuck = async || {
            let ended = tokio::time::timeout(Duration::from_millis(50), root.wait()).await;
            ended.is_ok() || scoop.operate().failures().stuck().await.is_ok_and(|runs| runs.len() == 1)
        };
        eventually("it ends, or is stuck", ends_or_is_stuck).await;
        others_finish(&scoop, &gate).await?;
        scoop.shutdown().await?;
    }
    Ok(())
}

/// A committed hierarchy of one run.
async fn committed(db: &Database, gate: &Gate) -> Result<(Scoop, Handle)> {
    let (scoop, root) = at_the_gate(db, gate, Work).await?;
    gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok((scoop, root))
}

/// The result of what ends at all.
async fn ends_soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(50), what).await.expect("it ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_seems_to_have_launched_itself_ends_its_own_requests() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, root) = committed(&db, &gate).await?;
    db.execute(
        "WITH forged AS (
             INSERT INTO scoop.message (id, topic, payload) VALUES (gen_random_uuid(), 'forged', '{}') RETURNING id
         )
         INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, step)
         SELECT forged.id, kind.type::scoop.message_event_type, seen.coroutine_name, seen.cooperation_lineage, kind.step
         FROM scoop.message_event seen, forged, (VALUES ('EMITTED', 'begin'), ('SEEN', NULL)) AS kind (type, step)
         WHERE seen.type = 'SEEN'",
    )
    .await;
    ends_soon(scoop.rollback(root.id(), "tried").dry_run().into_future()).await?;
    assert!(ends_soon(root.tree().into_future()).await?.runs().len() > 1);
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

/// Each run of a level seems to have launched two messages, both of which the run of the next level has handled.
#[tokio::test(flavor = "multi_thread")]
async fn tree_of_messages_with_two_ways_to_each_is_read_once() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, root) = committed(&db, &gate).await?;
    db.execute(
        "WITH levels AS (
             SELECT level, seen.coroutine_name AS handler, seen.cooperation_lineage || ARRAY(
                 SELECT md5('run' || above)::uuid FROM generate_series(1, level) above ORDER BY above) AS lineage
             FROM scoop.message_event seen, generate_series(0, 28) level WHERE seen.type = 'SEEN'
         ),
         messages AS (
             INSERT INTO scoop.message (id, topic, payload)
             SELECT md5('message' || level || '/' || n)::uuid, 'forged', '{}'
             FROM generate_series(1, 28) level, generate_series(1, 2) n
         )
         INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, step)
         SELECT md5('message' || l.level || '/' || n)::uuid, 'SEEN'::scoop.message_event_type, l.handler, l.lineage, NULL
         FROM levels l, generate_series(1, 2) n WHERE l.level > 0
         UNION ALL
         SELECT md5('message' || l.level + 1 || '/' || n)::uuid, 'EMITTED', l.handler, l.lineage, 'begin'
         FROM levels l, generate_series(1, 2) n WHERE l.level < 28",
    )
    .await;
    assert_eq!(ends_soon(root.tree().into_future()).await?.runs().len(), 1 + 2 * 28);
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn status_of_a_message_with_a_chain_of_runs_reads_each_once() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, root) = committed(&db, &gate).await?;
    db.drop_rules().await;
    db.execute(
        "INSERT INTO scoop.run
             (root, id, parent, lineage, message_id, topic, handler, state, rolling_back, rollback_failure, last_event_at, epoch)
         SELECT e.cooperation_lineage[1], md5('run' || n)::uuid, CASE WHEN n > 1 THEN md5('run' || n - 1)::uuid END,
                ARRAY[e.cooperation_lineage[1], md5('run' || n)::uuid], e.message_id, 'forged', 'forged',
                'failed', true, '{}', now(), 5
         FROM scoop.message_event e, generate_series(1, 10000) n WHERE e.type = 'EMITTED'",
    )
    .await;
    assert_eq!(ends_soon(root.status()).await?, Status::Ended(Outcome::Committed));
    others_finish(&scoop, &gate).await?;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn long_texts_of_an_intervention_are_read_in_part() -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let (scoop, root) = committed(&db, &gate).await?;
    db.execute(
        "INSERT INTO scoop.intervention (id, root, run, handler, message_id, kind, reruns_part, note, source, requested_at)
         SELECT gen_random_uuid(), e.cooperation_lineage[1], e.cooperation_lineage[2], e.coroutine_name, e.message_id, 'skip', false,
                repeat('x', 1000000), repeat('y', 1000000), clock_timestamp()
         FROM scoop.message_event e WHERE e.type = 'SEEN'",
    )
    .await;
    let of_tree = root.tree().await?.roots()[0].interventions.clone();
    let of_part = root.tree().events(1).await?.roots()[0].interventions.clone();
    for listed in [of_tree, of_part, scoop.operate().failures().interventions(root.id()).await?] {
        let [forged] = &listed[..] else { panic!("{} interventions", listed.len()) };
        assert_eq!((forged.note.as_ref().map(String::len), forged.source.len()), (Some(10_000), 10_000));
    }
    scoop.shutdown().await?;
    Ok(())
}
