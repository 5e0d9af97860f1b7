//! A database that is restored from a dump in another cluster: programs continue there from what the dump has.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use scoop::embedded::Embedded;
use scoop::requests::RepairAnswer;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::process::Command;

use super::*;
use crate::support::{Gate, Sagas as _, eventually};

/// Longer than the test takes.
const HOUR: Duration = Duration::from_secs(3_600);

/// The effects of steps, and whether the compensation of `unlucky` works.
const TABLES: &str = "CREATE TABLE effect (what text, key uuid); CREATE TABLE bank (is_open boolean);
    INSERT INTO bank VALUES (false)";

async fn takes_effect(scope: &mut Scope<'_>, what: &'static str) -> Result<()> {
    let key = scope.idempotency_key();
    let insert = sqlx::query("INSERT INTO effect VALUES ($1, $2)").bind(what).bind(key);
    insert.execute(scope.tx().await?).await?;
    Ok(())
}

macro_rules! messages {
    ($($message:ident $topic:literal)+) => { $(
        #[derive(Message, Serialize, Deserialize)]
        #[message(topic = $topic)]
        struct $message;
    )+ };
}

messages! {
    Trip "restored.trip"
    Ticket "restored.ticket"
    Stay "restored.stay"
    Refund "restored.refund"
}

handler! {
    /// Waits for its child.
    Trips: "trips" on Trip;

    #[step]
    async fn book(&self, scope: &mut Scope<'_>, _: &Trip) -> Result<()> {
        takes_effect(scope, "trip booked").await?;
        scope.launch(Ticket).await?;
        Ok(())
    }

    #[step]
    async fn confirm(&self, scope: &mut Scope<'_>, _: &Trip) -> Result<()> {
        takes_effect(scope, "trip confirmed").await
    }
}

/// Is in its second step.
struct Tickets {
    gate: Gate,
}

#[saga(name = "tickets")]
#[subscribes(Ticket)]
impl Tickets {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, _: &Ticket) -> Result<()> {
        takes_effect(scope, "ticket reserved").await
    }

    #[step]
    async fn print(&self, scope: &mut Scope<'_>, _: &Ticket) -> Result<()> {
        takes_effect(scope, "ticket printed").await?;
        self.gate.pass().await;
        Ok(())
    }
}

handler! {
    /// Sleeps.
    Stays: "stays" on Stay;

    #[step]
    async fn arrive(&self, scope: &mut Scope<'_>, _: &Stay) -> Result<()> {
        takes_effect(scope, "arrived").await
    }

    #[step(sleep = "1 hour")]
    async fn leave(&self, scope: &mut Scope<'_>, _: &Stay) -> Result<()> {
        takes_effect(scope, "left").await
    }
}

handler! {
    /// Its rollback fails while the bank is closed.
    Refunds: "refunds" on Refund;

    #[step(rollback = give_back)]
    async fn take(&self, scope: &mut Scope<'_>, _: &Refund) -> Result<()> {
        takes_effect(scope, "taken").await
    }

    step "check" check => fails(SIMULATED);

    async fn give_back(&self, scope: &mut Scope<'_>, _: &Refund, _: &Failure) -> Result<()> {
        takes_effect(scope, "given back").await?;
        let is_open: bool = sqlx::query_scalar("SELECT is_open FROM bank").fetch_one(scope.tx().await?).await?;
        if is_open { Ok(()) } else { Err(Error::msg("the bank is closed")) }
    }
}

/// A program on a database, with the gate in its saga `tickets`.
struct Program {
    scoop: Scoop,
    gate: Gate,
}

impl Program {
    async fn start(pool: &PgPool) -> Result<Self> {
        let gate = Gate::default();
        let sagas = (Trips, Tickets { gate: gate.clone() }, Stays, Refunds);
        Ok(Self { scoop: sagas.only(Scoop::builder().postgres(pool.clone())).start().await?, gate })
    }

    /// Ends what the programs of both databases have to end, and returns the effects with the keys of their steps.
    async fn finish(self, hierarchies: [HierarchyId; 4]) -> Result<Vec<(String, uuid::Uuid)>> {
        let Self { scoop, gate } = self;
        let [trip, stay, late_stay, refund] = hierarchies;
        gate.open(1);
        let wake = "UPDATE scoop.run SET ready_at = clock_timestamp() WHERE handler = 'stays' AND ready_at > clock_timestamp()";
        eventually("all stays are over", async || {
            sqlx::query(wake).execute(scoop.pool()).await.expect("the rows can be changed");
            let left = sqlx::query_scalar("SELECT count(*) FROM scoop.runs WHERE saga = 'stays'");
            left.fetch_one(scoop.pool()).await.is_ok_and(|left: i64| left == 0)
        })
        .await;
        for id in [trip, stay, late_stay] {
            assert_eq!(scoop.find(id).await?.ends().await?, Outcome::Committed);
        }
        sqlx::query("UPDATE bank SET is_open = true").execute(scoop.pool()).await?;
        let failed = scoop.operate().failures().list().await?;
        assert_eq!(failed.len(), 1);
        assert_eq!(scoop.operate().failures().retry(failed[0].id()).await?, RepairAnswer::Accepted);
        let refunded = scoop.find(refund).await?.ends().await?;
        assert!(matches!(refunded, Outcome::RolledBack(_)), "{refunded:?}");
        let left = sqlx::query_scalar("SELECT count(*) FROM scoop.runs");
        assert_eq!(left.fetch_one(scoop.pool()).await.map(|left: i64| left)?, 0);
        let effects =
            sqlx::query_as("SELECT what, key FROM effect ORDER BY what, key").fetch_all(scoop.pool()).await?;
        scoop.shutdown().await?;
        Ok(effects)
    }
}

async fn connect(server: &Embedded) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(8).connect_with(server.connect_options()).await?)
}

/// The program of the server's installation.
pub(super) async fn program_of_the_server(pool: &PgPool, name: &str) -> Result<PathBuf> {
    let folder = sqlx::query_scalar("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
    let folder: String = folder.fetch_one(pool).await?;
    Ok(PathBuf::from(folder).join(name))
}

/// Restores a dump of the one database into the other one.
async fn copy(from: &Embedded, to: &Embedded, pool: &PgPool) -> Result<()> {
    let program = async |name| program_of_the_server(pool, name).await;
    let dump =
        Command::new(program("pg_dump").await?).args(["--format=custom", &from.url()]).output().await?;
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let file = to.folder().join("dump");
    std::fs::write(&file, &dump.stdout)?;
    let mut restore = Command::new(program("pg_restore").await?);
    restore.args(["--exit-on-error", "--dbname", &to.url()]).arg(&file).stdin(Stdio::null());
    let restored = restore.output().await?;
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_dump_in_another_cluster_continues() -> Result<()> {
    if !Embedded::is_installed() {
        eprintln!("not tested: there is no PostgreSQL on this machine");
        return Ok(());
    }
    let original = Embedded::start().await?;
    let pool = connect(&original).await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;
    let program = Program::start(&pool).await?;
    let scoop = &program.scoop;
    let trip = scoop.launch(Trip).await?;
    let stay = scoop.launch(Stay).await?;
    let late_stay = scoop.launch(Stay).delay(HOUR).await?;
    let refund = scoop.launch(Refund).await?;
    assert!(matches!(refund.ends().await?, Outcome::RollbackFailed(_)));
    stay.comes_to(|tree| tree.roots().iter().all(|run| run.state == RunState::Sleeping)).await?;
    program.gate.arrivals(1).await;

    let restored = Embedded::start().await?;
    copy(&original, &restored, &pool).await?;
    let another = connect(&restored).await?;
    let states = "SELECT saga || ' ' || state FROM scoop.runs ORDER BY 1";
    let states: Vec<String> = sqlx::query_scalar(states).fetch_all(&another).await?;
    assert_eq!(
        states,
        ["refunds rollback failed", "stays pending", "stays sleeping", "tickets running", "trips waiting"]
    );

    let hierarchies = [trip.id(), stay.id(), late_stay.id(), refund.id()];
    let there = Program::start(&another).await?.finish(hierarchies).await?;
    let here = program.finish(hierarchies).await?;
    assert_eq!(there, here, "each effect has the same key in both");
    let names: Vec<_> = there.iter().map(|(what, _)| what.as_str()).collect();
    let expected = [
        "arrived",
        "arrived",
        "given back",
        "left",
        "left",
        "taken",
        "ticket printed",
        "ticket reserved",
        "trip booked",
        "trip confirmed",
    ];
    assert_eq!(names, expected);
    Ok(())
}
