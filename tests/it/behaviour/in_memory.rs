//! A hierarchy records the same events in memory as on PostgreSQL, and is archived with the same rows.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scoop::InMemory;
use scoop::requests::RepairAnswer;
use scoop::retention::Retention;
use serde_json::Value;

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

/// The archived lines of a run whose retry failed again, and that an operator has resolved then.
async fn archived(builder: scoop::Builder, grow_older: impl AsyncFn(Duration)) -> Result<Vec<Value>> {
    let lines = Arc::new(Mutex::new(vec![]));
    let shelf = lines.clone();
    let builder = builder.retention(Retention::forever()).only::<Fall>().archive_with(move |batch| {
        let shelf = shelf.clone();
        async move {
            let mut text = vec![];
            batch.write_ndjson(&mut text).await?;
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            shelf.lock().unwrap().extend(lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
            Ok::<_, io::Error>(())
        }
    });
    let scoop = builder.start().await?;
    let fallen = scoop.launch(Vase).await?;
    assert!(matches!(fallen.ends().await?, Outcome::RollbackFailed(_)));
    let failed = scoop.failed_rollbacks().await?.remove(0).id();
    assert_eq!(scoop.retry(failed).source("Ada").await?, RepairAnswer::Accepted);
    fallen.comes_to(|tree| matches!(tree.roots()[0].state, scoop::tree::RunState::RollbackFailed(_))).await?;
    assert_eq!(scoop.resolve(failed, "glued").await?, RepairAnswer::Accepted);
    assert!(matches!(fallen.ends().await?, Outcome::RolledBack(_)));
    grow_older(Duration::from_secs(60 * 24 * 60 * 60)).await;
    assert_eq!(scoop.prune().await?.hierarchies, 1);
    scoop.shutdown().await?;
    let lines = lines.lock().unwrap().clone();
    Ok(lines)
}

/// The archived interventions, with names in place of the ids, and without their times and own ids.
fn interventions(lines: &[Value]) -> Vec<Value> {
    let begun = lines.iter().find(|line| line["type"] == "SEEN").expect("it has begun");
    let ids = [
        (&begun["cooperation_lineage"][0], "the hierarchy"),
        (&begun["cooperation_lineage"][1], "the run"),
        (&begun["message_id"], "the message"),
    ];
    let done = lines.iter().filter(|line| line["table"] == "intervention").cloned();
    let named = done.map(|mut done| {
        for column in ["root", "run", "message_id"] {
            let (_, name) = ids.iter().find(|(id, _)| **id == done[column]).expect("it is an id of the run");
            done[column] = (*name).into();
        }
        for column in ["id", "requested_at"] {
            assert!(done[column].take().is_string(), "{done}");
        }
        done
    });
    named.collect()
}

/// The columns of the archived rows of each table.
fn columns(lines: &[Value], table: &str) -> BTreeSet<String> {
    let rows = lines.iter().filter(|line| line["table"] == table);
    rows.flat_map(|row| row.as_object().expect("it is an object").keys().cloned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_archived_interventions_are_the_same_in_memory() -> Result<()> {
    let (db, memory) = (Database::new().await, InMemory::new());
    let there = archived(db.scoop(), async |by| db.grow_older(by).await).await?;
    let builder = Scoop::builder().in_memory_database(&memory);
    let here = archived(builder, async |by| memory.advance(by)).await?;
    let of_both = [interventions(&there), interventions(&here)];
    assert_eq!(of_both[0].len(), 2, "{there:#?}");
    assert_eq!(of_both[0], of_both[1]);
    for table in ["message_event", "intervention"] {
        let of_both = [columns(&there, table), columns(&here, table)];
        assert!(of_both[0].len() > 5, "{there:#?}");
        assert_eq!(of_both[0], of_both[1], "{table}");
    }
    Ok(())
}
