//! `scoop retire`

use scoop_core::Escaped;
use scoop_operate::{OperateExt as _, RegisteredWorker};
use scoop_runtime::Scoop;

use super::names;
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::{Output, counted};

/// Retire a handler whose programs are gone: later messages are not delivered to it
///
/// Its unfinished runs stay, and wait for a program with the saga. The next start of such a program registers it again.
#[derive(Debug, clap::Args)]
pub(crate) struct RetireArgs {
    /// The topic of the subscription
    topic: String,
    /// The saga
    saga: String,
    /// Also drop its runs that have not begun: they leave no record, and nothing waits for them any more
    #[arg(long)]
    drop_pending: bool,
    /// Retire it although a living worker runs it: its new messages have no handler then
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    consent: Consent,
}

/// Retires the handler.
pub(crate) async fn retire(scoop: &Scoop, output: Output, args: RetireArgs) -> Result<Exit, Fault> {
    let RetireArgs { topic, saga, drop_pending, force, consent } = args;
    let registered = scoop.operate().handlers().list().await?;
    // A handler that was retired before may still have pending runs to drop.
    if !drop_pending && !registered.iter().any(|it| it.topic == topic && it.handler == saga) {
        let of_topic: Vec<_> = registered.iter().filter(|it| it.topic == topic).collect();
        let hint = if of_topic.is_empty() {
            names::of_topics(&topic, &registered)
        } else {
            names::instead(&saga, of_topic.iter().map(|it| &*it.handler))
        };
        return Err(Fault::NotFound(format!("saga `{saga}` is not subscribed to topic `{topic}`{hint}")));
    }
    let workers = scoop.operate().handlers().workers().await?;
    let runs_it = |worker: &&RegisteredWorker| {
        worker.is_alive && worker.sagas.iter().any(|it| it.topic == topic && it.handler == saga)
    };
    let living = workers.iter().filter(runs_it).count();
    if living > 0 && !force {
        return Err(Fault::Refused(format!(
            "{} `{saga}`: its new messages would have no handler until a program starts again; stop the programs first, \
             or add --force",
            counted(living, "living worker still runs", "living workers still run")
        )));
    }
    let although = match living {
        0 => String::new(),
        _ => format!(", although {} it", counted(living, "living worker runs", "living workers run")),
    };
    let drops = if drop_pending { ", and drop its runs that have not begun" } else { "" };
    let change =
        format!("retire saga `{}` from topic `{}`{drops}{although}", Escaped(&saga), Escaped(&topic));
    if !consent.to(output, &change)? {
        return Ok(Exit::Success);
    }
    let retire = scoop.operate().handlers().retire(topic, saga);
    let retired = if drop_pending { retire.drop_pending().await? } else { retire.await? };
    if output.json {
        output.record(&retired)?;
    } else {
        let was = if retired.was_registered { "retired" } else { "was not registered" };
        let pending = counted(retired.pending, "run has", "runs have");
        output.line(format_args!(
            "{was}; {pending} not begun, {} dropped",
            counted(retired.dropped, "was", "were")
        ))?;
    }
    Ok(Exit::Success)
}
