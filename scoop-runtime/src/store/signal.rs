//! Signals, as they go to the database.

pub(crate) use scoop_core::SentSignal as NewSignal;
use scoop_core::SignalKey;
use uuid::Uuid;

/// The signals to deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deliver {
    /// Those of these names and keys.
    To(Vec<SignalKey>),
    /// Those that a run awaits, and that this transaction or a later one has sent.
    SentSince(Transaction),
}

/// A transaction of the database, by its number. The default is before all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction(pub(super) String);

impl Default for Transaction {
    fn default() -> Self {
        Self("0".into())
    }
}

/// The sender in the notification that a program without the right to deliver has sent a signal.
pub(crate) const SIGNAL_SENT: Uuid = Uuid::max();

/// What became of a signal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalSent {
    /// The number of runs that it has reached.
    pub(crate) reached: u64,
    /// The handlers of runs that are ready now.
    pub(crate) handlers: Vec<String>,
}
