//! The record of the steps that run at most once, see `step_begin.sql`.

use sqlx::Row;

use super::decode::time;
use super::query_ext::FetchExt;
use crate::store::{BegunStepStorage, ClaimKey, PostgresStore, StepBeginning};

impl BegunStepStorage for PostgresStore {
    async fn begin_step(
        &self,
        key: ClaimKey,
        instance: i32,
        names: &[String],
    ) -> sqlx::Result<Option<StepBeginning>> {
        let begin = sqlx::query(self.sql.step_begin.clone());
        let begin = begin.bind(key.root).bind(key.id).bind(key.epoch).bind(instance).bind(names);
        let Some(row) = begin.first(&self.sessions).await? else {
            return Ok(None);
        };
        let begins: bool = row.try_get("begins")?;
        Ok(Some(if begins { StepBeginning::Now } else { StepBeginning::Before(time(&row, "begun_at")?) }))
    }
}
