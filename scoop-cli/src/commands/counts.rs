//! `scoop counts`

use std::time::SystemTime;

use scoop_operate::{OperateExt as _, RunCount};
use scoop_runtime::Scoop;
use serde::Serialize;

use super::filters::FieldValue;
use crate::fault::{Exit, Fault};
use crate::output::{Output, Rows, cell, phase, unstyled};
use crate::times::{self, in_words, utc};

/// Count runs by saga and state: unfinished ones, and the ends of the last hour
#[derive(Debug, clap::Args)]
pub(crate) struct CountsArgs {
    /// Count the ends since this time: a time, or a duration such as 2h for two hours ago; by default an hour ago
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    since: Option<SystemTime>,

    /// Count all runs, which takes some seconds for a million; otherwise a count ends at 10,000 unfinished runs of a saga
    /// in a state, or 100,000 ends, and shows a `+`
    #[arg(long)]
    exact: bool,

    /// Count only runs that are found by this value of a field of their message, or of the first message of their hierarchy; may be
    /// repeated: runs that are found by all of the values
    #[arg(long = "where", value_name = "FIELD=VALUE")]
    fields: Vec<FieldValue>,
}

/// The number of runs of a saga in a state.
#[derive(Serialize)]
struct CountRecord<'a> {
    #[serde(flatten)]
    count: &'a RunCount,
    /// Whether these are ends since the time that was asked for.
    ended: bool,
}

/// The sum of these counts, with a plus sign if there are perhaps more.
pub(super) fn shown<'a>(counts: impl IntoIterator<Item = &'a RunCount>) -> String {
    let add = |(sum, more), count: &RunCount| (sum + count.count, more || count.is_capped);
    let (sum, more) = counts.into_iter().fold((0, false), add);
    format!("{sum}{}", if more { "+" } else { "" })
}

/// Shows the counts.
pub(crate) async fn show(scoop: &Scoop, output: Output, args: CountsArgs) -> Result<Exit, Fault> {
    let counts = scoop.operate().runs().count();
    let counts = if args.exact { counts.exact() } else { counts };
    let counts = args.fields.iter().fold(counts, |counts, field| field.of_counts(counts));
    let counts = args.since.map_or(counts.clone(), |since| counts.since(since)).await?;
    let all = || counts.unfinished.iter().chain(&counts.finished);
    if all().next().is_none() {
        for field in &args.fields {
            field.check_name(scoop).await?;
        }
    }
    if output.json {
        for (counts, ended) in [(&counts.unfinished, false), (&counts.finished, true)] {
            counts.iter().try_for_each(|count| output.record(&CountRecord { count, ended }))?;
        }
        return Ok(Exit::Success);
    }
    let mut rows = Rows::new(&["SAGA", "STATE", "RUNS", "OLDEST"]);
    for count in all() {
        let age = count.oldest.and_then(|oldest| counts.read_at.duration_since(oldest).ok());
        let age = age.map(in_words).unwrap_or_default();
        rows.add([cell(&count.handler), phase(count.phase), unstyled(shown([count])), unstyled(age)]);
    }
    if !rows.is_empty() {
        output.table(rows)?;
    }
    let (unfinished, ended) = (shown(&counts.unfinished), shown(&counts.finished));
    output.remark(format_args!("{unfinished} unfinished; {ended} ended since {}", utc(counts.since)));
    Ok(Exit::Success)
}
