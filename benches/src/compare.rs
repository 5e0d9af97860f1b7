//! Compares two result files: which lines moved, and whether by more than noise.
//!
//! A line has moved if the ranges of its readings do not overlap: each reading of one file is better than each
//! of the other. Without any change, three rounds against three do so once in ten times, five against five once
//! in 126. Important results should therefore be measured with more rounds. Where both have ratios to the limit
//! of their rounds these are compared, so that a slower minute of the machine does not look like a slower
//! program.

use std::fmt::Write;

use crate::goals::Better;
use crate::report::{Report, Row, spread};
use crate::stats::{median, range};

/// A line of two files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Better,
    Worse,
    /// The ranges overlap.
    Noise,
    /// A single reading has no range.
    TooFew,
}

impl Verdict {
    /// Compares the readings before and after.
    fn of(before: &[f64], after: &[f64], better: Better) -> Self {
        let (Some(old), Some(new)) = (range(before), range(after)) else { return Self::TooFew };
        if before.len() < 2 || after.len() < 2 {
            return Self::TooFew;
        }
        let (rose, fell) = (new.0 > old.1, new.1 < old.0);
        match (rose, fell, better) {
            (true, _, Better::More) | (_, true, Better::Less) => Self::Better,
            (true, _, Better::Less) | (_, true, Better::More) => Self::Worse,
            _ => Self::Noise,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Better => "**better**",
            Self::Worse => "**worse**",
            Self::Noise => "within the noise",
            Self::TooFew => "too few rounds to tell",
        }
    }
}

/// The comparison as Markdown: a table, and differences of the settings.
pub(crate) fn markdown(before: &Report, after: &Report) -> String {
    let mut text = String::from("| id | what | of | before | after | change | |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    for row in &after.rows {
        if let Some(former) = before.rows.iter().find(|former| former.key == row.key) {
            text.push_str(&line(former, row));
        }
    }
    for (name, value) in &after.settings {
        let former = before.settings.iter().find(|(former, _)| former == name).map(|(_, value)| value);
        if former != Some(value) {
            let former = former.map_or("unknown", String::as_str);
            let _ = writeln!(text, "\nNote: {name} was {former}, and is {value}.");
        }
    }
    text
}

fn line(former: &Row, row: &Row) -> String {
    let (old, new) = (former.ratios(), row.ratios());
    let (old, new, of) = match old.is_empty() || new.is_empty() {
        true => (former.figures(), row.figures(), row.unit.clone()),
        false => (old, new, format!("÷ {}", row.base)),
    };
    let change = match (median(&old), median(&new)) {
        (Some(old), Some(new)) if old > 0.0 => format!("{:+.1} %", (new / old - 1.0) * 100.0),
        _ => String::new(),
    };
    let verdict = Verdict::of(&old, &new, row.better).text();
    let (before, after) = (spread(&old), spread(&new));
    format!("| {} | {} | {of} | {before} | {after} | {change} | {verdict} |\n", row.key, row.what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(key: &str, samples: &[(f64, Option<f64>)]) -> Report {
        let mut report = Report::default();
        for (figure, base) in samples {
            report.add(key, *figure, *base);
        }
        report
    }

    #[test]
    fn only_ranges_apart_have_moved() {
        for (before, after, better, expected) in [
            ([1.0, 1.1, 1.2], [1.3, 1.4, 1.5], Better::More, Verdict::Better),
            ([1.0, 1.1, 1.2], [1.3, 1.4, 1.5], Better::Less, Verdict::Worse),
            ([1.3, 1.4, 1.5], [1.0, 1.1, 1.2], Better::More, Verdict::Worse),
            ([1.0, 1.1, 1.3], [1.2, 1.4, 1.5], Better::More, Verdict::Noise),
        ] {
            assert_eq!(Verdict::of(&before, &after, better), expected);
        }
        assert_eq!(Verdict::of(&[1.0], &[2.0], Better::More), Verdict::TooFew);
    }

    #[test]
    fn a_slower_machine_is_not_a_slower_program() {
        let before = report("B1", &[(6000.0, Some(6000.0)), (6300.0, Some(6000.0))]);
        let after = report("B1", &[(3000.0, Some(3000.0)), (3100.0, Some(3000.0))]);
        let text = markdown(&before, &after);
        assert!(
            text.contains("| 1.02 [1.00–1.05] | 1.02 [1.00–1.03] | -0.8 % | within the noise |"),
            "{text}"
        );
    }

    #[test]
    fn without_a_limit_the_figures_are_compared() {
        let before = report("B14 WAL", &[(4.0, None), (4.1, None)]);
        let mut after = report("B14 WAL", &[(3.0, None), (3.1, None)]);
        after.settings.push(("fsync".into(), "off".into()));
        let text = markdown(&before, &after);
        assert!(
            text.contains("| kB | 4.05 [4.00–4.10] | 3.05 [3.00–3.10] | -24.7 % | **better** |"),
            "{text}"
        );
        assert!(text.contains("fsync was unknown, and is off"), "{text}");
    }
}
