//! Reads the sizes of the working set and of the record; see `store_sizes.sql`.

use sqlx::Row;

use super::PostgresStore;
use super::query_ext::FetchExt;
use crate::store::{SizeStorage, StoreSizes};

impl SizeStorage for PostgresStore {
    async fn sizes(&self) -> sqlx::Result<StoreSizes> {
        let row = sqlx::query(self.sql.store_sizes.clone()).one(&self.sessions).await?;
        Ok(StoreSizes {
            unfinished_runs: row.try_get("unfinished_runs")?,
            stuck_runs: row.try_get("stuck_runs")?,
            failed_rollbacks: row.try_get("failed_runs")?,
            unbounded_waits: row.try_get("unbounded_waits")?,
            undeletable: row.try_get("undeletable")?,
            working_set_bytes: row.try_get("working_set_bytes")?,
            record_bytes: row.try_get("record_bytes")?,
        })
    }
}
