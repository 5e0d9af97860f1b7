//! The view of unfinished runs, for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use scoop::Handle;
use scoop::pauses::PauseTarget;
use uuid::Uuid;

use super::*;
use crate::support::{Database, Gate};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "runs-view.order")]
struct Order;

#[derive(Default)]
struct Orders;

#[saga(name = "runs-view-orders")]
#[subscribes(Order)]
impl Orders {
    #[step]
    async fn place(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
        scope.launch(Item).await?;
        Ok(())
    }

    #[step]
    async fn end(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "runs-view.item")]
struct Item;

struct Items {
    gate: Gate,
}

#[saga(name = "runs-view-items")]
#[subscribes(Item)]
impl Items {
    #[step]
    async fn take(&self, _: &mut Scope<'_>, _: &Item) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

/// The runs of a hierarchy as the view has them.
async fn shown(connection: impl sqlx::PgExecutor<'_>, of: &Handle) -> Result<Vec<String>> {
    let runs = "
        SELECT concat_ws(', ', saga, state, last_step, CASE WHEN wakes_at > now() THEN 'later' END,
            CASE WHEN since > now() THEN 'not yet' END,
            CASE WHEN deadline > now() THEN 'deadline' END, failed_attempts, reason,
            CASE WHEN worker IS NOT NULL THEN 'has a worker' END, CASE WHEN parent IS NOT NULL THEN 'child' END)
        FROM scoop.runs WHERE hierarchy = $1 ORDER BY saga";
    Ok(sqlx::query_scalar(runs).bind(Uuid::from(of.id())).fetch_all(connection).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_runs_are_shown_in_words_without_ballast() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let builder = db.scoop().only::<Orders>().only::<Items>().provide(Items { gate: gate.clone() });
    let scoop = builder.start().await?;
    let order = scoop.launch(Order).await?;
    gate.arrivals(1).await;
    let hours = |hours: u64| Duration::from_secs(3600 * hours);
    let later = scoop.launch(Item).delay(hours(1)).deadline(hours(2)).await?;
    let of_order =
        ["runs-view-items, running, 0, has a worker, child", "runs-view-orders, waiting, place, 0"];
    assert_eq!(shown(db.pool(), &order).await?, of_order);
    assert_eq!(shown(db.pool(), &later).await?, ["runs-view-items, pending, later, deadline, 0"]);
    assert_eq!(db.number("SELECT count(*) FROM scoop.runs").await, 3);
    let listed = scoop.operate().runs().list().await?.runs;
    assert_eq!(listed.len(), 3);
    for run in listed {
        let of_run = format!("FROM scoop.runs WHERE run = '{}'", run.run);
        let micros = async |column: &str| {
            db.number(&format!("SELECT coalesce(extract(epoch FROM {column}) * 1000000, 0)::bigint {of_run}"))
                .await
        };
        let known =
            |time: SystemTime| i64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros());
        assert_eq!(micros("since").await, known(run.since)?, "{run:?}");
        assert_eq!(micros("wakes_at").await, known(run.wakes_at.unwrap_or(UNIX_EPOCH))?, "{run:?}");
    }
    for (forged, state) in [
        ("epoch = 1", "sleeping, later, deadline, 0"),
        ("epoch = 1, ready_at = now()", "ready, deadline, 0"),
        ("tries = ROW(1, 2, 0, NULL), reason = 'away'", "retrying, later, deadline, 3, away"),
        ("state = 'stuck', ready_at = now(), reason = 'unknown'", "stuck, deadline, 0, unknown"),
        (
            "state = 'failed', rolling_back = true, failure = '{}', rollback_failure = '{}', step = 'undo'",
            "rollback failed, undo, deadline, 0",
        ),
        ("state = 'ended', failure = '{}'", "failed, deadline, 0"),
    ] {
        let mut tx = db.pool().begin().await?;
        let forge = format!("UPDATE scoop.run SET {forged} WHERE root = $1");
        let forge = sqlx::query(sqlx::AssertSqlSafe(forge)).bind(Uuid::from(later.id()));
        forge.execute(&mut *tx).await?;
        assert_eq!(shown(&mut *tx, &later).await?, [format!("runs-view-items, {state}")], "{forged}");
        tx.rollback().await?;
    }
    gate.open(1);
    assert_eq!(order.ends().await?, Outcome::Committed);
    assert_eq!(db.number("SELECT count(*) FROM scoop.runs").await, 1);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_of_a_ready_run_are_shown_with_their_requesters() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let builder = db.scoop().only::<Orders>().only::<Items>().provide(Items { gate: gate.clone() });
    let scoop = builder.start().await?;
    gate.open(1);
    scoop.operate().pauses().pause(PauseTarget::saga::<Items>()).source("ann").reason("stocktaking").await?;
    scoop.operate().pauses().pause(PauseTarget::topic("runs-view.item")).source("bob").await?;
    let item = scoop.launch(Item).await?;
    assert_eq!(db.texts("SELECT paused FROM scoop.runs").await, ["by ann: stocktaking; by bob"]);
    for pause in scoop.operate().pauses().list().await? {
        scoop.operate().pauses().resume(&pause.target).await?;
    }
    assert_eq!(item.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
