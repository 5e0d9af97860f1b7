//! Signals of users, checked.

use std::time::Duration;

use scoop_core::{Json, Signal, SignalKey};
use serde_json::Value;

use crate::RuntimeError;
use crate::error::ErrorKind;
use crate::store::NewSignal;

use crate::util::{ids, payload};

/// The longest time for which a signal is kept: beyond the times that the database can store.
pub(crate) const RETENTION_MAX: Duration = Duration::from_secs(100_000_000_000);

/// Checks a signal and its key.
pub(crate) fn prepare<S: Signal>(signal: &S, key: String, limit: usize) -> Result<NewSignal, RuntimeError> {
    let to = SignalKey { name: S::NAME.to_owned(), key };
    prepare_value(to, S::RETENTION, limit, || Json::to_value(signal))
}

/// Checks the name, the key and the value of a signal. The value is made after the other checks.
pub(crate) fn prepare_value(
    to: SignalKey,
    retention: Duration,
    limit: usize,
    value: impl FnOnce() -> serde_json::Result<Value>,
) -> Result<NewSignal, RuntimeError> {
    let refused = |why: String| RuntimeError::from(ErrorKind::Signal { signal: to.name.clone(), why });
    if let Some(why) = to.refused() {
        return Err(refused(why));
    }
    let value = value().map_err(|why| refused(why.to_string()))?;
    let payload = payload::storable(value, limit, || format!("the signal `{}`", to.name))?;
    Ok(NewSignal { id: ids::now_v7(), to, payload, retention: retention.min(RETENTION_MAX), trace: None })
}
