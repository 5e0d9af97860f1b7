//! The tables of the last release are brought up to date while other programs launch.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use scoop::embedded::Embedded;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgPool};
use tokio::process::Command;
use uuid::Uuid;

use super::restored::program_of_the_server;
use super::*;
use crate::support::{Database, eventually};

/// The tables of the last release, as `SCOOP_SCHEMA=write` writes them: see `docs/stability.md`.
const FILE: &str = "tests/it/behaviour/schema_0_1.sql";
const CHANGELOG: &str = include_str!("../../../CHANGELOG.md");

/// The programs that launch, and how many launches each makes at least.
const LAUNCHERS: usize = 3;
const LAUNCHES_MIN: usize = 20;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "upgraded.order")]
struct Order {
    number: Uuid,
}

#[derive(Default)]
struct Orders;

#[saga(name = "upgraded-orders")]
#[subscribes(Order)]
impl Orders {
    #[step]
    async fn place(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        sqlx::query("INSERT INTO placed VALUES ($1)").bind(order.number).execute(scope.tx().await?).await?;
        Ok(())
    }

    #[step]
    async fn ship(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

/// An empty database on the server of the tests, without the rules that only the tests have. It belongs to a role of its name,
/// which is no superuser, and with which all connect.
struct Empty<'a> {
    db: &'a Database,
    name: String,
}

impl<'a> Empty<'a> {
    async fn create(db: &'a Database) -> Self {
        let name = format!("upgraded_{}", Uuid::new_v4().simple());
        db.execute(&format!("CREATE ROLE {name}")).await;
        db.execute(&format!("CREATE DATABASE {name} OWNER {name} TEMPLATE template0")).await;
        Self { db, name }
    }

    fn options(&self) -> PgConnectOptions {
        let options = (*self.db.pool().connect_options()).clone().database(&self.name);
        options.options([("role", &*self.name)])
    }

    fn pool(&self) -> PgPool {
        PgPoolOptions::new().max_connections(6).connect_lazy_with(self.options())
    }

    async fn drop(self) {
        self.db.execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
        self.db.execute(&format!("DROP ROLE {}", self.name)).await;
    }
}

/// The numbers and checksums of the migrations that were applied.
async fn migrations(pool: &PgPool) -> Result<Vec<(i64, String)>> {
    let applied = "SELECT version, encode(checksum, 'hex') FROM scoop.migration ORDER BY version";
    Ok(sqlx::query_as(applied).fetch_all(pool).await?)
}

/// The SQL that makes the tables of this program, with the rows that its migrations write.
async fn dump() -> Result<String> {
    let server = Embedded::start().await?;
    let pool = PgPoolOptions::new().connect_with(server.connect_options()).await?;
    scoop::migration::migrate(&pool).await?;
    let mut dump = Command::new(program_of_the_server(&pool, "pg_dump").await?);
    // The compression depends on the server, the many rows of `run` are all alike.
    dump.args(["--schema=scoop", "--no-owner", "--no-toast-compression", "--inserts"]);
    dump.args(["--exclude-table-data=scoop.run", &server.url()]);
    let dump = dump.output().await?;
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let dump = String::from_utf8(dump.stdout)?;
    // Comments, commands of psql, and a setting that older servers lack.
    let is_sql =
        |line: &&str| !["--", "\\", "SET transaction_timeout"].iter().any(|start| line.starts_with(start));
    let mut sql: Vec<_> = dump.lines().filter(is_sql).collect();
    sql.dedup_by(|line, before| line.is_empty() && before.is_empty());
    Ok(format!("{}\n\nSELECT scoop.add_ballast();\nANALYZE scoop.run;\n", sql.join("\n").trim()))
}

/// Launches as a program that knows only the functions of the last release, until the programs have started.
async fn launches(options: PgConnectOptions, have_started: &AtomicBool) -> Result<usize> {
    let mut connection = options.connect().await?;
    let mut count = 0;
    while count < LAUNCHES_MIN || !have_started.load(Ordering::Relaxed) {
        launch(&mut connection).await?;
        count += 1;
    }
    connection.close().await?;
    Ok(count)
}

async fn launch(connection: &mut sqlx::PgConnection) -> Result<()> {
    let launched = sqlx::query_scalar(
        "SELECT launched FROM scoop.launch(jsonb_build_array(jsonb_build_object('id', $1, 'root', $2,
             'topic', 'upgraded.order', 'payload', jsonb_build_object('number', $1), 'required', 'test')))",
    );
    let launched: i64 = launched.bind(Uuid::new_v4()).bind(Uuid::new_v4()).fetch_one(connection).await?;
    assert_eq!(launched, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_the_last_release_are_upgraded_under_load() -> Result<()> {
    let db = Database::new().await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var("SCOOP_SCHEMA").is_ok_and(|how| how == "write") {
        std::fs::write(&file, dump().await?)?;
    }
    let former = Empty::create(&db).await;
    let mut connection = former.options().connect().await?;
    sqlx::raw_sql(AssertSqlSafe(std::fs::read_to_string(&file)?)).execute(&mut connection).await?;
    let subscribe = "INSERT INTO scoop.handler (topic, handler) VALUES ('upgraded.order', 'upgraded-orders');
        CREATE TABLE public.placed (number uuid)";
    sqlx::raw_sql(subscribe).execute(&mut connection).await?;
    connection.close().await?;

    let pool = former.pool();
    let (of_file, of_program) = (migrations(&pool).await?, migrations(db.pool()).await?);
    let renew = "SCOOP_SCHEMA=write cargo test --test it -- upgraded";
    if CHANGELOG.contains("## 0.1.0 (unreleased)") {
        assert!(
            of_file == of_program,
            "migrations may change before the first release; renew {FILE}: {renew}"
        );
    } else {
        assert!(of_program.starts_with(&of_file), "a released migration has changed");
    }

    let have_started = AtomicBool::new(false);
    let programs = async {
        let start = || Scoop::builder().postgres(former.pool()).only::<Orders>().start();
        let programs = tokio::try_join!(start(), start());
        have_started.store(true, Ordering::Relaxed);
        programs
    };
    let launchers = (0..LAUNCHERS).map(|_| launches(former.options(), &have_started));
    let (programs, launched) = tokio::join!(programs, futures_util::future::try_join_all(launchers));
    let (programs, launched) = (programs?, launched?.iter().sum::<usize>());
    let count = async |sql: &'static str| sqlx::query_scalar::<_, i64>(sql).fetch_one(&pool).await;
    eventually("all runs have ended", async || {
        count("SELECT count(*) FROM scoop.runs").await.is_ok_and(|left| left == 0)
    })
    .await;
    let launched = i64::try_from(launched)?;
    assert_eq!(count("SELECT count(*) FROM scoop.ended_run WHERE outcome = 'committed'").await?, launched);
    assert_eq!(count("SELECT count(*) FROM placed").await?, launched);
    assert_eq!(count("SELECT count(DISTINCT number) FROM placed").await?, launched);
    assert_eq!(migrations(&pool).await?, of_program);
    let (one, other) = programs;
    one.shutdown().await?;
    other.shutdown().await?;
    pool.close().await;
    former.drop().await;
    Ok(())
}
