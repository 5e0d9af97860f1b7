//! The archive of a program.

use std::error::Error;

use super::builder::Builder;
use crate::store::{Archive, ArchiveBatch};

impl Builder {
    /// Calls a function with finished hierarchies before they are deleted: an archive. They are deleted only after it has
    /// succeeded.
    ///
    /// It gets each hierarchy at least once: again if the process ends, or the database fails, between its success and the
    /// deletion. If it fails, panics, or takes longer than four minutes, its hierarchies stay, a warning is reported, and
    /// others go on. Hierarchies of a failed batch are tried one by one. One that fails alone is tried again after six of
    /// the [intervals](crate::Retention::every), and after each further failure twice as late, up to 32 times;
    /// `operate().retention().undeletable` lists it. After three failures in succession the next attempt is at the next look.
    ///
    /// From the start of this program on, only programs with an archive delete by themselves what begins with a message to
    /// one of its sagas, until a program with that saga starts without one. Give all programs on a database the same archive.
    /// `operate().retention().prune` of this program or client calls it, too, and returns its error; that of
    /// another one deletes without.
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), scoop_runtime::RuntimeError> {
    /// use scoop::Scoop;
    ///
    /// let archive = |batch: scoop::ArchiveBatch| async move {
    ///     batch.append_to("/var/lib/shop/archive.ndjson").await.map(drop)
    /// };
    /// let scoop = Scoop::builder().postgres(pool).archive_with(archive).start().await?;
    /// # scoop.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive_with<F, E>(mut self, archive: impl Fn(ArchiveBatch) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.settings.archive = Some(Archive::new(archive));
        self.settings.retention.is_archived = true;
        self
    }
}
