//! The deliveries of signals that fail, for the store and the log.

use scoop_core::SignalKey;
use uuid::Uuid;

/// A delivery that waits for another session, which locks the signal or a run that awaits it. Others are not affected.
#[derive(Debug)]
pub(crate) struct LockedDelivery {
    pub(crate) to: SignalKey,
    pub(crate) error: sqlx::Error,
}

/// A delivery that the database refuses. Others are not affected.
#[derive(Debug)]
pub(crate) struct RefusedDelivery {
    pub(crate) to: SignalKey,
    /// The run that cannot get the signal; `None` if it is not known.
    pub(crate) run: Option<AwaitingRun>,
    pub(crate) error: sqlx::Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwaitingRun {
    pub(crate) id: Uuid,
    pub(crate) handler: String,
    pub(crate) step: String,
}

/// Expired signals of one name: no run awaited them in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpiredSignals {
    /// The name of the signals, and the key of one of them.
    pub(crate) to: SignalKey,
    pub(crate) signals: u64,
}
