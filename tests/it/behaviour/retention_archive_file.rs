//! The lock of the file that an archive appends to.

use std::future::IntoFuture as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use scoop::retention::Retention;

use super::*;
use crate::support::{Database, eventually};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "archived-file.order")]
struct Order;

handler! {
    Orders: "archived-file-orders" on Order;
    step "pack" pack => done().silently();
}

/// A file of one line, and a client that archives into it; with an old hierarchy, which is to be archived.
async fn with_a_file(db: &Database, name: &str) -> Result<(PathBuf, std::fs::File, Scoop)> {
    let path = std::env::temp_dir().join(format!("scoop-{name}-{}.ndjson", std::process::id()));
    std::fs::write(&path, "{}\n").unwrap();
    let (file, to) = (std::fs::File::options().append(true).open(&path).unwrap(), path.clone());
    let builder = db.scoop().retention(Retention::forever()).only::<Orders>().archive_with(move |batch| {
        let to = to.clone();
        async move { batch.append_to(to).await.map(drop) }
    });
    let scoop = builder.start().await?;
    scoop.launch(Order).await?.wait().await?;
    db.grow_older(60 * DAY).await;
    Ok((path, file, scoop))
}

/// Waits until the archive has the file open, besides the test. It cannot lock the file before the test unlocks it.
async fn archive_opens(path: &Path) {
    let path = path.canonicalize().unwrap();
    eventually("the archive opens the file", async || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|it| std::fs::read_link(it.path()).is_ok_and(|of| of == path)).count() == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_locked_until_a_failed_archive_has_restored_its_size() -> Result<()> {
    let db = Database::new().await;
    let (path, file, scoop) = with_a_file(&db, "failed-archive").await?;
    // Values are read after the file was opened.
    let mut tx = db.pool().begin().await?;
    sqlx::query("ALTER TABLE scoop.return_value RENAME TO moved").execute(&mut *tx).await?;
    let pruned = tokio::spawn(scoop.operate().retention().prune().into_future());
    let waits =
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'scoop.return_value'::regclass";
    eventually("the archive waits for the table", async || {
        let waits: i64 = sqlx::query_scalar(waits).fetch_one(db.pool()).await.unwrap();
        waits > 0 && file.try_lock().is_err()
    })
    .await;
    tx.commit().await?;
    assert!(pruned.await.unwrap().is_err());
    file.try_lock().expect("the archive has ended");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
    std::fs::remove_file(&path).unwrap();
    db.execute("ALTER TABLE scoop.moved RENAME TO return_value").await;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_appends_at_the_path_after_another_program_has_moved_the_locked_file() -> Result<()> {
    let db = Database::new().await;
    let (path, file, scoop) = with_a_file(&db, "moved-archive").await?;
    file.lock().unwrap();
    let pruned = tokio::spawn(scoop.operate().retention().prune().into_future());
    archive_opens(&path).await;
    let moved = path.with_extension("moved");
    std::fs::rename(&path, &moved).unwrap();
    file.unlock().unwrap();
    assert_eq!(pruned.await.unwrap()?.hierarchies, 1);
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), "{}\n");
    let text = std::fs::read_to_string(&path).unwrap();
    for path in [path, moved] {
        std::fs::remove_file(path).unwrap();
    }
    assert!(text.lines().count() > 3 && text.starts_with('{') && text.ends_with('\n'), "{text}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_appends_after_another_writer_has_released_the_file() -> Result<()> {
    let db = Database::new().await;
    let (path, mut file, scoop) = with_a_file(&db, "locked-archive").await?;
    file.lock().unwrap();
    let mut pruned = pin!(scoop.operate().retention().prune().into_future());
    // It has the time for many of its attempts.
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut pruned).await.is_err());
    file.write_all(b"{\"table\":\"of another writer\"}\n").unwrap();
    file.unlock().unwrap();
    assert_eq!(pruned.await?.hierarchies, 1);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["table"], "of another writer");
    assert!(lines.len() > 4 && text.ends_with('\n'), "{text}");
    scoop.shutdown().await?;
    Ok(())
}
