//! The client: launches hierarchies, cancels some, and requests the rollback of others once they have ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use scoop::prelude::*;
use scoop::requests::{CancelAnswer, RollbackAnswer};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use uuid::Uuid;

use crate::plan::{self, Fate, Plan};
use crate::sagas::Job;

/// Limit of unfinished runs above which no more are launched.
const UNFINISHED_MAX: i64 = 150;

/// The pause between two launches. The log of half an hour still fits into memory.
const PACE: Duration = Duration::from_millis(40);

/// How long a request may fail again and again before something is surely wrong.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// The client, with its pending requests.
pub(crate) struct Client {
    scoop: Scoop,
    pool: PgPool,
    seed: u64,
    /// The hierarchies to cancel, each with the number after whose launch that is due.
    to_cancel: VecDeque<(i64, Uuid)>,
    to_undo: VecDeque<Uuid>,
    pub(crate) book: Book,
}

/// The client's knowledge, for the audit.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// The number of launches, including those that workers do.
    pub(crate) count: i64,
    /// The hierarchies that it launched itself.
    pub(crate) launched: BTreeMap<i64, Uuid>,
    pub(crate) cancelled: usize,
    /// The hierarchies that are rolled back on request, or were rolled back before it.
    pub(crate) undone: BTreeSet<Uuid>,
}

impl Client {
    pub(crate) fn new(database: &str, seed: u64) -> Result<Self> {
        let options: PgConnectOptions = database.parse()?;
        let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(Duration::from_secs(2));
        let pool = pool.connect_lazy_with(options.application_name("chaos-client"));
        let scoop = Scoop::client(pool.clone());
        Ok(Self { scoop, pool, seed, to_cancel: [].into(), to_undo: [].into(), book: Book::default() })
    }

    /// Works in a loop until it is stopped. Then the hierarchies that it has launched come to their end.
    pub(crate) async fn work(mut self, stop: tokio::sync::watch::Receiver<bool>) -> Result<Self> {
        while !*stop.borrow() {
            tokio::time::sleep(PACE).await;
            if self.unfinished().await < UNFINISHED_MAX {
                self.launch_next().await?;
            }
            self.cancel_what_is_due().await?;
            self.undo_one().await?;
        }
        Ok(self)
    }

    /// Requests the rollbacks that are still missing, after everything has ended.
    pub(crate) async fn undo_the_rest(&mut self) -> Result<()> {
        let begin = Instant::now();
        while !self.to_undo.is_empty() {
            check(begin, "a hierarchy has ended and cannot be undone")?;
            self.undo_one().await?;
        }
        Ok(())
    }

    /// The number of unfinished runs. `i64::MAX` if the server does not answer, so that nothing is launched.
    async fn unfinished(&self) -> i64 {
        let count = sqlx::query_scalar(
            "SELECT count(*) FROM scoop.run WHERE handler <> 'none' AND state <> 'failed'",
        );
        count.fetch_one(&self.pool).await.unwrap_or(i64::MAX)
    }

    async fn launch_next(&mut self) -> Result<()> {
        let number = self.book.count;
        let (plan, fate) = plan::of(self.seed, number);
        if fate == Fate::Wanted {
            self.want(number).await?;
        } else {
            let root = self.launch(number, plan, fate).await?;
            self.book.launched.insert(number, root);
            match fate {
                Fate::Cancelled => self.to_cancel.push_back((number + number % 4, root)),
                Fate::Undone => self.to_undo.push_back(root),
                _ => {}
            }
        }
        self.book.count += 1;
        Ok(())
    }

    async fn want(&self, number: i64) -> Result<()> {
        let begin = Instant::now();
        let insert = "INSERT INTO wanted VALUES ($1) ON CONFLICT DO NOTHING";
        while sqlx::query(insert).bind(number).execute(&self.pool).await.is_err() {
            check(begin, "nothing can be written")?;
        }
        Ok(())
    }

    async fn launch(&self, number: i64, plan: Plan, fate: Fate) -> Result<Uuid> {
        let begin = Instant::now();
        loop {
            match self.try_to_launch(number, plan.clone(), fate).await {
                Ok(root) => return Ok(root),
                Err(error) if begin.elapsed() > RETRY_FOR => return Err(error),
                Err(_) => tokio::time::sleep(PACE).await,
            }
        }
    }

    /// Every third launch is in a transaction of ours, so that the message exists exactly if our receipt does.
    async fn try_to_launch(&self, number: i64, plan: Plan, fate: Fate) -> Result<Uuid> {
        let launch = self.scoop.launch(Job { number, plan }).unique(format!("{number}"));
        let launch = match fate {
            Fate::Hurried(ms) => launch.deadline(Duration::from_millis(ms.into())),
            _ => launch,
        };
        if !has_receipt(number) {
            return Ok(launch.await?.id().uuid());
        }
        let mut tx = self.pool.begin().await?;
        let root = launch.in_transaction(&mut tx).await?.id().uuid();
        let receipt = sqlx::query("INSERT INTO receipt VALUES ($1, $2) ON CONFLICT DO NOTHING");
        receipt.bind(number).bind(root).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(root)
    }

    async fn cancel_what_is_due(&mut self) -> Result<()> {
        while let Some((_, root)) = self.to_cancel.pop_front_if(|(due, _)| *due <= self.book.count) {
            let begin = Instant::now();
            loop {
                match self.scoop.cancel(root, "the customer changed their mind").await {
                    Ok(CancelAnswer::NothingToDo) => break,
                    Ok(_) => {
                        self.book.cancelled += 1;
                        break;
                    }
                    Err(error) if !error.is_transient() => return Err(error.into()),
                    Err(_) => check(begin, "nothing can be cancelled")?,
                }
                tokio::time::sleep(PACE).await;
            }
        }
        Ok(())
    }

    async fn undo_one(&mut self) -> Result<()> {
        let Some(root) = self.to_undo.pop_front() else { return Ok(()) };
        match self.scoop.rollback(root, "it is to be undone").await {
            Ok(RollbackAnswer::StillRunning) => self.to_undo.push_back(root),
            Ok(RollbackAnswer::Accepted | RollbackAnswer::AlreadyRolledBack) => {
                self.book.undone.insert(root);
            }
            Ok(RollbackAnswer::FailedBefore) => {}
            Ok(answer) => return Err(Error::msg(format!("undoing {root}: {answer:?}"))),
            Err(error) if error.is_transient() => self.to_undo.push_back(root),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Whether the client launches this number together with a receipt.
pub(crate) fn has_receipt(number: i64) -> bool {
    number % 3 == 0
}

fn check(begin: Instant, what: &str) -> Result<()> {
    if begin.elapsed() > RETRY_FOR { Err(Error::msg(what.to_owned())) } else { Ok(()) }
}
