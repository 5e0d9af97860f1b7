//! Rows of running hierarchies changed at random: the healthy hierarchies finish, no run is retried without pause, and
//! each changed one ends or is listed.

use std::collections::BTreeSet;
use std::time::Duration;

use scoop::Handle;
use sqlx::AssertSqlSafe;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::*;
use crate::support::{Database, Gate};

/// How many hierarchies are changed, one value in each.
const TAMPERED: u32 = 150;

/// How many follow, which nothing has changed.
const HEALTHY: u32 = 40;

/// How long a changed hierarchy may take to end or to be listed: attempts whose outcome is unknown are repeated.
const PATIENCE: Duration = Duration::from_secs(40);

/// How many transactions an engine with nothing to do may need in [`REST`], all of its tasks together.
const IDLE_TRANSACTIONS: i64 = 100;

/// Longer than the server takes to report transactions.
const REST: Duration = Duration::from_secs(3);

#[derive(Message, Serialize, Deserialize)]
struct Whole {
    number: u32,
}

#[derive(Message, Serialize, Deserialize)]
struct Part {
    number: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Weight(f64);

#[derive(Default)]
struct Assembly;

#[saga(name = "assembly")]
#[subscribes(Whole)]
impl Assembly {
    #[step(rollback = take_apart)]
    async fn order(&self, scope: &mut Scope<'_>, whole: &Whole) -> Result<Weight> {
        scope.tx().await?;
        scope.launch(Part { number: whole.number }).await?;
        Ok(Weight(1.5))
    }

    #[step]
    async fn weigh(&self, _: &mut Scope<'_>, _: &Whole, weight: &Weight) -> Result<Weight> {
        Ok(Weight(weight.0 * 2.0))
    }

    async fn take_apart(&self, _: &mut Scope<'_>, _: &Whole, weight: &Weight, _: &Failure) -> Result<()> {
        assert!(weight.0 > 1.0);
        Ok(())
    }
}

struct Supply {
    gate: Gate,
}

#[saga(name = "supply")]
#[subscribes(Part)]
impl Supply {
    #[step]
    async fn deliver(&self, _: &mut Scope<'_>, part: &Part) -> Result<()> {
        self.gate.pass().await;
        if part.number.is_multiple_of(3) { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

/// The same numbers in each run of the test, so that a failure can be looked into.
struct Dice(u64);

impl Dice {
    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = usize::try_from(self.0 >> 33).expect("31 bits fit") % from.len();
        &from[place]
    }
}

/// Values of a type, most of them unexpected; `{root}` is the hierarchy.
fn values(kind: &str) -> &'static [&'static str] {
    match kind {
        "uuid" => &["NULL", "gen_random_uuid()", "'{root}'"],
        "ARRAY" => &["NULL", "'{}'", "'{NULL}'", "ARRAY['{root}']::uuid[]", "'{1,2,3}'"],
        "character varying" | "text" => &["NULL", "''", "'nowhere'", "'RB(order[0,])'", "repeat('x', 255)"],
        "integer" | "bigint" => &["NULL", "-1", "0", "7", "2147483647"],
        "boolean" => &["NULL", "true", "false"],
        "timestamp with time zone" => &["NULL", "'-infinity'", "'1900-01-01'", "now()"],
        "jsonb" => &["NULL", "'null'", "'7'", "'\"text\"'", "'[]'", "'{}'", "'{\"order\": 1e400}'"],
        _ => &["'SEEN'", "'SUSPENDED'", "'COMMITTED'", "'stuck'", "'ready'", "'waiting'", "'ended'"],
    }
}

/// Changes one value of a hierarchy. Returns the statement, if the tables allow it.
async fn tamper(
    db: &Database,
    dice: &mut Dice,
    columns: &[(String, String, String)],
    root: &Handle,
) -> Option<String> {
    let (table, column, kind) = dice.pick(columns);
    let value = dice.pick(values(kind)).replace("{root}", &root.id().to_string());
    let own = match &**table {
        "message" => "id IN (SELECT message_id FROM scoop.message_event WHERE cooperation_lineage[1] = $1)",
        "run" => "root = $1",
        _ => "cooperation_lineage[1] = $1",
    };
    let row = dice.pick(&[0, 1, 2, 3]);
    let statement = format!(
        "UPDATE scoop.{table} SET {column} = {value} WHERE ctid = (
             SELECT ctid FROM scoop.{table} WHERE {own} ORDER BY ctid LIMIT 1
             OFFSET {row} % greatest((SELECT count(*) FROM scoop.{table} WHERE {own}), 1))",
    );
    let root: Uuid = root.id().into();
    let done = sqlx::query(AssertSqlSafe(statement)).bind(root).execute(db.pool()).await.ok()?;
    (done.rows_affected() == 1).then(|| format!("{table}.{column} = {value}, row {row}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchies_with_changed_rows_end_or_are_listed_and_others_finish() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let builder = db.scoop().only::<Assembly>().only::<Supply>().provide(Supply { gate: gate.clone() });
    let scoop = builder.start().await?;
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns
         WHERE table_schema = 'scoop' AND table_name IN ('message', 'message_event', 'run', 'return_value')
         ORDER BY 1, 2",
    )
    .fetch_all(db.pool())
    .await
    .expect("the tables are there");

    let roots = scoop.launch_all((0..TAMPERED).map(|number| Whole { number })).await?;
    gate.arrivals(TAMPERED).await;
    let mut dice = Dice(24);
    let mut tampered = vec![];
    for root in roots {
        loop {
            if let Some(change) = tamper(&db, &mut dice, &columns, &root).await {
                tampered.push((root, change));
                break;
            }
        }
    }
    gate.open(1_000_000);

    let healthy = scoop.launch_all((0..HEALTHY).map(|number| Whole { number })).await?;
    for (number, root) in (0..HEALTHY).zip(&healthy) {
        let outcome = root.ends().await?;
        let fails = number.is_multiple_of(3);
        assert!(if fails {
            matches!(outcome, Outcome::RolledBack(_))
        } else {
            outcome == Outcome::Committed
        });
    }

    let deadline = Instant::now() + PATIENCE;
    loop {
        let unsettled = unsettled_of(&scoop, &tampered).await;
        if unsettled.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "neither ended nor listed:\n{}", unsettled.join("\n"));
    }
    comes_to_rest(&db).await;
    scoop.shutdown().await?;
    Ok(())
}

/// The changed hierarchies that have not ended, and of which no run is listed.
async fn unsettled_of(scoop: &Scoop, tampered: &[(Handle, String)]) -> Vec<String> {
    let mut listed = BTreeSet::new();
    listed.extend(
        scoop.stuck_runs().limit(1_000).await.expect("a list").iter().map(|run| run.lineage.root_id()),
    );
    let failed = scoop.failed_compensations().limit(1_000).await.expect("a list");
    listed.extend(failed.iter().map(|failed| failed.lineage.root_id()));
    let mut unsettled = vec![];
    for (root, change) in tampered {
        let id: Uuid = root.id().into();
        if !listed.contains(&id) && timeout(Duration::from_millis(50), root.wait()).await.is_err() {
            unsettled.push(format!("{id}: {change}"));
        }
    }
    unsettled
}

/// Returns when the engine is idle. The server reports transactions late, so that the first looks count earlier ones.
async fn comes_to_rest(db: &Database) {
    let transactions =
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let (deadline, mut before) = (Instant::now() + PATIENCE, db.number(transactions).await);
    loop {
        sleep(REST).await;
        let now = db.number(transactions).await;
        if now - before <= IDLE_TRANSACTIONS {
            return;
        }
        assert!(Instant::now() < deadline, "{} transactions in {REST:?}", now - before);
        before = now;
    }
}
