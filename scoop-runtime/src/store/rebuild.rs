//! Reads all that is on record, and writes the working set that follows from it.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use scoop_core::{Context, EventKind, read_output_name};
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use time::OffsetDateTime;

use super::Tables;
use super::engine::READ_COMMITTED;
use super::rows::{lineage, time, time_if_any};
use crate::patience::note;
use crate::rebuild::{Listened, Rebuild, Rebuilt, Recorded, Revival, rebuild, root_of};
use crate::repair::Remedy;

/// How many runs are written at once.
const BATCH_MAX: usize = 1_000;

impl Tables {
    /// Makes the working set anew, unless so many processes are alive.
    pub(crate) async fn rebuild(&self) -> sqlx::Result<Result<Rebuild, i64>> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        // Before others have to wait, who may have all other connections.
        let mut reader = self.sessions.lend().await?;
        sqlx::query(self.sql.rebuild_lock.clone()).execute(&mut *tx).await?;
        let alive: i64 = sqlx::query_scalar(self.sql.rebuild_workers.clone()).fetch_one(&mut *tx).await?;
        if alive > 0 {
            return Ok(Err(alive));
        }
        let cleared = sqlx::query(self.sql.rebuild_clear.clone()).execute(&mut *tx).await?;
        let after = self.rebuild_all(&mut tx, &mut reader).await?;
        tx.commit().await.inspect_err(note)?;
        Ok(Ok(Rebuild { before: cleared.rows_affected(), after }))
    }

    /// Hierarchy by hierarchy. What is on record is read on another connection, as it comes.
    async fn rebuild_all(&self, tx: &mut PgConnection, reader: &mut PgConnection) -> sqlx::Result<u64> {
        let topology = sqlx::query(self.sql.rebuild_topology.clone()).fetch_all(&mut *tx).await?;
        let topology = topology.iter().map(read_listened).collect::<sqlx::Result<Vec<_>>>()?;
        let now: OffsetDateTime = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&mut *tx).await?;
        let mut events = sqlx::query(self.sql.rebuild_events.clone()).fetch(reader);
        let (mut hierarchy, mut rebuilt, mut count): (Vec<Recorded>, Vec<Rebuilt>, u64) = Default::default();
        loop {
            let next = events.try_next().await?.map(|row| read_recorded(&row)).transpose()?;
            let ends = match (&next, hierarchy.first()) {
                (Some(next), Some(first)) => root_of(next) != root_of(first),
                (next, _) => next.is_none(),
            };
            if ends {
                let revivals = self.revivals(tx, &hierarchy).await?;
                rebuilt.extend(rebuild(&hierarchy, &revivals, &topology, now));
                hierarchy.clear();
            }
            if rebuilt.len() >= BATCH_MAX || next.is_none() {
                count += self.write_rebuilt(tx, std::mem::take(&mut rebuilt)).await?;
            }
            match next {
                Some(next) => hierarchy.push(next),
                None => return Ok(count),
            }
        }
    }

    /// What operators decided of a hierarchy that something of could not be undone.
    async fn revivals(&self, tx: &mut PgConnection, hierarchy: &[Recorded]) -> sqlx::Result<Vec<Revival>> {
        let Some(failed) = hierarchy.iter().find(|row| row.kind == EventKind::RollbackFailed) else {
            return Ok(vec![]);
        };
        let rows = sqlx::query(self.sql.repair_list.clone()).bind(root_of(failed)).fetch_all(tx).await?;
        let read = |row: &PgRow| {
            let kind: &str = row.try_get("kind")?;
            let resolves = kind == Remedy::Resolve.as_str();
            Ok(Revival { run: row.try_get("run")?, at: time(row, "requested_at")?, resolves })
        };
        rows.iter().map(read).collect()
    }

    async fn write_rebuilt(&self, tx: &mut PgConnection, mut rebuilt: Vec<Rebuilt>) -> sqlx::Result<u64> {
        for run in rebuilt.iter_mut().filter(|run| run.remembers()) {
            let values: Vec<(String, Value)> = sqlx::query_as(self.sql.run_outputs.clone())
                .bind(run.lineage.last())
                .bind(&run.handler)
                .fetch_all(&mut *tx)
                .await?;
            run.replied = values.iter().any(|(name, _)| read_output_name(name).is_none());
            run.outputs = newest_outputs(values);
        }
        let written = sqlx::query(self.sql.rebuild_insert.clone()).bind(Json(&rebuilt)).execute(tx).await?;
        Ok(written.rows_affected())
    }
}

/// What the steps returned, by step; of each the newest.
pub(super) fn newest_outputs(values: Vec<(String, Value)>) -> Option<BTreeMap<String, Value>> {
    let mut numbered: BTreeMap<(u32, String), Value> = BTreeMap::new();
    for (name, value) in values {
        if let Some((step, number)) = read_output_name(&name) {
            numbered.insert((number, step.to_owned()), value);
        }
    }
    let outputs: BTreeMap<_, _> = numbered.into_iter().map(|((_, step), value)| (step, value)).collect();
    Some(outputs).filter(|outputs| !outputs.is_empty())
}

fn read_recorded(row: &PgRow) -> sqlx::Result<Recorded> {
    let kind: String = row.try_get("type")?;
    let kind = EventKind::from_name(&kind)
        .ok_or_else(|| sqlx::Error::Decode(format!("an event of the unknown type `{kind}`").into()))?;
    let context: Option<Json<Context>> = row.try_get("context")?;
    Ok(Recorded {
        lineage: lineage(row)?,
        message: row.try_get("message_id")?,
        kind,
        handler: row.try_get("handler")?,
        topic: row.try_get("topic")?,
        step: row.try_get("step")?,
        jump: row.try_get("jump")?,
        definition: row.try_get("definition")?,
        handling: row.try_get("handling")?,
        exception: row.try_get("exception")?,
        context: context.map(|Json(context)| context).unwrap_or_default(),
        at: time(row, "created_at")?,
        redelivered_at: time_if_any(row, "redelivered_at")?,
    })
}

fn read_listened(row: &PgRow) -> sqlx::Result<Listened> {
    Ok(Listened {
        topic: row.try_get("topic")?,
        handler: row.try_get("handler")?,
        since: time(row, "since")?,
        until: time_if_any(row, "until")?,
        dropped: time_if_any(row, "dropped")?.is_some(),
    })
}

#[cfg(test)]
mod fuzz {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_name_of_an_output_is_read_as_it_was_written(step in "[a-c# ]{0,4}", number in any::<u32>()) {
            let name = scoop_core::output_name(&step, number);
            prop_assert_eq!(read_output_name(&name), Some((&*step, number)));
        }

        #[test]
        fn any_other_name_is_that_of_a_reply(name in "(Output of )?[a#]{0,3}[0-9-]{0,11}") {
            if let Some((step, number)) = read_output_name(&name) {
                let written = name.strip_prefix("Output of ").and_then(|rest| rest.strip_prefix(step));
                let digits = written.and_then(|rest| rest.strip_prefix('#')).unwrap_or_default();
                prop_assert!(digits.ends_with(&number.to_string()));
            }
        }
    }

    #[test]
    fn of_several_outputs_of_a_step_the_newest_counts() {
        let named = |step, number: u32| (scoop_core::output_name(step, number), Value::from(number));
        let values = vec![named("a", 10), named("a", 9), named("b", 1), ("reply".to_owned(), Value::Null)];
        let expected = [("a".to_owned(), Value::from(10)), ("b".to_owned(), Value::from(1))];
        assert_eq!(newest_outputs(values), Some(expected.into()));
        assert_eq!(newest_outputs(vec![("reply".to_owned(), Value::Null)]), None);
    }
}
