//! A hierarchy records the same events and interventions in memory as on PostgreSQL.

use std::collections::BTreeMap;

use scoop::InMemory;
use scoop::requests::RepairAnswer;
use scoop::tree::RunState;

use super::*;
use crate::support::{Database, History};

#[derive(Message, Serialize, Deserialize)]
struct Plan {
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
struct Part {
    number: u32,
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
struct Aside;

#[derive(Serialize, Deserialize, scoop::ContextKey)]
#[context(key = "in-memory.tenant")]
struct Tenant(u32);

handler! {
    /// Two parts, one of which fails at first; then a step that is repeated, and at last perhaps a failure.
    Planner: "in-memory-planner" on Plan;
    #[step(rollback = forget, on_child_failure = again)]
    async fn parts(&self, scope: &mut Scope<'_>, _: &Plan) -> Result<u32> {
        scope.set(Tenant(7))?;
        scope.launch(Part { number: 0, fails: false }).await?;
        scope.launch(Part { number: 1, fails: true }).await?;
        Ok(2)
    }

    async fn again(&self, scope: &mut Scope<'_>, _: &Plan, _: &Failure) -> Result<()> {
        scope.launch(Part { number: 1, fails: false }).await?;
        Ok(())
    }

    async fn forget(&self, scope: &mut Scope<'_>, _: &Plan, _: &u32, _: &Failure) -> Result<()> {
        scope.launch(Part { number: 2, fails: false }).await?;
        Ok(())
    }

    #[step(rollback = unsay)]
    async fn say(&self, scope: &mut Scope<'_>, _: &Plan) -> Result<()> {
        scope.detach(Aside).await?;
        Ok(())
    }

    rollback unsay => done();

    #[step]
    async fn end(&self, _: &mut Scope<'_>, plan: &Plan) -> Result<()> {
        if plan.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

handler! {
    Worker: "in-memory-worker" on Part;
    step "begin" begin [rollback = undo] => done();
    rollback undo => done();

    #[step]
    async fn finish(&self, _: &mut Scope<'_>, part: &Part) -> Result<()> {
        if part.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

/// Two hierarchies, one after the other, to their end.
async fn both(builder: scoop::Builder) -> Result<[Outcome; 2]> {
    let scoop = builder.only::<Planner>().only::<Worker>().start().await?;
    let mut outcomes = vec![];
    for fails in [false, true] {
        outcomes.push(scoop.launch(Plan { fails }).await?.ends().await?);
    }
    scoop.shutdown().await?;
    Ok(outcomes.try_into().expect("there were two"))
}

/// The rows of each run in order, and those without a run. The order of two runs is chance.
fn by_run(history: &History) -> BTreeMap<(String, Option<String>), Vec<String>> {
    let mut runs = BTreeMap::<_, Vec<String>>::new();
    for row in history.rows() {
        runs.entry((row.message.clone(), row.handler.clone())).or_default().push(row.to_string());
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_each_run_are_the_same_in_memory() -> Result<()> {
    let (db, memory) = (Database::new().await, InMemory::new());
    let there = both(db.scoop()).await?;
    let here = both(Scoop::builder().in_memory_database(&memory)).await?;
    assert!(matches!(&there, [Outcome::Committed, Outcome::RolledBack(_)]), "{there:?}");
    assert!(matches!(&here, [Outcome::Committed, Outcome::RolledBack(_)]), "{here:?}");
    let (there, here) = (by_run(&db.history().await), by_run(&History::of_log(memory.event_log())));
    assert!(there.len() > 10, "{there:#?}");
    assert_eq!(here, there);
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
struct Vase;

handler! {
    /// It cannot be undone, however often that is tried.
    Fall: "in-memory-fall" on Vase;
    step "drop_it" drop_it [rollback = mend] => done();
    step "fail" fail => fails(SIMULATED);
    rollback mend => fails(SIMULATED);
}

/// The interventions in a run whose retry failed again, and that an operator has resolved then. Without ids and times.
async fn interventions(builder: scoop::Builder) -> Result<Vec<String>> {
    let scoop = builder.only::<Fall>().start().await?;
    let fallen = scoop.launch(Vase).await?;
    assert!(matches!(fallen.ends().await?, Outcome::RollbackFailed(_)));
    let failed = fallen.tree().await?.roots()[0].id();
    let failures = scoop.operate().failures();
    assert_eq!(failures.retry(failed).source("Ada").await?, RepairAnswer::Accepted);
    fallen.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_))).await?;
    assert_eq!(failures.resolve(failed, "glued").await?, RepairAnswer::Accepted);
    assert!(matches!(fallen.ends().await?, Outcome::RolledBack(_)));
    let done = failures.interventions(fallen.id()).await?;
    scoop.shutdown().await?;
    Ok(done.into_iter().map(|it| format!("{it} of {:?} in {}", it.step, it.handler)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn interventions_are_the_same_in_memory() -> Result<()> {
    let there = interventions(Database::new().await.scoop()).await?;
    let here = interventions(Scoop::builder().in_memory()).await?;
    assert_eq!(there.len(), 2, "{there:#?}");
    assert_eq!(here, there);
    Ok(())
}
