//! Workers, and what strikes them: at moments that depend on how far the work is, not on time.

use std::process::Stdio;
use std::time::{Duration, Instant};

use scoop::embedded::{Embedded, Shutdown};
use scoop::{Error, Result};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::process::{Child, Command};

use crate::sagas::WORKER;

const WORKERS: usize = 3;

/// How long everything may take before something is surely stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often to look how far the work is.
const LOOK: Duration = Duration::from_millis(2);

/// The workers, the database they share, and the dice.
pub(crate) struct Nemesis {
    server: Option<Embedded>,
    options: PgConnectOptions,
    url: String,
    database: String,
    pool: PgPool,
    workers: Vec<Child>,
    dice: Dice,
    pub(crate) killed: usize,
    pub(crate) terminated: i64,
    pub(crate) restarts: usize,
}

impl Nemesis {
    /// A fresh database (of `DATABASE_URL`, or on a private server, which only then can be
    /// restarted) and the first workers.
    pub(crate) async fn start(seed: u64) -> Result<Self> {
        let database = format!("crash_{}", std::process::id());
        let (server, url) = match std::env::var("DATABASE_URL") {
            Ok(url) => (None, url),
            Err(_) => {
                let server = Embedded::start().await?;
                let url = server.url();
                (Some(server), url)
            }
        };
        let admin = url.parse::<PgConnectOptions>()?;
        let (base, _) = url.rsplit_once('/').ok_or_else(|| Error::msg("DATABASE_URL names no database"))?;
        let url = format!("{base}/{database}");
        execute(&admin, format!("CREATE DATABASE {database}")).await?;
        let options = admin.database(&database);
        let pool = PgPoolOptions::new().max_connections(6).connect_with(options.clone()).await?;
        let dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let workers = vec![];
        let mut nemesis = Self {
            server,
            options,
            url,
            database,
            pool,
            workers,
            dice,
            killed: 0,
            terminated: 0,
            restarts: 0,
        };
        for _ in 0..WORKERS {
            nemesis.hire()?;
        }
        Ok(nemesis)
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    fn hire(&mut self) -> Result<()> {
        let worker = Command::new(std::env::current_exe()?)
            .env(crate::WORKER_DATABASE, &self.url)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        self.workers.push(worker);
        Ok(())
    }

    /// Waits until some more has happened, then strikes once.
    pub(crate) async fn strike(&mut self) -> Result<()> {
        let more = 1 + self.dice.below(60);
        self.until_events(more).await?;
        match self.dice.below(10) {
            0..6 => self.kill().await,
            6..9 => self.terminate().await,
            _ => self.restart().await,
        }
    }

    /// Kills a worker and puts another in its place. The others live.
    async fn kill(&mut self) -> Result<()> {
        let victim = self.dice.below(self.workers.len());
        let mut victim = self.workers.swap_remove(victim);
        victim.kill().await?;
        self.killed += 1;
        self.hire()
    }

    /// Terminates some of the sessions of the workers, or all of them.
    async fn terminate(&mut self) -> Result<()> {
        let share = if self.dice.below(2) == 0 { 1.0 } else { 0.3 };
        let terminated: i64 = sqlx::query_scalar(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE application_name = $1 AND datname = current_database() AND random() < $2",
        )
        .bind(WORKER)
        .bind(share)
        .fetch_one(&self.pool)
        .await?;
        self.terminated += terminated;
        Ok(())
    }

    /// Restarts the server as if the machine had failed.
    async fn restart(&mut self) -> Result<()> {
        if let Some(server) = &self.server {
            server.restart(Shutdown::Immediate).await?;
            self.restarts += 1;
        }
        Ok(())
    }

    /// The end of the trouble: one restart if the dice never wanted one, then peace.
    pub(crate) async fn leave_alone_until_done(&mut self, orders: i32) -> Result<()> {
        if self.restarts == 0 {
            self.restart().await?;
        }
        let begin = Instant::now();
        loop {
            // First whether all are launched: then none comes after the look for unfinished ones.
            let launched = "SELECT count(*) FROM scoop.message_event
                            WHERE type = 'EMITTED' AND cardinality(cooperation_lineage) = 1";
            let launched = self.count(launched).await?;
            let unfinished = self.count("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await?;
            if launched == i64::from(orders) && unfinished == 0 {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(self.standstill().await?);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns when so many more events are on record, or everything is done.
    async fn until_events(&self, more: usize) -> Result<()> {
        let begin = Instant::now();
        let events = "SELECT count(*) FROM scoop.message_event";
        let goal = self.count(events).await? + i64::try_from(more)?;
        while self.count(events).await? < goal
            && self.count("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await? > 0
        {
            if begin.elapsed() > PATIENCE {
                return Err(self.standstill().await?);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// What there is to see when nothing happens any more.
    async fn standstill(&self) -> Result<Error> {
        let runs: Vec<(String, String, bool, i64)> = sqlx::query_as(
            "SELECT handler, state::text, coalesce(owner IN (SELECT id FROM scoop.worker), false), count(*)
             FROM scoop.run WHERE handler <> 'none' GROUP BY 1, 2, 3",
        )
        .fetch_all(&self.pool)
        .await?;
        let workers = self.count("SELECT count(*) FROM scoop.worker").await?;
        Ok(Error::msg(format!("nothing happens any more: {workers} workers, runs {runs:?}")))
    }

    /// A number from the database, however often the server is just being restarted.
    async fn count(&self, query: &'static str) -> Result<i64> {
        let begin = Instant::now();
        loop {
            match sqlx::query_scalar(query).fetch_one(&self.pool).await {
                Ok(count) => return Ok(count),
                Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Lets everybody go.
    pub(crate) async fn end(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            worker.kill().await?;
        }
        self.pool.close().await;
        match self.server.take() {
            Some(server) => server.stop().await?,
            None => {
                let admin = self.options.clone().database("postgres");
                execute(&admin, format!("DROP DATABASE {} WITH (FORCE)", self.database)).await?;
            }
        }
        Ok(())
    }
}

async fn execute(options: &PgConnectOptions, statement: String) -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&pool).await?;
    pool.close().await;
    Ok(())
}

/// Chance that can be repeated (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}
