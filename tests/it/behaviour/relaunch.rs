//! The message of a finished hierarchy that is launched again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use scoop::requests::{RelaunchAnswer, RepairAnswer};
use scoop::{Handle, HierarchyId, RunPhase};
use serde_json::json;

use super::*;
use crate::support::{Database, Gate, eventually};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "relaunch.parcel", reply = u32)]
struct Parcel {
    weight: u32,
    #[serde(default)]
    blocks: bool,
}

/// Sends a parcel, unless the road is closed.
#[derive(Clone, Default)]
struct Parcels {
    road_is_open: Arc<AtomicBool>,
    undo_fails: Arc<AtomicBool>,
    sent: Arc<AtomicU32>,
    gate: Gate,
}

#[saga(name = "relaunch-parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step(rollback = unpack)]
    async fn pack(&self, scope: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        scope.reply(parcel, parcel.weight)?;
        Ok(())
    }

    #[step]
    async fn send(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        if parcel.blocks {
            self.gate.pass().await;
        }
        if !self.road_is_open.load(Ordering::SeqCst) {
            return Err(SIMULATED.into());
        }
        self.sent.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn unpack(&self, _: &mut Scope<'_>, _: &Parcel, _: &Failure) -> Result<()> {
        if self.undo_fails.load(Ordering::SeqCst) { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

const PARCEL: Parcel = Parcel { weight: 3, blocks: false };

async fn start(db: &Database, parcels: &Parcels) -> Result<Scoop> {
    Ok(db.scoop().only::<Parcels>().provide(parcels.clone()).start().await?)
}

async fn rolled_back(scoop: &Scoop) -> Result<Handle> {
    let parcel = scoop.launch(PARCEL).await?;
    assert!(matches!(parcel.ends().await?, Outcome::RolledBack(_)));
    Ok(parcel)
}

/// The hierarchy of an accepted request.
fn accepted(answer: RelaunchAnswer) -> HierarchyId {
    match answer {
        RelaunchAnswer::Accepted(hierarchy) => hierarchy,
        answer => panic!("{answer}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_that_was_rolled_back_is_launched_again_and_both_name_each_other() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    let scoop = start(&db, &parcels).await?;
    let old = rolled_back(&scoop).await?;
    parcels.road_is_open.store(true, Ordering::SeqCst);
    let new = accepted(scoop.operate().runs().relaunch(old.id(), "the road is open").source("Ada").await?);
    assert_ne!(new, old.id());
    let found = scoop.find(new).await?;
    assert_eq!(found.ends().await?, Outcome::Committed);
    let (old_tree, new_tree) = (old.tree().await?, found.tree().await?);
    assert_eq!((old_tree.relaunch_of(), old_tree.relaunched_as()), (None, &[new][..]));
    assert_eq!((new_tree.relaunch_of(), new_tree.relaunched_as()), (Some(old.id()), &[][..]));
    assert!(old_tree.to_string().contains(&format!("relaunched as hierarchy {new}")), "{old_tree}");
    assert!(new_tree.to_string().contains(&format!("a relaunch of hierarchy {}", old.id())), "{new_tree}");
    let messages = [&old_tree, &new_tree].map(|tree| tree.roots()[0].message_id);
    assert_ne!(messages[0], messages[1]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn second_relaunch_answers_with_the_first_unless_it_is_made_again() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    let scoop = start(&db, &parcels).await?;
    let old = rolled_back(&scoop).await?;
    parcels.road_is_open.store(true, Ordering::SeqCst);
    let requests = (0..4).map(|_| scoop.operate().runs().relaunch(old.id(), "at once").into_future());
    let mut answers = vec![];
    for answer in futures_util::future::join_all(requests).await {
        answers.push(answer?);
    }
    let is_accepted = |answer: &&RelaunchAnswer| matches!(answer, RelaunchAnswer::Accepted(_));
    let first = accepted(*answers.iter().find(is_accepted).expect("one is"));
    for answer in answers.iter().filter(|answer| !is_accepted(answer)) {
        assert_eq!(*answer, RelaunchAnswer::RelaunchedBefore(first));
    }
    assert_eq!(answers.iter().filter(is_accepted).count(), 1);
    let second = accepted(scoop.operate().runs().relaunch(old.id(), "it was lost").again().await?);
    for new in [first, second] {
        assert_eq!(scoop.find(new).await?.ends().await?, Outcome::Committed);
    }
    assert_eq!(parcels.sent.load(Ordering::SeqCst), 2);
    assert_eq!(old.tree().await?.relaunched_as(), [first, second]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_hierarchy_is_launched_again_only_if_that_is_said() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    parcels.road_is_open.store(true, Ordering::SeqCst);
    let scoop = start(&db, &parcels).await?;
    let old = scoop.launch(PARCEL).await?;
    assert_eq!(old.ends().await?, Outcome::Committed);
    assert_eq!(scoop.operate().runs().relaunch(old.id(), "twice").await?, RelaunchAnswer::Committed);
    let new = accepted(scoop.operate().runs().relaunch(old.id(), "twice").even_if_committed().await?);
    assert_eq!(scoop.find(new).await?.ends().await?, Outcome::Committed);
    assert_eq!(parcels.sent.load(Ordering::SeqCst), 2);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_hierarchy_is_refused_and_a_dry_run_changes_nothing() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    let scoop = start(&db, &parcels).await?;
    let running = scoop.launch(Parcel { blocks: true, ..PARCEL }).await?;
    parcels.gate.arrivals(1).await;
    for request in [
        scoop.operate().runs().relaunch(running.id(), ""),
        scoop.operate().runs().relaunch(running.id(), "").again(),
    ] {
        assert_eq!(request.await?, RelaunchAnswer::StillRunning);
    }
    parcels.gate.open(1);
    assert!(matches!(running.ends().await?, Outcome::RolledBack(_)));
    accepted(scoop.operate().runs().relaunch(running.id(), "").dry_run().await?);
    assert!(running.tree().await?.relaunched_as().is_empty());
    assert_eq!(scoop.operate().runs().list().roots().page(10).await?.runs.len(), 1);
    let error =
        scoop.operate().runs().relaunch(HierarchyId::from(uuid::Uuid::from_u128(7)), "").await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn relaunch_has_another_payload_and_no_deadline_that_has_passed() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    parcels.road_is_open.store(true, Ordering::SeqCst);
    let scoop = start(&db, &parcels).await?;
    let old = scoop.launch(Parcel { blocks: true, ..PARCEL }).deadline(Duration::from_millis(1)).await?;
    parcels.gate.open(9);
    assert!(matches!(old.ends().await?, Outcome::RolledBack(_)));
    let changed = json!({ "weight": 8 });
    let new = accepted(scoop.operate().runs().relaunch(old.id(), "lighter").payload(changed.clone()).await?);
    let found = scoop.find(new).await?;
    assert_eq!(found.ends().await?, Outcome::Committed);
    let runs = scoop.operate().runs().list().state(RunPhase::Committed).page(9).await?.runs;
    let message = scoop.operate().runs().contents(&runs[0]).await?.message.expect("it is kept").to_string();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&message)?, changed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_stays_for_the_operator_beside_its_relaunch() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    parcels.undo_fails.store(true, Ordering::SeqCst);
    let scoop = start(&db, &parcels).await?;
    let old = scoop.launch(PARCEL).await?;
    assert!(matches!(old.ends().await?, Outcome::RollbackFailed(_)));
    parcels.road_is_open.store(true, Ordering::SeqCst);
    let new = accepted(scoop.operate().runs().relaunch(old.id(), "the road is open").await?);
    assert_eq!(scoop.find(new).await?.ends().await?, Outcome::Committed);
    let run = old.tree().await?.roots()[0].id();
    assert_eq!(scoop.operate().failures().resolve(run, "unpacked by hand").await?, RepairAnswer::Accepted);
    assert!(matches!(old.ends().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    Ok(())
}

/// Not twice by accident: also after the new hierarchy is gone.
#[tokio::test(flavor = "multi_thread")]
async fn relaunch_is_known_until_the_old_hierarchy_is_deleted() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    let keep = scoop::retention::Retention::default().every(Duration::from_millis(20));
    let scoop = db.scoop().only::<Parcels>().provide(parcels.clone()).retention(keep).start().await?;
    let old = rolled_back(&scoop).await?;
    parcels.road_is_open.store(true, Ordering::SeqCst);
    let new = accepted(scoop.operate().runs().relaunch(old.id(), "").await?);
    assert_eq!(scoop.find(new).await?.ends().await?, Outcome::Committed);
    db.grow_older(8 * DAY).await;
    eventually("the new one is deleted", async || scoop.find(new).await.is_err()).await;
    assert_eq!(scoop.operate().runs().relaunch(old.id(), "").await?, RelaunchAnswer::RelaunchedBefore(new));
    db.grow_older(60 * DAY).await;
    eventually("the old one is deleted", async || scoop.find(old.id()).await.is_err()).await;
    let error = scoop.operate().runs().relaunch(old.id(), "").await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    scoop.shutdown().await?;
    Ok(())
}

/// It would be executed twice.
#[tokio::test(flavor = "multi_thread")]
async fn message_without_a_handler_is_launched_again_or_redelivered_but_not_both() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    parcels.road_is_open.store(true, Ordering::SeqCst);
    let (first, second) = (db.client().launch(PARCEL).await?, db.client().launch(PARCEL).await?);
    let scoop = start(&db, &parcels).await?;
    let new = accepted(scoop.operate().runs().relaunch(first.id(), "a program has it now").await?);
    assert_eq!(scoop.operate().handlers().redeliver(Parcel::TOPIC).await?.hierarchies, [second.id()]);
    assert_eq!(second.ends().await?, Outcome::Committed);
    assert_eq!(scoop.find(new).await?.ends().await?, Outcome::Committed);
    assert_eq!(
        scoop.operate().runs().relaunch(second.id(), "it was redelivered").await?,
        RelaunchAnswer::Committed
    );
    assert_eq!(parcels.sent.load(Ordering::SeqCst), 2);
    scoop.shutdown().await?;
    Ok(())
}

/// As the command line and the page do it.
#[tokio::test(flavor = "multi_thread")]
async fn all_runs_of_a_list_are_launched_again_page_by_page() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    let scoop = start(&db, &parcels).await?;
    for _ in 0..5 {
        rolled_back(&scoop).await?;
    }
    parcels.road_is_open.store(true, Ordering::SeqCst);
    let (mut place, mut launched) = (None, vec![]);
    loop {
        let page =
            scoop.operate().runs().list().state(RunPhase::RolledBack).roots().page(2).after(place).await?;
        for run in &page.runs {
            assert!(run.requests().eq([scoop::requests::RunRequest::Relaunch]));
            launched
                .push(accepted(scoop.operate().runs().relaunch(run.hierarchy, "the road is open").await?));
        }
        place = page.next;
        if place.is_none() {
            break;
        }
    }
    for new in &launched {
        assert_eq!(scoop.find(*new).await?.ends().await?, Outcome::Committed);
    }
    assert_eq!((launched.len(), parcels.sent.load(Ordering::SeqCst)), (5, 5));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_trees_have_the_queue_time_and_the_duration() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    parcels.road_is_open.store(true, Ordering::SeqCst);
    let scoop = start(&db, &parcels).await?;
    let parcel = scoop.launch(Parcel { blocks: true, ..PARCEL }).await?;
    parcels.gate.arrivals(1).await;
    let [running] = &scoop.operate().runs().list().page(9).await?.runs[..] else { panic!("one run") };
    assert!(running.queue_time.is_some() && running.duration.is_none(), "{running:?}");
    parcels.gate.open(1);
    assert_eq!(parcel.ends().await?, Outcome::Committed);
    let [ended] = &scoop.operate().runs().list().page(9).await?.runs[..] else { panic!("one run") };
    assert_eq!((ended.queued_at, ended.began_at), (running.queued_at, running.began_at));
    let took = ended.duration.expect("it has ended");
    assert_eq!(ended.began_at.map(|at| at + took), Some(ended.since));
    assert!(ended.about().contains("took "), "{}", ended.about());
    let tree = parcel.tree().await?;
    assert_eq!(tree.roots()[0].queue_time, ended.queue_time);
    assert_eq!(scoop.rollback(parcel.id(), "it came back").await?, scoop::requests::RollbackAnswer::Accepted);
    eventually("it is undone", async || {
        let runs = scoop.operate().runs().list().state(RunPhase::RolledBack).page(9).await.unwrap().runs;
        runs.first().is_some_and(|run| run.began_at == ended.began_at && run.duration > Some(took))
    })
    .await;
    scoop.shutdown().await?;
    Ok(())
}
