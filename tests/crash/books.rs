//! Whether everything happened exactly once.

use std::collections::BTreeMap;

use scoop::{Error, Result};
use sqlx::PgPool;

use crate::sagas;

/// Checks all effects and all runs; says how many orders were committed and rolled back.
pub(crate) async fn audit(pool: &PgPool, orders: i32) -> Result<(usize, usize)> {
    let mut effects: BTreeMap<i32, BTreeMap<String, i64>> = BTreeMap::new();
    let rows: Vec<(i32, String, i64)> =
        sqlx::query_as("SELECT number, what, count(*) FROM effect GROUP BY 1, 2").fetch_all(pool).await?;
    for (number, what, times) in rows {
        effects.entry(number).or_default().insert(what, times);
    }
    let (mut committed, mut rolled_back) = (0, 0);
    for number in 0..orders {
        let done = effects.remove(&number).unwrap_or_default();
        // Who is cancelled may have got through before that, or may not even have begun.
        let cancelled = sagas::is_cancelled(number) && !done.contains_key("close");
        let undone = sagas::fails(number) || cancelled;
        match undone {
            true => rolled_back += 1,
            false => committed += 1,
        }
        let wrong = match undone {
            true => check_undone(done.clone(), sagas::is_cancelled(number)),
            false => check_done(&done),
        };
        if let Some(wrong) = wrong {
            return Err(Error::msg(format!("order {number}: {wrong}; its effects: {done:?}")));
        }
    }
    check_runs(pool).await?;
    Ok((committed, rolled_back))
}

/// A committed order: each effect exactly once, and no undoing.
fn check_done(done: &BTreeMap<String, i64>) -> Option<String> {
    let expected = ["register", "tidy up", "pack 0", "pack 1", "hand over 0", "hand over 1", "close"];
    let missing = expected.iter().find(|what| done.get(**what) != Some(&1));
    if let Some(what) = missing {
        return Some(format!("`{what}` is not there exactly once"));
    }
    (done.len() != expected.len()).then(|| "there is more than should be".into())
}

/// A rolled-back order: what was done was done once and undone once; and tidied up after, once, if it
/// began.
fn check_undone(mut done: BTreeMap<String, i64>, cancelled: bool) -> Option<String> {
    if let Some((what, times)) = done.iter().find(|(_, times)| **times != 1) {
        return Some(format!("`{what}` happened {times} times"));
    }
    let tidied_up = done.remove("tidy up").is_some();
    if done.contains_key("register") && !tidied_up {
        return Some("nobody tidied up".into());
    }
    let first_steps =
        done.contains_key("register") && done.contains_key("pack 0") && done.contains_key("pack 1");
    let plain = done.keys().filter(|what| !what.starts_with("undo "));
    let not_undone = plain.clone().find(|what| !done.contains_key(&format!("undo {what}")));
    match not_undone {
        Some(what) => Some(format!("`{what}` was not undone")),
        None if done.len() != 2 * plain.count() => Some("something was undone that was not done".into()),
        None => (!first_steps && !cancelled).then(|| "it never began".into()),
    }
}

/// Every run that began has ended in one way, and its events rise strictly in time.
async fn check_runs(pool: &PgPool) -> Result<()> {
    let unended: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM scoop.message_event seen WHERE seen.type = 'SEEN' AND (
             SELECT count(*) FROM scoop.message_event e
             WHERE e.cooperation_lineage = seen.cooperation_lineage AND e.message_id = seen.message_id
               AND e.type IN ('ROLLED_BACK', 'ROLLBACK_FAILED')
                OR e.cooperation_lineage = seen.cooperation_lineage AND e.message_id = seen.message_id
               AND e.type = 'COMMITTED' AND NOT EXISTS (
                   SELECT FROM scoop.message_event turned
                   WHERE turned.type = 'ROLLING_BACK' AND turned.message_id = seen.message_id
                     AND turned.coroutine_name = seen.coroutine_name)
         ) <> 1",
    )
    .fetch_one(pool)
    .await?;
    let out_of_order: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM (
             SELECT created_at - lag(created_at) OVER (PARTITION BY cooperation_lineage ORDER BY created_at)
                 AS gap
             FROM scoop.message_event
         ) gaps WHERE gap <= interval '0'",
    )
    .fetch_one(pool)
    .await?;
    match (unended, out_of_order) {
        (0, 0) => Ok(()),
        _ => Err(Error::msg(format!(
            "{unended} runs ended in no way or in two; {out_of_order} events share a time"
        ))),
    }
}
