//! `scoop signal`

use std::time::Duration;

use scoop_core::Escaped;
use scoop_operate::OperateExt as _;
use scoop_runtime::internal::ErrorKind;
use scoop_runtime::{Pause, Scoop};
use serde::Serialize;
use uuid::Uuid;

use super::payload;
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::{Output, counted, shortened};
use crate::times;

/// Send a signal to the runs that await it
///
/// If no run awaits it, it is kept, and goes to the first run that does. A name that no saga of any program has ever awaited is
/// refused, since it is probably mistyped. So is a payload that no saga which awaits it can read, as far as the recorded shapes of their types say so.
#[derive(Debug, clap::Args)]
pub(crate) struct SignalArgs {
    /// The name of the signal
    name: String,
    /// The key: `explain` and `runs` show the one that a run awaits
    key: String,
    /// The payload as JSON; `-` reads it from standard input
    #[arg(value_name = "JSON", default_value = "null")]
    payload: String,
    /// For how long it is kept if no run awaits it
    #[arg(long, value_name = "TIME", value_parser = times::duration, default_value = "7 days")]
    retention: Duration,
    /// Send it only if no signal of this name and key was sent with this id before
    #[arg(long, value_name = "UUID")]
    id: Option<Uuid>,
    /// Send it even if no saga has ever awaited a signal of this name
    #[arg(long)]
    not_awaited: bool,
    #[command(flatten)]
    consent: Consent,
}

/// The effect of a signal.
#[derive(Serialize)]
struct SignalRecord {
    reached: u64,
    /// The pauses in force, if a run was reached: it may be paused.
    pauses: Vec<Pause>,
}

/// Sends the signal.
pub(crate) async fn send(scoop: &Scoop, output: Output, args: SignalArgs) -> Result<Exit, Fault> {
    let SignalArgs { name, key, payload, retention, id, not_awaited, consent } = args;
    let payload = payload::read(&payload)?;
    let change = format!("send the signal `{}` with the key `{}`", Escaped(&name), Escaped(&key));
    if !consent.to(output, &change)? {
        return Ok(Exit::Success);
    }
    let sent = format!(
        "signal `{}`, key `{}`, payload {}",
        Escaped(&name),
        Escaped(&key),
        Escaped(&shortened(&payload.to_string()))
    );
    let mut signal = scoop.operate().runs().signal(name, payload, key).retention(retention);
    if let Some(id) = id {
        signal = signal.id(id);
    }
    if !not_awaited {
        signal = signal.required();
    }
    let reached = signal.await.map_err(|error| match error.kind() {
        ErrorKind::SignalNotAwaited { .. } => {
            Fault::NotFound(format!("{error}; or add --not-awaited to send it anyway"))
        }
        _ => error.into(),
    })?;
    let pauses = if reached > 0 { scoop.operate().pauses().list().await? } else { vec![] };
    if output.json {
        output.record(&SignalRecord { reached, pauses })?;
    } else if reached == 0 {
        let unless = if id.is_some() { ", unless it was sent before" } else { "" };
        let retention = times::in_words(retention);
        output.line(format_args!("no run awaits it; it is kept for {retention}{unless}: {sent}"))?;
    } else {
        output.line(format_args!("the signal has reached {}", counted(reached, "run", "runs")))?;
        for pause in pauses {
            output.line(format_args!("a run that is paused goes on after the pause: {pause}"))?;
        }
    }
    Ok(Exit::Success)
}
