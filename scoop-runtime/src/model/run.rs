//! The state of a run, and what an operator can request for it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use scoop_core::Failure;
use serde::{Deserialize, Serialize};

/// Declares an enum whose variants have names, in both directions.
macro_rules! named {
    (
        $(#[$doc:meta])*
        $name:ident, $what:literal { $($(#[$about:meta])* $variant:ident = $text:literal,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$about])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Its name, as its text has it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = String;

            /// Reads its name. Spaces may be written as `-` or `_`.
            fn from_str(text: &str) -> Result<Self, String> {
                let name = text.replace(['-', '_'], " ");
                Self::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
                    format!(concat!("{:?} is no ", $what, "; there are: {}"), text, known.join(", "))
                })
            }
        }
    };
}

named! {
    /// The state of a run, in one word.
    ///
    /// ```
    /// # extern crate scoop_runtime as scoop;
    /// use scoop::RunPhase;
    ///
    /// assert_eq!("rolled-back".parse(), Ok(RunPhase::RolledBack));
    /// assert_eq!(RunPhase::AwaitingSignal.to_string(), "awaiting signal");
    /// ```
    RunPhase, "state of a run" {
        /// It has not begun: it waits for a worker, or until the time for which it was launched.
        Pending = "pending",
        /// It can continue, and no worker executes it at this moment.
        Ready = "ready",
        /// An attempt failed, and it is retried.
        Retrying = "retrying",
        /// A worker executes it.
        Running = "running",
        /// It waits for its children.
        Waiting = "waiting",
        /// It sleeps until a time.
        Sleeping = "sleeping",
        /// It awaits a signal.
        AwaitingSignal = "awaiting signal",
        /// No living program can continue it, or it may crash its workers.
        Stuck = "stuck",
        /// Its rollback failed, by its own code or because that of a descendant failed. It rests so until an operator decides about
        /// it, or about that descendant.
        RollbackFailed = "rollback failed",
        /// It has committed.
        Committed = "committed",
        /// It was rolled back.
        RolledBack = "rolled back",
    }
}

named! {
    /// What a run waits for.
    ///
    /// ```
    /// # use scoop_runtime::WaitKind;
    /// assert_eq!("children".parse(), Ok(WaitKind::Children));
    /// ```
    WaitKind, "kind of wait" {
        /// Its children.
        Children = "children",
        /// A signal.
        Signal = "signal",
        /// A time: the end of a sleep, of a backoff or of a delay.
        Time = "time",
        /// A free slot of a worker that has its saga.
        Slot = "slot",
        /// The end of another run of its saga, since the limit of that or of its key is reached.
        Limit = "limit",
        /// The end of a pause.
        Pause = "pause",
        /// A program that can continue it.
        Program = "program",
        /// The decision of an operator.
        Operator = "operator",
    }
}

named! {
    /// A request about a run that an operator can make.
    ///
    /// ```
    /// # extern crate scoop_runtime as scoop;
    /// use scoop::{RunPhase, RunRequest};
    ///
    /// assert_eq!(RunPhase::Committed.requests(), [RunRequest::Rollback]);
    /// ```
    RunRequest, "request about a run" {
        /// [`Scoop::cancel`](crate::Scoop::cancel).
        Cancel = "cancel",
        /// [`Scoop::rollback`](crate::Scoop::rollback).
        Rollback = "rollback",
        /// `operate().failures().retry`.
        Retry = "retry",
        /// `operate().failures().skip`.
        Skip = "skip",
        /// `operate().failures().resolve`.
        Resolve = "resolve",
        /// `operate().runs().signal_run`.
        Signal = "signal",
        /// `operate().runs().relaunch`, of its hierarchy.
        Relaunch = "relaunch",
    }
}

impl RunRequest {
    /// The decisions about a failed rollback.
    pub const REPAIRS: [Self; 3] = [Self::Retry, Self::Skip, Self::Resolve];

    /// Whether it repairs a failed rollback or a stuck run.
    pub const fn is_repair(self) -> bool {
        matches!(self, Self::Retry | Self::Skip | Self::Resolve)
    }
}

impl RunPhase {
    /// The requests to offer for a run in this state: it can accept them. A run that waits for a decision about a run below it
    /// accepts `skip` and `resolve`, too, which settle that run with it.
    ///
    /// A run in a list and `StuckRun::requests` have those of a certain run.
    pub const fn requests(self) -> &'static [RunRequest] {
        match self {
            Self::Pending | Self::Ready | Self::Retrying | Self::Running | Self::Waiting | Self::Sleeping => {
                &[RunRequest::Cancel]
            }
            Self::AwaitingSignal => &[RunRequest::Signal, RunRequest::Cancel],
            Self::Stuck => &[RunRequest::Retry, RunRequest::Cancel],
            Self::RollbackFailed => {
                &[RunRequest::Retry, RunRequest::Skip, RunRequest::Resolve, RunRequest::Relaunch]
            }
            Self::Committed => &[RunRequest::Rollback],
            Self::RolledBack => &[RunRequest::Relaunch],
        }
    }

    /// [`requests`](Self::requests), but a cancellation only if it makes the run give up.
    #[doc(hidden)]
    pub fn requests_if(self, can_give_up: bool) -> impl Iterator<Item = RunRequest> {
        let requests = self.requests().iter().copied();
        requests.filter(move |request| can_give_up || *request != RunRequest::Cancel)
    }

    /// Whether such a run has ended.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Committed | Self::RolledBack)
    }

    /// The states of the rows of such runs; none if they have ended.
    #[doc(hidden)]
    pub const fn row_states(self) -> &'static [RowState] {
        match self {
            Self::Pending | Self::Ready | Self::Retrying | Self::Sleeping | Self::AwaitingSignal => {
                &[RowState::Ready]
            }
            Self::Running => &[RowState::Running],
            // One about which a strategy decides is ready from a time on.
            Self::Waiting => &[RowState::Waiting, RowState::Ready],
            Self::Stuck => &[RowState::Stuck],
            Self::RollbackFailed => &[RowState::Failed],
            Self::Committed | Self::RolledBack => &[],
        }
    }
}

impl WaitKind {
    /// Its name as the object of a sentence.
    #[doc(hidden)]
    pub fn with_article(self) -> String {
        match self {
            Self::Children => self.to_string(),
            Self::Operator => format!("an {self}"),
            _ => format!("a {self}"),
        }
    }

    /// The states of the rows that can wait for it.
    #[doc(hidden)]
    pub fn row_states(self) -> impl Iterator<Item = RowState> {
        let states: &[RowState] = match self {
            Self::Children => &[RowState::Waiting, RowState::Ready],
            Self::Signal | Self::Time | Self::Slot | Self::Limit | Self::Pause => &[RowState::Ready],
            Self::Program => &[RowState::Ready, RowState::Stuck],
            Self::Operator => &[RowState::Stuck, RowState::Failed],
        };
        states.iter().copied()
    }
}

/// A shorter time in a queue is not shown.
pub const QUEUED_MIN: Duration = Duration::from_secs(1);

/// The state of a row of the working set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RowState {
    /// It can be claimed, from its `ready_at` on.
    #[default]
    Ready,
    /// Its owner executes it.
    Running,
    /// It waits for its children.
    Waiting,
    /// It did not succeed, and its parent has not recorded that yet.
    Ended,
    /// No living definition can continue it, or an operator has to retry it.
    Stuck,
    /// Its rollback failed: it rests until an operator decides about it.
    Failed,
}

impl RowState {
    const ALL: [Self; 6] =
        [Self::Ready, Self::Running, Self::Waiting, Self::Ended, Self::Stuck, Self::Failed];

    /// The label of the state in the type `scoop.run_state`.
    #[doc(hidden)]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
            Self::Stuck => "stuck",
            Self::Failed => "failed",
        }
    }

    /// Whether no run waits any longer for a run in this state.
    pub(crate) const fn has_ended(self) -> bool {
        matches!(self, Self::Ended | Self::Failed)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl fmt::Display for RowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The failure of an end that has none recorded, although it has to.
pub fn no_failure() -> Failure {
    Failure::new("Unknown", "no failure is recorded", "scoop")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_cannot_give_up_accepts_no_cancellation() {
        for phase in RunPhase::ALL {
            assert!(phase.requests_if(true).eq(phase.requests().iter().copied()));
            assert!(phase.requests_if(false).all(|request| request != RunRequest::Cancel));
            assert!(!phase.is_finished() || !phase.requests().contains(&RunRequest::Cancel));
            assert_eq!(phase == RunPhase::RollbackFailed, phase.requests().contains(&RunRequest::Resolve));
        }
    }

    #[test]
    fn decisions_about_a_failed_rollback_are_the_repairs() {
        let repairs = RunRequest::ALL.into_iter().filter(|request| request.is_repair());
        assert!(repairs.eq(RunRequest::REPAIRS));
    }

    #[test]
    fn states_are_read_from_their_names() {
        for phase in RunPhase::ALL {
            assert_eq!(phase.to_string().parse(), Ok(phase));
            assert_eq!(phase.to_string().replace(' ', "-").parse(), Ok(phase));
            assert_eq!(phase.is_finished(), phase.row_states().is_empty());
        }
        let error = "done".parse::<RunPhase>().unwrap_err();
        assert!(error.starts_with("\"done\" is no state of a run; there are: pending, ready"), "{error}");
    }
}
