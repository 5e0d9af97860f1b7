//! One recorded fact about a run, in the format of the tables.

use serde::Serialize;
use uuid::Uuid;

use crate::{Context, Failure, Wait};

/// The worker in events that an operator's decision caused instead of user code: the SUSPENDED of a skipped part, or
/// the ROLLED_BACK of a run that was repaired by hand.
pub const OPERATOR: &str = "scoop-rs:operator";

/// The kind of an event. The names are the values of the type `message_event_type` in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EventKind {
    /// A message was emitted.
    Emitted,
    /// A run of a handler began.
    Seen,
    /// A step, a part of a rollback or a child failure handler ended.
    Suspended,
    /// The run succeeded, with all runs that it launched.
    Committed,
    /// The rollback of the run began.
    RollingBack,
    /// The handlers of a message were requested to roll back.
    RollbackEmitted,
    /// The rollback of the run is complete.
    RolledBack,
    /// The rollback of the run failed.
    RollbackFailed,
    /// Cancellation was requested.
    CancellationRequested,
}

impl EventKind {
    /// All kinds, in the order of the database type.
    pub const ALL: [EventKind; 9] = [
        EventKind::Emitted,
        EventKind::Seen,
        EventKind::Suspended,
        EventKind::Committed,
        EventKind::RollingBack,
        EventKind::RollbackEmitted,
        EventKind::RolledBack,
        EventKind::RollbackFailed,
        EventKind::CancellationRequested,
    ];

    /// The name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventKind::Emitted => "EMITTED",
            EventKind::Seen => "SEEN",
            EventKind::Suspended => "SUSPENDED",
            EventKind::Committed => "COMMITTED",
            EventKind::RollingBack => "ROLLING_BACK",
            EventKind::RollbackEmitted => "ROLLBACK_EMITTED",
            EventKind::RolledBack => "ROLLED_BACK",
            EventKind::RollbackFailed => "ROLLBACK_FAILED",
            EventKind::CancellationRequested => "CANCELLATION_REQUESTED",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// One row that a run writes. Its lineage, handler and worker are those of the run, except for the emission of a
/// detached message, which has its own lineage and no handler.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// The message: the one that the run handles, or one that it emitted.
    pub message: Uuid,
    /// The step.
    pub step: Option<String>,
    /// The position of the step that follows in the definition of the program that wrote the event; `None` after the
    /// last. For readers of the log: no run continues by it.
    pub next_step: Option<usize>,
    /// The step chosen to run next; `None` for the one that follows in the definition. In the rollback of a long
    /// history: the position of the part in that history.
    pub jump: Option<String>,
    /// The number of earlier handler calls for the children's failures.
    pub handler_iteration: Option<u32>,
    /// The failure.
    pub exception: Option<Failure>,
    /// The context of the run, or of the emitted message, from then on.
    pub context: Context,
    /// The root of the hierarchy that a detached message starts.
    pub detached_root: Option<Uuid>,
    /// What the run waits for after this SUSPENDED, besides its children.
    pub wait: Option<Wait>,
    /// The message of the execution that begins after this SUSPENDED, if the step continues as new.
    pub as_new: Option<Uuid>,
}

impl Event {
    /// An event of this kind and message, with empty other fields.
    pub fn new(kind: EventKind, message: Uuid) -> Self {
        Self {
            kind,
            message,
            step: None,
            next_step: None,
            jump: None,
            handler_iteration: None,
            exception: None,
            context: Context::default(),
            detached_root: None,
            wait: None,
            as_new: None,
        }
    }

    /// Sets the step.
    #[must_use]
    pub fn in_step(mut self, step: impl Into<String>) -> Self {
        self.step = Some(step.into());
        self
    }

    /// Sets the iteration of the child failure handler.
    #[must_use]
    pub fn handled(mut self, iteration: Option<u32>) -> Self {
        self.handler_iteration = iteration;
        self
    }

    /// Sets the context.
    #[must_use]
    pub fn with(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// Sets the failure.
    #[must_use]
    pub fn because_of(mut self, failure: Failure) -> Self {
        self.exception = Some(failure);
        self
    }
}
