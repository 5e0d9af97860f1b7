//! The record of the steps that run at most once, see `step_begin.sql`.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::decode::time;
use super::query_ext::FetchExt;
use crate::store::{BegunStep, BegunStepStorage, ClaimKey, PostgresStore, StepBeginning};

impl BegunStepStorage for PostgresStore {
    async fn begin_step(
        &self,
        key: ClaimKey,
        completed: i32,
        step: &str,
    ) -> sqlx::Result<Option<StepBeginning>> {
        let begin = sqlx::query(self.sql.step_begin.clone());
        let begin = begin.bind(key.root).bind(key.id).bind(key.epoch).bind(completed).bind(step);
        let Some(row) = begin.first(&self.sessions).await? else {
            return Ok(None);
        };
        let begins: bool = row.try_get("begins")?;
        Ok(Some(if begins { StepBeginning::Now } else { StepBeginning::Before(begun_step(&row)?) }))
    }

    async fn find_begun_step(&self, key: ClaimKey, completed: i32) -> sqlx::Result<Option<BegunStep>> {
        let find = sqlx::query(self.sql.step_find_begun.clone()).bind(key.id).bind(completed);
        find.first(&self.sessions).await?.map(|row| begun_step(&row)).transpose()
    }
}

fn begun_step(row: &PgRow) -> sqlx::Result<BegunStep> {
    Ok(BegunStep { step: row.try_get("step")?, at: time(row, "begun_at")? })
}
