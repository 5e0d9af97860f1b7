//! Looks at the database from outside, past the proxy and however often the server is just away.

use std::time::{Duration, Instant};

use scoop::{Error, Result};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

/// How long anything may take before something is surely stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What takes longer is worth a look: it is told while it lasts.
pub(crate) const SLOW: Duration = Duration::from_secs(5);

/// How long to wait for a session before another attempt. A pool that finds the server full waits longer and longer
/// by itself.
const ACQUIRED_WITHIN: Duration = Duration::from_secs(2);

/// How often to look.
const LOOK: Duration = Duration::from_millis(5);

const EVENTS: &str = "SELECT count(*) FROM scoop.message_event";
const UNFINISHED: &str = "SELECT count(*) FROM scoop.run WHERE handler <> 'none'";

/// A view of the database.
pub(crate) struct Observer {
    pool: PgPool,
}

/// Runs that somebody was working on, and under which claim.
pub(crate) type UnderWay = Vec<(Uuid, i64)>;

impl Observer {
    pub(crate) fn new(direct: PgConnectOptions) -> Self {
        let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(ACQUIRED_WITHIN);
        Self { pool: pool.connect_lazy_with(direct.application_name("chaos-observer")) }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// A number from the database.
    pub(crate) async fn count(&self, query: &str) -> Result<i64> {
        let begin = Instant::now();
        loop {
            match sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&self.pool).await {
                Ok(count) => return Ok(count),
                Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Returns when the query gives that number, which it must in time.
    pub(crate) async fn until(&self, query: &str, goal: i64) -> Result<()> {
        let (begin, mut told) = (Instant::now(), false);
        loop {
            let now = self.count(query).await?;
            if now == goal {
                return Ok(());
            }
            let what = format!("{now} instead of {goal} by `{query}`");
            self.tell_if_slow(&what, begin, &mut told).await;
            if begin.elapsed() > PATIENCE {
                return Err(self.standstill(&what).await);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns when so many more events are on record, or everything is done. With a limit it also returns when that
    /// is over; without one, things must go on.
    pub(crate) async fn until_events(&self, more: u32, limit: Option<Duration>) -> Result<()> {
        let begin = Instant::now();
        let goal = self.count(EVENTS).await? + i64::from(more);
        while self.count(EVENTS).await? < goal && self.count(UNFINISHED).await? > 0 {
            if limit.is_some_and(|limit| begin.elapsed() > limit) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(self.standstill("nothing happens any more").await);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Returns when nothing is left to do.
    pub(crate) async fn until_done(&self) -> Result<()> {
        self.until("SELECT count(*) FROM wanted WHERE NOT launched", 0).await?;
        self.until(UNFINISHED, 0).await
    }

    /// What is being worked on.
    pub(crate) async fn under_way(&self) -> Result<UnderWay> {
        let begin = Instant::now();
        let running = "SELECT id, epoch FROM scoop.run WHERE state = 'running'";
        loop {
            match sqlx::query_as(running).fetch_all(&self.pool).await {
                Ok(runs) => return Ok(runs),
                Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Returns when all of this has come to its end or was taken over.
    pub(crate) async fn until_over(&self, under_way: &UnderWay) -> Result<()> {
        let (ids, epochs): (Vec<Uuid>, Vec<i64>) = under_way.iter().copied().unzip();
        let (begin, mut told) = (Instant::now(), false);
        let left = "SELECT format('%s %s after %s with epoch %s above the first, of %s, since %s s',
                               r.handler, r.id, r.step, r.epoch - r.first_epoch, r.owner,
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
            self.tell_if_slow(&what, begin, &mut told).await;
            if begin.elapsed() > PATIENCE {
                return Err(self.standstill(&what).await);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn tell_if_slow(&self, what: &str, begin: Instant, told: &mut bool) {
        if begin.elapsed() > SLOW && !*told {
            *told = true;
            println!("it takes long: {}", self.standstill(what).await);
        }
    }

    /// What there is to see when nothing happens any more.
    async fn standstill(&self, what: &str) -> Error {
        let runs: Vec<String> = sqlx::query_scalar(
            "SELECT format('%s %s of %s, which %s: attempt %s, ready in %s s, %s', count(*), r.state, r.handler,
                           CASE WHEN r.owner IS NULL THEN 'nobody has'
                                WHEN r.owner IN (SELECT id FROM scoop.worker) THEN 'somebody has' ELSE 'the dead have' END,
                           max(r.attempts), extract(epoch FROM max(r.ready_at) - clock_timestamp()), max(r.reason))
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
