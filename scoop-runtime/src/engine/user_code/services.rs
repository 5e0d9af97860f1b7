//! What the scope of a step uses of the engine.

use crate::engine::shared::Engine;
use crate::saga::scope::services::{StepEffect, StepEngine, StepServices};
use crate::saga::stop_signal::StopSignal;
use crate::store::ClaimKey;

impl Engine {
    pub(super) fn step_services(&self) -> StepServices<'_> {
        StepServices {
            store: &self.store,
            settings: &self.settings,
            transactions: self.step_transactions.as_ref(),
            unhandled: &self.unhandled,
            engine: self,
        }
    }
}

impl StepEngine for Engine {
    fn stop_signal(&self, key: ClaimKey) -> StopSignal {
        self.stop_signals.watch(key)
    }

    fn apply(&self, effect: StepEffect) {
        match effect {
            StepEffect::Ready(handlers) => self.notify_ready(&handlers),
            StepEffect::Joined(launched) => self.notify_joined(&launched),
            StepEffect::JoinLimit => self.reschedule_joins(),
            StepEffect::Cancelled(runs) => self.on_cancelled(runs),
            StepEffect::Launched(launch) => self.launches.note(launch),
        }
    }
}
