//! The rights of the role.
//!
//! A client role writes no table and cannot forge events: it launches and signals through functions of the owner
//! (`scoop.launch`, `scoop.send_signal`). A signal is delivered by workers, since a client could hold the locks of a
//! delivery. A role with write access launches by statements, which are faster and claim for the launching worker. A start
//! lists all missing rights, not only the first one.

use super::query_ext::FetchExt;
use crate::store::PostgresStore;

impl PostgresStore {
    /// Whether the role may write messages and runs itself; otherwise it launches by the function that has the right.
    pub(super) async fn may_write(&self) -> sqlx::Result<bool> {
        let ask = || sqlx::query_scalar(self.sql.role_writes.clone()).one(&self.sessions);
        self.writes.get_or_try_init(ask).await.copied()
    }

    /// The rights that a program with sagas needs, and the role lacks.
    pub async fn lacking_rights(&self) -> sqlx::Result<Vec<String>> {
        sqlx::query_scalar(self.sql.role_lacks.clone()).all(&self.sessions).await
    }
}
