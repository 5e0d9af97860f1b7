//! The archive that gets finished hierarchies before they are deleted.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scoop::requests::RepairAnswer;
use scoop::retention::{ArchiveBatch, Retention};
use scoop::{Builder, Handle};

use super::*;
use crate::support::{Database, eventually};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "archived.order")]
struct Order {
    number: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "archived.note")]
struct Note;

handler! {
    Orders: "archived-orders" on Order;
    step "pack" pack => done().silently();
}

handler! {
    Notes: "archived-notes" on Note;
    step "read" read => done().silently();
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "archived.vase")]
struct Vase;

handler! {
    /// It cannot be undone, however often that is tried.
    Fall: "archived-fall" on Vase;
    step "drop_it" drop_it [rollback = mend] => done();
    step "fail" fail => fails(SIMULATED);
    rollback mend => fails(SIMULATED);
}

/// What an archive has got, and what it refuses.
#[derive(Clone, Default)]
struct Shelf {
    lines: Arc<Mutex<Vec<serde_json::Value>>>,
    is_closed: Arc<AtomicBool>,
    refused: Arc<Mutex<Option<scoop::HierarchyId>>>,
}

impl Shelf {
    async fn put(&self, batch: &ArchiveBatch) -> Result<(), String> {
        let refused = *self.refused.lock().unwrap();
        if self.is_closed.load(Ordering::Relaxed) || batch.hierarchies().iter().any(|id| Some(*id) == refused)
        {
            return Err("no room".into());
        }
        let mut text = vec![];
        let count = batch.write_ndjson(&mut text).await.map_err(|error| error.to_string())?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines: Vec<_> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!(lines.len() as u64, count);
        self.lines.lock().unwrap().extend(lines);
        Ok(())
    }

    fn archives(&self, builder: Builder) -> Builder {
        let shelf = self.clone();
        builder.archive_with(move |batch| {
            let shelf = shelf.clone();
            async move { shelf.put(&batch).await }
        })
    }

    /// The numbers of the archived orders, in the order of their arrival.
    fn orders(&self) -> Vec<u64> {
        let lines = self.lines.lock().unwrap();
        let messages =
            lines.iter().filter(|line| line["table"] == "message" && line["topic"] == "archived.order");
        messages.filter_map(|line| line["payload"]["number"].as_u64()).collect()
    }
}

fn keep() -> Retention {
    Retention::default().every(Duration::from_millis(20))
}

async fn start(db: &Database, shelf: &Shelf) -> Result<Scoop> {
    Ok(shelf.archives(db.scoop().retention(keep()).only::<Orders>()).start().await?)
}

async fn order(scoop: &Scoop, number: u32) -> Result<Handle> {
    let handle = scoop.launch(Order { number }).await?;
    handle.ends().await?;
    Ok(handle)
}

async fn is_deleted(scoop: &Scoop, handle: &Handle) {
    eventually("it is deleted", async || scoop.find(handle.id()).await.is_err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchies_are_archived_before_they_are_deleted() -> Result<()> {
    let (db, shelf) = (Database::new().await, Shelf::default());
    let scoop = start(&db, &shelf).await?;
    let first = order(&scoop, 7).await?;
    db.grow_older(8 * DAY).await;
    is_deleted(&scoop, &first).await;
    assert_eq!(shelf.orders(), [7]);
    let lines = shelf.lines.lock().unwrap().clone();
    let events = lines.iter().filter(|line| line["table"] == "message_event");
    let kinds: Vec<_> = events.map(|line| line["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["EMITTED", "SEEN", "SUSPENDED", "COMMITTED"]);
    assert!(lines.iter().all(|line| line["table"].is_string()));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_of_operators_and_all_failures_are_archived() -> Result<()> {
    let (db, shelf) = (Database::new().await, Shelf::default());
    let builder = shelf.archives(db.scoop().retention(Retention::forever()).only::<Fall>());
    let scoop = builder.start().await?;
    let fallen = scoop.launch(Vase).await?;
    assert!(matches!(fallen.ends().await?, Outcome::RollbackFailed(_)));
    let failed = scoop.operate().failures().list().await?.remove(0).id();
    assert_eq!(scoop.operate().failures().retry(failed).await?, RepairAnswer::Accepted);
    fallen.comes_to(|tree| matches!(tree.roots()[0].state, scoop::tree::RunState::RollbackFailed(_))).await?;
    assert_eq!(scoop.operate().failures().resolve(failed, "glued").await?, RepairAnswer::Accepted);
    eventually("it is settled", async || db.unfinished().await == 0).await;
    db.grow_older(60 * DAY).await;
    assert_eq!(scoop.operate().retention().prune().await?.hierarchies, 1);
    let lines = shelf.lines.lock().unwrap().clone();
    assert_eq!(lines.iter().filter(|line| line["table"] == "intervention").count(), 2);
    assert_eq!(lines.iter().filter(|line| line["type"] == "ROLLBACK_FAILED").count(), 2);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_that_the_archive_refuses_is_kept_while_others_are_deleted() -> Result<()> {
    let (db, shelf) = (Database::new().await, Shelf::default());
    let scoop = start(&db, &shelf).await?;
    let (first, refused, last) = (order(&scoop, 1).await?, order(&scoop, 2).await?, order(&scoop, 3).await?);
    *shelf.refused.lock().unwrap() = Some(refused.id());
    db.grow_older(8 * DAY).await;
    is_deleted(&scoop, &first).await;
    is_deleted(&scoop, &last).await;
    assert!(scoop.find(refused.id()).await.is_ok());
    let listed =
        async || scoop.operate().retention().undeletable().limit(10).await.is_ok_and(|kept| !kept.is_empty());
    eventually("it is listed", listed).await;
    let kept = scoop.operate().retention().undeletable().limit(10).await?.remove(0);
    assert_eq!((kept.hierarchy, &*kept.topic, &*kept.error), (refused.id(), "archived.order", "no room"));
    *shelf.refused.lock().unwrap() = None;
    is_deleted(&scoop, &refused).await;
    let mut orders = shelf.orders();
    orders.sort_unstable();
    assert_eq!(orders, [1, 2, 3]);
    assert_eq!(scoop.operate().retention().undeletable().limit(10).await?, []);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_of_the_archive_keeps_its_hierarchies() -> Result<()> {
    let db = Database::new().await;
    let calls = Arc::new(AtomicBool::default());
    let called = calls.clone();
    let builder = db.scoop().retention(keep()).only::<Orders>().archive_with(move |_| {
        let is_second = called.swap(true, Ordering::Relaxed);
        async move {
            assert!(is_second, "the first time");
            Ok::<_, String>(())
        }
    });
    let scoop = builder.start().await?;
    let handle = order(&scoop, 1).await?;
    db.grow_older(8 * DAY).await;
    is_deleted(&scoop, &handle).await;
    assert!(calls.load(Ordering::Relaxed));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn program_without_an_archive_leaves_hierarchies_to_one_with_it() -> Result<()> {
    let (db, shelf) = (Database::new().await, Shelf::default());
    let scoop = start(&db, &shelf).await?;
    let archived = order(&scoop, 1).await?;
    scoop.shutdown().await?;
    let other = db.scoop().retention(keep()).only::<Notes>().start().await?;
    db.grow_older(8 * DAY).await;
    for _ in 0..3 {
        let note = other.launch(Note).await?;
        note.ends().await?;
        db.grow_older(8 * DAY).await;
        is_deleted(&other, &note).await;
        assert!(other.find(archived.id()).await.is_ok());
    }
    other.shutdown().await?;
    assert!(shelf.orders().is_empty());
    let scoop = start(&db, &shelf).await?;
    is_deleted(&scoop, &archived).await;
    assert_eq!(shelf.orders(), [1]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn call_by_hand_archives_and_returns_the_error_of_the_archive() -> Result<()> {
    let (db, shelf) = (Database::new().await, Shelf::default());
    let builder = shelf.archives(db.scoop().retention(Retention::forever()).only::<Orders>());
    let scoop = builder.start().await?;
    let old = order(&scoop, 1).await?;
    db.grow_older(60 * DAY).await;
    let young = order(&scoop, 2).await?;
    shelf.is_closed.store(true, Ordering::Relaxed);
    let error = scoop.operate().retention().prune().await.unwrap_err();
    let source = error.source().expect("the error of the archive").to_string();
    let expected = format!("1 hierarchy was not archived, and so not deleted: {source}");
    assert_eq!(error.to_string(), expected);
    assert!(scoop.find(old.id()).await.is_ok());
    assert_eq!(scoop.operate().retention().prune().dry_run().await?.hierarchies, 1);
    assert!(shelf.orders().is_empty());

    shelf.is_closed.store(false, Ordering::Relaxed);
    assert_eq!(scoop.operate().retention().prune().await?.hierarchies, 1);
    assert_eq!(shelf.orders(), [1]);
    assert!(scoop.find(old.id()).await.is_err() && scoop.find(young.id()).await.is_ok());
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn file_gets_whole_lines_after_one_that_was_cut_off() -> Result<()> {
    let db = Database::new().await;
    let name = format!("scoop-archive-{}.ndjson", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, "{\"table\":").unwrap();
    let file = path.clone();
    let builder = db.scoop().retention(Retention::forever()).only::<Orders>().archive_with(move |batch| {
        let file = file.clone();
        async move { batch.append_to(file).await.map(drop) }
    });
    let scoop = builder.start().await?;
    order(&scoop, 1).await?;
    db.grow_older(60 * DAY).await;
    assert_eq!(scoop.operate().retention().prune().await?.hierarchies, 1);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "{\"table\":");
    assert!(lines.len() > 4 && text.ends_with('\n'), "{text}");
    for line in &lines[1..] {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    scoop.shutdown().await?;
    Ok(())
}
