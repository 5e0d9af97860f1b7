//! The transactions of steps: how they begin and end.
//!
//! A waiting step holds no connection; a step that asks for a transaction gets one of a limited number. While other
//! steps wait for one, a connection does not go back to the pool: the commit of one step and the beginning of the next
//! are one round trip. Sagas take turns, so that many steps of one do not block another. While no step waits, the next
//! step of the same run is likely to come soon: its transaction is begun along with the commit, and kept. Another run
//! that takes that connection begins anew, since its transaction must not be older than the launch of its message.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::PgTransactionManager;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Row as _, SqlSafeStr as _, SqlStr,
    Transaction,
};
use sqlx_core::transaction::TransactionManager as _;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::idle_cache::{IdleCache, USES_MAX};
use crate::util::detached::uninterrupted;
use crate::util::sync::{Mutex, lock};

/// Fails on a standby, where a step could not write.
const BEGIN: &str = "BEGIN READ WRITE";

/// Marks a transaction as begun by the engine: the mark is gone if the step ends the transaction. The text is always
/// the same, since statistics of the server count each text.
const MARK: &str = "SET LOCAL scoop_run.claim = 'held'";

/// The value that [`MARK`] has set.
pub(crate) const MARKED: &str = "held";

/// Resets a session to its state before its first step: settings, temporary tables, advisory locks, subscriptions and
/// cursors of a step. Fails if [`READY`] was not executed there, or if a step has deallocated the statement that it
/// prepares.
///
/// The empty transaction ends the one that the statements before it share, without a warning of the server: otherwise
/// they would belong to that of the step, which could then no longer set its isolation level, and would take them back
/// with it.
const RESET: &str = "RESET ALL; EXECUTE scoop_session; DISCARD TEMP; UNLISTEN *; CLOSE ALL; BEGIN; COMMIT; ";

/// The facts about a session in which [`RESET`] has failed: the number of its statements, whether it is ready after
/// all, and the statements that make it ready. Settings that were made with the connection are kept.
const READY: &str = "
    SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_statements WHERE NOT from_sql) AS statements,
           EXISTS (SELECT FROM pg_catalog.pg_prepared_statements
                   WHERE name OPERATOR(pg_catalog.=) 'scoop_session') AS ready,
           (SELECT 'PREPARE scoop_session AS SELECT pg_catalog.pg_advisory_unlock_all(), ' OPERATOR(pg_catalog.||) pg_catalog.string_agg(
                pg_catalog.format('pg_catalog.set_config(%L, %L, false)', name, setting), ', ')
            FROM (SELECT name, setting FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session'
                  UNION ALL SELECT 'role', pg_catalog.current_setting('role')) changed) AS prepare";

/// The number of sessions checked after a step has deallocated statements.
const SPOILED_MAX: u32 = 1_000;

/// How long a failed step may take to roll back before its failure is recorded anyway.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(1);

/// The name of a saga.
type Saga = Cow<'static, str>;

/// Provides the transactions of steps. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StepTransactions {
    pool: PgPool,
    /// The beginning of a transaction on a fresh connection, see
    /// [`Sessions::preamble`](crate::store::Sessions::preamble).
    preamble: &'static str,
    queue: Arc<Mutex<Queue>>,
    /// Begun, and not in use.
    idle: IdleCache<StepTransaction>,
}

/// The transaction of a step.
pub(crate) struct StepTransaction {
    pub(crate) transaction: Transaction<'static, Postgres>,
    /// The handlers to notify after the commit.
    pub(crate) ready_handlers: Vec<String>,
    /// The number of steps since this connection was last idle.
    steps: u32,
    /// The run that it was begun for, until that run asks for it.
    begun_for: Option<Uuid>,
    permit: Permit,
}

/// The right to one of the connections for steps. Its drop passes the right on.
struct Permit(Arc<Mutex<Queue>>);

struct Queue {
    /// The number of free rights.
    free: usize,
    /// The sagas with waiting steps, in turn.
    waiting_sagas: VecDeque<Saga>,
    waiting: HashMap<Saga, VecDeque<Waiter>>,
}

/// A step that waits for a transaction.
type Waiter = oneshot::Sender<Grant>;

/// The grant of a waiting step.
enum Grant {
    /// The transaction, begun.
    Transaction(StepTransaction),
    /// The right to open one.
    Permit(Permit),
}

impl StepTransactions {
    /// The name of the pool of steps, and how many of its connections are open and idle.
    pub(crate) fn open_connections(&self) -> (&'static str, usize, usize) {
        let open = usize::try_from(self.pool.size()).unwrap_or(usize::MAX);
        ("steps", open, self.pool.num_idle())
    }

    /// At most so many connections at a time, from this pool.
    pub(crate) fn new(pool: PgPool, limit: usize, preamble: &'static str) -> Self {
        let queue = Queue { free: limit, waiting_sagas: VecDeque::new(), waiting: HashMap::new() };
        Self { pool, preamble, queue: Arc::new(Mutex::new(queue)), idle: IdleCache::default() }
    }

    /// Begins the transaction of a step of this saga, in this run.
    pub(crate) async fn begin(&self, saga: &Saga, run: Uuid) -> sqlx::Result<StepTransaction> {
        if let Some(opened) = self.idle.take() {
            return opened.reuse_for(run).await;
        }
        let permit = match Permit::acquire_or_enqueue(&self.queue, saga) {
            Ok(permit) => permit,
            Err(turn) => match turn.await.map_err(|_| sqlx::Error::PoolClosed)? {
                Grant::Transaction(opened) => return opened.reuse_for(run).await,
                Grant::Permit(permit) => permit,
            },
        };
        self.open(permit).await
    }

    async fn open(&self, permit: Permit) -> sqlx::Result<StepTransaction> {
        // Safe: all of them are constants.
        let begin = AssertSqlSafe(format!("{}{BEGIN}; {}{MARK}", self.reset(), self.preamble)).into_sql_str();
        let pool = self.pool.clone();
        uninterrupted(async move {
            let transaction = match pool.begin_with(begin.clone()).await {
                Err(error) if lacks_statement(&error) => begin_anew(&pool, begin).await?,
                begun => begun?,
            };
            Ok(StepTransaction { transaction, ready_handlers: vec![], steps: 1, begun_for: None, permit })
        })
        .await
    }

    /// Commits. A waiting step gets this connection in the same round trip; without one, the next step of the run gets
    /// it if the run continues.
    pub(crate) async fn commit(&self, opened: StepTransaction, goes_on: Option<Uuid>) -> sqlx::Result<()> {
        let StepTransaction { mut transaction, steps, permit, .. } = opened;
        let rests = steps >= USES_MAX;
        let next = if rests { None } else { lock(&self.queue).next() };
        if rests || (next.is_none() && goes_on.is_none()) {
            return transaction.commit().await;
        }
        let committed = commit_and_begin(&mut transaction, self.reset()).await;
        let begun_for = if next.is_some() { None } else { goes_on };
        let turn = match &committed {
            Ok(Next::Begun) => Grant::Transaction(StepTransaction {
                transaction,
                ready_handlers: vec![],
                steps: steps + 1,
                begun_for,
                permit,
            }),
            Ok(Next::Spoiled) | Err(_) => Grant::Permit(permit),
        };
        match (next, turn) {
            // A step that does not wait any more passes it on by dropping it.
            (Some(waiter), turn) => drop(waiter.send(turn)),
            (None, Grant::Transaction(opened)) => self.park(opened),
            (None, Grant::Permit(permit)) => drop(permit),
        }
        committed.map(drop)
    }

    /// The reset of a session between two steps. Behind a proxy each transaction has another session anyway.
    fn reset(&self) -> &'static str {
        if self.preamble.is_empty() { RESET } else { "" }
    }

    /// Keeps it for its run, unless a step waits by now.
    fn park(&self, mut opened: StepTransaction) {
        loop {
            self.idle.put(opened);
            if lock(&self.queue).waiting_sagas.is_empty() {
                return;
            }
            let Some(taken) = self.idle.take() else { return };
            let next = lock(&self.queue).next();
            match next {
                Some(waiter) => return drop(waiter.send(Grant::Transaction(taken))),
                None => opened = taken,
            }
        }
    }
}

/// The state of a connection after a commit.
enum Next {
    /// The transaction of the next step is begun.
    Begun,
    /// The session cannot be used as it is.
    Spoiled,
}

/// A chained transaction would inherit what the step has set for its own.
async fn commit_and_begin(
    transaction: &mut Transaction<'static, Postgres>,
    reset: &str,
) -> sqlx::Result<Next> {
    // Safe: all of them are constants.
    let both = AssertSqlSafe(format!("COMMIT; {reset}{BEGIN}; {MARK}"));
    let mut results = sqlx::raw_sql(both).execute_many(&mut **transaction);
    results.try_next().await?;
    // From here on it is committed.
    loop {
        match results.try_next().await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Next::Begun),
            Err(_) => return Ok(Next::Spoiled),
        }
    }
}

/// Begins after the reset failed for want of a statement, on that connection or another one.
async fn begin_anew(pool: &PgPool, begin: SqlStr) -> sqlx::Result<Transaction<'static, Postgres>> {
    for _ in 0..SPOILED_MAX {
        let mut connection = pool.acquire().await?;
        match is_made_ready(&mut connection).await? {
            true => return Transaction::begin(connection, Some(begin)).await,
            // Statements that its cache relies on are gone.
            false => connection.close().await?,
        }
    }
    Err(sqlx::Error::BeginFailed)
}

/// Makes a session ready for [`RESET`], unless a step has deallocated its statements.
async fn is_made_ready(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let found = sqlx::query(READY).persistent(false).fetch_one(&mut *connection).await?;
    let statements: i64 = found.try_get("statements")?;
    if usize::try_from(statements).unwrap_or(0) < connection.cached_statements_size() {
        return Ok(false);
    }
    if !found.try_get::<bool, _>("ready")? {
        // Safe: the server has quoted it.
        sqlx::raw_sql(AssertSqlSafe(found.try_get::<String, _>("prepare")?)).execute(connection).await?;
    }
    Ok(true)
}

/// Whether a prepared statement is missing.
fn lacks_statement(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "26000")
}

impl StepTransaction {
    /// Begins it anew if it was begun for another run.
    async fn reuse_for(mut self, run: Uuid) -> sqlx::Result<Self> {
        if self.begun_for.take().is_some_and(|other| other != run) {
            // It is empty, so nothing of it remains.
            commit_and_begin(&mut self.transaction, "").await?;
        }
        Ok(self)
    }

    /// Whether a nested transaction is open: the step has forgotten it, since its drop would have rolled it back.
    pub(crate) fn is_nested(&self) -> bool {
        PgTransactionManager::get_transaction_depth(&self.transaction) > 1
    }

    /// Whether the transaction is still the one that the engine began.
    pub(crate) async fn has_claim_mark(&mut self) -> sqlx::Result<bool> {
        let current: Option<String> =
            sqlx::query_scalar("SELECT pg_catalog.current_setting('scoop_run.claim', true)")
                .fetch_one(&mut *self.transaction)
                .await?;
        Ok(current.as_deref() == Some(MARKED))
    }

    /// Rolls back. An error means that the connection is lost: then the server rolls back.
    pub(crate) async fn rollback(self) -> sqlx::Result<()> {
        let Self { mut transaction, permit, .. } = self;
        // Otherwise the innermost would be rolled back in place of the whole.
        while PgTransactionManager::get_transaction_depth(&transaction) > 1 {
            PgTransactionManager::rollback(&mut transaction).await?;
        }
        let rolled_back = transaction.rollback().await;
        drop(permit);
        rolled_back
    }
}

impl Permit {
    /// A free right, or a position in the queue.
    fn acquire_or_enqueue(queue: &Arc<Mutex<Queue>>, saga: &Saga) -> Result<Self, oneshot::Receiver<Grant>> {
        let mut held = lock(queue);
        match held.free.checked_sub(1) {
            Some(free) => {
                held.free = free;
                Ok(Self(queue.clone()))
            }
            None => Err(held.wait(saga)),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = {
            let mut queue = lock(&self.0);
            let next = queue.next();
            queue.free += usize::from(next.is_none());
            next
        };
        if let Some(waiter) = next {
            // A step that does not wait any more passes it on in turn.
            let _ = waiter.send(Grant::Permit(Self(self.0.clone())));
        }
    }
}

impl Queue {
    /// A position at the end of the queue of this saga.
    fn wait(&mut self, saga: &Saga) -> oneshot::Receiver<Grant> {
        let (waiter, turn) = oneshot::channel();
        let waiters = self.waiting.entry(saga.clone()).or_default();
        if waiters.is_empty() {
            self.waiting_sagas.push_back(saga.clone());
        }
        waiters.push_back(waiter);
        turn
    }

    /// The next waiting step.
    fn next(&mut self) -> Option<Waiter> {
        loop {
            let saga = self.waiting_sagas.pop_front()?;
            let waiters = self.waiting.get_mut(&saga)?;
            let waiter = waiters.pop_front();
            if waiters.is_empty() {
                self.waiting.remove(&saga);
            } else {
                self.waiting_sagas.push_back(saga);
            }
            if waiter.as_ref().is_some_and(|waiter| !waiter.is_closed()) {
                return waiter;
            }
        }
    }
}

/// What remains to be rolled back after failed user code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RolledBack {
    /// It had no transaction.
    Nothing,
    /// It had a transaction of the engine.
    Transaction,
    /// The connection of its transaction was lost.
    LostConnection,
}

/// Rolls back the transaction of a failed step. If the step was stopped during a long statement, the engine does not
/// wait for that statement; but its connection counts until it is free.
pub(crate) async fn roll_back(opened: Option<StepTransaction>) -> RolledBack {
    let Some(opened) = opened else {
        return RolledBack::Nothing;
    };
    match tokio::time::timeout(ROLLBACK_LIMIT, tokio::spawn(opened.rollback())).await {
        Ok(Ok(Err(_))) => RolledBack::LostConnection,
        _ => RolledBack::Transaction,
    }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgPoolOptions;

    use super::*;
    use crate::embedded::Embedded;
    use crate::store::tests::{database, done};

    const RUN: Uuid = Uuid::from_u128(1);

    fn queue(free: usize) -> Arc<Mutex<Queue>> {
        Arc::new(Mutex::new(Queue { free, waiting_sagas: VecDeque::new(), waiting: HashMap::new() }))
    }

    fn wait(queue: &Mutex<Queue>, saga: &Saga) -> oneshot::Receiver<Grant> {
        lock(queue).wait(saga)
    }

    /// Returns which of these steps has got its grant.
    fn served(turns: &mut [oneshot::Receiver<Grant>]) -> Vec<usize> {
        let got = |turn: &mut oneshot::Receiver<Grant>| turn.try_recv().is_ok();
        (0..turns.len()).filter(|at| got(&mut turns[*at])).collect()
    }

    #[tokio::test]
    async fn crowd_of_one_saga_takes_turns_with_the_others() {
        let queue = queue(0);
        let [crowd, lone] = [Saga::Borrowed("crowd"), Saga::Borrowed("lone")];
        let mut turns: Vec<_> = [&crowd, &crowd, &crowd, &lone].map(|saga| wait(&queue, saga)).into();
        let mut order = vec![];
        for _ in 0..4 {
            let next = lock(&queue).next().unwrap();
            assert!(next.send(Grant::Permit(Permit(self::queue(1)))).is_ok());
            order.extend(served(&mut turns));
        }
        assert_eq!(order, [0, 3, 1, 2]);
        assert!(lock(&queue).next().is_none());
        assert!(lock(&queue).waiting.is_empty());
    }

    #[tokio::test]
    async fn returned_permit_goes_to_the_next_waiting_step_and_then_is_free() {
        let queue = queue(0);
        let saga = Saga::Borrowed("saga");
        drop(wait(&queue, &saga));
        let waits = wait(&queue, &saga);
        drop(Permit(queue.clone()));
        let Ok(Grant::Permit(permit)) = waits.await else { panic!("it waited for a permit") };
        assert_eq!(lock(&queue).free, 0);
        drop(permit);
        assert_eq!(lock(&queue).free, 1);
    }

    #[tokio::test]
    async fn no_step_begins_on_a_standby() {
        if !Embedded::is_installed() {
            return eprintln!("not tested: there is no PostgreSQL on this machine");
        }
        let primary = Embedded::start().await.unwrap();
        let standby = primary.standby().await.unwrap();
        let pool = PgPool::connect_with(standby.connect_options()).await.unwrap();
        let (connections, saga) = (StepTransactions::new(pool.clone(), 1, ""), Saga::Borrowed("saga"));
        assert!(connections.begin(&saga, RUN).await.is_err());
        sqlx::query("SELECT pg_promote()").execute(&pool).await.unwrap();
        let opened = connections.begin(&saga, RUN).await.unwrap();
        opened.rollback().await.unwrap();
    }

    #[tokio::test]
    async fn the_next_step_has_the_connection_of_the_one_before_it() {
        let pool = database("next_step").await;
        let (connections, saga) = (StepTransactions::new(pool.clone(), 1, ""), Saga::Borrowed("saga"));
        sqlx::raw_sql("CREATE TABLE done (step bigint)").execute(&pool).await.unwrap();
        for step in 1..=3_u32 {
            let mut opened = connections.begin(&saga, RUN).await.unwrap();
            let insert = sqlx::query("INSERT INTO done VALUES ($1)").bind(i64::from(step));
            insert.execute(&mut *opened.transaction).await.unwrap();
            connections.commit(opened, Some(RUN)).await.unwrap();
            let kept = connections.idle.take().expect("it is kept");
            assert_eq!((kept.steps, lock(&connections.queue).free), (step + 1, 0));
            // No other task has run since, so it has not been given back.
            connections.idle.put(kept);
        }
        let opened = connections.begin(&saga, RUN).await.unwrap();
        connections.commit(opened, None).await.unwrap();
        assert!(connections.idle.take().is_none(), "the run has ended");
        assert_eq!(lock(&connections.queue).free, 1);
        let steps: i64 = sqlx::query_scalar("SELECT count(*) FROM done").fetch_one(&pool).await.unwrap();
        assert_eq!(steps, 3);
        done(pool).await;
    }

    /// The time at which a transaction began, and that of a write of another session just before it was asked for.
    #[tokio::test]
    async fn another_run_has_a_transaction_that_is_no_older_than_itself() {
        let pool = database("another_run").await;
        let (connections, saga) = (StepTransactions::new(pool.clone(), 1, ""), Saga::Borrowed("saga"));
        for (run, is_later) in [(RUN, false), (Uuid::from_u128(2), true)] {
            let opened = connections.begin(&saga, RUN).await.unwrap();
            connections.commit(opened, Some(RUN)).await.unwrap();
            let kept = connections.idle.take().expect("nothing else has run since");
            let now = sqlx::query_scalar("SELECT clock_timestamp()::text");
            let meanwhile: String = now.fetch_one(&pool).await.unwrap();
            connections.idle.put(kept);
            let mut opened = connections.begin(&saga, run).await.unwrap();
            let later = sqlx::query_scalar("SELECT now() > $1::timestamptz").bind(meanwhile);
            let later: bool = later.fetch_one(&mut *opened.transaction).await.unwrap();
            assert_eq!(later, is_later);
            opened.rollback().await.unwrap();
        }
        done(pool).await;
    }

    #[tokio::test]
    async fn step_that_waits_during_a_commit_gets_the_connection() {
        let pool = database("meanwhile").await;
        let (connections, saga) = (StepTransactions::new(pool.clone(), 1, ""), Saga::Borrowed("saga"));
        let opened = connections.begin(&saga, RUN).await.unwrap();
        let [gone, waits] =
            [(); 2].map(|()| Permit::acquire_or_enqueue(&connections.queue, &saga).err().unwrap());
        drop(gone);
        connections.park(opened);
        assert!(matches!(waits.await, Ok(Grant::Transaction(_))));
        assert!(connections.idle.take().is_none());
        done(pool).await;
    }

    #[tokio::test]
    async fn a_connection_that_no_step_wants_goes_back() {
        let pool = database("unwanted").await;
        let only = PgPoolOptions::new().max_connections(1);
        let only = only.connect_with((*pool.connect_options()).clone()).await.unwrap();
        let (connections, saga) = (StepTransactions::new(only.clone(), 1, ""), Saga::Borrowed("saga"));
        let opened = connections.begin(&saga, RUN).await.unwrap();
        connections.commit(opened, Some(RUN)).await.unwrap();
        let mut connection = only.acquire().await.unwrap();
        let held = "SELECT current_setting('scoop_run.claim', true)";
        let mark: Option<String> = sqlx::query_scalar(held).fetch_one(&mut *connection).await.unwrap();
        assert_eq!(mark.unwrap_or_default(), "", "its transaction was rolled back");
        assert_eq!(lock(&connections.queue).free, 1);
        drop(connection);
        only.close().await;
        done(pool).await;
    }

    /// The grant has been sent, but its step does not wait any more.
    #[tokio::test]
    async fn permit_of_a_dropped_step_goes_to_the_next() {
        let queue = queue(0);
        let saga = Saga::Borrowed("saga");
        let (gone, waits) = (wait(&queue, &saga), wait(&queue, &saga));
        drop(Permit(queue.clone()));
        drop(gone);
        assert!(matches!(waits.await, Ok(Grant::Permit(_))));
    }
}

#[cfg(test)]
mod interleavings {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use shuttle::future::block_on;
    use shuttle::rand::{Rng, thread_rng};
    use shuttle::thread;

    use super::*;
    use crate::util::sync::explore;

    const LIMIT: usize = 2;

    /// A step that gets the right to a connection, or stops waiting for it at any moment.
    fn step(queue: &Arc<Mutex<Queue>>, saga: &Saga, holders: &AtomicUsize) {
        let permit = match Permit::acquire_or_enqueue(queue, saga) {
            Ok(permit) => permit,
            Err(turn) if thread_rng().gen_bool(0.3) => {
                thread::yield_now();
                return drop(turn);
            }
            Err(turn) => match block_on(turn) {
                Ok(Grant::Permit(permit)) => permit,
                Ok(Grant::Transaction(_)) => unreachable!("no step has begun one"),
                Err(_) => panic!("a waiter was forgotten"),
            },
        };
        assert!(holders.fetch_add(1, SeqCst) < LIMIT, "more than there are connections");
        thread::yield_now();
        holders.fetch_sub(1, SeqCst);
        // As a commit does, or a step that gives up.
        let next = if thread_rng().gen_bool(0.5) { lock(queue).next() } else { None };
        match next {
            Some(waiter) => drop(waiter.send(Grant::Permit(permit))),
            None => drop(permit),
        }
    }

    #[test]
    fn every_waiter_gets_its_turn_and_no_permit_is_lost() {
        explore(|| {
            let (turns, waiting) = Default::default();
            let queue = Arc::new(Mutex::new(Queue { free: LIMIT, waiting_sagas: turns, waiting }));
            let holders = Arc::new(AtomicUsize::new(0));
            let steps = [0, 0, 0, 1, 1].map(|saga| {
                let (queue, holders) = (queue.clone(), holders.clone());
                thread::spawn(move || step(&queue, &Saga::Borrowed(["crowd", "lone"][saga]), &holders))
            });
            steps.into_iter().for_each(|step| step.join().unwrap());
            let queue = lock(&queue);
            assert_eq!((queue.free, queue.waiting_sagas.len(), queue.waiting.len()), (LIMIT, 0, 0));
        });
    }
}
