//! The time line of a hierarchy, on a scale of time: a bar for each run, step, wait and compensation, and a mark for each
//! intervention.

use std::time::SystemTime;

use scoop_runtime::shown::{humane, utc};
use scoop_runtime::{BarKind, RunInfo, Tree};
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

/// The lines of the time line, and what its whole width means.
pub(super) fn bars(tree: &Tree, now: SystemTime) -> (Vec<BarRow>, Option<String>) {
    let mut bars = tree.timeline();
    if bars.len() > BARS_MAX {
        bars.retain(|bar| bar.kind == BarKind::Run);
    }
    let Some(begin) = bars.iter().map(|bar| bar.from).min() else { return (vec![], None) };
    let last = bars.iter().map(|bar| bar.to.unwrap_or_else(|| now.max(bar.from))).max();
    let total = last.and_then(|end| end.duration_since(begin).ok()).unwrap_or_default();
    let percent = |at: SystemTime| {
        let since = at.duration_since(begin).unwrap_or_default().as_secs_f64();
        if total.is_zero() { 0.0 } else { (100.0 * since / total.as_secs_f64()).min(100.0) }
    };
    let rows = bars.iter().map(|bar| {
        let end = bar.to.unwrap_or_else(|| now.max(bar.from));
        // Also the shortest bar is visible, and that at the very end.
        let width = (percent(end) - percent(bar.from)).max(0.6);
        let x = percent(bar.from).min(100.0 - width);
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
            from: format!("+{}", humane(bar.from.duration_since(begin).unwrap_or_default())),
            duration: humane(end.duration_since(bar.from).unwrap_or_default()),
            x: format!("{x:.2}%"),
            width: format!("{width:.2}%"),
            is_open: bar.to.is_none(),
        }
    });
    let span = format!("{}, from {}", humane(total), utc(begin));
    (rows.collect(), Some(span))
}

/// The number of levels by which a run is indented.
pub(super) fn level(run: &RunInfo) -> usize {
    run.lineage.ids().len().saturating_sub(2).min(INDENTED_MAX)
}
