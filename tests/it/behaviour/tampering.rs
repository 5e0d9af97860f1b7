//! Rows of running hierarchies changed, copied and deleted at random: the healthy hierarchies finish, no run is retried
//! without pause, nothing panics, and each damaged one ends or is shown.
//!
//! The rows are those of the protocol and of the working set; `registered` damages those of sagas and processes, and
//! `operators` those of repairs and redeliveries.
//! The tables are as in production, without the rules that the other tests add to `run`.

mod operators;
mod registered;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use scoop::Handle;
use sqlx::AssertSqlSafe;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::*;
use crate::support::{Database, Gate};

/// The seeds of a usual run. Another one is set by the variable `TAMPERING_SEED`.
const SEEDS: [u64; 2] = [24, 25];

/// How many hierarchies are damaged before the engine starts, and how many while they are executed: one row in each.
const TAMPERED: [u32; 2] = [60, 90];

/// How many follow that are not damaged.
const HEALTHY: u32 = 40;

/// How long a damaged hierarchy may take to end or to be listed: attempts whose outcome is unknown are repeated.
const RETRY_FOR: Duration = Duration::from_secs(40);

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

#[derive(Debug, Message, Serialize, Deserialize)]
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

    async fn take_apart(&self, _: &mut Scope<'_>, _: &Whole, _: &Weight, _: &Failure) -> Result<()> {
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

handler! {
    /// A saga of a process that has nothing to do.
    Idle: "idle" on Weight;
    step "nothing" nothing => done();
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
        "integer" | "oid" => &["NULL", "-1", "0", "7", "2147483647"],
        "bigint" => &["NULL", "-1", "0", "7", "2147483647", "9223372036854775807"],
        "boolean" => &["NULL", "true", "false"],
        "timestamp with time zone" => &[
            "NULL",
            "now()",
            "'-infinity'",
            "'4713-01-01 BC'",
            "'1900-01-01'",
            "'9999-12-31'",
            "'294276-01-01'",
            "'294276-12-31 23:59:59.999999Z'",
            "'infinity'",
        ],
        "jsonb" => &["NULL", "'null'", "'7'", "'\"text\"'", "'[]'", "'{}'", "'{\"order\": 1e400}'"],
        // a label of an enumeration, or a value of several fields: what another type refuses is drawn again
        _ => &[
            "'SEEN'",
            "'SUSPENDED'",
            "'COMMITTED'",
            "'stuck'",
            "'ready'",
            "'waiting'",
            "'ended'",
            "NULL",
            "'(,)'",
            "'(,,)'",
            "'(,,,)'",
            "'(7,infinity,{root})'",
            "'(-1,2147483647,12,{7})'",
            "'(nowhere,7,-1,2147483647)'",
        ],
    }
}

/// The columns that can be written, each with its table and its type.
struct Columns(Vec<(String, String, String)>);

impl Columns {
    async fn of(db: &Database, tables: &[&str]) -> Self {
        let columns = sqlx::query_as(
            "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns
             WHERE table_schema = 'scoop' AND table_name = ANY ($1)
             AND is_identity = 'NO'
             ORDER BY 1, 2",
        );
        let columns = columns.bind(tables).fetch_all(db.pool()).await;
        Self(columns.expect("the tables are there"))
    }

    /// The columns of a table, separated by commas, with these in place of some.
    fn list(&self, table: &str, replaced: &[(&str, &str)]) -> String {
        let of_table = self.0.iter().filter(|(of, ..)| of == table);
        let names = of_table.map(|(_, name, _)| {
            let replaced = replaced.iter().find(|(column, _)| column == name);
            replaced.map_or(&**name, |(_, value)| value)
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

/// What was done to a row.
#[derive(Clone, Debug)]
struct Damage {
    kind: &'static str,
    table: String,
    column: String,
    value: String,
    row: u32,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, table, column, value, row } = self;
        write!(f, "{kind} row {row} of {table}: {column} = {value}")
    }
}

impl Damage {
    /// One that is drawn by chance.
    fn draw(dice: &mut Dice, columns: &Columns) -> Self {
        let kind = *dice.pick(&["UPDATE", "UPDATE", "UPDATE", "UPDATE", "INSERT", "DELETE"]);
        let (table, column, of) = dice.pick(&columns.0).clone();
        let value = (*dice.pick(values(&of))).to_owned();
        Self { kind, table, column, value, row: *dice.pick(&[0, 1, 2, 3]) }
    }

    /// The statement, for the rows that fulfil the condition. An inserted row is a copy of one, with a new id.
    fn statement(&self, columns: &Columns, own: &str) -> String {
        let Self { kind, table, column, value, row } = self;
        let chosen = format!(
            "ctid = (SELECT ctid FROM scoop.{table} WHERE {own} ORDER BY ctid LIMIT 1
                     OFFSET {row} % greatest((SELECT count(*) FROM scoop.{table} WHERE {own}), 1))"
        );
        match *kind {
            "UPDATE" => format!("UPDATE scoop.{table} SET {column} = {value} WHERE {chosen}"),
            "DELETE" => format!("DELETE FROM scoop.{table} WHERE {chosen}"),
            _ => {
                let id = ("id", "gen_random_uuid()");
                let (all, copy) = (columns.list(table, &[]), columns.list(table, &[(column, value), id]));
                format!("INSERT INTO scoop.{table} ({all}) SELECT {copy} FROM scoop.{table} WHERE {chosen}")
            }
        }
    }

    /// Whether it damages a run of the working set.
    fn is_of_working_set(&self) -> bool {
        self.table == "run"
    }

    /// The time at which it makes a run due, if that is to come.
    fn due(&self) -> Option<&str> {
        let later = ["'9999-12-31'", "'294276-01-01'", "'294276-12-31 23:59:59.999999Z'", "'infinity'"];
        (self.table == "run" && self.column == "ready_at" && later.contains(&&*self.value))
            .then_some(&self.value)
    }
}

/// A damaged hierarchy.
struct Tampered {
    root: Handle,
    damage: Damage,
}

impl fmt::Display for Tampered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.root.id(), self.damage)
    }
}

/// Damages a row of a hierarchy.
async fn tamper(db: &Database, dice: &mut Dice, columns: &Columns, root: Handle) -> Tampered {
    let id: Uuid = root.id().into();
    loop {
        let mut damage = Damage::draw(dice, columns);
        damage.value = damage.value.replace("{root}", &id.to_string());
        let own = match &*damage.table {
            "message" => {
                "id IN (SELECT message_id FROM scoop.message_event WHERE cooperation_lineage[1] = $1)"
            }
            "run" | "ended_run" | "intervention" | "redelivery" => "root = $1",
            _ => "cooperation_lineage[1] = $1",
        };
        let statement = AssertSqlSafe(damage.statement(columns, own));
        let done = sqlx::query(statement).bind(id).execute(db.pool()).await;
        if done.is_ok_and(|done| done.rows_affected() == 1) {
            return Tampered { root, damage };
        }
    }
}

/// The name of the threads of the engines. Those of the tests have longer ones, so a failed assertion is no panic of an engine.
const ENGINE_THREAD: &str = "tampering";

/// How often threads of engines have panicked.
fn panics() -> u64 {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    static COUNTING: Once = Once::new();
    COUNTING.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(ENGINE_THREAD) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            others(panic);
        }));
    });
    PANICS.load(Ordering::Relaxed)
}

/// Runs a test on threads of their own, so that none of their panics escapes it.
fn without_panics(test: impl Future<Output = Result<()>>) -> Result<()> {
    let before = panics();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_name(ENGINE_THREAD).build().expect("a runtime can be had");
    let thread = runtime.spawn(async { std::thread::current().name().map(str::to_owned) });
    assert_eq!(runtime.block_on(thread).expect("a name").as_deref(), Some(ENGINE_THREAD));
    let done = runtime.block_on(test);
    assert_eq!(panics() - before, 0, "panics");
    done
}

fn seeds() -> Vec<u64> {
    let given = std::env::var("TAMPERING_SEED");
    given.map_or_else(|_| SEEDS.into(), |seed| vec![seed.parse().expect("a seed is a number")])
}

#[test]
fn damaged_rows_of_hierarchies_hurt_no_other_hierarchy() -> Result<()> {
    without_panics(async {
        for seed in seeds() {
            damage(seed, &["message", "message_event", "return_value", "run", "ended_run"]).await?;
        }
        Ok(())
    })
}

async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
    let supply = Supply { gate: gate.clone() };
    Ok(db.scoop().only::<Assembly>().only::<Supply>().provide(supply).start().await?)
}

/// Damages hierarchies, some before the process starts and some while their steps are executed. Returns when the others
/// have ended, and each of these has ended or is shown.
async fn damage(seed: u64, tables: &[&str]) -> Result<()> {
    let (db, gate, mut dice) = (Database::new().await, Gate::default(), Dice(seed));
    db.drop_rules().await;
    let columns = Columns::of(&db, tables).await;
    start(&db, &gate).await?.shutdown().await?;

    let mut tampered = vec![];
    for root in db.client().launch_all((0..TAMPERED[0]).map(|number| Whole { number })).await? {
        tampered.push(tamper(&db, &mut dice, &columns, root).await);
    }
    let scoop = start(&db, &gate).await?;
    let roots = scoop.launch_all((0..TAMPERED[1]).map(|number| Whole { number })).await?;
    gate.arrivals(TAMPERED[1]).await;
    for root in roots {
        tampered.push(tamper(&db, &mut dice, &columns, root).await);
    }
    gate.open(1_000_000);
    are_healthy(&scoop).await?;

    // Each process reconciles when it starts, as it does once a minute.
    let another = Scoop::builder().postgres(db.another_pool(6).await).only::<Idle>().start().await?;
    another.shutdown().await?;
    are_settled(&scoop, tampered).await;
    comes_to_rest(&db, IDLE_TRANSACTIONS).await;
    scoop.shutdown().await?;
    Ok(())
}

/// Hierarchies that nothing damages end as their steps say.
async fn are_healthy(scoop: &Scoop) -> Result<()> {
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
    Ok(())
}

/// Returns when each of the hierarchies has ended or is shown as it is: with those whose runs are lost to the working
/// set, and unfinished in the tree.
async fn are_settled(scoop: &Scoop, mut left: Vec<Tampered>) -> Vec<Tampered> {
    let deadline = Instant::now() + RETRY_FOR;
    loop {
        left = unsettled_of(scoop, left).await;
        let mut silent = vec![];
        for tampered in &left {
            if !(tampered.damage.is_of_working_set() && is_unfinished(&tampered.root).await) {
                let tree = tampered
                    .root
                    .tree()
                    .await
                    .map_or_else(|error| error.to_string(), |tree| tree.to_string());
                silent.push(format!("{tampered}\n{tree}"));
            }
        }
        if silent.is_empty() {
            return left;
        }
        assert!(Instant::now() < deadline, "neither ended nor shown:\n{}", silent.join("\n"));
    }
}

/// The hierarchies that have not ended, of which no run is listed, and that do not wait for the time that was set.
async fn unsettled_of(scoop: &Scoop, tampered: Vec<Tampered>) -> Vec<Tampered> {
    let mut listed = BTreeSet::new();
    listed.extend(
        scoop
            .operate()
            .failures()
            .stuck()
            .limit(1_000)
            .await
            .expect("a list")
            .iter()
            .map(|run| run.lineage.root_id()),
    );
    let failed = scoop.operate().failures().list().limit(1_000).await.expect("a list");
    listed.extend(failed.iter().map(|failed| failed.lineage.root_id()));
    let mut unsettled = vec![];
    for it in tampered {
        let is_listed = listed.contains(&it.root.id().into());
        if !is_listed
            && timeout(Duration::from_millis(50), it.root.wait()).await.is_err()
            && !is_due(&it).await
        {
            unsettled.push(it);
        }
    }
    unsettled
}

/// Whether a run waits for the time that the damage has set, and the tree says so.
async fn is_due(tampered: &Tampered) -> bool {
    if tampered.damage.due().is_none() {
        return false;
    }
    let tree = tampered.root.tree().await.expect("a tree");
    let last = tree.runs().into_iter().filter_map(|run| run.wakes_at).max();
    last.is_some_and(|at| at > SystemTime::now()) && tree.to_string().contains(", due 9999-12-31")
}

/// Whether the tree shows a run that has not ended.
async fn is_unfinished(root: &Handle) -> bool {
    root.tree().await.expect("a tree").runs().iter().any(|run| !run.has_ended())
}

/// Returns when the engine is idle. The server reports transactions late, so that the first looks count earlier ones.
async fn comes_to_rest(db: &Database, idle: i64) {
    let transactions =
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let (deadline, mut before) = (Instant::now() + RETRY_FOR, db.number(transactions).await);
    loop {
        sleep(REST).await;
        let now = db.number(transactions).await;
        if now - before <= idle {
            return;
        }
        assert!(Instant::now() < deadline, "{} transactions in {REST:?}", now - before);
        before = now;
    }
}
