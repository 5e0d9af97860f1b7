//! The signal by which the code of a step learns that its run has to give up.

use tokio_util::sync::CancellationToken;

/// Signals that a run should stop: it was cancelled, or a deadline has passed.
///
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct StopSignal(pub(crate) CancellationToken);

impl StopSignal {
    /// Returns when the run should stop; at once if that is so already.
    ///
    /// # Cancel safety
    ///
    /// Waiting changes nothing.
    pub async fn raised(&self) {
        self.0.cancelled().await;
    }

    /// Whether the run should stop.
    pub fn is_raised(&self) -> bool {
        self.0.is_cancelled()
    }
}
