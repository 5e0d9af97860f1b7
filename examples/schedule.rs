//! Scheduled sagas: a thermometer that is read several times a second, and a report on it that is due every
//! night.
//!
//! ```text
//! cargo run -p examples --example schedule        # ends on its own, and prints whether all was as expected
//! ```
//!
//! Start it several times on one database (`DATABASE_URL=postgres://.. cargo run -p examples --example schedule`): each
//! reading is taken by one process, and missed times are made up for.

use std::process::ExitCode;

use scoop::prelude::*;
use tokio::sync::mpsc;

/// The number of readings before the program ends.
const READINGS: usize = 10;

/// Reads the temperature five times a second.
struct Thermometer {
    readings: mpsc::UnboundedSender<u64>,
}

// A slow reading skips the next one, so that no two overlap. For times without any process there is one
// reading, the default of `missed`.
#[saga(every = "200ms", overlap = "skip")]
#[subscribes(Tick)]
impl Thermometer {
    #[step]
    async fn read(&self, scope: &mut Scope<'_>, tick: &Tick) -> Result<()> {
        let degrees = 20 + (tick.count() % 5) as i32;
        sqlx::query("INSERT INTO reading (run, degrees) VALUES ($1, $2)")
            .bind(tick.count() as i64)
            .bind(degrees)
            .execute(scope.tx().await?)
            .await?;
        Ok(())
    }

    /// The reading is in the database when this begins.
    #[step]
    async fn tell(&self, _: &mut Scope<'_>, tick: &Tick) -> Result<()> {
        // The receiver may be gone, because the program ends after enough readings.
        let _ = self.readings.send(tick.count());
        Ok(())
    }
}

/// Sums up the readings at three in the morning by the clocks of Prague, also in the two nights of the year in
/// which the clocks change.
#[derive(Default)]
struct NightlyReport;

#[saga(cron = "0 3 * * *", zone = "Europe/Prague", missed = "skip")]
#[subscribes(Tick)]
impl NightlyReport {
    #[step]
    async fn write(&self, scope: &mut Scope<'_>, tick: &Tick) -> Result<()> {
        sqlx::query(
            "INSERT INTO report (run, readings, degrees)
             SELECT $1, count(*), round(avg(degrees)) FROM reading",
        )
        .bind(tick.count() as i64)
        .execute(scope.tx().await?)
        .await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let (readings, mut read) = mpsc::unbounded_channel();
    // The tables must exist before the first reading.
    let client = Scoop::builder().embedded().migrate(true).client().await?;
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS reading (run bigint PRIMARY KEY, degrees int NOT NULL);
         CREATE TABLE IF NOT EXISTS report (run bigint PRIMARY KEY, readings bigint NOT NULL, degrees int NOT NULL)",
    )
    .execute(client.pool())
    .await?;
    let scoop =
        Scoop::builder().postgres(client.pool().clone()).provide(Thermometer { readings }).start().await?;

    for _ in 0..READINGS {
        let run = read.recv().await.ok_or_else(|| Error::msg("the thermometer is gone"))?;
        println!("reading {run}");
    }
    // Triggered, so that the example need not wait until three in the morning.
    let report = scoop.trigger::<NightlyReport>().await?;
    let outcome = report.wait().await?;
    scoop.shutdown().await?;

    let balanced = check(client.pool()).await? && outcome == Outcome::Committed;
    client.shutdown().await?;
    Ok(if balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether each counted run has its reading, except those under way.
async fn check(pool: &sqlx::PgPool) -> Result<bool> {
    let (runs, readings, under_way): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT run_count FROM scoop.schedule WHERE handler = 'thermometer'),
                (SELECT count(*) FROM reading),
                (SELECT count(*) FROM scoop.run WHERE handler = 'thermometer')",
    )
    .fetch_one(pool)
    .await?;
    let (readings_reported, degrees): (i64, i32) =
        sqlx::query_as("SELECT readings, degrees FROM report ORDER BY run DESC LIMIT 1")
            .fetch_one(pool)
            .await?;
    println!("the report: {degrees} degrees on average of {readings_reported} readings");
    let all = readings <= runs && runs <= readings + under_way && readings_reported >= READINGS as i64;
    println!("{}", if all { "each run was read once" } else { "readings are missing" });
    Ok(all)
}
