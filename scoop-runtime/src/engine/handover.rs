//! Hands a run that this worker cannot execute to a worker with another definition of its saga.
//!
//! `run_hand_over.sql` finds the newest living definition that has not refused the run, under the lock of that worker's row,
//! and reserves the run for it. Without such a definition the run is stuck. A run without a completed step whose message no
//! definition can decode keeps its claim instead, and fails. A run that is reserved is not refused for its pin, so no two
//! definitions hand it over to each other.

use super::shared::Engine;
use crate::store::{ClaimKey, HandOver, HandOverRequest, Unclaimed};
use crate::telemetry;

/// What happens to a refused run if no worker has a definition that may fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfRefused {
    /// The claim of it stays.
    Retain,
    Stuck,
}

/// Hands a run over to a worker with a definition that may fit, or with this one only.
pub(super) async fn hand_to_another(
    engine: &Engine,
    key: ClaimKey,
    saga: &str,
    reason: &str,
    otherwise: IfRefused,
    only: Option<i32>,
) -> HandOver {
    let (worker, definition) = (engine.worker, engine.topology.number_of(saga));
    let or_stuck = otherwise == IfRefused::Stuck;
    match engine.store.mark_stuck(HandOverRequest { key, reason, worker, definition, or_stuck, only }).await {
        Ok(set) => {
            // A handler of `Failed` has a new run if it is stuck.
            if set != HandOver::Void {
                engine.wakeups.others.notify_one();
                // It may be another definition of this program.
                engine.wakeups.wake_claimers();
            }
            set
        }
        Err(error) => {
            telemetry::release_failed(key.root, key.id, &error);
            engine.mark_in_doubt();
            HandOver::Void
        }
    }
}

/// Handles a claimed run that this worker cannot execute: hands it over if another program may read its record.
pub(super) async fn hand_back(engine: &Engine, unclaimed: Unclaimed) {
    match unclaimed {
        Unclaimed::Unreadable { key, handler, why } => {
            let reason = format!("its record cannot be read: {why}");
            if hand_to_another(engine, key, &handler, &reason, IfRefused::Stuck, None).await
                == HandOver::Stuck
            {
                telemetry::unreadable(key.root, key.id);
            }
        }
        Unclaimed::Refused { root, id, why } => telemetry::refused(root, id, &why),
    }
}
