//! Signals, as they go to the database.

pub(crate) use scoop_core::SentSignal as NewSignal;
use scoop_core::{SignalKey, TraceContext};

use super::{ClaimQueues, ClaimedRun, Claimer, Unclaimed};
use crate::model::signal::{LockedDelivery, RefusedDelivery};

/// The span that has sent a signal, as stored. A malformed one is left out.
pub(crate) fn sender(traceparent: Option<&str>) -> Option<TraceContext> {
    TraceContext::from_headers(traceparent?, None).ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deliver {
    To(Vec<SignalKey>),
    /// The awaited signals that this transaction or a later one has sent.
    SentSince(TransactionNumber),
}

/// What became of a delivery.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// The handlers of runs that are ready now.
    pub(crate) handlers: Vec<String>,
    /// What the database refused, and is logged.
    pub(crate) refused: Vec<RefusedDelivery>,
    /// What is locked, and was left as it is.
    pub(crate) locked: Vec<LockedDelivery>,
}

/// A transaction of the database, by its number. The default is before all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransactionNumber(pub(super) String);

impl Default for TransactionNumber {
    fn default() -> Self {
        Self("0".into())
    }
}

/// What became of a signal.
#[derive(Default)]
pub(crate) struct SignalSent {
    pub(crate) reached: u64,
    /// The handlers of runs that are ready now.
    pub(crate) handlers: Vec<String>,
    pub(crate) claimed: Vec<Result<ClaimedRun, Unclaimed>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignalType {
    /// Its shape; `None` if that is not recorded.
    pub(crate) shape: Option<String>,
    pub(crate) is_living: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct SignalClaimer<'a> {
    pub(crate) claimer: Claimer<'a>,
    pub(crate) queues: &'a ClaimQueues,
    pub(crate) slots: usize,
}
