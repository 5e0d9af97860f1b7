//! `scoop runs`

use std::time::SystemTime;

use scoop_runtime::{FindRuns, PauseTarget, RunCursor, RunPhase, Scoop, WaitKind};
use serde::Serialize;

use super::names;
use super::records::RunRecord;
use crate::fault::{Exit, Fault};
use crate::output::{Output, Rows, cell, phase, plain};
use crate::times;

/// The maximum number of runs in a page of the library.
const PAGE_MAX: usize = 1_000;

/// How many pages are read without a run of the list before the command stops.
const EMPTY_PAGES_MAX: usize = 20;

/// List runs, finished or not
///
/// Unfinished runs come first, the newest one first; then those that have ended, the latest end first. The filters can be
/// combined. A list that is cut off ends with the place from which the next one goes on.
#[derive(Debug, clap::Args)]
pub(crate) struct RunsArgs {
    /// Only runs of this saga
    #[arg(long, value_name = "SAGA")]
    handler: Option<String>,
    /// Only runs of messages of this topic
    #[arg(long)]
    topic: Option<String>,
    /// Only runs in this state; may be repeated: pending, ready, retrying, running, waiting, sleeping, awaiting-signal,
    /// stuck, awaiting-operator, committed, rolled-back, rollback-failed
    #[arg(long)]
    state: Vec<RunPhase>,
    /// Only runs that came into their state at this time or later: a time, or a duration such as 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    since: Option<SystemTime>,
    /// Only runs that came into their state before this time
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    until: Option<SystemTime>,
    /// Only runs that were rolled back because of a failure with this code, at any depth
    #[arg(long, value_name = "CODE")]
    failed_with: Option<String>,
    /// Only runs that wait for this; may be repeated: children, signal, time, slot, limit, program,
    /// operator, pause
    #[arg(long, value_name = "WHAT")]
    waiting_for: Vec<WaitKind>,
    /// Only runs of messages that started a hierarchy
    #[arg(long)]
    roots: bool,
    /// How many runs at most
    #[arg(long, value_name = "RUNS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on from this place, with the same filters: the end of an earlier list names it
    #[arg(long, value_name = "PLACE")]
    after: Option<RunCursor>,
}

/// The last line of a list that was cut off.
#[derive(Serialize)]
struct NextRecord {
    next: String,
}

impl RunsArgs {
    fn query(&self, scoop: &Scoop) -> FindRuns {
        let mut query = scoop.runs();
        if let Some(handler) = &self.handler {
            query = query.handler(handler);
        }
        if let Some(topic) = &self.topic {
            query = query.topic(topic);
        }
        if let Some(since) = self.since {
            query = query.since(since);
        }
        if let Some(until) = self.until {
            query = query.until(until);
        }
        if let Some(code) = &self.failed_with {
            query = query.failed_with(code);
        }
        query = self.state.iter().fold(query, |query, state| query.state(*state));
        query = self.waiting_for.iter().fold(query, |query, wait| query.waiting_for(*wait));
        if self.roots { query.roots() } else { query }
    }
}

/// Lists the runs.
pub(crate) async fn list(scoop: &Scoop, output: Output, args: RunsArgs) -> Result<Exit, Fault> {
    let query = args.query(scoop);
    let mut left = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let (mut place, mut empty_pages) = (args.after, 0);
    let (handler, topic) = (args.handler, args.topic);
    let mut is_empty = true;
    let mut rows = Rows::new(&["RUN", "SAGA", "STATE", "SINCE", "ABOUT"]);
    loop {
        let page = query.clone().page(left.min(PAGE_MAX)).after(place).await?;
        left = left.saturating_sub(page.runs.len());
        empty_pages = if page.runs.is_empty() { empty_pages + 1 } else { 0 };
        is_empty &= page.runs.is_empty();
        for run in &page.runs {
            if output.json {
                output.record(&RunRecord::from(run))?;
            } else {
                let about = cell(run.about());
                rows.add([
                    plain(run.run),
                    cell(&run.handler),
                    phase(run.phase),
                    plain(times::utc(run.since)),
                    about,
                ]);
            }
        }
        place = page.next;
        if place.is_none() || left == 0 || empty_pages == EMPTY_PAGES_MAX {
            break;
        }
    }
    let next = place.map(|place| place.to_string());
    if is_empty && next.is_none() {
        check_names(scoop, handler, topic).await?;
    }
    if output.json {
        next.map_or(Ok(()), |next| output.record(&NextRecord { next }))?;
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        output.remark(if next.is_some() { "no such runs so far" } else { "no such runs" });
    } else {
        output.table(rows.unwrapped(0).unwrapped(3))?;
    }
    if let Some(next) = next {
        output.remark(format_args!("there may be more: repeat the command with --after {next}"));
    }
    Ok(Exit::Done)
}

/// Checks the names of an empty list: one may be mistyped.
async fn check_names(scoop: &Scoop, handler: Option<String>, topic: Option<String>) -> Result<(), Fault> {
    let named = [handler.map(PauseTarget::handler), topic.map(PauseTarget::topic)];
    for target in named.into_iter().flatten() {
        names::check(scoop, &target).await?;
    }
    Ok(())
}
