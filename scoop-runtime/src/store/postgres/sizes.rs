//! Reads the sizes of the working set and of the record; see `store_sizes.sql` and `rollback_failure_count.sql`.

use sqlx::Row;

use super::PostgresStore;
use super::query_ext::FetchExt;
use crate::find::CountLimits;
use crate::store::{SizeStorage, StoreSizes};

/// The maximum count of failed rollbacks.
const COUNTED_MAX: usize = 1_000;

impl SizeStorage for PostgresStore {
    async fn sizes(&self) -> sqlx::Result<StoreSizes> {
        let limits = CountLimits { runs: Some(COUNTED_MAX), sagas: None };
        let failed = self.failed_rollback_counts(limits).await?;
        let failed: usize = failed.counts.iter().map(|count| count.count).sum();
        let row = sqlx::query(self.sql.store_sizes.clone()).one(&self.sessions).await?;
        Ok(StoreSizes {
            unfinished_runs: row.try_get("unfinished_runs")?,
            stuck_runs: row.try_get("stuck_runs")?,
            failed_rollbacks: row
                .try_get::<i64, _>("failed_rollbacks")?
                .saturating_add(i64::try_from(failed).unwrap_or(i64::MAX))
                .min(COUNTED_MAX as i64),
            undeletable: row.try_get("undeletable")?,
            working_set_bytes: row.try_get("working_set_bytes")?,
            record_bytes: row.try_get("record_bytes")?,
        })
    }
}
