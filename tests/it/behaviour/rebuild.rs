//! The working set equals a rebuild from the recorded events (I11), wherever all processes stopped.

use std::time::Duration;

use scoop::{
    CancelAnswer, Handle, HierarchyId, RebuildChange, RepairAnswer, RollbackAnswer, RunDifference, RunState,
    RuntimeError, Tree,
};

use super::*;
use crate::support::{Database, Gate};

/// A hierarchy of four sagas, and its planned faults.
#[derive(Clone, Default, Message, Serialize, Deserialize)]
#[message(topic = "top")]
struct Top {
    top_fails: bool,
    middle_fails: bool,
    middle_cannot_be_undone: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "middle")]
struct Middle {
    fails: bool,
    cannot_be_undone: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bottom")]
struct Bottom;

/// Launched by a compensation.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "repair")]
struct Repair;

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "rebuild.tenant")]
struct Tenant {
    name: String,
    visits: u32,
}

#[derive(Serialize, Deserialize)]
struct Prepared {
    rounds: u32,
}

handler! {
    #[derive(Clone, Default)]
    TopHandler(gate): "top" on Top;
    #[step(rollback = discard)]
    async fn prepare(&self, scope: &mut Scope<'_>, _: &Top) -> Result<scoop::With<TopHandlerStep, Prepared>> {
        self.gate.pass().await;
        let prepared = Prepared { rounds: scope.iteration() };
        let next = if prepared.rounds < 1 { Next::Repeat } else { Next::Continue };
        Ok(next.with(prepared))
    }

    #[step(rollback = undo, on_child_failure = once_more)]
    async fn delegate(&self, scope: &mut Scope<'_>, top: &Top, _: &Prepared) -> Result<()> {
        self.gate.pass().await;
        let mut tenant = scope.get::<Tenant>()?.unwrap_or(Tenant { name: "Northwind".into(), visits: 0 });
        tenant.visits += 1;
        scope.set(tenant)?;
        scope
            .launch(Middle { fails: top.middle_fails, cannot_be_undone: top.middle_cannot_be_undone })
            .await?;
        Ok(())
    }

    #[step]
    async fn finish(&self, _: &mut Scope<'_>, top: &Top) -> Result<()> {
        self.gate.pass().await;
        if top.top_fails { Err(SIMULATED.into()) } else { Ok(()) }
    }

    async fn discard(&self, _: &mut Scope<'_>, _: &Top, _: &Prepared, _: &Failure) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }

    rollback undo => at_gate().then(launches(Repair));

    /// Launches another message at its first call, and fails at the next.
    async fn once_more(&self, scope: &mut Scope<'_>, _: &Top, failure: &Failure) -> Result<()> {
        self.gate.pass().await;
        if scope.handler_iteration() > 0 || !failure.kind.contains("ChildRolledBack") {
            return Err(Error::failure(failure.clone()));
        }
        scope.launch(Middle { fails: true, cannot_be_undone: false }).await?;
        Ok(())
    }
}

#[derive(Clone, Default)]
struct MiddleHandler {
    gate: Gate,
}

#[saga(name = "middle")]
#[subscribes(Middle)]
impl MiddleHandler {
    #[step(rollback = undo)]
    async fn delegate(&self, scope: &mut Scope<'_>, _: &Middle) -> Result<u32> {
        self.gate.pass().await;
        scope.launch(Bottom).await?;
        scope.detach(Bottom).await?;
        Ok(7)
    }

    #[step]
    async fn finish(&self, _: &mut Scope<'_>, middle: &Middle) -> Result<()> {
        self.gate.pass().await;
        if middle.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }

    async fn undo(&self, _: &mut Scope<'_>, middle: &Middle, _: &u32, _: &Failure) -> Result<()> {
        self.gate.pass().await;
        if middle.cannot_be_undone { Err(IllegalStateException("it is stuck").into()) } else { Ok(()) }
    }
}

handler! {
    /// Beside the saga above.
    #[derive(Clone, Default)]
    SideHandler(gate): "side" on Middle;
    step "stand" stand [rollback = undo] => at_gate();

    async fn undo(&self, _: &mut Scope<'_>, middle: &Middle, _: &Failure) -> Result<()> {
        self.gate.pass().await;
        let broken = middle.cannot_be_undone && !middle.fails;
        if broken { Err(IllegalStateException("so is this").into()) } else { Ok(()) }
    }
}

handler! {
    BottomHandler: "bottom" on Bottom;
    step "step" step => done();
}

handler! {
    RepairHandler: "repair" on Repair;
    step "step" step => done();
}

/// The working set without the parts that a rebuild may change. The id of a pending run is not recorded yet.
/// A run whose rollback failed reads its position from the recorded events.
const WORKING_SET: &str = "
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'handler', r.handler, 'topic', r.topic, 'message', r.message_id, 'parent', r.parent,
        'id', CASE WHEN r.epoch > 0 OR r.rollback_requested THEN r.id END,
        'state', CASE WHEN r.state = 'waiting' AND NOT EXISTS (
            SELECT FROM scoop.run c WHERE c.root = r.root AND c.parent = r.id AND c.state <> 'ended')
            THEN 'ready' ELSE r.state END,
        'rollback_requested', r.rollback_requested, 'failure', r.failure, 'rollback_failure', r.rollback_failure)
      || CASE WHEN r.state = 'ended' THEN '{}' ELSE jsonb_build_object(
        'rolling_back', r.rolling_back, 'context', r.context, 'replied', r.replied,
        'giving_up', r.giving_up, 'give_up_at', r.give_up_at,
        'undoing', r.rollback_since IS NOT NULL, 'rollback_failed_before', r.rollback_failed_before,
        'awaits_operator', r.awaits_operator,
        'due', CASE WHEN r.ready_at > now() + interval '10 min' THEN r.ready_at END) END
      || CASE WHEN r.state = 'ended' OR r.rollback_failed_before THEN '{}' ELSE jsonb_build_object(
        'step', r.step, 'jump', r.jump, 'definition', r.definition, 'iteration', r.iteration, 'suspensions', r.suspensions,
        'completions', r.completions, 'execution', r.execution, 'execution_since', r.execution_since,
        'payload_of', r.payload_of,
        'handler_iteration', r.handler_iteration, 'outputs', r.outputs) END)::text
    FROM scoop.run r
    WHERE r.handler <> 'none'
    ORDER BY 1";

/// Asserts that a rebuild changes nothing.
pub(super) async fn is_rebuilt(db: &Database) -> Result<()> {
    let before = db.texts(WORKING_SET).await;
    assert_eq!(differences(db).await?, (vec![], 0));
    let rebuild = Scoop::client(db.pool().clone()).rebuild_working_set().await?;
    let after = db.texts(WORKING_SET).await;
    let counts = [before.len(), after.len()].map(|count| u64::try_from(count).unwrap());
    assert_eq!([rebuild.before, rebuild.after], counts, "{before:#?}\n{after:#?}");
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(
            before,
            after,
            "{:#?}",
            db.texts("SELECT to_jsonb(e)::text FROM scoop.message_event e ORDER BY created_at").await
        );
    }
    Ok(())
}

/// The differences that a comparison reports, and the number that it counts.
async fn differences(db: &Database) -> Result<(Vec<RunDifference>, u64)> {
    let mut different = vec![];
    let compared = db.client().compare_working_set(|difference| different.push(difference)).await?;
    Ok((different, compared.different))
}

/// A program with all sagas; their steps pass this gate.
fn all(db: &Database, gate: &Gate) -> scoop::Builder {
    let gate = || gate.clone();
    let builder = db.scoop().provide(TopHandler { gate: gate() }).provide(MiddleHandler { gate: gate() });
    let builder = builder.provide(SideHandler { gate: gate() });
    let builder = builder.only::<TopHandler>().only::<MiddleHandler>().only::<SideHandler>();
    builder.only::<BottomHandler>().only::<RepairHandler>()
}

fn open() -> Gate {
    let gate = Gate::default();
    gate.open(10_000);
    gate
}

/// Stops everything after so many steps, rebuilds, and goes on.
async fn stopped_after(steps: usize, top: &Top) -> Result<Outcome> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = all(&db, &gate).start().await?;
    let root = scoop.launch(top.clone()).deadline(Duration::from_secs(9_000)).await?;
    for _ in 0..steps {
        gate.arrivals(1).await;
        gate.open(1);
    }
    gate.arrivals(1).await;
    // The gate opens when no new step is begun any more.
    tokio::join!(scoop.shutdown(), async { gate.open(10_000) }).0?;
    is_rebuilt(&db).await?;

    let scoop = all(&db, &gate).start().await?;
    let outcome = scoop.find(root.id()).await?.ends().await?;
    scoop.shutdown().await?;
    is_rebuilt(&db).await?;
    Ok(outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn successful_hierarchy_is_rebuilt_after_every_step() -> Result<()> {
    for steps in 0..7 {
        assert_eq!(stopped_after(steps, &Top::default()).await?, Outcome::Committed);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_rolled_back_at_its_end_is_rebuilt_after_every_step() -> Result<()> {
    let top = Top { top_fails: true, ..Top::default() };
    for steps in 5..12 {
        assert!(matches!(stopped_after(steps, &top).await?, Outcome::RolledBack(_)));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_with_a_handled_failure_is_rebuilt_after_every_step() -> Result<()> {
    let top = Top { middle_fails: true, ..Top::default() };
    for steps in 4..14 {
        assert!(matches!(stopped_after(steps, &top).await?, Outcome::RolledBack(_)));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_with_failed_rollbacks_of_children_is_rebuilt_after_every_step() -> Result<()> {
    let top = Top { top_fails: true, middle_cannot_be_undone: true, ..Top::default() };
    for steps in 6..9 {
        assert!(matches!(stopped_after(steps, &top).await?, Outcome::RollbackFailed(_)));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_with_a_failed_rollback_is_rebuilt_after_every_step() -> Result<()> {
    let top = Top { middle_fails: true, middle_cannot_be_undone: true, ..Top::default() };
    for steps in 5..8 {
        assert!(matches!(stopped_after(steps, &top).await?, Outcome::RollbackFailed(_)));
    }
    Ok(())
}

/// Registers all sagas, but executes only the topmost until the tree meets the condition.
async fn only_top(db: &Database, comes: impl Fn(&Tree) -> bool) -> Result<Handle> {
    all(db, &open()).start().await?.shutdown().await?;
    let scoop = db.start((TopHandler { gate: open() },)).await?;
    let root = scoop.launch(Top::default()).await?;
    root.comes_to(comes).await?;
    scoop.shutdown().await?;
    Ok(Scoop::client(db.pool().clone()).find(root.id()).await?)
}

fn top_waits(tree: &Tree) -> bool {
    tree.roots().iter().any(|run| run.state == RunState::Waiting)
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_deliveries_are_rebuilt() -> Result<()> {
    let db = Database::new().await;
    let root = only_top(&db, top_waits).await?;
    is_rebuilt(&db).await?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE epoch = 0 AND handler <> 'none'").await, 2);

    let client = Scoop::client(db.pool().clone());
    client.launch(Top::default()).delay(Duration::from_secs(9_000)).await?;
    is_rebuilt(&db).await?;

    let _scoop = all(&db, &open()).start().await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_still_gives_up_and_its_dropped_deliveries_stay_away() -> Result<()> {
    let db = Database::new().await;
    let root = only_top(&db, top_waits).await?;
    let client = Scoop::client(db.pool().clone());
    assert_eq!(client.cancel(root.id(), "too late").await?, CancelAnswer::Accepted);
    is_rebuilt(&db).await?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await, 1);

    let _scoop = all(&db, &open()).start().await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(db.number("SELECT count(*) FROM scoop.message_event WHERE coroutine_name = 'side'").await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_rollback_is_rebuilt() -> Result<()> {
    let db = Database::new().await;
    let scoop = all(&db, &open()).start().await?;
    let root = scoop.launch(Top::default()).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    let middle = root.tree().await?.roots()[0].children[0].lineage.id();
    scoop.shutdown().await?;
    is_rebuilt(&db).await?;

    let client = Scoop::client(db.pool().clone());
    assert_eq!(client.rollback(middle, "undo that part").await?, RollbackAnswer::Accepted);
    is_rebuilt(&db).await?;
    assert_eq!(
        db.number(
            "SELECT count(*) FROM scoop.run WHERE rollback_requested AND parent IS NULL AND handler <> 'none'"
        )
        .await,
        2
    );

    let scoop = all(&db, &open()).start().await?;
    let root = scoop.find(root.id()).await?;
    let undone =
        |tree: &Tree| tree.roots()[0].children.iter().all(|run| matches!(run.state, RunState::RolledBack(_)));
    root.comes_to(undone).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn interventions_are_rebuilt() -> Result<()> {
    let db = Database::new().await;
    let scoop = all(&db, &open()).start().await?;
    let cannot = Top { middle_fails: true, middle_cannot_be_undone: true, ..Top::default() };
    let root = scoop.launch(cannot).await?;
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    let failed = scoop.failed_compensations().await?;
    let middle = failed.iter().find(|failed| failed.handler == "middle").expect("it is listed").lineage.id();
    scoop.shutdown().await?;
    is_rebuilt(&db).await?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await, 0);

    let client = Scoop::client(db.pool().clone());
    assert_eq!(client.retry(middle).await?, RepairAnswer::Accepted);
    is_rebuilt(&db).await?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await, 2);

    // It fails again, and is skipped.
    let scoop = all(&db, &open()).start().await?;
    let root = scoop.find(root.id()).await?;
    root.comes_to(|tree| tree.to_string().contains("its rollback failed again")).await?;
    scoop.shutdown().await?;
    is_rebuilt(&db).await?;

    assert_eq!(client.compare_failed_rollbacks().await?.unmatched, vec![]);

    // A second failure without a readable time is named by its own row, not by that of the first failure.
    let failure = db.texts("SELECT id::text FROM scoop.repeated_failure").await.remove(0);
    let failed_at = db.texts("SELECT failed_at::text FROM scoop.repeated_failure").await.remove(0);
    db.execute(
        "ALTER TABLE scoop.repeated_failure DROP CONSTRAINT time_is_of_a_known_year;
         UPDATE scoop.repeated_failure SET failed_at = 'infinity'",
    )
    .await;
    let skipped = client.compare_working_set(|_| ()).await?.skipped.remove(0);
    assert!(skipped.reason.contains(&failure), "{skipped:?}");
    assert!(skipped.reason.contains("`repeated_failure.failed_at`"), "{skipped:?}");
    db.execute(&format!("UPDATE scoop.repeated_failure SET failed_at = '{failed_at}'")).await;

    // Of several failures only the newest is read: no program can read the numbers of this one.
    db.execute(
        r#"INSERT INTO scoop.repeated_failure (root, run, handler, message_id, worker, step, exception, failed_at)
           SELECT root, run, handler, message_id, worker, step, '{"type": 1e400}', failed_at - interval '1 microsecond'
           FROM scoop.repeated_failure"#,
    )
    .await;
    is_rebuilt(&db).await?;

    assert_eq!(client.skip(middle, "").await?, RepairAnswer::Accepted);
    is_rebuilt(&db).await?;

    let scoop = all(&db, &open()).start().await?;
    assert!(matches!(scoop.find(root.id()).await?.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(scoop.failed_compensations().await?.len(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_failed_rollbacks_is_compared_and_rebuilt() -> Result<()> {
    let db = Database::new().await;
    let scoop = all(&db, &open()).start().await?;
    let cannot = Top { top_fails: true, middle_cannot_be_undone: true, ..Top::default() };
    let root = scoop.launch(cannot).await?;
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    let failed = scoop.failed_compensations().await?;
    let side = failed.iter().find(|failed| failed.handler == "side").expect("it is listed").lineage.id();
    scoop.shutdown().await?;
    let client = db.client();
    assert_eq!(client.resolve(side, "").await?, RepairAnswer::Accepted);
    is_rebuilt(&db).await?;
    let rows = async || db.texts("SELECT to_jsonb(f)::text FROM scoop.rollback_failure f ORDER BY 1").await;
    let before = rows().await;
    assert_eq!(before.len(), 2, "{before:?}");
    let compared = client.compare_failed_rollbacks().await?;
    assert_eq!((compared.compared, compared.different), (3, vec![]), "one is settled");

    // One is lost, one is damaged, and one is settled.
    db.execute(
        "DELETE FROM scoop.rollback_failure WHERE handler = 'top';
         UPDATE scoop.rollback_failure SET failed_at = 'infinity' WHERE handler = 'middle';
         INSERT INTO scoop.rollback_failure
         SELECT cooperation_lineage[1], scoop.run_id(cooperation_lineage), cooperation_lineage[1], 2, coroutine_name,
                message_id, created_at
         FROM scoop.message_event WHERE type = 'ROLLED_BACK' AND coroutine_name = 'side'",
    )
    .await;
    let (different, count) = differences(&db).await?;
    assert_eq!((different.len(), count), (3, 3), "{different:?}");
    let compared = client.compare_failed_rollbacks().await?;
    assert_eq!((compared.compared, &compared.different), (3, &different));
    let unlisted = compared.different.iter().filter(|it| it.is_unlisted_failure());
    assert_eq!(unlisted.map(|it| &*it.handler).collect::<Vec<_>>(), ["top"]);
    for difference in &different {
        let RebuildChange::Changed(fields) = &difference.change else { panic!("{difference:?}") };
        let names: Vec<_> = fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["failed_rollback"], "{difference}");
    }
    client.rebuild_working_set().await?;
    assert_eq!(rows().await, before);
    is_rebuilt(&db).await
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_awaiting_an_operator_are_rebuilt() -> Result<()> {
    let db = Database::new().await;
    let scoop = all(&db, &open()).start().await?;
    let cannot = Top { top_fails: true, middle_cannot_be_undone: true, ..Top::default() };
    let root = scoop.launch(cannot).await?;
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    let failed = scoop.failed_compensations().await?;
    let run =
        |handler| failed.iter().find(|failed| failed.handler == handler).expect("it is listed").lineage.id();
    let (middle, side) = (run("middle"), run("side"));
    scoop.shutdown().await?;

    let client = Scoop::client(db.pool().clone());
    assert_eq!(client.skip(middle, "").await?, RepairAnswer::Accepted);
    is_rebuilt(&db).await?;
    for state in ["stuck", "waiting"] {
        let awaiting = format!("SELECT count(*) FROM scoop.run WHERE awaits_operator AND state = '{state}'");
        assert_eq!(db.number(&awaiting).await, 1, "{state}");
    }

    let scoop = all(&db, &open()).start().await?;
    let root = scoop.find(root.id()).await?;
    let middle_is_undone = |tree: &Tree| {
        let mut runs = tree.runs().into_iter();
        runs.any(|run| run.handler == "middle" && matches!(run.state, RunState::RolledBack(_)))
    };
    root.comes_to(middle_is_undone).await?;
    scoop.shutdown().await?;
    is_rebuilt(&db).await?;
    assert_eq!(client.resolve(side, "").await?, RepairAnswer::Accepted);
    is_rebuilt(&db).await?;

    let scoop = all(&db, &open()).start().await?;
    assert!(matches!(scoop.find(root.id()).await?.ends().await?, Outcome::RolledBack(_)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_beside_a_live_worker_is_refused() -> Result<()> {
    let db = Database::new().await;
    let scoop = all(&db, &open()).start().await?;
    let client = Scoop::client(db.pool().clone());
    let refused = client.rebuild_working_set().await;
    assert!(matches!(refused, Err(RuntimeError::WorkersAlive { workers: 1 })), "{refused:?}");
    assert!(matches!(scoop.rebuild_working_set().await, Err(RuntimeError::WorkersAlive { .. })));
    scoop.shutdown().await?;
    client.rebuild_working_set().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_a_rebuild_is_reported_after_each_unfinished_hierarchy() -> Result<()> {
    let db = Database::new().await;
    let scoop = all(&db, &open()).start().await?;
    scoop.launch(Top::default()).await?.ends().await?;
    scoop.shutdown().await?;
    stopped(&db, 3).await?;
    let (sender, told) = std::sync::mpsc::channel();
    let rebuild = db.client().rebuild_working_set();
    rebuild.on_progress(move |it| sender.send((it.hierarchies, it.total)).expect("it is awaited")).await?;
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(1, 3), (2, 3), (3, 3)]);
    Ok(())
}

/// Hierarchies at their gates, in the order of their ids, after all processes have stopped.
async fn stopped(db: &Database, count: usize) -> Result<Vec<Handle>> {
    let gate = Gate::default();
    let scoop = all(db, &gate).start().await?;
    let mut roots = vec![];
    for _ in 0..count {
        roots.push(scoop.launch(Top::default()).await?);
        gate.arrivals(1).await;
    }
    tokio::join!(scoop.shutdown(), async { gate.open(10_000) }).0?;
    roots.sort_by_key(Handle::id);
    Ok(roots)
}

/// A rebuild of five hierarchies of which the second is damaged by this statement, for `{root}`.
async fn damaged_by(statement: &str, reason: &str) -> Result<()> {
    let db = Database::new().await;
    let roots = stopped(&db, 5).await?;
    let damaged = &roots[1];
    db.execute(&statement.replace("{root}", &damaged.id().to_string())).await;
    let before = db.texts(WORKING_SET).await;
    db.execute(&format!("DELETE FROM scoop.run WHERE root <> '{}' AND handler <> 'none'", damaged.id()))
        .await;

    let client = Scoop::client(db.pool().clone());
    let rebuild = client.rebuild_working_set().await?;
    let [skipped] = &rebuild.skipped[..] else { panic!("{rebuild:?}") };
    assert_eq!(skipped.hierarchy, damaged.id());
    assert!(skipped.reason.contains(reason), "{}", skipped.reason);
    assert_eq!((rebuild.before, rebuild.after), (1, 5));
    assert_eq!(db.texts(WORKING_SET).await, before, "the damaged one is as it was, the others are back");

    let scoop = all(&db, &open()).start().await?;
    for root in roots.iter().filter(|root| root.id() != damaged.id()) {
        assert_eq!(scoop.find(root.id()).await?.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn comparison_beside_a_live_worker_finds_the_damaged_runs() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let roots = stopped(&db, 4).await?;
    let scoop = all(&db, &gate).start().await?;
    gate.arrivals(4).await;
    assert_eq!(differences(&db).await?, (vec![], 0));

    let [lost, changed, unreadable] = [&roots[0], &roots[1], &roots[2]].map(|root| root.id());
    db.execute(&format!(
        "DELETE FROM scoop.run WHERE root = '{lost}';
         UPDATE scoop.run SET step = 'other', context = '{{\"a\": 1}}' WHERE root = '{changed}';
         UPDATE scoop.message_event SET created_at = 'infinity' WHERE cooperation_lineage[1] = '{unreadable}';
         INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, epoch, last_event_at, reason)
         SELECT id, message_id, ARRAY[id, message_id], message_id, topic, handler, 'stuck', 1, now(), 'a test'
         FROM scoop.run WHERE root = '{unreadable}'"
    ))
    .await;
    let before = db.texts(WORKING_SET).await;
    let mut different = vec![];
    let compared = db.client().compare_working_set(|difference| different.push(difference)).await?;
    assert_eq!((compared.before, compared.after, compared.different), (3, 3, 3));
    let [skipped] = &compared.skipped[..] else { panic!("{compared:?}") };
    assert!(skipped.hierarchy == unreadable && skipped.reason.contains("outside the years"), "{skipped:?}");
    let of = |root: HierarchyId| different.iter().find(|it| it.hierarchy == root).map(|it| &it.change);
    assert_eq!(of(lost), Some(&RebuildChange::Added));
    let Some(RebuildChange::Changed(fields)) = of(changed) else { panic!("{different:?}") };
    let fields: Vec<_> = fields.iter().map(|field| (&*field.name, field.values.clone())).collect();
    let steps = ["other", "prepare"].map(serde_json::Value::from);
    assert_eq!(fields, [("context", None), ("step", Some(steps))]);
    let orphans = different.iter().filter(|it| it.change == RebuildChange::Removed).count();
    assert_eq!(orphans, 1);
    assert_eq!(db.texts(WORKING_SET).await, before, "nothing has changed");
    tokio::join!(scoop.shutdown(), async { gate.open(10_000) }).0?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_with_an_unreadable_event_keeps_its_runs_and_others_are_rebuilt() -> Result<()> {
    let of_a_step = "type = 'SUSPENDED' AND cooperation_lineage[1] = '{root}'";
    damaged_by(
        &format!("UPDATE scoop.message_event SET created_at = 'infinity' WHERE {of_a_step}"),
        "outside the years 1 to 9999",
    )
    .await?;
    damaged_by(&format!("UPDATE scoop.message_event SET context = '[7]' WHERE {of_a_step}"), "cannot be read")
        .await
}

/// A failure that is larger, or has more levels, than programs write keeps no run from being rebuilt.
#[tokio::test(flavor = "multi_thread")]
async fn failure_beyond_those_of_programs_is_replaced_by_a_rebuild() -> Result<()> {
    let nested = format!("'{}{{}}{}'", "{\"causes\":[".repeat(200), "]}".repeat(200));
    for (failure, code) in
        [("jsonb_build_object('message', repeat('x', 300000))", "TooLarge"), (&nested, "TooDeep")]
    {
        let db = Database::new().await;
        let roots = stopped(&db, 1).await?;
        db.execute(&format!(
            "INSERT INTO scoop.message_event
                 (message_id, type, coroutine_name, step, cooperation_lineage, exception)
             SELECT message_id, 'ROLLING_BACK', coroutine_name, 'delegate', cooperation_lineage, {failure}
             FROM scoop.message_event WHERE type = 'SEEN' AND cooperation_lineage[1] = '{}'",
            roots[0].id(),
        ))
        .await;
        let rebuild = Scoop::client(db.pool().clone()).rebuild_working_set().await?;
        assert!(rebuild.skipped.is_empty() && rebuild.after == 1, "{rebuild:?}");
        let failures = "SELECT failure ->> 'type' FROM scoop.run WHERE handler <> 'none'";
        assert_eq!(db.texts(failures).await, [code]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_with_a_repeated_failure_at_no_time_keeps_its_runs_and_others_are_rebuilt() -> Result<()> {
    damaged_by(
        "ALTER TABLE scoop.repeated_failure DROP CONSTRAINT time_is_of_a_known_year;
         INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, exception)
         SELECT e.message_id, failed.type, e.coroutine_name, 'prepare', e.cooperation_lineage, '{}'
         FROM scoop.message_event e
         CROSS JOIN unnest('{ROLLING_BACK,ROLLBACK_FAILED}'::scoop.message_event_type[]) AS failed (type)
         WHERE e.type = 'SEEN' AND e.cooperation_lineage[1] = '{root}';
         INSERT INTO scoop.repeated_failure (root, run, handler, message_id, worker, step, exception, failed_at)
         SELECT e.cooperation_lineage[1], scoop.run_id(e.cooperation_lineage), e.coroutine_name, e.message_id, 'worker',
                'prepare', '{}', 'infinity'
         FROM scoop.message_event e WHERE e.type = 'ROLLBACK_FAILED'",
        "`repeated_failure.failed_at`",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_failure_of_no_known_year_is_refused() {
    let db = Database::new().await;
    for time in ["infinity", "-infinity", "10000-01-01Z", "0001-01-01Z BC"] {
        let insert = format!(
            "INSERT INTO scoop.repeated_failure (root, run, handler, message_id, worker, step, exception, failed_at)
             VALUES (gen_random_uuid(), gen_random_uuid(), 'top', gen_random_uuid(), 'worker', 'prepare', '{{}}', '{time}')"
        );
        let refused = sqlx::query(sqlx::AssertSqlSafe(insert)).execute(db.pool()).await.expect_err(time);
        assert!(refused.to_string().contains("time_is_of_a_known_year"), "{time}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_whose_runs_the_database_refuses_keeps_them_and_others_are_rebuilt() -> Result<()> {
    damaged_by(
        "ALTER TABLE scoop.run ADD CHECK (root <> '{root}' OR step = 'prepare') NOT VALID;
         UPDATE scoop.message_event SET step = 'other' WHERE type = 'SUSPENDED' AND cooperation_lineage[1] = '{root}'",
        "the database refuses a run",
    )
    .await
}
