//! A view of the database from outside, past the proxy. It retries while the server is away.

use std::time::{Duration, Instant};

use scoop::{Error, Result};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

/// The time after which anything unfinished is surely stuck.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(60);

/// Waits that take longer are reported while they last.
pub(crate) const SLOW: Duration = Duration::from_secs(5);

/// How long to wait for a session before another attempt. On a full server a pool waits longer and longer on
/// its own.
const ACQUIRED_WITHIN: Duration = Duration::from_secs(2);

/// How often to look.
const LOOK: Duration = Duration::from_millis(5);

const EVENTS: &str = "SELECT count(*) FROM scoop.message_event";
const UNFINISHED: &str = "SELECT count(*) FROM scoop.run WHERE handler <> 'none' AND state <> 'failed'";

/// A view of the database.
pub(crate) struct Observer {
    pool: PgPool,
}

/// Running runs, with the epochs of their claims.
pub(crate) type UnderWay = Vec<(Uuid, i64)>;

impl Observer {
    pub(crate) fn new(direct: PgConnectOptions) -> Self {
        let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(ACQUIRED_WITHIN);
        Self { pool: pool.connect_lazy_with(direct.application_name("chaos-observer")) }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Reads a number from the database.
    pub(crate) async fn count(&self, query: &str) -> Result<i64> {
        let begin = Instant::now();
        loop {
            match sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&self.pool).await {
                Ok(count) => return Ok(count),
                Err(error) if begin.elapsed() > RETRY_FOR => return Err(error.into()),
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Waits until the query returns that number. Fails if that takes too long.
    pub(crate) async fn until(&self, query: &str, goal: i64) -> Result<()> {
        let (begin, mut reported) = (Instant::now(), false);
        loop {
            let now = self.count(query).await?;
            if now == goal {
                return Ok(());
            }
            let what = format!("{now} instead of {goal} by `{query}`");
            self.report_if_slow(&what, begin, &mut reported).await;
            if begin.elapsed() > RETRY_FOR {
                return Err(self.standstill(&what).await);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until so many more events are recorded, or everything is done. With a limit it also returns after
    /// that time; without one, a standstill is an error.
    pub(crate) async fn until_events(&self, more: u32, limit: Option<Duration>) -> Result<()> {
        let begin = Instant::now();
        let goal = self.count(EVENTS).await? + i64::from(more);
        while self.count(EVENTS).await? < goal && self.count(UNFINISHED).await? > 0 {
            if limit.is_some_and(|limit| begin.elapsed() > limit) {
                return Ok(());
            }
            if begin.elapsed() > RETRY_FOR {
                return Err(self.standstill("nothing happens any more").await);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until nothing is left to do.
    pub(crate) async fn until_done(&self) -> Result<()> {
        self.until("SELECT count(*) FROM wanted WHERE NOT launched", 0).await?;
        self.until(UNFINISHED, 0).await
    }

    /// The runs that are being executed.
    pub(crate) async fn under_way(&self) -> Result<UnderWay> {
        let begin = Instant::now();
        let running = "SELECT id, epoch FROM scoop.run WHERE state = 'running'";
        loop {
            match sqlx::query_as(running).fetch_all(&self.pool).await {
                Ok(runs) => return Ok(runs),
                Err(error) if begin.elapsed() > RETRY_FOR => return Err(error.into()),
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Waits until all these runs have ended or were taken over.
    pub(crate) async fn until_over(&self, under_way: &UnderWay) -> Result<()> {
        let (ids, epochs): (Vec<Uuid>, Vec<i64>) = under_way.iter().copied().unzip();
        let (begin, mut reported) = (Instant::now(), false);
        let left = "SELECT format('%s %s after %s with epoch %s above the first, of %s, since %s s',
                               r.handler, r.id, r.step, r.epoch - r.unclaimed_epoch, r.owner,
                               extract(epoch FROM clock_timestamp() - r.last_event_at))
                    FROM scoop.run r JOIN unnest($1::uuid[], $2::bigint[]) AS claimed (id, epoch)
                        ON r.id = claimed.id AND r.epoch = claimed.epoch WHERE r.state = 'running'";
        loop {
            let left =
                sqlx::query_scalar::<_, String>(left).bind(&ids).bind(&epochs).fetch_all(&self.pool).await;
            let what = match left {
                Ok(left) if left.is_empty() => return Ok(()),
                Ok(left) => left.join("\n"),
                Err(error) => error.to_string(),
            };
            self.report_if_slow(&what, begin, &mut reported).await;
            if begin.elapsed() > RETRY_FOR {
                return Err(self.standstill(&what).await);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn report_if_slow(&self, what: &str, begin: Instant, reported: &mut bool) {
        if begin.elapsed() > SLOW && !*reported {
            *reported = true;
            println!("it takes long: {}", self.standstill(what).await);
        }
    }

    /// Describes the state of the database after nothing has happened for too long.
    async fn standstill(&self, what: &str) -> Error {
        let runs: Vec<String> = sqlx::query_scalar(
            "SELECT format('%s %s of %s, which %s: attempt %s, ready in %s s, %s', count(*), r.state, r.handler,
                           CASE WHEN r.owner IS NULL THEN 'no worker has'
                                WHEN r.owner IN (SELECT id FROM scoop.worker) THEN 'a living worker has' ELSE 'a dead worker has' END,
                           max((r.tries).attempts), extract(epoch FROM max(r.ready_at) - clock_timestamp()), max(r.reason))
             FROM scoop.run r WHERE r.handler <> 'none' GROUP BY r.state, r.handler, r.owner",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap_or_default();
        let sessions: Vec<String> = sqlx::query_scalar(
            "SELECT format('%s: %s, %s, for %s s: %s', application_name, state, wait_event,
                           extract(epoch FROM clock_timestamp() - state_change), left(query, 60))
             FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap_or_default();
        let workers = self.count("SELECT count(*) FROM scoop.worker").await.unwrap_or(-1);
        Error::msg(format!("{what}; {workers} workers\n{}\n{}", runs.join("\n"), sessions.join("\n")))
    }
}
