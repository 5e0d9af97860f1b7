//! Bugs injected to prove that the simulation detects them. Without the feature `simulation` there are none:
//! [`is_injected`] is always false, and the code of the bugs is not compiled.
#![cfg_attr(
    not(feature = "simulation"),
    expect(dead_code, unreachable_pub, reason = "a simulation makes them")
)]

/// A bug that the engine, or the store in memory, has on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A settlement applies even if the run was taken over since it was claimed.
    SkipFence,
    /// A repeated settlement applies again.
    SettleTwice,
    /// A parent is ready although one child has not ended: as if another had been counted twice.
    CountTwice,
    /// Some parents are never woken.
    ForgetWake,
    /// A rollback continues before the children have completed the rollbacks that it requested.
    ParentFirst,
    /// Of several failures of children the last one is not passed to the parent.
    DropFailure,
    /// The end of a failed run is not passed to its parent.
    SwallowFailure,
    /// A parent without another step commits when it wakes, although a child has failed.
    CommitOverFailure,
    /// Due runs are claimed only after a notification.
    NotificationsOnly,
    /// A run that is claimed again begins again.
    SeenTwice,
    /// A compensation is called twice.
    CompensateTwice,
    /// A child gets the lineage of a sibling of its parent.
    WrongLineage,
    /// The reaping of dead workers also takes over the runs of living workers, and their epochs.
    TakeOverLiving,
    /// The runs of dead workers are not released.
    RetainDead,
    /// A new subscription also gets messages emitted before it.
    LateListeners,
    /// The rollback of one of the handlers of a message is not requested.
    SkipRequestedChild,
    /// Cancellations and missed deadlines are ignored.
    IgnoreGiveUp,
    /// Delayed runs begin at once.
    ForgetReadyAt,
    /// The value of a step is lost.
    LoseOutputs,
    /// The last message of a step is not delivered.
    ForgetDelivery,
    /// The last message of a step is lost.
    ForgetEmission,
    /// The next step that a step chose is lost.
    ForgetNext,
    /// The changes of a step to the context are lost.
    StaleContext,
    /// Events may be written at the time of earlier ones.
    StoppedClock,
    /// The iteration of a step is lost.
    ForgetIteration,
    /// A run continues by the positions of its steps in the list, although its saga was changed.
    ByIndex,
    /// A run continues after its latest step, although the changed saga does not determine the place.
    IgnoreRefusals,
    /// Of several definitions, that of the earliest started worker is current.
    OlderWins,
    /// The value of a step is not found under its former name.
    ForgetFormerNames,
    /// A run that sleeps continues at once.
    ForgetWait,
    /// A message that was joined is joined with later ones, too.
    JoinTwice,
    /// A message stays in its set although its emitter rolls back.
    RetainWithdrawn,
    /// A signal reaches only one of the runs that await it.
    DeliverToOne,
    /// A signal is delivered again, to later waits.
    DeliverTwice,
    /// A signal that no run awaits is lost.
    DropEarly,
    /// The signals of a failed step are sent.
    SendOfFailed,
    /// A run keeps the signal of an earlier wait although it awaits another one in time.
    RetainSignal,
    /// A step that runs at most once begins again under another claim.
    BeginTwice,
    /// A new execution begins with the values and the position of the former one.
    RetainPosition,
    /// A rollback goes beyond the beginning of its execution.
    UndoFormer,
    /// Of several events of entities in one transaction the last one is not recorded.
    ForgetEntityEvent,
    /// The decisions of one transaction are all made against the state before the first of them.
    StaleDecisions,
    /// Decisions are written although the settlements of their runs are void.
    StoreVoidDecisions,
    /// What the application of an event changed before its panic stays in the state.
    StoreAfterPanic,
    /// A run is claimed although the limit of its saga is reached.
    ExceedLimits,
    /// A run begins although the rate of its saga or of its key is reached.
    ExceedRates,
    /// Runs that wait for a place of their key are not returned to their queue.
    ForgetParked,
    /// A run that waits leaves its turn to the next one, although runs of its saga are serial.
    YieldOrder,
    /// Runs are claimed in the order in which they became ready, without regard to their priority.
    IgnorePriority,
    /// A run goes on as soon as one handler has committed, without its strategy.
    GoOnEarly,
    /// A strategy is not asked again when enough children have ended.
    AskLate,
    /// The handlers without which a run goes on are not cancelled.
    ForgetOthers,
    /// A rollback does not wait for what its run has left under way.
    ForgetLeft,
    /// A launch that has failed by its strategy does not fail its step.
    ForgetGaveUp,
}

/// A feature of sagas with a simulation of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Sagas that join messages.
    Joins,
    /// Waits for signals.
    Signals,
    /// Steps that run at most once.
    AtMostOnce,
    /// Runs that continue as new.
    Executions,
    /// Decisions of commands.
    Commands,
    /// Limits.
    Limits,
    /// Priorities of runs.
    Priorities,
    /// Strategies of launches.
    Strategies,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Bug; 54] = [
        Bug::SkipFence,
        Bug::SettleTwice,
        Bug::CountTwice,
        Bug::ForgetWake,
        Bug::ParentFirst,
        Bug::DropFailure,
        Bug::SwallowFailure,
        Bug::CommitOverFailure,
        Bug::NotificationsOnly,
        Bug::SeenTwice,
        Bug::CompensateTwice,
        Bug::WrongLineage,
        Bug::TakeOverLiving,
        Bug::RetainDead,
        Bug::LateListeners,
        Bug::SkipRequestedChild,
        Bug::IgnoreGiveUp,
        Bug::ForgetReadyAt,
        Bug::LoseOutputs,
        Bug::ForgetDelivery,
        Bug::ForgetEmission,
        Bug::ForgetNext,
        Bug::StaleContext,
        Bug::StoppedClock,
        Bug::ForgetIteration,
        Bug::ByIndex,
        Bug::IgnoreRefusals,
        Bug::OlderWins,
        Bug::ForgetFormerNames,
        Bug::ForgetWait,
        Bug::JoinTwice,
        Bug::RetainWithdrawn,
        Bug::DeliverToOne,
        Bug::DeliverTwice,
        Bug::DropEarly,
        Bug::SendOfFailed,
        Bug::RetainSignal,
        Bug::BeginTwice,
        Bug::RetainPosition,
        Bug::UndoFormer,
        Bug::ForgetEntityEvent,
        Bug::StaleDecisions,
        Bug::StoreVoidDecisions,
        Bug::StoreAfterPanic,
        Bug::ExceedLimits,
        Bug::ExceedRates,
        Bug::ForgetParked,
        Bug::YieldOrder,
        Bug::IgnorePriority,
        Bug::GoOnEarly,
        Bug::AskLate,
        Bug::ForgetOthers,
        Bug::ForgetLeft,
        Bug::ForgetGaveUp,
    ];

    /// The feature that it is about, if a simulation of that feature has to find it.
    pub fn feature(self) -> Option<Feature> {
        match self {
            Self::JoinTwice | Self::RetainWithdrawn => Some(Feature::Joins),
            Self::DeliverToOne
            | Self::DeliverTwice
            | Self::DropEarly
            | Self::SendOfFailed
            | Self::RetainSignal => Some(Feature::Signals),
            Self::BeginTwice => Some(Feature::AtMostOnce),
            Self::RetainPosition | Self::UndoFormer => Some(Feature::Executions),
            Self::ExceedLimits | Self::ExceedRates | Self::ForgetParked | Self::YieldOrder => {
                Some(Feature::Limits)
            }
            Self::IgnorePriority => Some(Feature::Priorities),
            Self::GoOnEarly | Self::AskLate | Self::ForgetOthers | Self::ForgetLeft | Self::ForgetGaveUp => {
                Some(Feature::Strategies)
            }
            Self::ForgetEntityEvent
            | Self::StaleDecisions
            | Self::StoreVoidDecisions
            | Self::StoreAfterPanic => Some(Feature::Commands),
            _ => None,
        }
    }

    /// Whether it can be detected only while programs of different versions live, or follow each other.
    pub fn needs_changes(self) -> bool {
        matches!(self, Self::ByIndex | Self::IgnoreRefusals | Self::OlderWins | Self::ForgetFormerNames)
    }
}

#[cfg(feature = "simulation")]
pub use switched::inject_bug;
#[cfg(feature = "simulation")]
pub(crate) use switched::is_injected;

/// Whether this bug is active: never.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn is_injected(_: Bug) -> bool {
    false
}

#[cfg(feature = "simulation")]
mod switched {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static INJECTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// From now on this thread has this bug, or none.
    pub fn inject_bug(bug: impl Into<Option<Bug>>) {
        INJECTED.set(bug.into());
    }

    /// Whether this bug is active.
    pub(crate) fn is_injected(bug: Bug) -> bool {
        INJECTED.get() == Some(bug)
    }
}
