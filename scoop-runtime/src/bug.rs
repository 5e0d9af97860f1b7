//! Deliberate bugs, to show that the simulation finds such. Without the feature `simulation` there are
//! none: the questions for them are constants, and nothing of them is compiled.
#![cfg_attr(
    not(feature = "simulation"),
    expect(dead_code, unreachable_pub, reason = "a simulation makes them")
)]

/// A mistake that the engine, or the store in memory, makes on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A settlement applies whatever happened to the run since it was claimed.
    SkipFence,
    /// A settlement applies once more if it is repeated.
    SettleTwice,
    /// A parent is ready although one child has not ended: as if another had been counted twice.
    CountTwice,
    /// Some parents are never woken.
    ForgetWake,
    /// A run that turned back goes on before the children it told have turned back.
    ParentFirst,
    /// Of several failures of children the last one is not told.
    DropFailure,
    /// The end of a run that failed is not told to its parent.
    SwallowFailure,
    /// A parent that has no step left commits when it wakes, although a child has failed.
    CommitOverFailure,
    /// What is due is looked for only when a notification comes.
    NotificationsOnly,
    /// A run that is taken again begins again.
    SeenTwice,
    /// A compensation is called twice.
    CompensateTwice,
    /// A child is put beside its parent.
    WrongLineage,
    /// Whoever asks for the dead takes over the runs of the living, and their epochs.
    TakeOverLiving,
    /// The runs of the dead stay theirs.
    KeepDead,
    /// A handler that begins to listen gets what was emitted before.
    LateListeners,
    /// One of the handlers of a message is not told to turn back.
    SkipToldChild,
    /// Nobody notices that a run was asked to give up, or has missed a deadline.
    IgnoreGiveUp,
    /// What is to begin later begins at once.
    ForgetReadyAt,
    /// What a step returned is lost.
    LoseOutputs,
    /// The last message of a step is not delivered.
    ForgetDelivery,
    /// The last message of a step is lost.
    ForgetEmission,
    /// Where the saga is to go next is lost.
    ForgetNext,
    /// What the step left in the context is lost.
    StaleContext,
    /// Events may be written at the time of earlier ones.
    StandingClock,
    /// In which iteration a step ran is lost.
    ForgetIteration,
    /// A run goes on by the positions of its steps in the list, although its saga was changed.
    ByIndex,
    /// A run goes on after its newest step, although the changed saga does not determine the place.
    IgnoreRefusals,
    /// Of several definitions that of the worker which started first is current.
    OlderWins,
    /// With several definitions in use, only the claimer of this process is notified of ready runs.
    ForgetOtherDefinitions,
    /// The value of a step is not found under its former name.
    ForgetFormerNames,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 30] = [
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
        Bug::KeepDead,
        Bug::LateListeners,
        Bug::SkipToldChild,
        Bug::IgnoreGiveUp,
        Bug::ForgetReadyAt,
        Bug::LoseOutputs,
        Bug::ForgetDelivery,
        Bug::ForgetEmission,
        Bug::ForgetNext,
        Bug::StaleContext,
        Bug::StandingClock,
        Bug::ForgetIteration,
        Bug::ByIndex,
        Bug::IgnoreRefusals,
        Bug::OlderWins,
        Bug::ForgetOtherDefinitions,
        Bug::ForgetFormerNames,
    ];

    /// Whether it can be noticed only while programs of different versions live, or follow each other.
    pub fn needs_changes(self) -> bool {
        matches!(
            self,
            Self::ByIndex
                | Self::IgnoreRefusals
                | Self::OlderWins
                | Self::ForgetOtherDefinitions
                | Self::ForgetFormerNames
        )
    }
}

#[cfg(feature = "simulation")]
pub(crate) use switched::made;
#[cfg(feature = "simulation")]
pub use switched::make;

/// Whether this mistake is made now: never.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn made(_: Bug) -> bool {
    false
}

#[cfg(feature = "simulation")]
mod switched {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static MADE: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// From now on this thread makes this mistake, or none.
    pub fn make(bug: impl Into<Option<Bug>>) {
        MADE.set(bug.into());
    }

    /// Whether this mistake is made now.
    pub(crate) fn made(bug: Bug) -> bool {
        MADE.get() == Some(bug)
    }
}
