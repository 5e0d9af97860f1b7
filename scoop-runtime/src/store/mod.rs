//! The store of runs and their history: PostgreSQL, or with the feature `in-memory` the memory of one program, chosen
//! when a program starts.
//!
//! This file declares the operations, once for both; the folder has the values that they take and return. [`postgres`]
//! and [`memory`] implement them, in files of the same names.

mod archive;
mod claim_queues;
mod definitions;
pub(crate) mod entity;
pub(crate) mod join;
mod launch;
mod limit;
#[cfg(feature = "in-memory")]
pub(crate) mod memory;
mod postgres;
mod queue_cursors;
mod queue_limit;
mod rate;
mod requests;
mod retention;
mod schedule;
mod settlement;
mod signal;
mod sizes;
mod types;
mod unhandled;

pub(crate) use archive::ArchiveError;
pub use archive::{Archive, ArchiveBatch};
pub(crate) use claim_queues::ClaimQueues;
pub(crate) use definitions::{
    HandOver, HandOverRequest, LivingWorker, NewDefinition, NewStep, ProgramRegistration, Registered,
    Topology,
};
pub use entity::{EntityId, StoredEntity};
pub(crate) use join::{ExpiredJoin, JoinResult, JoinSpec, NewMember, Withdrawal};
pub(crate) use launch::{
    FindFields, LaunchResult, NewMessage, found_by, found_by_registered, is_bulky, mark_maybe_launched,
    parts, prepare, prepare_untyped,
};
pub(crate) use limit::{
    Candidate, FreedKeys, LimitChange, LimitedClaim, LimitedQueue, LimitedRequest, LimitedSaga, ReadPage,
    SagaLimit,
};
#[cfg(feature = "simulation")]
pub use memory::{FaultLink, RunOutcome};
#[cfg(feature = "in-memory")]
pub use memory::{LoggedEvent, WorkingRun};
#[cfg(feature = "in-memory")]
pub(crate) use memory::{MemorySession, MemoryStore};
#[cfg(test)]
pub(crate) use postgres::tests;
pub(crate) use postgres::{
    ConnectionSettings, MARKED, PostgresSession, SIGNAL_SENT, Schema, Sessions, StepTransaction,
    StepTransactions, check, files, low_limit, migrate, refusal, roll_back, unfit_tables,
};
pub use postgres::{
    FetchExt, PostgresStore, READ_COMMITTED, commit, concurrency, failed_attempts, failure_if_readable,
    find_field, lineage, pauses, phase, priority, rate, seconds, serial, stored_time, time, time_if_any,
    without_comments,
};
pub(crate) use queue_cursors::{QueueCursors, QueueScan, Snapshot};
pub(crate) use queue_limit::LimitedTopics;
pub use queue_limit::QueueLength;
pub use requests::HandlerList;
pub use requests::RequestTarget;
pub(crate) use requests::{
    ABANDONED_MAX, CancelResult, HandlerOutcome, InterventionSubject, MessageStatus, RepairRequest,
    RepairResult, RequestKey, Requester, RollbackStart, Waited,
};
pub(crate) use retention::{DueBatch, DueSettlement};
pub use retention::{Expired, PruneBatch, PruneMode, PruneTimes, ROWS_MAX};
pub(crate) use schedule::{Advanced, Awaited, DueSchedule, FireResult, ScheduleRegistration, TickMessage};
pub(crate) use settlement::{SettlePath, SettleResult, Settlement};
pub(crate) use signal::{
    Deliver, Delivered, NewSignal, SignalClaimer, SignalSent, SignalType, TransactionNumber, sender,
};
pub(crate) use sizes::StoreSizes;
pub(crate) use types::{
    BegunStep, ClaimKey, ClaimedRun, Claimer, CommittedParent, ExecutionHistory, FormerAttempts, Freed,
    GiveUpReasons, HierarchyFlags, LateDelivery, LaunchedRun, LeftRun, NextDue, OverdueRun, Reaped,
    Reconciled, Release, RollbackHistory, StepBeginning, Suspect, SuspectClaim, Unclaimed, ValueQuery,
    WaitDecision, WaitedChildren, WakeOptions, Woken, micros_of, readable, timestamps,
};
pub use types::{FIRST_MAX, ParentRef, UNKNOWN_MAX};
pub(crate) use unhandled::Unhandled;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use scoop_core::{Beginning, Entry, EventKind, Failure, RecordedStep, RollbackNames, Run, SignalKey};
use serde_json::Value;
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use uuid::Uuid;

use self::entity::{Decisions, DecisionsSettled, EntityAtHand, NewEntityEvent};
use crate::model::answers::Relaunches;
use crate::model::backoff::Backoff;
use crate::model::children::ChildQuery;
use crate::model::entity::StoredEntityEvent;
use crate::model::handlers::RegisteredHandler;
use crate::model::launched_topics::StepTopic;
use crate::model::retention::Retention;
use crate::model::signal::ExpiredSignals;
use crate::model::subscribed_saga::{Renamed, SubscribedSaga};
use crate::repair::Refusal;
use crate::tree::{TreeBounds, TreeRows};
use crate::util::read_permits::ReadPermits;
use crate::util::when::Now;
use crate::{CancellationRequest, Child, IdObject, Intervention};

/// Topics and names of sagas, pair by pair.
pub(crate) type SubscriptionKeys<'a> = (&'a [String], &'a [String]);

/// The store of runs and their history.
#[derive(Clone)]
pub(crate) enum Store {
    Postgres(Arc<PostgresStore>),
    #[cfg(feature = "in-memory")]
    Memory(MemoryStore),
}

impl Store {
    /// Whether the other one has the same runs, as far as is known: a server may have several addresses.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Postgres(own), Self::Postgres(other)) => own.is_same(other),
            #[cfg(feature = "in-memory")]
            (Self::Memory(own), Self::Memory(other)) => own.is_same(other),
            #[cfg(feature = "in-memory")]
            _ => false,
        }
    }

    /// The turns of reads for clients, if these need connections.
    pub(crate) fn read_permits(&self) -> Option<ReadPermits> {
        match self {
            Self::Postgres(store) => Some(store.sessions().read_permits()),
            #[cfg(feature = "in-memory")]
            Self::Memory(_) => None,
        }
    }
}

impl From<PostgresStore> for Store {
    fn from(tables: PostgresStore) -> Self {
        Self::Postgres(Arc::new(tables))
    }
}

/// Declares the operations of the store. Each part is a trait that both stores implement, in the file of its topic;
/// [`Store`] has the operations of the store in use.
macro_rules! storage {
    ($(
        $(#[$about:meta])*
        trait $part:ident {
            $(
                $(#[$doc:meta])*
                async fn $operation:ident(&self $(, $argument:ident: $type:ty)* $(,)?) -> $answer:ty;
            )*
        }
    )*) => {
        $(
            $(#[$about])*
            pub(crate) trait $part {
                $($(#[$doc])* async fn $operation(&self $(, $argument: $type)*) -> sqlx::Result<$answer>;)*
            }
        )*

        impl Store {
            $($(
                $(#[$doc])*
                pub(crate) async fn $operation(&self $(, $argument: $type)*) -> sqlx::Result<$answer> {
                    match self {
                        Self::Postgres(tables) => tables.$operation($($argument),*).await,
                        #[cfg(feature = "in-memory")]
                        Self::Memory(memory) => memory.$operation($($argument),*).await,
                    }
                }
            )*)*
        }
    };
}

/// Declares operations of the database that mean nothing in memory: there they return the default value.
macro_rules! of_the_database {
    ($($(#[$doc:meta])* async fn $operation:ident(&self $(, $argument:ident: $type:ty)* $(,)?) -> $answer:ty;)*) => {
        impl Store {
            $(
                $(#[$doc])*
                pub(crate) async fn $operation(&self $(, $argument: $type)*) -> sqlx::Result<$answer> {
                    match self {
                        Self::Postgres(tables) => tables.$operation($($argument),*).await,
                        #[cfg(feature = "in-memory")]
                        Self::Memory(_) => Ok(Default::default()),
                    }
                }
            )*
        }
    };
}

of_the_database! {
    /// Records that a worker has read this topology, and waits for claims of it under way.
    async fn acknowledge(&self, worker: Uuid, topology: i64) -> ();

    /// How far the newest events are ahead of that clock; zero if they are not.
    async fn clock_lag(&self) -> Duration;

    /// Deletes pending runs of handlers that were retired with their pending runs dropped, and returns the runs that
    /// wait for them.
    async fn delete_dropped(&self) -> Vec<ParentRef>;

    /// The oldest transaction that may still commit a signal.
    async fn signal_horizon(&self) -> TransactionNumber;

    /// What there is of the registration of this worker and of the subscriptions of its program.
    async fn registration(&self, worker: Uuid, subscriptions: &[SubscribedSaga]) -> ProgramRegistration;

    /// Records on which topics steps have launched messages.
    async fn record_launches(&self, seen: &[StepTopic]) -> ();

    /// Records on which topics the steps of these sagas declare to launch messages, in place of former declarations.
    async fn declare_launches(&self, sagas: &[String], declared: &[StepTopic]) -> ();

    /// The recorded launches of these sagas, without those that are only declared.
    async fn launches(&self, of: &[String]) -> Vec<StepTopic>;

    /// Sagas that have ready runs but no living worker, with their topics: those of the first queues, up to [`ABANDONED_MAX`].
    async fn abandoned_sagas(&self) -> Vec<(String, String)>;

    /// The topics on which launches need a place in the queue of a saga.
    async fn limited_topics(&self) -> LimitedTopics;

    /// The queues with a limit of these sagas, or of all, by the names of the sagas.
    async fn queue_lengths(&self, of: Option<&[String]>) -> Vec<QueueLength>;

    /// The hierarchies that this one was relaunched from and as.
    async fn relaunches(&self, root: Uuid) -> Relaunches;
}

storage! {
    /// Claims of ready runs.
    trait ClaimStorage {
        /// The queues that have a ready run, and what was seen of all. Looks at runs from these positions on, as a claim does.
        async fn queues_ready(&self, queues: &ClaimQueues, progress: &QueueCursors) -> (ClaimQueues, QueueScan);

        /// Claims up to `limit` ready runs of these queues, first of handlers with a lower count in `running_counts`. Looks
        /// at runs from these positions on, and advances them.
        async fn claim(
            &self, claimer: Claimer<'_>, queues: &ClaimQueues, limit: usize, running_counts: &BTreeMap<String, usize>,
            progress: &mut QueueCursors,
        ) -> Vec<Result<ClaimedRun, Unclaimed>>;

        /// Claims this suspect, if it is still ready in one of these queues.
        async fn claim_suspect(
            &self, claimer: Claimer<'_>, queues: &ClaimQueues, suspect: &Suspect,
        ) -> Option<Result<ClaimedRun, Unclaimed>>;
    }

    /// Settlements.
    trait SettleStorage {
        /// Applies the settlements whose claims still hold, and returns their results. It is fast if all of them take
        /// the same [`SettlePath`], other than [`SettlePath::General`].
        async fn settle(
            &self, identifier: &str, settlements: &[Settlement],
        ) -> BTreeMap<(Uuid, i64), SettleResult>;
    }

    /// Entities, and decisions of commands about them.
    trait EntityStorage {
        /// Locks those of the entities that are free, hands their states to `decide`, and writes what that returns: all
        /// of it if all of its settlements apply, or nothing. The entities are in their order.
        async fn decide(
            &self, identifier: &str, entities: &[EntityId],
            decide: impl FnOnce(Vec<EntityAtHand>) -> Decisions,
        ) -> DecisionsSettled;

        /// The state of an entity, if there is one.
        async fn entity(&self, entity: &EntityId) -> Option<StoredEntity>;

        /// The events of an entity after this version, oldest first.
        async fn entity_events(&self, entity: &EntityId, after: i64, limit: u32) -> Vec<StoredEntityEvent>;

        /// The decision that a handler of this message has recorded under this name, if it has: that of this run, if one
        /// is given.
        async fn command_decision(&self, message: Uuid, name: &str, run: Option<Uuid>) -> Option<Value>;
    }

    /// Parents of ended children, releases, and notifications of other processes.
    trait WakeStorage {
        /// Makes the runs ready that wait for no child any more, with their signals if they await one. Returns their
        /// handlers.
        async fn wake(&self, parents: &[ParentRef]) -> Vec<String>;

        /// Like `wake`, by a worker of these queues, which claims and commits parents as the options say.
        async fn wake_and_claim(
            &self, parents: &[ParentRef], claimer: Claimer<'_>, queues: &ClaimQueues, options: WakeOptions,
        ) -> Woken;

        /// Applies what strategies have decided about the messages that a run waits for, and has it wait. Returns the handlers with a
        /// new run; `None` if it was not held under the key.
        async fn decide_wait(&self, key: ClaimKey, decision: &WaitDecision) -> Option<Vec<String>>;

        /// The runs of these messages that a run waits for, and those that have committed.
        async fn waited_children(&self, key: ClaimKey, messages: &[Uuid]) -> WaitedChildren;

        /// The unfinished runs of these messages that no run waits for.
        async fn left_children(&self, root: Uuid, messages: &[Uuid]) -> Vec<LeftRun>;

        /// Hands runs back. Returns how many were still held under their keys.
        async fn release(&self, releases: &[Release]) -> u64;

        /// Notifies the other processes that there may be work.
        async fn notify(&self, worker: Uuid) -> ();
    }

    /// Signals from outside, and their delivery to the runs that await them.
    trait SignalStorage {
        /// Records a signal, unless there is one with its id, and delivers it. The claimer gets runs that it reaches.
        async fn send_signal(&self, signal: &NewSignal, claimer: Option<SignalClaimer<'_>>) -> SignalSent;

        /// Delivers kept signals. A row that is locked or cannot be changed holds up no others.
        async fn deliver_signals(&self, signals: &Deliver) -> Delivered;

        /// Marks up to `limit` kept signals whose time is over, so that later looks do not read them. Returns these.
        async fn expire_signals(&self, limit: u32) -> Vec<ExpiredSignals>;

        /// The names of the signals that sagas await: of living programs, or of all that have ever started.
        async fn awaited_names(&self, only_living: bool) -> Vec<String>;

        /// The types as which sagas read the signals of this name.
        async fn signal_types(&self, name: &str) -> Vec<SignalType>;

        /// Has a run under its claim wait again for the signal that its step cannot read, for this reason. Returns the signal
        /// and its key; `None` if the run was not held under the key any more.
        async fn refuse_signal(&self, key: ClaimKey, why: &str) -> Option<SignalKey>;
    }

    /// The messages that sagas join.
    trait JoinStorage {
        /// Records a message, and launches its set if that is complete.
        async fn join(&self, spec: &JoinSpec, member: &NewMember<'_>) -> JoinResult;

        /// Withdraws the message of this collector if it waits. Returns the hierarchy that joins it otherwise.
        async fn withdraw(&self, spec: &JoinSpec, key: &str, run: Uuid) -> Withdrawal;

        /// Launches a set of these joins whose time is over. Sets it aside if the database refuses it.
        async fn expire_join(&self, specs: &[&JoinSpec]) -> ExpiredJoin;

        /// The hierarchies that join this message.
        async fn joined(&self, message: Uuid) -> Vec<Uuid>;
    }

    /// Release of runs that their owner does not execute.
    trait FreeStorage {
        /// Frees the runs of this worker that are not in flight, and those without a registered owner, and makes the
        /// runs ready that it may have failed to wake. `in_flight` is called when no claim is under way.
        async fn reconcile(&self, worker: Uuid, in_flight: impl Fn() -> Vec<Uuid>, backoff: Backoff) -> Reconciled;

        /// Deletes dead workers and frees their runs.
        async fn reap(&self, worker: Uuid, backoff: Backoff) -> Reaped;

        /// Deletes this worker, frees its runs, and notifies the others, since they may continue these.
        async fn deregister(&self, worker: Uuid, backoff: Backoff) -> Freed;
    }

    /// The record of the steps that run at most once.
    trait BegunStepStorage {
        /// Records that this step begins after so many completed ones. `None` if the claim does not hold.
        async fn begin_step(&self, key: ClaimKey, completed: i32, step: &str) -> Option<StepBeginning>;

        /// The step that this run has begun after so many completed ones.
        async fn find_begun_step(&self, key: ClaimKey, completed: i32) -> Option<BegunStep>;
    }

    /// Due times, deadlines, and the runs that have to give up.
    trait DueStorage {
        /// What this worker of these queues has to do next. Looks at ready runs from these positions on, as a claim does.
        async fn next_due(
            &self, queues: &ClaimQueues, worker: Uuid, suspects: SuspectClaim, progress: &QueueCursors,
        ) -> NextDue;

        /// Makes waiting runs give up that have missed a deadline, and returns them.
        async fn expire_waiting(&self, limit: i64) -> Vec<ParentRef>;

        /// Pending runs that have to give up, and whose saga no living worker has: so many of each kind.
        async fn overdue_runs(&self, limit: i64) -> Vec<OverdueRun>;

        /// Which of these running runs have to give up, and in how many seconds.
        async fn stop_deadlines(&self, keys: &[ClaimKey]) -> Vec<(Uuid, f64)>;

        /// Why the run has to give up, if it has to and is still held under this key.
        async fn give_up_reasons(&self, key: ClaimKey) -> Option<GiveUpReasons>;

        /// Whether the run is still held under this key.
        async fn is_claimed(&self, key: ClaimKey) -> bool;

        /// The time by the clock of the server.
        async fn now(&self) -> Now;
    }

    /// Definitions of sagas, and the workers that have them.
    trait DefinitionStorage {
        /// Records definitions. Returns the number of each.
        async fn publish_definitions(&self, definitions: &[NewDefinition]) -> Vec<(String, i32)>;

        /// The steps of a recorded definition of this handler.
        async fn definition_steps(&self, definition: i32, handler: &str) -> Option<Vec<RecordedStep>>;

        /// Replaces the sagas of a registered worker, as if it had started with the changed ones. Notifies the other
        /// workers.
        async fn enlist(&self, registered: Registered<'_>, changed: &[String]) -> ();

        /// The living workers, what is paused, and the limits of these sagas.
        async fn read_topology(&self, sagas: &[String]) -> Topology;

        /// Hands over a run that cannot be continued under this definition, if it is still held under this key.
        async fn mark_stuck(&self, refusal: HandOverRequest<'_>) -> HandOver;
    }

    /// The record of a run, for its rollback and for its steps.
    trait HistoryStorage {
        /// Whether the worker of this identifier has recorded an event of this kind for the run.
        async fn recorded(&self, run: ClaimKey, identifier: &str, kind: EventKind) -> bool;

        /// The history of a run: its newest suspension, and up to `limit` entries. The entries of a recorded window are
        /// all returned.
        async fn history(&self, names: &RollbackNames, handler: &str, run: &Run, limit: usize) -> RollbackHistory;

        /// The newest entries of a run's forward path, up to `until`.
        async fn entries_until(
            &self, names: &RollbackNames, handler: &str, run: &Run, limit: usize, until: i64,
        ) -> Vec<Entry>;

        /// The counts of a run's history, up to `until`. Reads all of it.
        async fn count_history(&self, handler: &str, run: &Run, until: i64) -> Beginning;

        /// How often in a row the step of these names completed in a run, up to `until`.
        async fn repetitions(&self, handler: &str, run: &Run, steps: &[String], until: i64) -> u32;

        /// The outputs of a run's steps, by name.
        async fn values(&self, handler: &str, run: &Run, wanted: &ValueQuery) -> BTreeMap<String, Value>;

        /// Whether an operator wants the newest part of a rollback to run again.
        async fn reruns_part(&self, run: &Run) -> bool;

        /// The outcome of messages in each of their handlers, in the order of the messages.
        async fn children(&self, asked: ChildQuery<'_>) -> Vec<Child>;
    }

    /// Launches of messages.
    trait LaunchStorage {
        /// Launches messages in a transaction of their own.
        async fn launch_in_own_transaction(&self, messages: &[NewMessage]) -> LaunchResult;

        /// Launches messages by a worker that has slots for some of their runs: these are claimed.
        async fn launch_and_claim(
            &self, claimer: Claimer<'_>, topology: i64, messages: &[NewMessage],
        ) -> LaunchResult;
    }

    /// The state of hierarchies, for clients.
    trait StatusStorage {
        /// The progress of a root message.
        async fn status(&self, root: Uuid, message: Uuid) -> MessageStatus;

        /// Those of these messages of which a handle has something to read.
        async fn ended(&self, waited: &[Waited]) -> BTreeSet<Uuid>;

        /// The message that started a hierarchy.
        async fn root_message(&self, root: Uuid) -> Option<Uuid>;

        /// The runs of a hierarchy, parents before their children; of a row that cannot be read the reason.
        async fn tree(&self, message: Uuid, extent: TreeBounds) -> TreeRows;

        /// Whether a chain of launches leads from the root of the hierarchy to this message.
        async fn is_reachable(&self, root: Uuid, message: Uuid) -> bool;
    }

    /// Cancellation, and rollback of finished runs.
    trait RequestStorage {
        /// The run or message with this id.
        async fn find_target(&self, id: Uuid) -> Option<RequestTarget>;

        /// The thing that this id names, if any.
        async fn named(&self, id: Uuid) -> Option<IdObject>;

        /// The cancellation requests for these runs of a hierarchy, oldest first; with its own id also those for all of it.
        /// `None` stands for all requests in the hierarchy.
        async fn cancellations(&self, root: Uuid, ids: Option<&[Uuid]>) -> Vec<CancellationRequest>;

        /// Makes all unfinished runs below the target give up.
        async fn cancel(&self, target: &RequestTarget, request: &Failure, asked: RequestKey) -> CancelResult;

        /// Makes all handlers of the target's message roll back, if all of it is finished.
        async fn request_rollback(&self, target: &RequestTarget, request: &Failure, asked: RequestKey) -> RollbackStart;
    }

    /// Failed rollbacks and stuck runs, and their repair by operators.
    trait RepairStorage {
        /// Carries out an intervention on a run, if that is possible.
        async fn repair(&self, target: &RequestTarget, asked: &RepairRequest<'_>) -> Result<RepairResult, Refusal>;

        /// The interventions in these runs of a hierarchy, oldest first; `None` stands for all its runs. At each end of those of
        /// a run there are as many as the extent has of its events. Each has the number of the others of its run, up to
        /// [`RunInfo::LEFT_OUT_MAX`](crate::RunInfo::LEFT_OUT_MAX).
        async fn interventions_of(
            &self, root: Uuid, runs: Option<&[Uuid]>, extent: TreeBounds,
        ) -> Vec<(Intervention, usize)>;
    }

    /// Sizes, for metrics.
    trait SizeStorage {
        /// The sizes of the working set and of the record.
        async fn sizes(&self) -> StoreSizes;
    }

    /// Subscriptions of handlers.
    trait SubscriptionStorage {
        /// Registers the sagas that messages are delivered to, in place of their former names.
        async fn register(&self, subscriptions: &[SubscribedSaga], retention: Retention) -> ();

        /// The names that newer programs have given these sagas, and that this program does not have.
        async fn renamed_sagas(&self, subscriptions: &[SubscribedSaga]) -> Vec<Renamed>;

        /// The registered handlers in this part of the list, by topic and saga.
        async fn list_handlers(&self, part: &HandlerList) -> Vec<RegisteredHandler>;
    }

    /// Sagas with limits.
    trait LimitStorage {
        /// Records the limits of these sagas, and that the others of them have none. If that changes something, it waits for
        /// claims under way, and notifies all processes. Returns what it has changed.
        async fn publish_limits(&self, limits: &[SagaLimit]) -> Vec<LimitChange>;

        /// Returns parked runs of the freed keys to their queues. Then claims as many ready runs of a saga as are asked for, as far
        /// as its limit admits, and parks those that it passes since the limit of their key is reached.
        async fn claim_limited(&self, request: LimitedRequest<'_>) -> LimitedClaim;

        /// Returns parked runs to their queues whose saga has no limit by key any more, a part of them. Returns their handlers.
        async fn unpark_orphaned(&self) -> Vec<String>;
    }

    /// Schedules, and their due ticks.
    trait ScheduleStorage {
        /// Registers the schedules of sagas.
        async fn publish_schedules(&self, schedules: &[ScheduleRegistration<'_>]) -> ();

        /// The wait until one of these is due, and those without a row.
        async fn schedule_next_due(&self, subscriptions: SubscriptionKeys<'_>) -> Awaited;

        /// Launches the due ticks of one of these schedules and advances it, in one transaction.
        async fn fire_schedule(&self, subscriptions: SubscriptionKeys<'_>) -> FireResult;

        /// Launches a tick now, beside the schedule, with this root and the id of the request. Returns its handlers;
        /// `None` if there is no such schedule.
        async fn trigger(&self, handler: &str, root: Uuid, asked: RequestKey) -> Option<Vec<String>>;
    }
}

impl Store {
    /// Publishes messages, in a transaction of the caller.
    pub(crate) async fn launch(
        &self,
        connection: &mut PgConnection,
        messages: &[NewMessage],
    ) -> sqlx::Result<LaunchResult> {
        self.tables()?.launch_found(connection, messages).await
    }

    /// The fields by which messages of a topic are found, as programs registered them, or as they were a minute before. In memory there
    /// are none, since nothing is found there.
    pub(crate) async fn find_fields(&self, topic: &str) -> sqlx::Result<FindFields> {
        match self {
            Self::Postgres(tables) => tables.find_fields(topic).await,
            #[cfg(feature = "in-memory")]
            Self::Memory(_) => Ok(FindFields::default()),
        }
    }

    /// Records a signal in a transaction of the caller. Returns whether it is new.
    pub(crate) async fn insert_signal(
        &self,
        executor: impl PgExecutor<'_>,
        signal: &NewSignal,
    ) -> sqlx::Result<bool> {
        self.tables()?.insert_signal(executor, signal).await
    }

    /// Applies a settlement inside the transaction of a step, if its claim still holds.
    pub(crate) async fn settle_within(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlement: &Settlement,
        claim: &str,
    ) -> sqlx::Result<Option<SettleResult>> {
        self.tables()?.settle_within(connection, identifier, settlement, claim).await
    }

    /// Locks an entity in a transaction of the user, and makes its row if it is missing. Returns its version.
    pub(crate) async fn lock_entity(
        &self,
        connection: &mut PgConnection,
        entity: &EntityId,
    ) -> sqlx::Result<i64> {
        self.tables()?.lock_entity(connection, entity).await
    }

    /// Writes the version of an entity that is locked in this transaction of the user, and its new events.
    pub(crate) async fn write_entity(
        &self,
        connection: &mut PgConnection,
        entity: &EntityId,
        version: i64,
        events: &[NewEntityEvent],
    ) -> sqlx::Result<()> {
        self.tables()?.write_entity(connection, entity, version, events).await
    }

    /// The database: only it has transactions in which user code can write, pauses and retention.
    pub(crate) fn tables(&self) -> sqlx::Result<&Arc<PostgresStore>> {
        match self {
            Self::Postgres(tables) => Ok(tables),
            #[cfg(feature = "in-memory")]
            Self::Memory(_) => Err(sqlx::Error::Configuration(IN_MEMORY.into())),
        }
    }

    /// The time until which the unique key of this message is kept; `None` if it is not.
    pub(crate) async fn key_valid_until(&self, message: Uuid) -> sqlx::Result<Option<OffsetDateTime>> {
        match self {
            Self::Postgres(tables) => tables.key_valid_until(message).await,
            #[cfg(feature = "in-memory")]
            Self::Memory(_) => Ok(None),
        }
    }

    /// Its pools of connections: the name, and how many connections are open and idle.
    pub(crate) fn connections(&self) -> Vec<(&'static str, usize, usize)> {
        match self {
            Self::Postgres(tables) => vec![tables.sessions().open_connections()],
            #[cfg(feature = "in-memory")]
            Self::Memory(_) => vec![],
        }
    }

    /// Whether the death of a process is reported at once, without polling.
    pub(crate) fn detects_deaths(&self) -> bool {
        match self {
            Self::Postgres(_) => false,
            #[cfg(feature = "in-memory")]
            Self::Memory(_) => true,
        }
    }

    /// Closes its connections, if it has any.
    pub(crate) async fn close(&self) {
        match self {
            Self::Postgres(tables) => tables.sessions().close().await,
            #[cfg(feature = "in-memory")]
            Self::Memory(_) => {}
        }
    }
}

/// The error of operations that need a transaction of a database.
#[cfg(feature = "in-memory")]
const IN_MEMORY: &str = "this program runs in memory; only on PostgreSQL there are transactions to take part in, pauses, retention and lists for operators";
