//! The stage of the plots: the databases, and one worker after the other, each killed at a point of its own.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use scoop::{Error, Result};
use scoop_test_support::postgres::Database;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgPool};
use tokio::time::Instant;

use crate::books::Books;
use crate::crew::{RETRY_FOR, Worker};
use crate::proxy::{Point, Proxy, Target};
use crate::sagas::{LEDGER, Plot};

/// How often a plot is played without a death, to learn its statements. They vary a little: a run may be woken or claimed,
/// and a signal come early or late.
const REHEARSALS: usize = 3;

/// How long to wait before another look at the books.
const LOOK: Duration = Duration::from_millis(3);

/// Databases of its own, and the proxy before them.
pub(crate) struct Stage {
    db: Database,
    outside: PgPool,
    outside_name: String,
    proxy: Proxy,
    worker: Worker,
    /// The number of the newest hierarchy.
    number: i64,
    /// The hierarchies that ended.
    pub(crate) ended: Vec<Ended>,
}

/// A hierarchy, the point of it at which its worker died, and what was found in the end.
pub(crate) struct Ended {
    pub(crate) plot: Plot,
    number: i64,
    pub(crate) died: Option<Point>,
    pub(crate) books: Books,
}

impl Stage {
    pub(crate) async fn set_up() -> Result<Self> {
        let db = Database::new().await;
        db.execute(LEDGER).await;
        let options = db.pool().connect_options();
        let outside_name = format!("{}_outside", options.get_database().unwrap_or_default());
        db.execute(&format!("CREATE DATABASE {outside_name}")).await;
        let outside = PgPoolOptions::new().max_connections(1);
        let outside = outside.connect_with((*options).clone().database(&outside_name)).await?;
        sqlx::query(LEDGER).execute(&outside).await?;
        let proxy = Proxy::start(target(&options)).await?;
        let worker = hire(&db, &outside_name, &proxy).await?;
        Ok(Self { db, outside, outside_name, proxy, worker, number: 0, ended: vec![] })
    }

    /// Plays it a few times without a death, and returns how often each statement was executed.
    pub(crate) async fn rehearse(&mut self, plot: Plot) -> Result<BTreeMap<String, RangeInclusive<usize>>> {
        let mut found = BTreeMap::new();
        for _ in 0..REHEARSALS {
            self.play(plot, None).await?;
            for (statement, executions) in self.proxy.disarm() {
                let range = found.entry(statement).or_insert(executions..=executions);
                *range = executions.min(*range.start())..=executions.max(*range.end());
            }
        }
        Ok(found)
    }

    /// Plays it, with a worker that is killed at this point if it comes past it.
    pub(crate) async fn play(&mut self, plot: Plot, point: Option<Point>) -> Result<()> {
        self.number += 1;
        let died = point.as_ref().map_or_else(|| "no death".to_owned(), ToString::to_string);
        match self.try_to_play(plot, self.number, point).await {
            Ok(()) => Ok(()),
            Err(error) => Err(Error::msg(format!("{plot:?}, {died}: {error}; {}", self.unfinished().await?))),
        }
    }

    /// The unfinished runs, for the report of a hierarchy that does not end.
    async fn unfinished(&self) -> Result<String> {
        let sql = "SELECT coalesce(json_agg(r), '[]')::text FROM scoop.run r WHERE r.handler <> 'none'";
        let rows: String = sqlx::query_scalar(sql).fetch_one(self.db.pool()).await?;
        let now: String = sqlx::query_scalar("SELECT now()::text").fetch_one(self.db.pool()).await?;
        Ok(format!("at {now} these runs are unfinished: {rows}"))
    }

    async fn try_to_play(&mut self, plot: Plot, number: i64, point: Option<Point>) -> Result<()> {
        self.proxy.arm(point.clone());
        self.worker.order(plot, number)?;
        match (self.worker.says().await?, point) {
            (Some(outcome), point) => {
                // What follows the outcome is a part of the plot as well: the joined saga, the message about a failure.
                let books = tokio::select! {
                    books = self.books(plot, number, outcome) => Some(books?),
                    () = self.proxy.killed() => None,
                };
                self.proxy.pause();
                match (books, point) {
                    (Some(books), _) if !self.proxy.is_killed() => {
                        self.ended.push(Ended { plot, number, died: None, books })
                    }
                    (_, Some(point)) => self.replace(plot, number, point).await?,
                    (_, None) => {
                        return Err(Error::msg(format!(
                            "a worker was killed for no point in {plot:?} {number}"
                        )));
                    }
                }
                Ok(())
            }
            (None, Some(point)) if self.proxy.is_killed() => self.replace(plot, number, point).await,
            (None, _) => Err(Error::msg(format!("a worker ended by itself in {plot:?} {number}"))),
        }
    }

    /// Another worker takes over from a dead one, and finishes its hierarchy.
    async fn replace(&mut self, plot: Plot, number: i64, point: Point) -> Result<()> {
        self.proxy.disarm();
        self.proxy.bury().await?;
        self.worker = hire(&self.db, &self.outside_name, &self.proxy).await?;
        self.worker.order(plot, number)?;
        let outcome = self.worker.says().await?;
        let outcome =
            outcome.ok_or_else(|| Error::msg(format!("the second worker ended by itself: {point}")))?;
        let books = self.books(plot, number, outcome).await?;
        self.ended.push(Ended { plot, number, died: Some(point), books });
        Ok(())
    }

    /// The books of a hierarchy, once everything rests and they are as they should be; after a time as they are.
    async fn books(&self, plot: Plot, number: i64, outcome: String) -> Result<Books> {
        let deadline = Instant::now() + RETRY_FOR;
        loop {
            let rests = self.db.unfinished().await == 0;
            let books = Books::read(self.db.pool(), &self.outside, number, outcome.clone()).await?;
            if rests && books.violations(plot).is_empty() || Instant::now() > deadline {
                return Ok(books);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the last worker, has the whole log judged, and reads all books again: nothing may have come later.
    pub(crate) async fn strike(mut self) -> Result<Vec<Ended>> {
        self.proxy.bury().await?;
        self.db.history().await;
        for ended in &mut self.ended {
            let outcome = ended.books.outcome.clone();
            ended.books = Books::read(self.db.pool(), &self.outside, ended.number, outcome).await?;
        }
        self.outside.close().await;
        self.db.execute(&format!("DROP DATABASE {} WITH (FORCE)", self.outside_name)).await;
        Ok(self.ended)
    }
}

/// The address of the server.
fn target(options: &PgConnectOptions) -> Target {
    match options.get_socket() {
        Some(folder) => Target::Socket(folder.join(format!(".s.PGSQL.{}", options.get_port()))),
        None => Target::Host(options.get_host().to_owned(), options.get_port()),
    }
}

/// Starts a worker whose way to both databases is the proxy.
async fn hire(db: &Database, outside: &str, proxy: &Proxy) -> Result<Worker> {
    let options = db.pool().connect_options();
    let by_proxy = |database: &str| {
        let mut url = (*options).clone().database(database).to_url_lossy();
        url.set_query(Some("sslmode=disable"));
        let there = url.set_host(Some("127.0.0.1")).is_ok() && url.set_port(Some(proxy.port())).is_ok();
        there.then(|| url.to_string()).ok_or_else(|| Error::msg("the server has no address"))
    };
    let database = options.get_database().unwrap_or_default();
    let (mut worker, process) = Worker::hire(&by_proxy(database)?, &by_proxy(outside)?)?;
    proxy.serve(process);
    let started = worker.says().await?;
    started.ok_or_else(|| Error::msg("a worker could not start"))?;
    Ok(worker)
}
