//! `scoop timeline`

use std::time::{Duration, SystemTime};

use scoop_core::{Escaped, EventKind, Failure};
use scoop_runtime::{RunEvent, RunInfo, Scoop};
use serde::Serialize;
use uuid::Uuid;

use super::records::state_name;
use super::target::Target;
use crate::fault::{Exit, Fault};
use crate::output::{Output, Rows, plain};
use crate::times::{in_words, utc};

/// The number of characters of the bars.
const BAR_CHARS: u32 = 40;

/// The maximum number of levels that are indented.
const INDENTED_MAX: usize = 16;

/// Show a hierarchy on a scale of time: a bar for each run and step, with waits and compensations
///
/// Bars: `=` a run, `#` a step, `.` a wait, `<` a compensation. The time at which a signal came is not recorded: the wait for
/// it is drawn until the end of the step that gets it, and the step as a point.
#[derive(Debug, clap::Args)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    target: Target,
    /// How many runs at most
    #[arg(long, value_name = "RUNS", default_value_t = 200)]
    limit: usize,
    /// Leave out the steps
    #[arg(long)]
    runs_only: bool,
}

/// What a span of time was spent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Run,
    Step,
    Wait,
    Compensation,
}

impl Kind {
    const fn mark(self) -> char {
        match self {
            Self::Run => '=',
            Self::Step => '#',
            Self::Wait => '.',
            Self::Compensation => '<',
        }
    }
}

/// A span of time of a run.
struct Bar<'a> {
    run: &'a RunInfo,
    kind: Kind,
    /// What the table says before the name.
    words: &'static str,
    name: &'a str,
    from: SystemTime,
    /// `None` if it is not over.
    to: Option<SystemTime>,
}

/// A span of time of a run.
#[derive(Serialize)]
struct BarRecord<'a> {
    run: Uuid,
    handler: &'a str,
    kind: Kind,
    name: &'a str,
    from: String,
    to: Option<String>,
    state: &'static str,
}

/// Shows the time line.
pub(crate) async fn show(scoop: &Scoop, output: Output, args: TimelineArgs) -> Result<Exit, Fault> {
    let hierarchy = args.target.hierarchy(scoop).await?;
    let tree = scoop.find(hierarchy).await?.tree().limit(args.limit).await?;
    let runs = tree.runs();
    let mut bars: Vec<_> = runs.iter().flat_map(|run| bars(run)).collect();
    bars.retain(|bar| !args.runs_only || bar.kind == Kind::Run);
    if output.json {
        for bar in &bars {
            let Bar { run, kind, name, from, to, .. } = bar;
            let state = state_name(&run.state);
            let (from, to) = (utc(*from), to.map(utc));
            output.record(&BarRecord {
                run: run.id().uuid(),
                handler: &run.handler,
                kind: *kind,
                name,
                from,
                to,
                state,
            })?;
        }
    } else if let Some(begin) = bars.iter().map(|bar| bar.from).min() {
        let ends = bars.iter().map(|bar| bar.to.unwrap_or(bar.from));
        // The clock of the database is not known here, so an open bar ends with the newest event.
        let end = ends.max().unwrap_or(begin);
        draw(output, &bars, (begin, end))?;
    } else {
        output.remark("no run of it has begun");
    }
    if !tree.is_complete() {
        output.remark("runs were left out: raise --limit");
    }
    Ok(Exit::Done)
}

/// The bars of a run: its own, and those of its steps, waits and compensations, in their order.
fn bars(run: &RunInfo) -> Vec<Bar<'_>> {
    let Some(from) = run.began_at() else { return vec![] };
    let end = run.events.last().and_then(|event| event.at).filter(|_| run.has_ended());
    let mut bars = vec![Bar { run, kind: Kind::Run, words: "", name: &run.handler, from, to: end }];
    let (mut rolls_back, mut awaited) = (false, false);
    for (nth, event) in run.events.iter().enumerate() {
        rolls_back |= event.kind == EventKind::RollingBack;
        let (Some(at), name) = (event.at, event.subject().unwrap_or_default()) else { continue };
        let before = event.took.and_then(|took| at.checked_sub(took)).unwrap_or(at);
        let (after_signal, begins_to_await) = (awaited, event.word() == AWAITS);
        awaited = begins_to_await;
        if begins_to_await {
            let to = run.events[nth + 1..].iter().find_map(|next| next.at);
            bars.push(Bar { run, kind: Kind::Wait, words: "wait for the signal of ", name, from: at, to });
        } else if event.subject().is_some() && event.took.is_some() && is_work(event) {
            let gave_up = event.kind == EventKind::RollingBack
                && event.failure.as_ref().is_some_and(Failure::is_giving_up);
            let (kind, words) = match (rolls_back, gave_up) {
                (_, true) => (Kind::Wait, "gave up in "),
                (true, false) if event.kind != EventKind::RollingBack => (Kind::Compensation, "undo "),
                _ => (Kind::Step, ""),
            };
            let from = if after_signal { at } else { before };
            bars.push(Bar { run, kind, words, name, from, to: Some(at) });
        }
        if let Some(waited) = event.waited {
            let to = at.checked_add(waited);
            bars.push(Bar { run, kind: Kind::Wait, words: "wait after ", name, from: at, to });
        }
    }
    bars
}

/// The word of the event with which the wait for a signal begins.
const AWAITS: &str = "began to await a signal";

/// Whether the time before the event was spent with code of its step.
fn is_work(event: &RunEvent) -> bool {
    // The first part of the rollback of a step only asks its children to roll back.
    let is_code = !matches!(event.word(), "undoing children" | "nothing to undo" | "began to wait");
    is_code && matches!(event.kind, EventKind::Suspended | EventKind::RollingBack | EventKind::RollbackFailed)
}

/// Writes the bars as a table.
fn draw(output: Output, bars: &[Bar<'_>], (begin, end): (SystemTime, SystemTime)) -> Result<(), Fault> {
    let total = end.duration_since(begin).unwrap_or_default();
    let mut rows = Rows::new(&["RUN, STEP", "FROM", "TIME", "BAR"]);
    for bar in bars {
        let since = bar.from.duration_since(begin).unwrap_or_default();
        let took = bar.to.map(|to| to.duration_since(bar.from).unwrap_or_default());
        let level = bar.run.lineage.ids().len().saturating_sub(2).min(INDENTED_MAX);
        let name = match bar.kind {
            Kind::Run => format!("{} ({})", Escaped(bar.name), state_name(&bar.run.state)),
            _ => format!("  {}{}", bar.words, Escaped(bar.name)),
        };
        rows.add([
            plain(format_args!("{}{name}", "  ".repeat(level))),
            plain(format_args!("+{}", in_words(since))),
            plain(took.map_or_else(|| "open".to_owned(), in_words)),
            plain(drawn(bar.kind, (since, took.unwrap_or(total.saturating_sub(since))), total)),
        ]);
    }
    output.line(format_args!("from {} to {}", utc(begin), utc(end)))?;
    output.table(rows)?;
    Ok(())
}

/// A bar as text.
fn drawn(kind: Kind, (since, took): (Duration, Duration), total: Duration) -> String {
    let place = |time: Duration| {
        let share = time.as_micros() * u128::from(BAR_CHARS) / total.as_micros().max(1);
        usize::try_from(share).unwrap_or(0).min(BAR_CHARS as usize)
    };
    // At least one mark, also of a bar at the very end.
    let from = place(since).min(BAR_CHARS as usize - 1);
    let to = place(since + took).max(from + 1);
    format!(
        "|{}{}{}|",
        " ".repeat(from),
        kind.mark().to_string().repeat(to - from),
        " ".repeat(BAR_CHARS as usize - to)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_has_its_place_and_at_least_one_mark() {
        let second = Duration::from_secs(1);
        let drawn = |since, took| drawn(Kind::Step, (since, took), 4 * second);
        assert_eq!(drawn(Duration::ZERO, 4 * second), format!("|{}|", "#".repeat(40)));
        assert_eq!(
            drawn(second, second),
            format!("|{}{}{}|", " ".repeat(10), "#".repeat(10), " ".repeat(20))
        );
        assert_eq!(drawn(4 * second, Duration::ZERO), format!("|{}#|", " ".repeat(39)));
        assert_eq!(
            super::drawn(Kind::Wait, (Duration::ZERO, Duration::ZERO), Duration::ZERO).matches('.').count(),
            1
        );
    }
}
