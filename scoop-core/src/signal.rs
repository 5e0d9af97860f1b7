//! Signals: events from outside that runs await.

use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use crate::{SignalKey, Stored, TraceContext};

/// A signal that user code sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SentSignal {
    /// Its id.
    pub id: Uuid,
    /// Its name and key.
    pub to: SignalKey,
    /// Its payload.
    pub payload: Value,
    /// How long it is kept if no run awaits it.
    pub retention: Duration,
    /// The span that sends it, to which the step that goes on with it is linked.
    pub trace: Option<TraceContext>,
}

/// A signal: a value from outside for the runs that await it, told apart by a key.
///
/// Derive it: `#[derive(Signal, Serialize, Deserialize)]`, with `#[signal(name = "..", retention = "7 days")]`. Without the
/// attribute the name is that of the type in kebab case, and an early signal is kept for a week.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use std::time::Duration;
///
/// use scoop::Signal;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)] // and `Signal`, which writes:
/// struct PaymentConfirmed {
///     amount: i64,
/// }
///
/// impl Signal for PaymentConfirmed {
///     const NAME: &'static str = "payment-confirmed";
///     const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// }
///
/// assert_eq!(PaymentConfirmed::NAME, "payment-confirmed");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a signal",
    label = "not a signal",
    note = "write `#[derive(Signal, Serialize, Deserialize)]` on `{Self}`"
)]
pub trait Signal: Stored + Send + Sync + 'static {
    /// The name of the signal: 1 to 180 characters.
    const NAME: &'static str;

    /// How long a signal is kept that no run awaits yet.
    const RETENTION: Duration;
}
