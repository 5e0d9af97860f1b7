//! Decisions about entities whose states are in tables of the user: one transaction of the user's pool for each entity.
//!
//! A task for each entity takes all decisions about it that have arrived meanwhile, so that a slow table holds up no other
//! entity. If a transaction fails, each of its decisions is made by itself, and only the one at fault fails.
//!
//! The settlements are those of steps, which do not apply without the mark of the engine. So code that ends the transaction
//! by itself cannot have a decision without its event. A command that is repeated has a transaction of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use scoop_core::{Error, Failure};
use sqlx::PgConnection;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::BATCH_MAX;
use super::batch::decide_loaded;
use crate::engine::decisions::queue::OutcomeIfCommitted;
use crate::engine::decisions::queue::{DecisionOutcome, Inbox, Pending, Undecided};
use crate::engine::settle::queue::SettleError;
use crate::engine::shared::Engine;
use crate::engine::user_code::running::Stop;
use crate::engine::why::Why;
use crate::error::sqlstate::RolledBack;
use crate::error::{
    CHAIN_MAX, is_cancelled, is_contended, is_of_infrastructure, is_of_stale_statement, is_rolled_back,
    is_stale, is_transient_in_step, is_transient_within_step,
};
use crate::saga::sql_entity::{Erased, Table};
use crate::store::entity::{Decisions, StoredEntity};
use crate::store::{EntityId, MARKED, SettleResult, Settlement, StepTransaction, Unhandled, roll_back};
use crate::telemetry;
use crate::util::panic_boundary::{self, DropGuarded, Stopped};

/// The time that `load_for_update` and `store` may take.
const TABLE_CODE_MAX: Duration = Duration::from_secs(10);

const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '5s'";

/// The answers to settlements that were committed, by run and epoch.
type Answers = BTreeMap<(Uuid, i64), SettleResult>;

enum Refused {
    /// The settlement of this run does not apply.
    Void((Uuid, i64)),
    /// A message of a decision requires a handler, and there is none.
    Unhandled(Unhandled),
    /// The code of the user has failed, or ended the transaction.
    Failed(Failure),
    /// The database failed, or another transaction holds a lock for long. To be repeated after a pause.
    Again(Why),
    /// The answer to the commit was lost.
    InDoubt(String),
    /// Several were decided, and one of them failed.
    Split,
    /// The engine stops.
    Stopped,
}

pub(in crate::engine) async fn serve(engine: Arc<Engine>, mut queue: Inbox, drained: CancellationToken) {
    let mut waiting: BTreeMap<EntityId, Vec<Pending>> = BTreeMap::new();
    let (mut tasks, mut entities) = (JoinSet::new(), HashMap::<Id, EntityId>::new());
    loop {
        let ready = tokio::select! {
            biased;
            Some(ended) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                entities.remove(&id)
            }
            Some(pending) = queue.recv() => {
                let entity = pending.undecided.entity.clone();
                match waiting.get_mut(&entity) {
                    Some(others) => {
                        others.push(pending);
                        None
                    }
                    None => {
                        waiting.insert(entity.clone(), vec![pending]);
                        Some(entity)
                    }
                }
            }
            () = drained.cancelled() => return,
        };
        let Some(entity) = ready else { continue };
        // The entry stays as long as a task decides about the entity.
        match waiting.get_mut(&entity).map(next_batch) {
            Some(batch) if !batch.is_empty() => {
                let engine = engine.clone();
                let task = tasks.spawn(async move { decide_batch(&engine, batch).await });
                entities.insert(task.id(), entity);
            }
            _ => drop(waiting.remove(&entity)),
        }
    }
}

/// Takes the decisions of the next transaction. A repeated decision has a transaction of its own.
fn next_batch(waiting: &mut Vec<Pending>) -> Vec<Pending> {
    let fresh = waiting.iter().take(BATCH_MAX).take_while(|pending| !pending.undecided.is_repeated).count();
    waiting.drain(..fresh.max(1).min(waiting.len())).collect()
}

async fn decide_batch(engine: &Engine, mut batch: Vec<Pending>) {
    while !batch.is_empty() {
        let (outcomes, refused) = match decide_in_transaction(engine, &batch).await {
            Ok((outcomes, mut answers)) => {
                for (pending, outcome) in batch.into_iter().zip(outcomes) {
                    pending.answer(outcome, |id| answers.remove(&id).ok_or(SettleError::TakenOver));
                }
                return;
            }
            Err(refused) => refused,
        };
        match refused {
            Refused::Void(void) => {
                let is_void = |outcome: &OutcomeIfCommitted| outcome.settlement() == Some(void);
                let mut left = vec![];
                for (pending, outcome) in batch.into_iter().zip(outcomes) {
                    match is_void(&outcome) {
                        true => pending.answer(outcome, |_| Err(SettleError::TakenOver)),
                        false => left.push(pending),
                    }
                }
                batch = left;
            }
            // Each of them by itself the next time.
            Refused::Again(why) => {
                return batch.into_iter().for_each(|it| it.send(DecisionOutcome::Again(why.clone())));
            }
            Refused::Stopped => return batch.into_iter().for_each(|it| it.send(DecisionOutcome::Stopped)),
            Refused::InDoubt(why) => {
                return batch.into_iter().for_each(|it| it.send(DecisionOutcome::InDoubt(why.clone())));
            }
            refused if batch.len() > 1 => {
                drop(refused);
                for pending in batch {
                    Box::pin(decide_batch(engine, vec![pending])).await;
                }
                return;
            }
            refused => {
                let (Some(pending), outcome) = (batch.pop(), outcomes.into_iter().next()) else { return };
                match (refused, outcome) {
                    (Refused::Failed(failure), _) => pending.send(DecisionOutcome::Failed(failure)),
                    (Refused::Unhandled(unhandled), Some(outcome)) => {
                        pending.answer(outcome, |_| Err(SettleError::Unhandled(unhandled)));
                    }
                    _ => pending.send(DecisionOutcome::Stopped),
                }
            }
        }
    }
}

/// Decides all of them in one transaction. An error has the outcomes so far.
async fn decide_in_transaction(
    engine: &Engine,
    batch: &[Pending],
) -> Result<(Vec<OutcomeIfCommitted>, Answers), (Vec<OutcomeIfCommitted>, Refused)> {
    let first = &batch[0].undecided;
    let one = Deciding { engine, undecided: first, several: batch.len() > 1 };
    let Some((table, transactions)) = first.decisions.table.zip(engine.step_transactions.as_ref()) else {
        return Err((vec![], one.failed("there is no database in which its table could be")));
    };
    let saga = &first.saga.definition.saga;
    let opened = transactions.begin(saga, first.key.id, first.is_repeated).await;
    let opened =
        opened.map_err(|error| (vec![], one.again(&format!("no transaction could begin: {error}"))))?;
    let mut opened = Some(opened);
    let decided = one.decide(&mut opened, table.0, batch).await;
    let (outcomes, result) = decided;
    let error = match result {
        Ok((answers, settled)) => {
            let opened = opened.take().expect("it is open until here");
            if !settled {
                roll_back(Some(opened)).await;
                return Ok((outcomes, answers));
            }
            match transactions.commit(opened, None).await {
                Ok(()) => return Ok((outcomes, answers)),
                Err(error) if is_rolled_back(&error) => one.again(&error.to_string()),
                Err(error) if is_transient_in_step(&error) || is_cancelled(&error) => {
                    Refused::InDoubt(error.to_string())
                }
                Err(error) => one.failed(&format!("its transaction could not be committed: {error}")),
            }
        }
        Err(error) => {
            if let Some(opened) = &mut opened
                && one.is_stale(&error)
            {
                opened.close_in_the_end();
            }
            let rolled_back = roll_back(opened.take()).await;
            one.classify(error, rolled_back)
        }
    };
    Err((outcomes, error))
}

/// The reason for which a transaction of decisions has to be rolled back.
enum Broken {
    Refused(Refused),
    Code(&'static str, Error),
    Statement(sqlx::Error),
}

impl From<sqlx::Error> for Broken {
    fn from(error: sqlx::Error) -> Self {
        Self::Statement(error)
    }
}

/// Decisions about one entity.
#[derive(Clone, Copy)]
struct Deciding<'a> {
    engine: &'a Engine,
    undecided: &'a Undecided,
    several: bool,
}

impl Deciding<'_> {
    /// Loads, decides, stores and settles. Returns the answers, and whether there is anything to commit.
    async fn decide(
        self,
        opened: &mut Option<StepTransaction>,
        table: Table,
        batch: &[Pending],
    ) -> (Vec<OutcomeIfCommitted>, Result<(Answers, bool), Broken>) {
        let Self { engine, undecided, .. } = self;
        let opened = opened.as_mut().expect("it was just opened");
        let (id, key) = (&undecided.entity, undecided.table_key());
        let loaded = self.load(&mut opened.transaction, table, key).await;
        let (version, state) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return (vec![], Err(error)),
        };
        let entity = StoredEntity { version, state: None };
        let Some((decisions, outcomes, state)) = decide_loaded(engine, batch, id, entity, state) else {
            return (vec![], Err(Broken::Refused(Refused::Split)));
        };
        let written = self.write(opened, table, decisions, state.as_ref().map(DropGuarded::get)).await;
        (outcomes, written)
    }

    async fn load(
        self,
        tx: &mut PgConnection,
        table: Table,
        key: &Erased,
    ) -> Result<(i64, Option<DropGuarded>), Broken> {
        sqlx::raw_sql(LOCK_TIMEOUT).execute(&mut *tx).await?;
        let version = self.engine.store.lock_entity(tx, &self.undecided.entity).await?;
        let state = self.call("load_for_update", (table.load)(tx, key)).await?;
        Ok((version, state.map(DropGuarded::new)))
    }

    async fn write(
        self,
        opened: &mut StepTransaction,
        table: Table,
        decisions: Decisions,
        state: Option<&Erased>,
    ) -> Result<(Answers, bool), Broken> {
        let Decisions { mut settlements, changes, events } = decisions;
        let (id, key) = (&self.undecided.entity, self.undecided.table_key());
        if settlements.is_empty() {
            return Ok((Answers::new(), false));
        }
        if let (Some(state), false) = (state, changes.is_empty()) {
            self.call("store", (table.store)(state, &mut opened.transaction, key)).await?;
        }
        if opened.is_nested() {
            return Err(Broken::Refused(self.failed("its code left a nested transaction open")));
        }
        let mut answers = Answers::new();
        // In the order in which a cancellation locks the runs of a hierarchy.
        settlements.sort_unstable_by_key(Settlement::lock_order);
        let identifier = &self.engine.identifier;
        for settlement in &settlements {
            let tx = &mut opened.transaction;
            match self.engine.store.settle_within(tx, identifier, settlement, MARKED).await? {
                Some(settled) => drop(answers.insert(settlement.id(), settled)),
                None if opened.has_claim_mark().await? => {
                    return Err(Broken::Refused(Refused::Void(settlement.id())));
                }
                None => return Err(Broken::Refused(self.failed(SELF_ENDED))),
            }
        }
        if let Some((_, StoredEntity { version, .. })) = changes.first() {
            self.engine.store.write_entity(&mut opened.transaction, id, *version, &events).await?;
        }
        Ok((answers, true))
    }

    /// Calls a function of the user.
    async fn call<T>(
        self,
        function: &'static str,
        code: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Broken> {
        let source = &self.undecided.run.source;
        match panic_boundary::call(source, self.engine.running.stop(Some(TABLE_CODE_MAX)), code).await {
            Ok(result) => result.map_err(|error| Broken::Code(function, error)),
            Err(Stopped { why: Stop::Abandoned, .. }) => Err(Broken::Refused(Refused::Stopped)),
            Err(Stopped { why: Stop::Late(limit), panic }) => {
                let text = format!("`{function}` of {} took longer than {limit:?}", self.named());
                let failure = Failure::new("DecisionTooSlow", text, source).caused_by(panic);
                Err(Broken::Refused(Refused::Failed(failure)))
            }
        }
    }

    fn is_stale(self, broken: &Broken) -> bool {
        match broken {
            Broken::Refused(_) => false,
            Broken::Code(_, error) => {
                panic_boundary::run(&self.undecided.run.source, || is_of_stale_statement(error))
                    .unwrap_or(false)
            }
            Broken::Statement(error) => error.as_database_error().is_some_and(is_stale),
        }
    }

    fn classify(self, broken: Broken, rolled_back: RolledBack) -> Refused {
        match broken {
            Broken::Refused(Refused::Failed(_)) if rolled_back == RolledBack::LostConnection => {
                self.again("the connection was lost")
            }
            Broken::Refused(refused) => refused,
            Broken::Code(function, error) => self.failure_of(function, error, rolled_back),
            Broken::Statement(error) => match Unhandled::find_in(&error) {
                Some(_) if self.several => Refused::Split,
                Some(unhandled) => Refused::Unhandled(unhandled.clone()),
                None if rolled_back == RolledBack::LostConnection || is_transient_within_step(&error) => {
                    self.again(&error.to_string())
                }
                None if rolled_back == (RolledBack::Transaction { is_fresh: false })
                    && error.as_database_error().is_some_and(is_stale) =>
                {
                    self.again(&error.to_string())
                }
                None => self.failed(&format!("what follows from the decision could not be written: {error}")),
            },
        }
    }

    /// The consequence of an error of `function`, which is dropped.
    fn failure_of(self, function: &str, error: Error, rolled_back: RolledBack) -> Refused {
        let source = &self.undecided.run.source;
        let what = format!("`{function}` of {}", self.named());
        let of_error = || panic_boundary::named(format!("`Display` or `source` of the error of {what}"));
        let again = panic_boundary::run(source, || {
            let is_contended = error.chain().take(CHAIN_MAX).any(is_contended);
            let again = rolled_back == RolledBack::LostConnection
                || is_contended
                || is_of_infrastructure(&error, rolled_back);
            again.then(|| Why {
                recorded: format!("{what}: {error}"),
                logged: telemetry::quotes_data(&error).then(|| format!("{what}: {}", telemetry::WITHHELD)),
            })
        });
        let failure = panic_boundary::run(source, || error.to_failure(source)).unwrap_or_else(of_error());
        let dropped = panic_boundary::discard(source, error);
        match (again, dropped) {
            (Ok(Some(why)), Ok(())) => Refused::Again(why),
            (_, Err(panic)) => Refused::Failed(panic.caused_by([failure])),
            _ => {
                Refused::Failed(Failure { message: format!("{what} failed: {}", failure.message), ..failure })
            }
        }
    }

    fn named(self) -> String {
        let EntityId { name, key } = &self.undecided.entity;
        format!("the entity `{name}` (key `{key}`)")
    }

    fn failed(self, why: &str) -> Refused {
        let text = format!("the decision about {} failed: {why}", self.named());
        Refused::Failed(Failure::new("EntityTable", text, &self.undecided.run.source))
    }

    fn again(self, why: &str) -> Refused {
        Refused::Again(format!("the decision about {}: {why}", self.named()).into())
    }
}

const SELF_ENDED: &str = "`load_for_update` or `store` ended the transaction of the decision, or reset its settings. \
    Statements that do that: COMMIT, END, ROLLBACK, ABORT, PREPARE TRANSACTION, RESET ALL, RESET scoop_run.claim. Use \
    nested transactions and SET LOCAL, and leave the outer transaction to the engine";
