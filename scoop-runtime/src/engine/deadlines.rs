//! Has waiting runs give up at their deadlines.
//!
//! The timer ([`super::timer`]) calls this when a deadline is due by the clock of the server. `run_mark_overdue.sql`
//! marks the runs, and the parent check wakes them, as after the end of their last child. The failure of such a run
//! follows from its deadlines ([`scoop_core::Deadline`]). Running steps have [`super::step_stop_signals`] instead.

use super::shared::Engine;

/// The number of runs that one statement checks.
const BATCH_MAX: i64 = 1_000;

/// Marks the waiting runs that have missed a deadline, and has them checked.
pub(super) async fn expire_waiting(engine: &Engine) -> sqlx::Result<()> {
    for run in engine.store.expire_waiting(BATCH_MAX).await? {
        engine.wakeups.child_ended(run, None);
    }
    Ok(())
}
