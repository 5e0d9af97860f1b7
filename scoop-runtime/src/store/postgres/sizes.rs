//! Reads the sizes of the working set and of the record; see `store_sizes.sql` and `rollback_failure_count.sql`.

use sqlx::Row;

use super::PostgresStore;
use super::query_ext::FetchExt;
use crate::find::CountLimits;
use crate::store::{SizeStorage, StoreSizes};

impl SizeStorage for PostgresStore {
    async fn sizes(&self) -> sqlx::Result<StoreSizes> {
        let limits = CountLimits { runs: Some(StoreSizes::COUNTED_MAX), sagas: None };
        let failed = self.failed_rollback_counts(limits).await?;
        let failed_once: usize = failed.counts.iter().map(|count| count.count).sum();
        let row = sqlx::query(self.sql.store_sizes.clone()).one(&self.sessions).await?;
        Ok(StoreSizes {
            unfinished_runs: row.try_get("unfinished_runs")?,
            stuck_runs: row.try_get("stuck_runs")?,
            failed_rollbacks: row
                .try_get::<i64, _>("awaiting_operator")?
                .saturating_add(i64::try_from(failed_once).unwrap_or(i64::MAX))
                .min(StoreSizes::COUNTED_MAX as i64),
            undeletable: row.try_get("undeletable")?,
            working_set_bytes: row.try_get("working_set_bytes")?,
            record_bytes: row.try_get("record_bytes")?,
        })
    }
}
