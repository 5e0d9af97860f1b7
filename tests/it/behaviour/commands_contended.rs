//! Decisions about one row by plain steps, with a race and without one, and by commands; and what each way costs.

use std::sync::atomic::{AtomicUsize, Ordering};

use scoop::Decider;

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

const TABLE: &str = "CREATE TABLE bin (units bigint NOT NULL, version bigint NOT NULL DEFAULT 0);
    INSERT INTO bin VALUES (8)";

/// How a step decides about the units in the table `bin`.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Way {
    /// By the row that it has read, which may have changed since.
    Plain,
    /// While it has locked the row.
    Locked,
    /// By what it has read, if the row still has the version that it had then. Otherwise the step is retried.
    Versioned,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "bin.take")]
struct Take {
    way: Way,
    units: i64,
}

#[derive(Debug, thiserror::Error)]
#[error("the row has another version")]
struct Conflict;

handler! {
    Taking { gate: Gate, attempts: Notes }: "taking" on Take;

    #[step(name = "take", retry(max = 20, backoff = "1ms..5ms"))]
    async fn take(&self, scope: &mut Scope<'_>, take: &Take) -> Result<()> {
        let Take { way, units } = *take;
        let is_first = scope.attempt() == 0;
        self.attempts.add(format!("attempt {}", scope.attempt()));
        let tx = scope.tx().await?;
        let read = match way {
            Way::Locked => "SELECT units, version FROM bin FOR UPDATE",
            Way::Plain | Way::Versioned => "SELECT units, version FROM bin",
        };
        let (left, version): (i64, i64) = sqlx::query_as(read).fetch_one(&mut *tx).await?;
        if is_first {
            self.gate.pass().await;
        }
        if units > left {
            return Err(Error::msg("there are not enough units"));
        }
        let write = "UPDATE bin SET units = units - $1, version = version + 1 WHERE $2 OR version = $3";
        let write = sqlx::query(write).bind(units).bind(way != Way::Versioned).bind(version);
        if write.execute(tx).await?.rows_affected() == 0 {
            return Err(Conflict.into());
        }
        Ok(())
    }
}

/// A program whose steps have connections enough, and decide when the gate lets them.
async fn start(db: &Database, gate: &Gate, attempts: &Notes) -> Result<Scoop> {
    sqlx::raw_sql(TABLE).execute(db.pool()).await?;
    let builder = Scoop::builder().postgres(db.another_pool(12).await);
    let taking = Taking { gate: gate.clone(), attempts: attempts.clone() };
    Ok(builder.only::<Taking>().provide(taking).start().await?)
}

async fn units(db: &Database) -> i64 {
    db.number("SELECT units FROM bin").await
}

/// The number of sessions that wait for a lock.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// The example of the seed: reservations of 6 and 5 units of 8.
#[tokio::test(flavor = "multi_thread")]
async fn plain_steps_that_decide_at_the_same_time_sell_more_than_there_is() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate, &Notes::default()).await?;
    let sent = scoop.launch_all([6, 5].map(|units| Take { way: Way::Plain, units })).await?;
    gate.arrivals(2).await;
    gate.open(2);
    for taken in &sent {
        assert_eq!(taken.ends().await?, Outcome::Committed);
    }
    assert_eq!(units(&db).await, -3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_lock_the_row_are_correct_and_each_waits_with_a_connection() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate, &Notes::default()).await?;
    let sent = scoop.launch_all([5, 5, 5].map(|units| Take { way: Way::Locked, units })).await?;
    gate.arrivals(1).await;
    eventually("the others wait for the lock", async || db.number(WAITING).await == 2).await;
    gate.open(3);
    let mut committed = 0;
    for taken in &sent {
        committed += u32::from(taken.ends().await? == Outcome::Committed);
    }
    assert_eq!((committed, units(&db).await), (1, 3));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_compare_versions_are_correct_and_repeat_their_attempts() -> Result<()> {
    let (db, gate, attempts) = (Database::new().await, Gate::default(), Notes::default());
    let scoop = start(&db, &gate, &attempts).await?;
    let sent = scoop.launch_all([2, 2, 2].map(|units| Take { way: Way::Versioned, units })).await?;
    gate.arrivals(3).await;
    gate.open(3);
    for taken in &sent {
        assert_eq!(taken.ends().await?, Outcome::Committed);
    }
    assert_eq!(units(&db).await, 2);
    assert!(attempts.all().len() >= 5, "all have read the same version, and one of them could write");
    Ok(())
}

/// The calls of `decide`.
static DECIDED: AtomicUsize = AtomicUsize::new(0);

#[derive(Default, Serialize, Deserialize)]
struct Bin {
    taken: i64,
}

#[entity(name = "contended-bin", key = u8)]
impl Bin {
    fn taken(&mut self, event: &Taken) {
        self.taken += event.units;
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "contended-bin.taken")]
struct Taken {
    units: i64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct TakeFromBin {
    units: i64,
}

#[command(entity = Bin)]
impl TakeFromBin {
    fn key(&self) -> u8 {
        1
    }

    fn decide(&self, _: &Bin) -> Decision<Taken> {
        DECIDED.fetch_add(1, Ordering::SeqCst);
        Decision::Accepted(Taken { units: self.units })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_decided_once_each_many_in_one_transaction_and_wait_without_a_connection() -> Result<()>
{
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<TakeFromBin>>().start().await?;
    scoop.send(TakeFromBin { units: 1 }).await?.decision().await?;
    let mut other = db.pool().begin().await?;
    sqlx::query("SELECT FROM scoop.entity FOR UPDATE").execute(&mut *other).await?;
    let sent = scoop.launch_all([TakeFromBin { units: 1 }; 50]).await?;
    let executed = "SELECT count(*) FROM scoop.run WHERE state = 'running'";
    eventually("all of them are executed", async || db.number(executed).await == 50).await;
    assert_eq!(db.number(WAITING).await, 0, "none waits for the lock of the entity");
    other.rollback().await?;
    for sent in &sent {
        assert!(sent.decision::<TakeFromBin>().await?.is_accepted());
    }
    assert_eq!(DECIDED.load(Ordering::SeqCst), 51, "none is decided again");
    let transactions = "SELECT count(DISTINCT xmin::text) FROM scoop.entity_event WHERE version > 1";
    let transactions = db.number(transactions).await;
    assert!((1..=10).contains(&transactions), "{transactions} transactions for 50 decisions");
    assert_eq!(scoop.entity::<Bin>(1).await?.state.taken, 51);
    Ok(())
}
