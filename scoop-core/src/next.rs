//! The next step of a saga.

/// The next step that a step chooses. A step without a choice gets [`Next::Continue`].
///
/// `S` is the saga's own step enum, so that a jump to a step that does not exist does not
/// compile; the protocol itself counts steps by their index.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Next;
///
/// assert_eq!(Next::goto(2), Next::GoTo(2));
/// assert_eq!(Next::goto('x').map(|step| step as usize), Next::GoTo(120));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<S = usize> {
    /// The step that follows in the definition, or the end after the last one.
    Continue,
    /// The same step once more.
    Repeat,
    /// This step.
    GoTo(S),
}

impl<S> Next<S> {
    /// Jump to a step.
    pub fn goto(step: S) -> Self {
        Next::GoTo(step)
    }

    /// Adds a value for the compensation and for later steps.
    pub fn with<T>(self, value: T) -> With<S, T> {
        With { next: self, value }
    }

    /// Ends this execution of the run, and begins a new one of the same saga with this message. See [`ContinueAsNew`].
    pub fn continue_as_new<M>(message: M) -> ContinueAsNew<S, M> {
        ContinueAsNew::Message(message)
    }

    /// Converts the step type.
    pub fn map<T>(self, f: impl FnOnce(S) -> T) -> Next<T> {
        match self {
            Next::Continue => Next::Continue,
            Next::Repeat => Next::Repeat,
            Next::GoTo(step) => Next::GoTo(f(step)),
        }
    }
}

/// A next step, or the message of a new execution of the saga: what a step returns that may continue as new.
///
/// A new execution begins with the first step and an empty history, in the settlement of the step that chose it. It
/// has the id, the parent, the context and the deadlines of its run. A rollback goes back to its beginning and no
/// further.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{ContinueAsNew, Next};
///
/// let again: ContinueAsNew<usize, &str> = Next::continue_as_new("cursor 7");
/// let further: ContinueAsNew<usize, &str> = Next::Continue.into();
/// assert_eq!((again, further), (ContinueAsNew::Message("cursor 7"), ContinueAsNew::Next(Next::Continue)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinueAsNew<S, M> {
    /// The execution continues with this step.
    Next(Next<S>),
    /// A new execution begins, with this message.
    Message(M),
}

impl<S, M> From<Next<S>> for ContinueAsNew<S, M> {
    fn from(next: Next<S>) -> Self {
        Self::Next(next)
    }
}

/// A next step, and a value for the compensation and for later steps. Created by [`Next::with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct With<S, T> {
    /// The next step.
    pub next: Next<S>,
    /// The value that the step returned.
    pub value: T,
}
