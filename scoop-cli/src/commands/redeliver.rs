//! `scoop redeliver`

use std::time::SystemTime;

use scoop_core::Escaped;
use scoop_operate::OperateExt as _;
use scoop_runtime::Scoop;

use super::names;
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::times;

/// Deliver messages that had no handler at their launch to the sagas that are subscribed now
///
/// Each message is redelivered at most once ever, to all sagas that are subscribed to the topic at that moment. A message of a
/// client continues its hierarchy; one that a step launched starts a hierarchy of its own. The command can be repeated.
#[derive(Debug, clap::Args)]
pub(crate) struct RedeliverArgs {
    /// The topic of the messages
    topic: String,
    /// Only messages that were launched at this time or later: a time, or a duration such as 2h for two hours ago; by default
    /// those of the last day
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    since: Option<SystemTime>,
    /// How many messages at most
    #[arg(long, value_name = "MESSAGES", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    consent: Consent,
}

/// Redelivers.
pub(crate) async fn redeliver(scoop: &Scoop, output: Output, args: RedeliverArgs) -> Result<Exit, Fault> {
    let RedeliverArgs { topic, since, limit, consent } = args;
    let registered = scoop.operate().handlers().list().await?;
    let handlers: Vec<_> = registered.iter().filter(|it| it.topic == topic).map(|it| &*it.handler).collect();
    if handlers.is_empty() {
        let hint = names::of_topics(&topic, &registered);
        return Err(Fault::NotFound(format!("no handler is subscribed to topic `{topic}`{hint}")));
    }
    let change = format!(
        "deliver at most {} on topic `{}` to {}: those that had no handler, of {}",
        counted(limit, "message", "messages"),
        Escaped(&topic),
        Escaped(&handlers.join(", ")),
        since.map_or_else(
            || "the last day".to_owned(),
            |since| format!("the time since {}", times::utc(since))
        )
    );
    if !consent.to(output, &change)? {
        return Ok(Exit::Success);
    }
    let mut redeliver = scoop.operate().handlers().redeliver(topic).limit(limit as usize);
    if let Some(since) = since {
        redeliver = redeliver.since(since);
    }
    let progress = Progress::begin("reading the events since then");
    let redelivered = redeliver.await;
    drop(progress);
    let redelivered = redelivered?;
    if output.json {
        output.record(&redelivered)?;
        return Ok(Exit::Success);
    }
    output.line(format_args!(
        "redelivered {}",
        counted(redelivered.hierarchies.len(), "message", "messages")
    ))?;
    for hierarchy in &redelivered.hierarchies {
        output.line(hierarchy)?;
    }
    if redelivered.more {
        output.remark("there may be more: the limit was reached; repeat the command");
    }
    Ok(Exit::Success)
}
