//! What a scope uses of the process that executes its step.

use std::sync::Arc;

use crate::model::launched_topics::StepTopic;
use crate::saga::stop_signal::StopSignal;
use crate::settings::Settings;
use crate::store::join::LaunchedSet;
use crate::store::{ClaimKey, ParentRef, StepTransactions, Store};
use crate::unhandled::UnhandledWarnings;

/// The parts of the process that the scope of a step uses.
#[derive(Clone, Copy)]
pub(crate) struct StepServices<'a> {
    pub(crate) store: &'a Store,
    pub(crate) settings: &'a Settings,
    /// None for a database in memory.
    pub(crate) transactions: Option<&'a StepTransactions>,
    pub(crate) unhandled: &'a Arc<UnhandledWarnings>,
    pub(crate) engine: &'a dyn StepEngine,
}

/// The engine, as a scope sees it. Ordinary steps do not call it.
pub(crate) trait StepEngine: Send + Sync {
    /// The signal by which this run learns that it has to give up.
    fn stop_signal(&self, key: ClaimKey) -> StopSignal;

    /// Reacts to what a step has caused outside of its own transaction.
    fn apply(&self, effect: StepEffect);
}

/// What a step has caused outside of its own transaction.
pub(crate) enum StepEffect {
    /// Runs of these handlers are ready.
    Ready(Vec<String>),
    /// A set of joined messages was launched.
    Joined(LaunchedSet),
    /// A set has a time limit.
    JoinLimit,
    /// These runs give up.
    Cancelled(Vec<ParentRef>),
    /// The first launch of the step on a topic, to be recorded.
    Launched(StepTopic),
}
