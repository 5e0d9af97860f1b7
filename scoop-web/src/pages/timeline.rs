//! The time line of a hierarchy, on a scale of time: a bar for each run, step, wait and compensation, and a mark for each
//! intervention.

use std::fmt;
use std::time::{Duration, SystemTime};

use scoop_runtime::shown::{humane, utc};
use scoop_runtime::{Bar, BarKind, RunInfo, Tree};
use uuid::Uuid;

use crate::shown::line;

/// The maximum number of bars. With more, only those of runs are shown.
const BARS_MAX: usize = 500;

/// The maximum number of levels that are indented.
const INDENTED_MAX: usize = 12;

/// A line of the time line.
pub(super) struct BarRow {
    pub(super) run: Uuid,
    pub(super) kind: &'static str,
    pub(super) level: usize,
    pub(super) name: String,
    pub(super) from: String,
    pub(super) duration: String,
    /// The place of the bar, in per cent of the width.
    pub(super) x: String,
    pub(super) width: String,
    pub(super) is_open: bool,
}

/// What the whole width of the time line means.
pub(super) struct Scale {
    pub(super) begin: SystemTime,
    total: Duration,
}

impl Scale {
    fn of(bars: &[Bar<'_>], now: SystemTime) -> Option<Self> {
        let begin = bars.iter().map(|bar| bar.from).min()?;
        let last = bars.iter().map(|bar| end(bar, now)).max();
        let total = last.and_then(|end| end.duration_since(begin).ok()).unwrap_or_default();
        Some(Self { begin, total })
    }

    /// The part of the width before a time, in per cent.
    pub(super) fn percent(&self, at: SystemTime) -> f64 {
        let since = at.duration_since(self.begin).unwrap_or_default().as_secs_f64();
        if self.total.is_zero() { 0.0 } else { (100.0 * since / self.total.as_secs_f64()).min(100.0) }
    }

    /// The distance of a time from the beginning.
    pub(super) fn offset(&self, at: SystemTime) -> String {
        format!("+{}", humane(at.duration_since(self.begin).unwrap_or_default()))
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, from {}", humane(self.total), utc(self.begin))
    }
}

fn end(bar: &Bar<'_>, now: SystemTime) -> SystemTime {
    bar.to.unwrap_or_else(|| now.max(bar.from))
}

/// The lines of the time line, and its scale, if a run has begun.
pub(super) fn bars(tree: &Tree, now: SystemTime) -> (Vec<BarRow>, Option<Scale>) {
    let mut bars = tree.timeline();
    if bars.len() > BARS_MAX {
        bars.retain(|bar| bar.kind == BarKind::Run);
    }
    let Some(scale) = Scale::of(&bars, now) else { return (vec![], None) };
    let rows = bars.iter().map(|bar| {
        let end = end(bar, now);
        // Also the shortest bar is visible, and that at the very end.
        let width = (scale.percent(end) - scale.percent(bar.from)).max(0.6);
        let x = scale.percent(bar.from).min(100.0 - width);
        let name = line(bar.name);
        BarRow {
            run: bar.run.id().uuid(),
            kind: bar.kind.name(),
            level: level(bar.run),
            name: match bar.words {
                "" => name,
                _ if name.is_empty() => bar.kind.name().into(),
                words => format!("{words} {name}"),
            },
            from: scale.offset(bar.from),
            duration: humane(end.duration_since(bar.from).unwrap_or_default()),
            x: format!("{x:.2}%"),
            width: format!("{width:.2}%"),
            is_open: bar.to.is_none(),
        }
    });
    (rows.collect(), Some(scale))
}

/// The number of levels by which a run is indented.
pub(super) fn level(run: &RunInfo) -> usize {
    run.lineage.ids().len().saturating_sub(2).min(INDENTED_MAX)
}
