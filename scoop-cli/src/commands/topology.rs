//! `scoop topology`

use std::collections::BTreeMap;

use comfy_table::Cell;
use scoop_core::Escaped;
use scoop_operate::{
    OperateExt as _, QueueLength, RegisteredHandler, RegisteredWorker, StepLaunch, Topology,
};
use scoop_runtime::Scoop;
use serde::Serialize;

use crate::fault::{Exit, Fault};
use crate::output::{Output, Rows, Tone, cell, cell_if_any, toned, unstyled};
use crate::times::utc;

/// Show which sagas handle which topics and launch which messages, and the workers that have them
///
/// Columns of a subscription: SINCE is the time of its registration, WORKERS the number of living workers that have the saga, and
/// LIMITS the limits of the saga. WAITING is the number of its runs that wait for a worker, if a limit of the queue counts them;
/// `+` stands for that or more.
///
/// Columns of a worker: SINCE is the time of its start, and SAGAS the number of its sagas. SERVICE and BUILD are those of its program.
/// PROGRAM and ADDRESS are those of its connection, as far as the role may see them.
///
/// A third table has the steps that launch messages: LAUNCHES is the topic, and SEEN the time of the first launch, or nothing if the
/// step only declares it. `--format` writes handlers and launches as a graph, `--affected-by` the sagas that launch messages to a
/// saga, and those to which it launches messages, directly or through others.
#[derive(Debug, clap::Args)]
pub(crate) struct TopologyArgs {
    /// Write the graph of handlers and launches for another program
    #[arg(long, value_name = "FORMAT", conflicts_with = "affected_by")]
    format: Option<Format>,
    /// Show the sagas that this one affects
    #[arg(long, value_name = "SAGA")]
    affected_by: Option<String>,
}

/// The language of a graph.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Mermaid,
    Dot,
    Json,
}

/// A subscription, a worker, or a launch.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum TopologyRecord<'a> {
    Handler {
        #[serde(flatten)]
        handler: &'a RegisteredHandler,
        /// The living workers that have the saga.
        workers: usize,
        /// The definitions of the saga that these have.
        definitions: Vec<i32>,
        /// The runs that wait in the queue, if that has a limit, which stands for that or more.
        waiting: Option<usize>,
    },
    Worker(&'a RegisteredWorker),
    Launch(&'a StepLaunch),
}

/// Shows the topology.
pub(crate) async fn show(scoop: &Scoop, output: Output, args: TopologyArgs) -> Result<Exit, Fault> {
    let topology = scoop.operate().topology().await?;
    match args {
        TopologyArgs { affected_by: Some(saga), .. } => affected(&topology, &saga, output),
        TopologyArgs { format: Some(format), .. } => {
            let graph = match format {
                Format::Mermaid => topology.to_mermaid(),
                Format::Dot => topology.to_dot(),
                Format::Json => serde_json::to_string_pretty(&topology).map_err(std::io::Error::from)?,
            };
            output.line(graph.trim_end())?;
            Ok(Exit::Success)
        }
        TopologyArgs { .. } => tables(scoop, &topology, output).await,
    }
}

/// Shows the sagas that this one affects.
fn affected(topology: &Topology, saga: &str, output: Output) -> Result<Exit, Fault> {
    if !topology.handlers.iter().any(|it| it.saga == saga) {
        return Err(Fault::NotFound(format!("no saga is named `{}`", Escaped(saga))));
    }
    let affected = topology.affected_by(saga);
    if output.json {
        output.record(&affected)?;
        return Ok(Exit::Success);
    }
    let mut rows = Rows::new(&["DIRECTION", "SAGA"]);
    let (upstream, downstream) = (affected.upstream.iter(), affected.downstream.iter());
    let each = upstream.map(|saga| ("upstream", saga)).chain(downstream.map(|saga| ("downstream", saga)));
    each.for_each(|(direction, saga)| rows.add([unstyled(direction), cell(saga)]));
    if rows.is_empty() {
        output
            .remark("no saga is known to launch messages to it, and it is not known to launch any to others");
    } else {
        output.table(rows)?;
    }
    Ok(Exit::Success)
}

/// Shows handlers, workers and launches.
async fn tables(scoop: &Scoop, topology: &Topology, output: Output) -> Result<Exit, Fault> {
    let (handlers, workers) =
        (scoop.operate().handlers().list().await?, scoop.operate().handlers().workers().await?);
    let queues = scoop.operate().handlers().queues().await?;
    let queue_of = |it: &RegisteredHandler| queues.iter().find(|queue| queue.saga == it.handler);
    let served = served(&workers);
    let of = |it: &RegisteredHandler| served.get(&(&*it.topic, &*it.handler)).cloned().unwrap_or_default();
    if output.json {
        for handler in &handlers {
            let mut definitions = of(handler);
            let workers = definitions.len();
            definitions.sort_unstable();
            definitions.dedup();
            let waiting = queue_of(handler).map(|queue| queue.waiting);
            output.record(&TopologyRecord::Handler { handler, workers, definitions, waiting })?;
        }
        workers.iter().try_for_each(|worker| output.record(&TopologyRecord::Worker(worker)))?;
        topology.launches.iter().try_for_each(|launch| output.record(&TopologyRecord::Launch(launch)))?;
        return Ok(Exit::Success);
    }
    let mut rows = Rows::new(&["TOPIC", "SAGA", "SINCE", "WORKERS", "LIMITS", "WAITING"]);
    for handler in &handlers {
        let count = of(handler).len();
        let tone = if count > 0 { Tone::Neutral } else { Tone::Bad };
        rows.add([
            cell(&handler.topic),
            cell(&handler.handler),
            unstyled(utc(handler.since)),
            toned(count, tone),
            cell_if_any((!handler.limits.is_none()).then(|| handler.limits.to_string())),
            queue_of(handler).map_or_else(|| unstyled(""), waiting),
        ]);
    }
    if rows.is_empty() {
        output.remark("no saga is subscribed: no program with sagas has started on these tables");
    } else {
        output.table(rows)?;
    }
    let mut rows =
        Rows::new(&["WORKER", "STATE", "SINCE", "SAGAS", "SERVICE", "BUILD", "PROGRAM", "ADDRESS"]);
    for worker in &workers {
        let (state, tone) = if worker.is_alive { ("alive", Tone::Good) } else { ("dead", Tone::Bad) };
        rows.add([
            cell(&worker.identifier),
            toned(state, tone),
            unstyled(utc(worker.started_at)),
            unstyled(worker.sagas.len()),
            cell(&worker.service),
            cell(&worker.build),
            cell_if_any(worker.application.as_deref()),
            cell_if_any(worker.address.as_deref()),
        ]);
    }
    if rows.is_empty() {
        output.remark("no worker is registered");
    } else {
        output.line("")?;
        output.table(rows.unwrapped(0))?;
    }
    let mut rows = Rows::new(&["SAGA", "STEP", "LAUNCHES", "SEEN"]);
    for launch in &topology.launches {
        let seen = cell_if_any(launch.seen_at.map(utc));
        rows.add([cell(&launch.saga), cell(&launch.step), cell(&launch.topic), seen]);
    }
    if !rows.is_empty() {
        output.line("")?;
        output.table(rows)?;
    }
    Ok(Exit::Success)
}

/// The length of a queue; its limit stands for that or more.
fn waiting(queue: &QueueLength) -> Cell {
    let is_full = queue.waiting >= queue.limit as usize;
    let tone = if queue.is_nearly_full() { Tone::Bad } else { Tone::Neutral };
    toned(format_args!("{}{}", queue.waiting, if is_full { "+" } else { "" }), tone)
}

/// The definitions that living workers have, by topic and saga: one for each worker.
fn served(workers: &[RegisteredWorker]) -> BTreeMap<(&str, &str), Vec<i32>> {
    let mut served: BTreeMap<_, Vec<i32>> = BTreeMap::new();
    for saga in workers.iter().filter(|worker| worker.is_alive).flat_map(|worker| &worker.sagas) {
        served.entry((&*saga.topic, &*saga.handler)).or_default().push(saga.definition);
    }
    served
}
