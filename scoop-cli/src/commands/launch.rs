//! `scoop launch`

use std::time::Duration;

use scoop_core::{Escaped, Priority};
use scoop_operate::OperateExt as _;
use scoop_runtime::{Handle, HierarchyId, Outcome, Scoop};
use serde::Serialize;
use uuid::Uuid;

use super::{names, payload};
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::Output;
use crate::times;

/// Launch a message
///
/// Nothing checks that the sagas can read the payload. A topic without a handler is refused, since it is probably mistyped.
#[derive(Debug, clap::Args)]
pub(crate) struct LaunchArgs {
    /// The topic
    topic: String,
    /// The payload as JSON; `-` reads it from standard input
    #[arg(value_name = "JSON")]
    payload: String,
    /// Launch it only if no message was launched on this topic with this key before
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// Begin no sooner than after this time, such as `2h`
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    delay: Option<Duration>,
    /// Roll back unless all is done within this time
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    deadline: Option<Duration>,
    /// The priority of its runs among those of their sagas, inherited by what they launch
    #[arg(long, value_name = "LEVEL", value_enum)]
    priority: Option<Level>,
    /// Wait for at most this time if the queue of a saga is full
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    wait_for_capacity: Option<Duration>,
    /// Launch it although no handler is subscribed to the topic
    #[arg(long)]
    without_handler: bool,
    /// Wait for the end; the exit code is 1 unless the hierarchy commits
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    consent: Consent,
}

/// A priority, as an argument.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Level {
    Low,
    Normal,
    High,
}

impl From<Level> for Priority {
    fn from(level: Level) -> Self {
        match level {
            Level::Low => Self::Low,
            Level::Normal => Self::Normal,
            Level::High => Self::High,
        }
    }
}

/// What was launched.
#[derive(Serialize)]
struct LaunchRecord {
    hierarchy: Uuid,
    message: Uuid,
    /// Null before its end, which nothing waits for without `--wait`.
    outcome: Option<&'static str>,
    text: Option<String>,
}

/// Launches the message.
pub(crate) async fn launch(scoop: &Scoop, output: Output, args: LaunchArgs) -> Result<Exit, Fault> {
    let LaunchArgs {
        topic,
        payload,
        unique,
        delay,
        deadline,
        priority,
        wait_for_capacity,
        without_handler,
        wait,
        consent,
    } = args;
    let payload = payload::read(&payload)?;
    let registered = scoop.operate().handlers().list().await?;
    let handlers: Vec<_> = registered.iter().filter(|it| it.topic == topic).map(|it| &*it.handler).collect();
    if handlers.is_empty() && !without_handler {
        return Err(Fault::NotFound(format!(
            "no handler is subscribed to topic `{topic}` (add --without-handler to launch the message all the same){}",
            names::of_topics(&topic, &registered)
        )));
    }
    let to = match &handlers[..] {
        [] => "no handler".to_owned(),
        handlers => handlers.join(", "),
    };
    let launched_before = match &unique {
        Some(key) => launched_before(scoop, &topic, key).await?,
        None => None,
    };
    let change = match &launched_before {
        Some(why) => format!("launch nothing: {why}"),
        None => format!("launch a message on topic `{}` to {}", Escaped(&topic), Escaped(&to)),
    };
    if !consent.to(output, &change)? {
        return Ok(Exit::Success);
    }
    let mut launch = scoop.launch_untyped(topic, payload);
    if let Some(key) = unique {
        launch = launch.unique(key);
    }
    if let Some(delay) = delay {
        launch = launch.delay(delay);
    }
    if let Some(deadline) = deadline {
        launch = launch.deadline(deadline);
    }
    if let Some(priority) = priority {
        launch = launch.priority(priority.into());
    }
    if let Some(within) = wait_for_capacity {
        launch = launch.wait_for_capacity(within);
    }
    if !without_handler {
        launch = launch.required();
    }
    let handle = launch.await?;
    if handle.is_of_earlier_launch() {
        let why = launched_before.unwrap_or_else(|| key_is_used(handle.id()));
        output.remark(format_args!("nothing was launched: {why}"));
    } else if let Some(why) = launched_before.filter(|_| handle.may_be_of_earlier_launch()) {
        output.remark(format_args!("perhaps nothing was launched: {why}"));
    }
    launched(output, handle, wait).await
}

/// Why a launch has launched nothing, or would launch nothing.
fn key_is_used(hierarchy: HierarchyId) -> String {
    format!("a message was launched with this key before, in hierarchy {hierarchy}")
}

/// Why a launch with this unique key would launch nothing.
async fn launched_before(scoop: &Scoop, topic: &str, key: &str) -> Result<Option<String>, Fault> {
    match scoop.operate().runs().find_by_key(topic, key).await {
        Ok(earlier) => Ok(Some(key_is_used(earlier.id()))),
        Err(error) if error.key_valid_until().is_some() => Ok(Some(error.to_string())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes what was launched, and with `wait` its end. The ids come before the wait, which an interrupt or an error may end.
pub(super) async fn launched(output: Output, launched: Handle, wait: bool) -> Result<Exit, Fault> {
    let (hierarchy, message) = (launched.id().uuid(), launched.message_id());
    let begun = if output.json {
        output.record(&LaunchRecord { hierarchy, message, outcome: None, text: None })
    } else {
        output.line(hierarchy)
    };
    if !wait {
        return Exit::Success.despite(begun);
    }
    let outcome = launched.wait().await?;
    let name = match &outcome {
        Outcome::Committed => "committed",
        Outcome::RolledBack(_) => "rolled back",
        Outcome::RollbackFailed(_) => "rollback failed",
        Outcome::NoHandlers => "no handlers",
        _ => "unknown",
    };
    let text = outcome.to_string();
    let ended = if output.json {
        output.record(&LaunchRecord { hierarchy, message, outcome: Some(name), text: Some(text) })
    } else {
        output.line(Escaped(&text))
    };
    let exit = if outcome == Outcome::Committed { Exit::Success } else { Exit::Failed };
    exit.despite(begun.and(ended))
}
