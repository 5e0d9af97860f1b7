//! `scoop trigger`

use scoop_core::Escaped;
use scoop_operate::OperateExt as _;
use scoop_runtime::Scoop;

use super::{launch, names};
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::Output;

/// Run a saga with a schedule once, now: the schedule does not change
#[derive(Debug, clap::Args)]
pub(crate) struct TriggerArgs {
    /// The saga
    saga: String,
    /// Wait for the end; the exit code is 1 unless the hierarchy commits
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    consent: Consent,
}

/// Launches a tick of the saga.
pub(crate) async fn trigger(scoop: &Scoop, output: Output, args: TriggerArgs) -> Result<Exit, Fault> {
    let TriggerArgs { saga, wait, consent } = args;
    let schedules = scoop.operate().schedules().list().await?;
    if !schedules.iter().any(|schedule| schedule.handler == saga) {
        let hint = names::instead(&saga, schedules.iter().map(|schedule| &*schedule.handler));
        return Err(Fault::NotFound(format!("saga `{saga}` has no schedule{hint}")));
    }
    if !consent.to(output, &format!("run saga `{}` once, now", Escaped(&saga)))? {
        return Ok(Exit::Success);
    }
    let launched = scoop.operate().schedules().trigger(saga).await?;
    launch::launched(output, launched, wait).await
}
