//! Signals, as they go to the database.

pub(crate) use scoop_core::SentSignal as NewSignal;
use scoop_core::SignalKey;

/// The signals to deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deliver {
    /// Those of these names and keys.
    To(Vec<SignalKey>),
    /// All that are kept.
    Kept,
}

/// What became of a signal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalSent {
    /// The number of runs that it has reached.
    pub(crate) reached: u64,
    /// The handlers of runs that are ready now.
    pub(crate) handlers: Vec<String>,
}
