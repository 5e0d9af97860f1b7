//! `scoop topology`

use std::collections::BTreeMap;

use comfy_table::Cell;
use scoop_runtime::{HandlerLimits, QueueLength, RegisteredHandler, RegisteredWorker, Scoop};
use serde::Serialize;

use crate::fault::{Exit, Fault};
use crate::output::{Output, Rows, Tone, cell, cell_if_any, plain, toned};
use crate::times::utc;

/// Show which sagas handle which topics, and the workers that have them
///
/// Columns of a subscription: SINCE is the time of its registration, WORKERS the number of living workers that have the saga, and
/// LIMITS the limits of the saga. WAITING is the number of its runs that wait for a worker, if a limit of the queue counts them;
/// `+` stands for that or more.
///
/// Columns of a worker: SINCE is the time of its start, and SAGAS the number of its sagas. PROGRAM and ADDRESS are those of its
/// connection, as far as the role may see them.
#[derive(Debug, clap::Args)]
pub(crate) struct TopologyArgs {}

/// A subscription, or a worker.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum TopologyRecord<'a> {
    Handler {
        topic: &'a str,
        handler: &'a str,
        since: String,
        /// The living workers that have the saga.
        workers: usize,
        /// The definitions of the saga that these have.
        definitions: Vec<i32>,
        limits: LimitsRecord<'a>,
    },
    Worker {
        worker: &'a str,
        started_at: String,
        alive: bool,
        application: Option<&'a str>,
        address: Option<&'a str>,
        handlers: Vec<&'a str>,
    },
}

/// The limits of a saga; null without one.
#[derive(Serialize)]
struct LimitsRecord<'a> {
    concurrency: Option<u32>,
    concurrency_by_key: bool,
    serial: bool,
    rate: Option<u32>,
    rate_period_ms: Option<u64>,
    rate_by_key: bool,
    /// The field or function from which keys come.
    by: Option<&'a str>,
    queue: Option<u32>,
    /// The runs that wait in the queue, if that has a limit, which stands for that or more.
    waiting: Option<usize>,
}

impl<'a> LimitsRecord<'a> {
    fn new(limits: &'a HandlerLimits, waiting: Option<usize>) -> Self {
        let HandlerLimits { concurrency, serial, rate, queue, by, .. } = limits;
        Self {
            concurrency: concurrency.map(|limit| limit.most),
            concurrency_by_key: concurrency.is_some_and(|limit| limit.is_by_key),
            serial: *serial,
            rate: rate.map(|limit| limit.most.runs),
            rate_period_ms: rate.map(|limit| limit.most.period_ms),
            rate_by_key: rate.is_some_and(|limit| limit.is_by_key),
            by: by.as_deref(),
            queue: *queue,
            waiting,
        }
    }
}

/// Shows the topology.
pub(crate) async fn show(scoop: &Scoop, output: Output, _: TopologyArgs) -> Result<Exit, Fault> {
    let (handlers, workers) = (scoop.handlers().await?, scoop.workers().await?);
    let queues = scoop.queue_lengths().await?;
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
            let RegisteredHandler { topic, handler, since, limits, .. } = handler;
            output.record(&TopologyRecord::Handler {
                topic,
                handler,
                since: utc(*since),
                workers,
                definitions,
                limits: LimitsRecord::new(limits, waiting),
            })?;
        }
        return workers
            .iter()
            .try_for_each(|worker| output.record(&record(worker)))
            .map(|()| Exit::Done)
            .map_err(Into::into);
    }
    let mut rows = Rows::new(&["TOPIC", "SAGA", "SINCE", "WORKERS", "LIMITS", "WAITING"]);
    for handler in &handlers {
        let count = of(handler).len();
        let tone = if count > 0 { Tone::Plain } else { Tone::Bad };
        rows.add([
            cell(&handler.topic),
            cell(&handler.handler),
            plain(utc(handler.since)),
            toned(count, tone),
            cell_if_any((!handler.limits.is_none()).then(|| handler.limits.to_string())),
            queue_of(handler).map_or_else(|| plain(""), waiting),
        ]);
    }
    if rows.is_empty() {
        output.remark("no saga is subscribed: no program with sagas has started on these tables");
    } else {
        output.table(rows)?;
    }
    let mut rows = Rows::new(&["WORKER", "STATE", "SINCE", "SAGAS", "PROGRAM", "ADDRESS"]);
    for worker in &workers {
        let (state, tone) = if worker.is_alive { ("alive", Tone::Good) } else { ("dead", Tone::Bad) };
        rows.add([
            cell(&worker.identifier),
            toned(state, tone),
            plain(utc(worker.started_at)),
            plain(worker.sagas.len()),
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
    Ok(Exit::Done)
}

/// The length of a queue; its limit stands for that or more.
fn waiting(queue: &QueueLength) -> Cell {
    let is_full = queue.waiting >= queue.limit as usize;
    let tone = if queue.is_nearly_full() { Tone::Bad } else { Tone::Plain };
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

fn record(worker: &RegisteredWorker) -> TopologyRecord<'_> {
    TopologyRecord::Worker {
        worker: &worker.identifier,
        started_at: utc(worker.started_at),
        alive: worker.is_alive,
        application: worker.application.as_deref(),
        address: worker.address.as_deref(),
        handlers: worker.sagas.iter().map(|saga| &*saga.handler).collect(),
    }
}
