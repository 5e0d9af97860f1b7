//! The archive of finished hierarchies, which gets them before they are deleted.

use std::error::Error;
use std::fmt;
use std::fs::{Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWrite, AsyncWriteExt, BufWriter};
use uuid::Uuid;

use super::PostgresStore;
use crate::HierarchyId;
use crate::util::retries::{GivenUp, Retries};

/// The number of parts of a hierarchy whose rows are in memory at the same time.
const PARTS_MAX: usize = 200;

/// The longest time that an archive may take for one batch. A worker that is silent for a minute longer loses its turn.
const TIME_MAX: Duration = Duration::from_secs(4 * 60);

/// The interval between two attempts to lock a file.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The number of files that are opened at a path while others replace them.
const REPLACED_MAX: usize = 10;

/// Why hierarchies are not archived.
pub(crate) type ArchiveError = Box<dyn Error + Send + Sync>;

/// The function of the user.
#[derive(Clone)]
pub struct Archive(Arc<dyn Fn(ArchiveBatch) -> BoxFuture<'static, Result<(), ArchiveError>> + Send + Sync>);

/// Finished hierarchies that are about to be deleted: see [`Builder::archive_with`](crate::Builder::archive_with).
#[derive(Clone)]
pub struct ArchiveBatch {
    tables: Arc<PostgresStore>,
    retry_for: Duration,
    hierarchies: Vec<HierarchyId>,
}

impl ArchiveBatch {
    /// The hierarchies.
    pub fn hierarchies(&self) -> &[HierarchyId] {
        &self.hierarchies
    }

    /// Writes all rows of these hierarchies, each as a line of JSON, and flushes. Returns the number of lines.
    ///
    /// A line is an object with the name of a table in `table`, and the columns of a row: of `message`, `message_event`,
    /// `return_value`, and of the tables about repairs, executions and joins. The lines of a hierarchy are together, and
    /// those of a run, the launches before its other events. The rows of 200 runs are in memory at the same time.
    ///
    /// # Errors
    ///
    /// Those of the writer; and if the database fails, an error with the [`RuntimeError`](crate::RuntimeError) in it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the lines may have been written.
    pub async fn write_ndjson(&self, to: &mut (impl AsyncWrite + Unpin + Send)) -> io::Result<u64> {
        let mut count = 0;
        for hierarchy in &self.hierarchies {
            let parts =
                self.read(|tables| async move { tables.archive_parts(hierarchy.uuid()).await }).await?;
            for some in parts.chunks(PARTS_MAX) {
                let lines = self.read(|tables| async move { tables.archive_rows(some).await });
                for mut line in lines.await? {
                    line.push('\n');
                    to.write_all(line.as_bytes()).await?;
                    count += 1;
                }
            }
        }
        to.flush().await?;
        Ok(count)
    }

    /// Appends all rows of these hierarchies to a file, as [`write_ndjson`](Self::write_ndjson) does, and waits until they are
    /// on the disk. Returns the number of lines. The file is created if it is missing.
    ///
    /// If that fails, the file gets its former size. A line that the end of a process has cut off stays, and the next one
    /// begins after it.
    ///
    /// The file is locked meanwhile, so that calls of several programs can append to the same one. Each waits for the one
    /// before it. Lock the file in programs that change it in another way, for example that move its lines elsewhere: on
    /// Unix with `flock`. Such a program may also rename or delete the file while it holds the lock: on Unix, a call that waits for
    /// the lock then opens the path again. On other systems, it recognises another file by its size or the time of its creation.
    ///
    /// # Errors
    ///
    /// Those of the file, also if it cannot be locked; and if the database fails, an error with the [`RuntimeError`](crate::RuntimeError) in it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the lines may have been written.
    pub async fn append_to(&self, path: impl AsRef<Path> + Send) -> io::Result<u64> {
        let mut file = locked(path.as_ref()).await?;
        let size = file.metadata().await?.len();
        if size == 0 {
            // It may be new.
            sync_directory_of(path.as_ref()).await?;
        }
        let appended = self.append(&mut file, size).await;
        if appended.is_err() {
            file.set_len(size).await?;
        }
        appended
    }

    /// Appends to a file of this size.
    async fn append(&self, file: &mut File, size: u64) -> io::Result<u64> {
        let mut writer = BufWriter::new(file);
        if size > 0 {
            writer.seek(io::SeekFrom::End(-1)).await?;
            if writer.get_mut().read_u8().await? != b'\n' {
                writer.write_all(b"\n").await?;
            }
        }
        let count = self.write_ndjson(&mut writer).await?;
        writer.get_mut().sync_all().await?;
        Ok(count)
    }

    async fn read<'a, T: Send, F>(&'a self, mut read: impl FnMut(&'a PostgresStore) -> F) -> io::Result<T>
    where
        F: Future<Output = sqlx::Result<T>> + Send,
    {
        let read = Retries::new(self.retry_for).run(|_| read(&self.tables)).await;
        read.map_err(GivenUp::error("hierarchies were archived")).map_err(io::Error::other)
    }
}

/// Opens a file to append to it, and locks it. Other processes may hold the lock for long: a thread that waits for it would keep
/// the program from its end. The one before may have replaced the file: then the one at the path is locked.
async fn locked(path: &Path) -> io::Result<File> {
    for _ in 0..REPLACED_MAX {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).await?.into_std().await;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_INTERVAL).await,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        let file = File::from_std(file);
        if is_at(&file, path).await? {
            return Ok(file);
        }
    }
    Err(io::Error::other(format!("{} was replaced each time that it was locked", path.display())))
}

/// Whether this file is the one at the path.
async fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match tokio::fs::metadata(path).await {
        Ok(found) => Ok(identity(&file.metadata().await?) == identity(&found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What no two files have in common.
#[cfg(unix)]
fn identity(file: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (file.dev(), file.ino())
}

/// What two files rarely have in common. The standard library knows no more.
#[cfg(not(unix))]
fn identity(file: &Metadata) -> (Option<std::time::SystemTime>, u64) {
    (file.created().ok(), file.len())
}

/// Waits until the name of a file is on the disk, if that is possible. Only on Unix a directory can be opened as a file.
#[cfg(unix)]
async fn sync_directory_of(path: &Path) -> io::Result<()> {
    let path = tokio::fs::canonicalize(path).await?;
    let Some(directory) = path.parent() else { return Ok(()) };
    let synced = async { File::open(directory).await?.sync_all().await };
    match synced.await {
        // Some file systems have no such operation, and a program may append to files in a directory that it cannot list.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::PermissionDenied | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(not(unix))]
async fn sync_directory_of(_: &Path) -> io::Result<()> {
    Ok(())
}

impl fmt::Debug for ArchiveBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveBatch").field("hierarchies", &self.hierarchies).finish_non_exhaustive()
    }
}

impl Archive {
    pub(crate) fn new<F, E>(archive: impl Fn(ArchiveBatch) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<ArchiveError> + 'static,
    {
        Self(Arc::new(move |batch| {
            let archived = archive(batch);
            async move { archived.await.map_err(Into::into) }.boxed()
        }))
    }

    /// Archives hierarchies. A panic is an error, as is a very long time.
    pub async fn take(
        &self,
        tables: &Arc<PostgresStore>,
        retry_for: Duration,
        roots: &[Uuid],
    ) -> Result<(), ArchiveError> {
        let hierarchies = roots.iter().copied().map(HierarchyId::from).collect();
        let batch = ArchiveBatch { tables: tables.clone(), retry_for, hierarchies };
        let archived = AssertUnwindSafe(async { (self.0)(batch).await }).catch_unwind();
        match tokio::time::timeout(TIME_MAX, archived).await {
            Ok(Ok(archived)) => archived,
            Ok(Err(_)) => Err("the archive panicked".into()),
            Err(_) => Err(format!("the archive took longer than {TIME_MAX:?}").into()),
        }
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Archive")
    }
}
