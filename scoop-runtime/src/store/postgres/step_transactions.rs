//! The transactions of steps: how they begin and end.
//!
//! A waiting step holds no connection; a step that asks for a transaction gets one of a limited number. While other
//! steps wait for one, a connection does not go back to the pool: the commit of one step and the beginning of the next
//! are one round trip. Sagas take turns, so that many steps of one do not block another. While no step waits, the next
//! step of the same run is likely to come soon: its transaction is begun along with the commit, and kept. Another run
//! that takes that connection begins anew, since its transaction must not be older than the launch of its message.
//!
//! A step costs three round trips and one commit: its own statement, the settlement, and one message that commits and begins
//! the next transaction. Between the two, that message resets the session, by statements without rows; what the hooks of the
//! pool have set is set again (`hook_settings.rs`). It is no chained transaction, which would have the isolation level of
//! the step.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::hook_settings::HookSettings;
use super::idle_cache::{IdleCache, USES_MAX};
use crate::error::is_transient_in_step;
use crate::error::sqlstate::RolledBack;
use crate::util::detached::run_to_completion;
use crate::util::sync::{Mutex, lock};

/// Fails on a standby, where a step could not write.
const BEGIN: &str = "BEGIN READ WRITE";

/// Marks a transaction as begun by the engine: the mark is gone if the step ends the transaction. The text is always
/// the same, since statistics of the server count each text.
const MARK: &str = "SET LOCAL scoop_run.claim = 'held'";

/// The value that [`MARK`] has set.
pub(crate) const MARKED: &str = "held";

/// Resets a session to its state before the step: its role, settings, temporary tables, subscriptions and cursors. A
/// statement each, none of which returns rows: that costs the server and this program the least.
pub(super) const RESET: &str = "RESET ROLE; RESET ALL; DISCARD TEMP; UNLISTEN *; CLOSE ALL";

/// Frees the advisory locks of the session.
const UNLOCK: &str = "SELECT pg_catalog.pg_advisory_unlock_all()";

/// How long a failed step may take to roll back before its failure is recorded anyway.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(1);

type Saga = Cow<'static, str>;

/// Provides the transactions of steps. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StepTransactions {
    pool: PgPool,
    /// The beginning of a transaction on a fresh connection, see
    /// [`Sessions::preamble`](crate::store::Sessions::preamble).
    preamble: &'static str,
    hooks: Arc<HookSettings>,
    queue: Arc<Mutex<Grants>>,
    /// Begun, and not in use.
    idle: IdleCache<StepTransaction>,
}

pub(crate) struct StepTransaction {
    pub(crate) transaction: OpenTransaction,
    pub(crate) ready_handlers: Vec<String>,
    /// Whether its connection had no prepared statements when it was handed out.
    pub(crate) is_fresh: bool,
    is_abandoned: bool,
    /// The number of steps since this connection was last idle.
    steps: u32,
    /// The run that it was begun for, until that run asks for it.
    begun_for: Option<Uuid>,
    permit: Permit,
}

/// A connection in a transaction. Its drop rolls back if no step has used it, and closes the connection otherwise: the
/// step may have left something in the session that a rollback does not undo.
pub(crate) struct OpenTransaction {
    connection: PoolConnection<Postgres>,
    /// The statements that reset the session after a step. Behind a proxy each transaction has another one anyway.
    reset: Option<Arc<str>>,
    state: TransactionState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransactionState {
    Begun,
    Used,
    Ended,
}

impl Deref for OpenTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for OpenTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        match self.state {
            TransactionState::Begun => PgTransactionManager::start_rollback(&mut self.connection),
            TransactionState::Used => self.connection.close_on_drop(),
            TransactionState::Ended => {}
        }
    }
}

impl OpenTransaction {
    /// Rolls back, nested transactions included.
    async fn rollback(&mut self) -> sqlx::Result<()> {
        while PgTransactionManager::get_transaction_depth(self) > 0 {
            PgTransactionManager::rollback(self).await?;
        }
        self.state = TransactionState::Ended;
        Ok(())
    }

    /// Rolls back what is open, resets the session, and gives the connection back. Neither the run nor its step waits for
    /// that.
    fn give_back(mut self, permit: Option<Permit>) {
        tokio::spawn(async move {
            if self.cleaned().await.is_err() {
                self.connection.close_on_drop();
            }
            drop(self);
            drop(permit);
        });
    }

    async fn cleaned(&mut self) -> sqlx::Result<()> {
        self.rollback().await?;
        if let Some(reset) = &self.reset {
            // Safe: the server has quoted what is not constant.
            let reset = AssertSqlSafe(format!("{UNLOCK}; {reset}"));
            sqlx::raw_sql(reset).execute(&mut **self).await?;
        }
        Ok(())
    }
}

/// The right to one of the connections for steps. Its drop passes the right on.
struct Permit(Arc<Mutex<Grants>>);

struct Grants {
    free: usize,
    waiting_sagas: VecDeque<Saga>,
    waiting: HashMap<Saga, VecDeque<GrantSender>>,
}

type GrantSender = oneshot::Sender<Grant>;

enum Grant {
    Transaction(StepTransaction),
    /// The right to open a transaction.
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
        let queue = Grants { free: limit, waiting_sagas: VecDeque::new(), waiting: HashMap::new() };
        let queue = Arc::new(Mutex::new(queue));
        Self { pool, preamble, hooks: Arc::default(), queue, idle: IdleCache::default() }
    }

    /// Begins the transaction of a step of this saga, in this run. A fresh one has a connection without prepared
    /// statements: those of another one may be stale, see [`is_stale`](crate::error::is_stale).
    pub(crate) async fn begin(&self, saga: &Saga, run: Uuid, fresh: bool) -> sqlx::Result<StepTransaction> {
        let mut opened = self.take(saga, run).await?;
        opened.transaction.state = TransactionState::Used;
        if !fresh {
            return Ok(opened);
        }
        run_to_completion(async move {
            opened.transaction.clear_cached_statements().await?;
            opened.is_fresh = true;
            Ok(opened)
        })
        .await
    }

    async fn take(&self, saga: &Saga, run: Uuid) -> sqlx::Result<StepTransaction> {
        if let Some(opened) = self.idle.take() {
            return opened.reuse_for(run).await;
        }
        let permit = match Permit::acquire_or_enqueue(&self.queue, saga) {
            Ok(permit) => permit,
            Err(grant) => match grant.await.map_err(|_| sqlx::Error::PoolClosed)? {
                Grant::Transaction(opened) => return opened.reuse_for(run).await,
                Grant::Permit(permit) => permit,
            },
        };
        self.open(permit).await
    }

    async fn open(&self, permit: Permit) -> sqlx::Result<StepTransaction> {
        // Safe: all of them are constants.
        let begin = AssertSqlSafe(format!("{BEGIN}; {}{MARK}", self.preamble)).into_sql_str();
        let (pool, hooks) = (self.pool.clone(), self.hooks.clone());
        let resets = self.preamble.is_empty();
        run_to_completion(async move {
            let mut connection = pool.acquire().await?;
            let user = pool.connect_options();
            let reset = match resets {
                true => Some(hooks.reset(&mut connection, user.get_username()).await?),
                false => None,
            };
            let begun = PgTransactionManager::begin(&mut connection, Some(begin)).await;
            // A part of it may have succeeded.
            begun.inspect_err(|_| connection.close_on_drop())?;
            let transaction = OpenTransaction { connection, reset, state: TransactionState::Begun };
            Ok(StepTransaction::begun(transaction, 1, None, permit))
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
            let committed = PgTransactionManager::commit(&mut transaction).await;
            if is_answered(&committed) {
                transaction.give_back(Some(permit));
            }
            return committed;
        }
        let committed = commit_and_begin(&mut transaction).await;
        let begun_for = if next.is_some() { None } else { goes_on };
        let grant = match &committed {
            Ok(Next::Begun) => {
                transaction.state = TransactionState::Begun;
                Grant::Transaction(StepTransaction::begun(transaction, steps + 1, begun_for, permit))
            }
            Ok(Next::Spoiled) => Grant::Permit(permit),
            Err(_) => {
                if is_answered(&committed) {
                    transaction.give_back(None);
                }
                Grant::Permit(permit)
            }
        };
        match (next, grant) {
            // A step that does not wait any more passes it on by dropping it.
            (Some(sender), grant) => drop(sender.send(grant)),
            (None, Grant::Transaction(opened)) => self.park(opened),
            (None, Grant::Permit(permit)) => drop(permit),
        }
        committed.map(drop)
    }

    /// Keeps the transaction for its run, unless a step waits by now.
    fn park(&self, mut opened: StepTransaction) {
        loop {
            self.idle.put(opened);
            if lock(&self.queue).waiting_sagas.is_empty() {
                return;
            }
            let Some(taken) = self.idle.take() else { return };
            let next = lock(&self.queue).next();
            match next {
                Some(sender) => return drop(sender.send(Grant::Transaction(taken))),
                None => opened = taken,
            }
        }
    }
}

enum Next {
    /// The transaction of the next step is begun.
    Begun,
    /// The session cannot be used as it is.
    Spoiled,
}

/// Whether the server has answered, so that the connection can be used again.
fn is_answered<T>(committed: &sqlx::Result<T>) -> bool {
    committed.as_ref().map_or_else(|error| error.as_database_error().is_some(), |_| true)
}

/// The transaction of the next step is not a chained one, which would inherit what the step has set for its own. The
/// reset has a transaction of its own: in that of the next step, it would end with it.
async fn commit_and_begin(transaction: &mut OpenTransaction) -> sqlx::Result<Next> {
    let both = match &transaction.reset {
        Some(reset) if transaction.state == TransactionState::Used => {
            format!("COMMIT AND CHAIN; {reset}; COMMIT; {BEGIN}; {MARK}")
        }
        _ => format!("COMMIT; {BEGIN}; {MARK}"),
    };
    // Safe: the server has quoted what is not constant.
    let mut results = sqlx::raw_sql(AssertSqlSafe(both)).execute_many(&mut **transaction);
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

impl StepTransaction {
    fn begun(transaction: OpenTransaction, steps: u32, begun_for: Option<Uuid>, permit: Permit) -> Self {
        Self {
            transaction,
            ready_handlers: vec![],
            is_fresh: false,
            is_abandoned: false,
            steps,
            begun_for,
            permit,
        }
    }

    /// Begins it again if it was begun for another run.
    async fn reuse_for(mut self, run: Uuid) -> sqlx::Result<Self> {
        if self.begun_for.take().is_some_and(|other| other != run) {
            // It is empty, so nothing of it remains.
            if let Next::Spoiled = commit_and_begin(&mut self.transaction).await? {
                self.transaction.connection.close_on_drop();
                return Err(sqlx::Error::BeginFailed);
            }
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

    pub(crate) fn close_in_the_end(&mut self) {
        self.transaction.connection.close_on_drop();
    }

    /// Closes the connection in place of a rollback: it is out of step with the server, so that a ROLLBACK could get the answer
    /// to something else.
    pub(crate) fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    /// Rolls back. An error means that the connection is lost: then the server rolls back.
    ///
    /// A server that refuses a ROLLBACK has answered something else, such as an open COPY. Then the connection is closed.
    async fn rollback(self) -> sqlx::Result<()> {
        let Self { mut transaction, permit, is_abandoned, .. } = self;
        if is_abandoned {
            return Ok(());
        }
        match transaction.rollback().await {
            Ok(()) => {
                transaction.give_back(Some(permit));
                Ok(())
            }
            Err(error) if is_transient_in_step(&error) => Err(error),
            Err(_) => Ok(()),
        }
    }
}

impl Permit {
    fn acquire_or_enqueue(queue: &Arc<Mutex<Grants>>, saga: &Saga) -> Result<Self, oneshot::Receiver<Grant>> {
        let mut grants = lock(queue);
        match grants.free.checked_sub(1) {
            Some(free) => {
                grants.free = free;
                Ok(Self(queue.clone()))
            }
            None => Err(grants.wait(saga)),
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
        if let Some(sender) = next {
            // A step that does not wait any more passes it on in turn.
            let _ = sender.send(Grant::Permit(Self(self.0.clone())));
        }
    }
}

impl Grants {
    /// A position at the end of the queue of this saga.
    fn wait(&mut self, saga: &Saga) -> oneshot::Receiver<Grant> {
        let (sender, grant) = oneshot::channel();
        let senders = self.waiting.entry(saga.clone()).or_default();
        if senders.is_empty() {
            self.waiting_sagas.push_back(saga.clone());
        }
        senders.push_back(sender);
        grant
    }

    fn next(&mut self) -> Option<GrantSender> {
        loop {
            let saga = self.waiting_sagas.pop_front()?;
            let senders = self.waiting.get_mut(&saga)?;
            let sender = senders.pop_front();
            if senders.is_empty() {
                self.waiting.remove(&saga);
            } else {
                self.waiting_sagas.push_back(saga);
            }
            if sender.as_ref().is_some_and(|sender| !sender.is_closed()) {
                return sender;
            }
        }
    }
}

/// Rolls back the transaction of a failed step. If the step was stopped during a long statement, the engine does not
/// wait for that statement; but its connection counts until it is free.
pub(crate) async fn roll_back(opened: Option<StepTransaction>) -> RolledBack {
    let Some(opened) = opened else {
        return RolledBack::Nothing;
    };
    let is_fresh = opened.is_fresh;
    match tokio::time::timeout(ROLLBACK_LIMIT, tokio::spawn(opened.rollback())).await {
        Ok(Ok(Err(_))) => RolledBack::LostConnection,
        _ => RolledBack::Transaction { is_fresh },
    }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgPoolOptions;

    use super::*;
    use crate::embedded::Embedded;
    use crate::store::tests::{database, done};

    const RUN: Uuid = Uuid::from_u128(1);

    fn queue(free: usize) -> Arc<Mutex<Grants>> {
        Arc::new(Mutex::new(Grants { free, waiting_sagas: VecDeque::new(), waiting: HashMap::new() }))
    }

    fn wait(queue: &Mutex<Grants>, saga: &Saga) -> oneshot::Receiver<Grant> {
        lock(queue).wait(saga)
    }

    fn served(grants: &mut [oneshot::Receiver<Grant>]) -> Vec<usize> {
        let got = |grant: &mut oneshot::Receiver<Grant>| grant.try_recv().is_ok();
        (0..grants.len()).filter(|at| got(&mut grants[*at])).collect()
    }

    #[tokio::test]
    async fn crowd_of_one_saga_takes_turns_with_the_others() {
        let queue = queue(0);
        let [crowd, lone] = [Saga::Borrowed("crowd"), Saga::Borrowed("lone")];
        let mut grants: Vec<_> = [&crowd, &crowd, &crowd, &lone].map(|saga| wait(&queue, saga)).into();
        let mut order = vec![];
        for _ in 0..4 {
            let next = lock(&queue).next().unwrap();
            assert!(next.send(Grant::Permit(Permit(self::queue(1)))).is_ok());
            order.extend(served(&mut grants));
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
        assert!(connections.begin(&saga, RUN, false).await.is_err());
        sqlx::query("SELECT pg_promote()").execute(&pool).await.unwrap();
        let opened = connections.begin(&saga, RUN, false).await.unwrap();
        opened.rollback().await.unwrap();
    }

    #[tokio::test]
    async fn the_next_step_has_the_connection_of_the_one_before_it() {
        let pool = database("next_step").await;
        let (connections, saga) = (StepTransactions::new(pool.clone(), 1, ""), Saga::Borrowed("saga"));
        sqlx::raw_sql("CREATE TABLE done (step bigint)").execute(&pool).await.unwrap();
        for step in 1..=3_u32 {
            let mut opened = connections.begin(&saga, RUN, false).await.unwrap();
            let insert = sqlx::query("INSERT INTO done VALUES ($1)").bind(i64::from(step));
            insert.execute(&mut *opened.transaction).await.unwrap();
            connections.commit(opened, Some(RUN)).await.unwrap();
            let kept = connections.idle.take().expect("it is kept");
            assert_eq!((kept.steps, lock(&connections.queue).free), (step + 1, 0));
            // No other task has run since, so it has not been given back.
            connections.idle.put(kept);
        }
        let opened = connections.begin(&saga, RUN, false).await.unwrap();
        connections.commit(opened, None).await.unwrap();
        assert!(connections.idle.take().is_none(), "the run has ended");
        drop(connections.take(&saga, RUN).await.unwrap());
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
            let opened = connections.begin(&saga, RUN, false).await.unwrap();
            connections.commit(opened, Some(RUN)).await.unwrap();
            let kept = connections.idle.take().expect("nothing else has run since");
            let now = sqlx::query_scalar("SELECT clock_timestamp()::text");
            let meanwhile: String = now.fetch_one(&pool).await.unwrap();
            connections.idle.put(kept);
            let mut opened = connections.begin(&saga, run, false).await.unwrap();
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
        let opened = connections.begin(&saga, RUN, false).await.unwrap();
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
        let opened = connections.begin(&saga, RUN, false).await.unwrap();
        connections.commit(opened, Some(RUN)).await.unwrap();
        let mut connection = only.acquire().await.unwrap();
        let query = "SELECT current_setting('scoop_run.claim', true)";
        let mark: Option<String> = sqlx::query_scalar(query).fetch_one(&mut *connection).await.unwrap();
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
    fn step(queue: &Arc<Mutex<Grants>>, saga: &Saga, holders: &AtomicUsize) {
        let permit = match Permit::acquire_or_enqueue(queue, saga) {
            Ok(permit) => permit,
            Err(grant) if thread_rng().gen_bool(0.3) => {
                thread::yield_now();
                return drop(grant);
            }
            Err(grant) => match block_on(grant) {
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
            Some(sender) => drop(sender.send(Grant::Permit(permit))),
            None => drop(permit),
        }
    }

    #[test]
    fn every_waiter_gets_its_turn_and_no_permit_is_lost() {
        explore(|| {
            let (grants, waiting) = Default::default();
            let queue = Arc::new(Mutex::new(Grants { free: LIMIT, waiting_sagas: grants, waiting }));
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
