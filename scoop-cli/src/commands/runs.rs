//! `scoop runs`

use comfy_table::Cell;
use scoop_operate::RunCursor;
use scoop_operate::RunSummary;
use scoop_runtime::Scoop;
use serde_json::json;

use super::filters::Filters;
use crate::fault::{Exit, Fault};
use crate::output::{Output, Rows, cell, phase, unstyled};
use crate::times;

/// The columns of a list of runs.
pub(super) const HEADER: [&str; 5] = ["RUN", "SAGA", "STATE", "SINCE", "ABOUT"];

/// The maximum number of runs in a page of the library.
pub(super) const PAGE_MAX: usize = 1_000;

/// The maximum length of the fields of a run in a list, in characters.
const LABEL_CHARS_MAX: usize = 60;

/// How many pages are read without a run of the list before the command stops.
const EMPTY_PAGES_MAX: usize = 20;

/// List runs, finished or not
///
/// Unfinished runs come first, the newest one first; then those that have ended, the latest end first; with `--where` the runs of
/// the newest messages come first. A run whose message has fields to find it by is shown with these. The filters can be combined. A list that is cut off ends with the place from which the next one goes on.
#[derive(Debug, clap::Args)]
pub(crate) struct RunsArgs {
    #[command(flatten)]
    filters: Filters,
    /// How many runs at most
    #[arg(
        long,
        alias = "count",
        value_name = "RUNS",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    limit: u32,
    /// Go on from this place, with the same filters: the end of an earlier list names it
    #[arg(long, value_name = "CURSOR", value_parser = cursor)]
    after: Option<RunCursor>,
    /// Show the ids of runs, also where their fields can be shown
    #[arg(long)]
    ids: bool,
}

/// Reads a place in the list.
fn cursor(text: &str) -> Result<RunCursor, String> {
    text.parse().map_err(|_| {
        let text: String = text.chars().take(80).collect();
        format!("{text:?} is no place in a list of runs; use the place that `scoop runs` writes at its end")
    })
}

/// Lists the runs.
pub(crate) async fn list(scoop: &Scoop, output: Output, args: RunsArgs) -> Result<Exit, Fault> {
    let query = args.filters.query(scoop);
    let mut left = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let (mut cursor, mut empty_pages) = (args.after, 0);
    let mut is_empty = true;
    let mut rows = Rows::new(&HEADER);
    loop {
        let page = query.clone().page(left.min(PAGE_MAX)).after(cursor).await?;
        left = left.saturating_sub(page.runs.len());
        empty_pages = if page.runs.is_empty() { empty_pages + 1 } else { 0 };
        is_empty &= page.runs.is_empty();
        for run in &page.runs {
            if output.json {
                output.record(run)?;
            } else {
                rows.add(if args.ids { with_id(run) } else { row(run) });
            }
        }
        cursor = page.next;
        if cursor.is_none() || left == 0 || empty_pages == EMPTY_PAGES_MAX {
            break;
        }
    }
    let next = cursor.map(|cursor| cursor.to_string());
    if is_empty && next.is_none() {
        args.filters.check_names(scoop).await?;
    }
    if output.json {
        next.map_or(Ok(()), |next| output.record(&json!({ "next": next })))?;
        return Ok(Exit::Success);
    }
    if rows.is_empty() {
        match &next {
            Some(_) => output.remark("no such runs so far"),
            None => output.remark("no such runs"),
        }
    } else {
        output.table(rows.unwrapped(0).unwrapped(3))?;
    }
    if let Some(next) = next {
        output.remark(format_args!("there may be more: repeat the command with --after {next}"));
    }
    Ok(Exit::Success)
}

/// The cells of a run, under [`HEADER`]: with the fields by which it is found, or with its id if it has none.
pub(super) fn row(run: &RunSummary) -> [Cell; 5] {
    let mut cells = with_id(run);
    if !run.found_by.is_empty() {
        cells[0] = cell(cut(&run.label()));
    }
    cells
}

/// The cells of a run with its id.
fn with_id(run: &RunSummary) -> [Cell; 5] {
    let since = unstyled(times::utc(run.since));
    [unstyled(run.run), cell(&run.handler), phase(run.phase), since, cell(run.about())]
}

/// The beginning of a label, which is not wrapped.
fn cut(label: &str) -> String {
    match label.char_indices().nth(LABEL_CHARS_MAX) {
        None => label.to_owned(),
        Some(_) => label.chars().take(LABEL_CHARS_MAX - 1).chain(['…']).collect(),
    }
}
