//! One recorded fact about a run, as every participant of the protocol sees it.

use uuid::Uuid;

use crate::{Context, Failure};

/// Who is named as the worker in events that nobody's code led to, but an operator's decision: a SUSPENDED of a part that
/// was skipped, a ROLLED_BACK of a run that was put right by hand.
pub const OPERATOR: &str = "scoop-rs:operator";

/// What happened. The names are the values of the type `message_event_type` in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A message was emitted.
    Emitted,
    /// A handler took it up: a run began.
    Seen,
    /// A step, a part of a rollback or a child failure handler came to its end.
    Suspended,
    /// The run succeeded, with all that it started.
    Committed,
    /// The run turned back.
    RollingBack,
    /// The handlers of a message were told to turn back.
    RollbackEmitted,
    /// The run is undone.
    RolledBack,
    /// The run could not be undone.
    RollbackFailed,
    /// Somebody asked to give up.
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

/// One row that a run writes. Its lineage, handler and worker are those of the run, except for
/// the emission of a detached message, which has a lineage of its own and no handler.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// To which message: the one the run handles, or one that it emitted.
    pub message: Uuid,
    /// In which step.
    pub step: Option<String>,
    /// The position of the step that follows in the definition of the program that wrote the event; `None` after the
    /// last. For readers of the log: no run continues by it.
    pub next_step: Option<usize>,
    /// The step that was chosen to run next; `None` for the one that follows in the definition. In the rollback of a
    /// long history: where in it that part is.
    pub jump: Option<String>,
    /// How often the children's failures had been handled before.
    pub handler_iteration: Option<u32>,
    /// What went wrong.
    pub exception: Option<Failure>,
    /// What travels with the run, or with the message it emitted, from then on.
    pub context: Context,
    /// The root of the hierarchy that a detached message starts.
    pub detached_root: Option<Uuid>,
}

impl Event {
    /// An event that says only what happened to which message.
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
        }
    }

    /// The same event, in this step.
    #[must_use]
    pub fn in_step(mut self, step: impl Into<String>) -> Self {
        self.step = Some(step.into());
        self
    }

    /// The same event, of this iteration of the child failure handler.
    #[must_use]
    pub fn handled(mut self, iteration: Option<u32>) -> Self {
        self.handler_iteration = iteration;
        self
    }

    /// The same event, with this context.
    #[must_use]
    pub fn with(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// The same event, because of this failure.
    #[must_use]
    pub fn because_of(mut self, failure: Failure) -> Self {
        self.exception = Some(failure);
        self
    }
}
