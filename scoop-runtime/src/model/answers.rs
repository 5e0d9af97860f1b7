//! The responses to requests about a hierarchy or a part of it.

use std::fmt;
use std::ops::Deref;

use scoop_core::Failure;
use serde::Serialize;

use crate::model::name::HierarchyId;

/// The response to a cancellation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelAnswer {
    /// The request is recorded, and the unfinished runs that do not roll back yet give up.
    Accepted,
    /// A cancellation was requested before. Nothing happens.
    AlreadyRequested,
    /// The request is recorded, but no run is left that could give up. If the message that started the hierarchy had no handler,
    /// it is not redelivered (`operate().handlers().redeliver`) any more.
    NothingToDo,
}

/// The response to a rollback request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RollbackAnswer {
    /// The request is recorded, and the rollback begins.
    Accepted,
    /// A run of the message, an ancestor or a descendant is unfinished, and its rollback has not failed. Nothing happens;
    /// repeat the request later, or cancel the run.
    StillRunning,
    /// The message had no handler, so there is nothing to roll back.
    NoHandlers,
    /// The runs are rolled back already, by their own failure or on request.
    AlreadyRolledBack,
    /// An earlier rollback of the runs or of their descendants failed. Nothing happens before an operator has
    /// repaired that.
    FailedBefore,
}

/// The response to the request to send a run a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalAnswer {
    /// The request is recorded, and the signal has reached the run: it continues. So do other runs that awaited the same
    /// name and key.
    Accepted,
    /// The request is recorded, and the signal is sent, but has reached no run yet: another signal of its key came first, the
    /// run is locked, or the role may not deliver it. It is kept for a minute.
    Pending,
    /// The run awaits no signal. Nothing happens.
    NotAwaiting,
}

/// The response to the request to launch the message of a hierarchy again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelaunchAnswer {
    /// The message is launched again, in this hierarchy. In a dry run it would be, and the id stands for none.
    Accepted(HierarchyId),
    /// It was launched again before, in this hierarchy. Nothing happens.
    RelaunchedBefore(HierarchyId),
    /// A run is unfinished, and its rollback has not failed. Nothing happens; repeat the request later, or cancel the run.
    StillRunning,
    /// A handler of the message has committed. Nothing happens unless the request is `even_if_committed`.
    Committed,
}

impl CancelAnswer {
    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::AlreadyRequested => "already requested",
            Self::NothingToDo => "nothing to do",
        }
    }
}

impl fmt::Display for CancelAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "the unfinished runs give up",
            Self::AlreadyRequested => "a cancellation was requested before",
            Self::NothingToDo => {
                "no run is left that could give up: the request has no effect beside its record"
            }
        })
    }
}

impl RollbackAnswer {
    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::StillRunning => "still running",
            Self::NoHandlers => "no handlers",
            Self::AlreadyRolledBack => "already rolled back",
            Self::FailedBefore => "failed before",
        }
    }
}

impl fmt::Display for RollbackAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "the rollback begins",
            Self::StillRunning => "a run of it is unfinished: repeat the request later, or cancel the run",
            Self::NoHandlers => "the message had no handler, so nothing is to be rolled back",
            Self::AlreadyRolledBack => "the runs are rolled back already",
            Self::FailedBefore => "an earlier rollback of it failed: retry, skip or resolve that first",
        })
    }
}

impl RelaunchAnswer {
    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted(_) => "accepted",
            Self::RelaunchedBefore(_) => "relaunched before",
            Self::StillRunning => "still running",
            Self::Committed => "committed",
        }
    }
}

impl fmt::Display for RelaunchAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted(hierarchy) => write!(f, "the message is launched again, as hierarchy {hierarchy}"),
            Self::RelaunchedBefore(hierarchy) => {
                write!(f, "the message was launched again before, as hierarchy {hierarchy}")
            }
            Self::StillRunning => {
                f.write_str("a run of it is unfinished: repeat the request later, or cancel the run")
            }
            Self::Committed => {
                f.write_str("a handler of the message has committed: its effects would come a second time")
            }
        }
    }
}

impl SignalAnswer {
    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Pending => "pending",
            Self::NotAwaiting => "not awaiting",
        }
    }
}

impl fmt::Display for SignalAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "the signal has reached the run",
            Self::Pending => "the signal is sent, but has not reached the run yet; it is kept for a minute",
            Self::NotAwaiting => "the run awaits no signal",
        })
    }
}

/// The hierarchies with the same first message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Relaunches {
    /// The hierarchy whose message was launched again as this one.
    #[serde(rename = "relaunch_of")]
    pub(crate) of: Option<HierarchyId>,
    /// The hierarchies as which its message was launched again, the oldest first.
    #[serde(rename = "relaunched_as")]
    pub(crate) as_others: Vec<HierarchyId>,
}

/// The failure of a rollback, and the reason of the rollback. Dereferences to the former.
///
/// ```no_run
/// # use scoop_runtime::RollbackFailure;
/// # fn example(failed: &RollbackFailure) {
/// println!("{failed}");                                       // the refund failed (because no chairs left)
/// println!("{}\n{}", failed.report(), failed.cause.report()); // all of both
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RollbackFailure {
    /// The failure of the rollback.
    pub failure: Failure,
    /// The reason of the rollback.
    pub cause: Box<Failure>,
}

impl RollbackFailure {
    pub(crate) fn new(failure: Failure, cause: Failure) -> Self {
        Self { failure, cause: Box::new(cause) }
    }
}

impl Deref for RollbackFailure {
    type Target = Failure;

    fn deref(&self) -> &Failure {
        &self.failure
    }
}

impl fmt::Display for RollbackFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (because {})", self.failure.rollback_summary(), self.cause.summary())
    }
}
