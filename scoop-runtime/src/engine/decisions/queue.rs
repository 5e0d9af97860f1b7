//! The queue of decisions to be made.

use std::any::Any;
use std::sync::Arc;

use scoop_core::{Context, Failure, Run};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::engine::settle::after_commit::AfterCommit;
use crate::engine::settle::queue::Answer;
use crate::engine::why::Why;
use crate::rehearsal::CommitToken;
use crate::saga::command::CommandFunctions;
use crate::saga::registry::RunnableSaga;
use crate::store::{ClaimKey, EntityId, HierarchyFlags};
use crate::util::panic_boundary::DropGuarded;

/// The capacity of the queue. A run waits while it is full.
const CHANNEL_MAX: usize = 1_000;

pub(super) struct Undecided {
    pub(super) entity: EntityId,
    pub(super) decisions: CommandFunctions,
    pub(super) message: DropGuarded,
    /// The key of an entity whose state is in a table of the user.
    pub(super) table_key: Option<DropGuarded>,
    /// Whether an earlier attempt had no result.
    pub(super) is_repeated: bool,
    pub(super) task: ToDecide,
    pub(super) saga: Arc<RunnableSaga>,
    pub(super) key: ClaimKey,
    pub(super) flags: HierarchyFlags,
    pub(super) run: Run,
    /// The context of the run, as recorded.
    pub(super) stored_context: Context,
    pub(super) event_context: Context,
    /// The definition at hand.
    pub(super) at_hand: i32,
    /// The definition under which the newest step completed.
    pub(super) recorded: Option<i32>,
}

pub(super) enum ToDecide {
    /// The command, with the value that `fetch` returned.
    Decide { fetched: Option<Value> },
    /// The event that undoes this decision.
    Undo { decision: Value },
}

/// A decision to be made, and the sender of its outcome.
pub(in crate::engine) struct Pending {
    pub(super) undecided: Undecided,
    pub(super) answer: oneshot::Sender<DecisionOutcome>,
}

pub(super) enum DecisionOutcome {
    /// It was made; the answer is that of its settlement.
    Settled(Box<Settles>, Answer),
    /// The code of the command failed. Nothing has changed.
    Failed(Failure),
    /// This program cannot read the state of the entity. Nothing has changed.
    Unfit(Why),
    /// This program cannot read a recorded value of the run. Nothing has changed.
    Unread(Why),
    /// The database failed, or a lock was held for long. Nothing has changed.
    Again(Why),
    /// The answer to the commit was lost.
    InDoubt(String),
    /// A rehearsal has the process crash before the commit.
    Crashed,
    /// The engine is gone.
    Stopped,
}

impl Undecided {
    /// The entity, for messages.
    pub(super) fn named_entity(&self) -> String {
        let EntityId { name, key } = &self.entity;
        format!("the entity `{name}` (key `{key}`)")
    }

    pub(super) fn table_key(&self) -> &(dyn Any + Send + Sync) {
        self.table_key.as_ref().expect("the entity has a table").get()
    }
}

impl Pending {
    pub(super) fn send(self, decided: DecisionOutcome) {
        // The receiver may be gone; then no component needs the answer.
        let _ = self.answer.send(decided);
    }

    /// Answers with this outcome. `answer` is that of its settlement, if it has one.
    pub(super) fn answer(self, outcome: OutcomeIfCommitted, answer: impl FnOnce((Uuid, i64)) -> Answer) {
        let decided = match outcome {
            OutcomeIfCommitted::Settles(settles) => {
                let answer = answer(settles.id);
                DecisionOutcome::Settled(settles, answer)
            }
            OutcomeIfCommitted::Failed(failure) => DecisionOutcome::Failed(failure),
            OutcomeIfCommitted::Unfit(why) => DecisionOutcome::Unfit(why),
            OutcomeIfCommitted::Unread(why) => DecisionOutcome::Unread(why),
            OutcomeIfCommitted::Crashed => DecisionOutcome::Crashed,
            OutcomeIfCommitted::Busy => DecisionOutcome::Stopped,
        };
        self.send(decided);
    }
}

pub(in crate::engine) type Inbox = mpsc::Receiver<Pending>;

/// Accepts decisions to be made.
pub(in crate::engine) struct DecisionQueue {
    own: mpsc::Sender<Pending>,
    /// The decisions about entities whose states are in tables of the user.
    tables: mpsc::Sender<Pending>,
}

impl DecisionQueue {
    /// The queue, and the receivers of decisions about entities of the engine, and about those in tables of the user.
    pub(in crate::engine) fn new() -> (Self, Inbox, Inbox) {
        let (own, decisions) = mpsc::channel(CHANNEL_MAX);
        let (tables, of_tables) = mpsc::channel(CHANNEL_MAX);
        (Self { own, tables }, decisions, of_tables)
    }

    pub(super) async fn decide(&self, undecided: Undecided) -> DecisionOutcome {
        let (answer, answered) = oneshot::channel();
        let queue = if undecided.decisions.table.is_some() { &self.tables } else { &self.own };
        match queue.send(Pending { undecided, answer }).await {
            Ok(()) => answered.await.unwrap_or(DecisionOutcome::Stopped),
            Err(_) => DecisionOutcome::Stopped,
        }
    }
}

/// A decision that was made, and what is needed after its commit.
pub(super) struct Settles {
    pub(super) id: (Uuid, i64),
    pub(super) after: AfterCommit,
    pub(super) commit_token: Option<CommitToken>,
    pub(super) sets_a_time: bool,
}

/// The outcome of a decision if its transaction commits.
pub(super) enum OutcomeIfCommitted {
    Settles(Box<Settles>),
    /// See [`super::DecisionOutcome`].
    Failed(Failure),
    Unfit(Why),
    Unread(Why),
    Crashed,
    /// Another transaction has locked the entity: it is to be decided later.
    Busy,
}

impl OutcomeIfCommitted {
    /// The run and epoch of its settlement, if it has one.
    pub(super) fn settlement(&self) -> Option<(Uuid, i64)> {
        match self {
            Self::Settles(settles) => Some(settles.id),
            _ => None,
        }
    }
}
