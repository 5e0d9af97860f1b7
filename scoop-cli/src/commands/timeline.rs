//! `scoop timeline`

use std::time::{Duration, SystemTime};

use scoop_core::Escaped;
use scoop_runtime::{Bar, BarKind, Scoop, Tree};

use super::target::Target;
use super::tree::{RAISE_EVENTS, record_unreadable};
use crate::fault::{Exit, Fault};
use crate::output::{Output, Rows, counted, unstyled};
use crate::times::{in_words, utc};

/// The number of characters of the bars.
const BAR_CHARS: u32 = 40;

/// The maximum number of levels that are indented.
const INDENTED_MAX: usize = 16;

/// Show a hierarchy on a scale of time: a bar for each run and step, with waits and compensations
///
/// Bars: `=` a run, `#` a step, `.` a wait, `<` a compensation, `!` a decision of an operator, `~` events that are left out.
///
/// The time at which a signal came is not recorded: the wait for it is drawn until the end of the step that gets it, and the
/// step as a point.
#[derive(Debug, clap::Args)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    target: Target,
    /// How many runs at most
    #[arg(long, value_name = "RUNS", default_value_t = 200)]
    limit: usize,
    /// How many events of each run at most, at its beginning and as many at its end, and as many interventions on it. The steps
    /// between them are left out
    #[arg(long, value_name = "EVENTS", default_value_t = 500)]
    events: usize,
    /// Leave out the steps
    #[arg(long)]
    runs_only: bool,
}

/// The character of which a bar is drawn.
const fn mark(kind: BarKind) -> char {
    match kind {
        BarKind::Step => '#',
        BarKind::Wait => '.',
        BarKind::Compensation => '<',
        BarKind::Gap => '~',
        BarKind::Intervention => '!',
        _ => '=',
    }
}

/// Shows the time line.
pub(crate) async fn show(scoop: &Scoop, output: Output, args: TimelineArgs) -> Result<Exit, Fault> {
    let hierarchy = args.target.hierarchy(scoop).await?;
    // The bar of a run without its steps needs its first and its last event.
    let events = if args.runs_only { 1 } else { args.events };
    let tree = scoop.find(hierarchy).await?.tree().limit(args.limit).events(events).await?;
    let mut bars = tree.timeline();
    bars.retain(|bar| !args.runs_only || bar.kind == BarKind::Run);
    if output.json {
        bars.iter().try_for_each(|bar| output.record(bar))?;
        record_unreadable(output, &tree)?;
    } else {
        if let Some(begin) = bars.iter().map(|bar| bar.from).min() {
            let ends = bars.iter().map(|bar| bar.to.unwrap_or(bar.from));
            // The clock of the database is not known here, so an open bar ends with the newest event.
            let end = ends.max().unwrap_or(begin);
            draw(output, &bars, (begin, end))?;
        } else if tree.unreadable().is_empty() {
            output.remark("no run of it has begun");
        }
        for why in tree.unreadable() {
            output.line(format_args!("(unreadable: {})", Escaped(why)))?;
        }
    }
    if !tree.is_complete() {
        output.remark("runs were left out: raise --limit");
    }
    if !args.runs_only {
        remark_events_left_out(output, &tree);
    }
    Ok(Exit::Success)
}

/// Says of how many runs some events or interventions are not shown.
fn remark_events_left_out(output: Output, tree: &Tree) {
    let runs = tree.runs().into_iter().filter(|run| run.events_left_out > 0).count();
    if runs > 0 {
        let runs = counted(runs, "run", "runs");
        output.remark(format_args!("events of {runs} were left out: {RAISE_EVENTS}"));
    }
    let runs = tree.runs().into_iter().filter(|run| run.interventions_left_out > 0).count();
    if runs > 0 {
        let runs = counted(runs, "run", "runs");
        output.remark(format_args!("interventions on {runs} were left out: {RAISE_EVENTS}"));
    }
}

/// Writes the bars as a table.
fn draw(output: Output, bars: &[Bar<'_>], (begin, end): (SystemTime, SystemTime)) -> Result<(), Fault> {
    let total = end.duration_since(begin).unwrap_or_default();
    let mut rows = Rows::new(&["RUN, STEP", "FROM", "TIME", "BAR"]);
    for bar in bars {
        let since = bar.from.duration_since(begin).unwrap_or_default();
        let duration = bar.to.map(|to| to.duration_since(bar.from).unwrap_or_default());
        let level = bar.run.lineage.ids().len().saturating_sub(2).min(INDENTED_MAX);
        let name = match bar.kind {
            BarKind::Run => format!("{} ({})", Escaped(bar.name), bar.run.state.phase()),
            _ if bar.words.is_empty() => format!("  {}", Escaped(bar.name)),
            _ => format!("  {} {}", bar.words, Escaped(bar.name)),
        };
        rows.add([
            unstyled(format_args!("{}{name}", "  ".repeat(level))),
            unstyled(format_args!("+{}", in_words(since))),
            unstyled(duration.map_or_else(|| "open".to_owned(), in_words)),
            unstyled(drawn(bar.kind, (since, duration.unwrap_or(total.saturating_sub(since))), total)),
        ]);
    }
    output.line(format_args!("from {} to {}", utc(begin), utc(end)))?;
    output.table(rows)?;
    Ok(())
}

/// A bar as text.
fn drawn(kind: BarKind, (since, duration): (Duration, Duration), total: Duration) -> String {
    let column = |time: Duration| {
        let marks = time.as_micros() * u128::from(BAR_CHARS) / total.as_micros().max(1);
        usize::try_from(marks).unwrap_or(0).min(BAR_CHARS as usize)
    };
    // At least one mark, also of a bar at the very end.
    let from = column(since).min(BAR_CHARS as usize - 1);
    let to = column(since + duration).max(from + 1);
    format!(
        "|{}{}{}|",
        " ".repeat(from),
        mark(kind).to_string().repeat(to - from),
        " ".repeat(BAR_CHARS as usize - to)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_has_its_place_and_at_least_one_mark() {
        let second = Duration::from_secs(1);
        let drawn = |since, duration| drawn(BarKind::Step, (since, duration), 4 * second);
        assert_eq!(drawn(Duration::ZERO, 4 * second), format!("|{}|", "#".repeat(40)));
        assert_eq!(
            drawn(second, second),
            format!("|{}{}{}|", " ".repeat(10), "#".repeat(10), " ".repeat(20))
        );
        assert_eq!(drawn(4 * second, Duration::ZERO), format!("|{}#|", " ".repeat(39)));
        assert_eq!(
            super::drawn(BarKind::Wait, (Duration::ZERO, Duration::ZERO), Duration::ZERO)
                .matches('.')
                .count(),
            1
        );
    }
}
