//! The results: as data, as a table, and as a file.

use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::goals::{Better, Judged, find};
use crate::outcome::Outcome;
use crate::stats::{median, range};

/// A reading, with the reading beside it in the same round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) figure: f64,
    pub(crate) base: Option<f64>,
}

/// One line: the readings of all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) what: String,
    pub(crate) unit: String,
    /// The name of the ratio's base; empty if there is none.
    pub(crate) base: String,
    pub(crate) judged: Judged,
    pub(crate) better: Better,
    pub(crate) least: Option<f64>,
    pub(crate) aim: Option<f64>,
    pub(crate) samples: Vec<Sample>,
}

/// All results of one call of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The server's settings and ours, name by name.
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) rows: Vec<Row>,
    /// Explanations of lines.
    pub(crate) notes: Vec<String>,
}

impl Row {
    fn of(key: &str) -> Option<Self> {
        let goal = find(key)?;
        Some(Self {
            key: goal.key.into(),
            what: goal.what.into(),
            unit: goal.unit.into(),
            base: goal.base.into(),
            judged: goal.judged,
            better: goal.better,
            least: goal.least,
            aim: goal.aim,
            samples: vec![],
        })
    }

    /// The figures, round by round.
    pub(crate) fn figures(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.figure).collect()
    }

    /// The ratios, round by round; empty without a reading beside it.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        let bases = self.samples.iter().filter_map(|sample| Some((sample.figure, sample.base?)));
        bases.filter(|(_, base)| *base > 0.0).map(|(figure, base)| figure / base).collect()
    }

    /// The number that the goal refers to.
    fn judged(&self) -> Option<f64> {
        match self.judged {
            Judged::Ratio => median(&self.ratios()),
            Judged::Figure => median(&self.figures()),
        }
    }

    /// Whether the goal is met; empty without a goal.
    fn met(&self) -> &'static str {
        let (Some(value), Some(least)) = (self.judged(), self.least) else { return "" };
        let reaches = |goal: f64| if self.better == Better::More { value >= goal } else { value <= goal };
        match (self.aim.is_some_and(reaches), reaches(least)) {
            (true, _) => "aim",
            (false, true) => "yes",
            (false, false) => "no",
        }
    }
}

impl Report {
    /// Adds a reading to the line of that key.
    pub(crate) fn add(&mut self, key: &str, figure: f64, base: Option<f64>) {
        let sample = Sample { figure, base };
        if let Some(row) = self.rows.iter_mut().find(|row| row.key == key) {
            row.samples.push(sample);
        } else if let Some(mut row) = Row::of(key) {
            row.samples.push(sample);
            self.rows.push(row);
        }
    }

    /// Adds a reading of another system. Its workflows have three steps, too.
    pub(crate) fn add_peer(&mut self, name: &str, steps: f64, limit: f64) {
        let key = format!("peer {name}");
        if !self.rows.iter().any(|row| row.key == key) {
            self.rows.push(Row {
                key: key.clone(),
                what: "3-step workflows of another system".into(),
                unit: "steps/s".into(),
                base: "b_sep".into(),
                judged: Judged::Ratio,
                better: Better::More,
                least: None,
                aim: None,
                samples: vec![],
            });
        }
        self.add(&key, steps, Some(limit));
    }

    /// Adds an explanation, unless it is there already.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The table and the notes, as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let settings = self.settings.iter().map(|(name, value)| format!("{name} = {value}"));
        let mut text = settings.collect::<Vec<_>>().join(", ");
        text.push_str("\n\n| id | what | figure | ratio | least | aim | met |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
        for row in &self.rows {
            let (figures, ratios) = (row.figures(), row.ratios());
            let figure = format!("{} {}", spread(&figures), row.unit);
            let ratio = if ratios.is_empty() {
                String::new()
            } else {
                format!("{} of {}", spread(&ratios), row.base)
            };
            let goal = |goal: Option<f64>| goal.map_or_else(String::new, short);
            let (least, aim, met) = (goal(row.least), goal(row.aim), row.met());
            let _ = writeln!(
                text,
                "| {} | {} | {figure} | {ratio} | {least} | {aim} | {met} |",
                row.key, row.what
            );
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        text
    }

    /// Writes it for [`Report::read`].
    pub(crate) fn write(&self, path: &Path) -> Outcome<()> {
        let text = serde_json::to_string_pretty(self)?;
        Ok(std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// Reads a file of [`Report::write`].
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
    }
}

/// The median, and in brackets the smallest and the largest.
pub(crate) fn spread(numbers: &[f64]) -> String {
    match (median(numbers), range(numbers)) {
        (Some(middle), Some((min, max))) if numbers.len() > 1 => {
            format!("{} [{}–{}]", short(middle), short(min), short(max))
        }
        (Some(only), _) => short(only),
        _ => "-".into(),
    }
}

/// Formats three significant digits, or all digits before the point.
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        large if large >= 100.0 => format!("{number:.0}"),
        some if some >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        for (figure, base) in [(6600.0, 6000.0), (7500.0, 5000.0), (6000.0, 6000.0)] {
            report.add("B1", figure, Some(base));
        }
        report.add("B4 resume", 25.0, None);
        report.add("B6 same", 1.4, Some(0.7));
        report.note("once".into());
        report.note("once".into());
        report
    }

    #[test]
    fn the_ratio_is_that_of_each_round() {
        let report = report();
        assert_eq!(report.rows[0].ratios(), [1.1, 1.5, 1.0]);
        let text = report.markdown();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("| B")).collect();
        assert!(
            lines[0].contains("| 6600 [6000–7500] steps/s | 1.10 [1.00–1.50] of b_sep | 1.10 | 1.40 | yes |")
        );
        assert!(lines[1].contains("| 25.0 ms |  | 20.0 | 10.0 | no |"), "{}", lines[1]);
        assert!(
            lines[2].contains("| 1.40 ms | 2.00 of a b_sep of 1 client | 2.50 | 1.50 | aim |"),
            "{}",
            lines[2]
        );
        assert_eq!(text.matches("- once").count(), 1);
    }

    #[test]
    fn a_line_without_a_known_key_is_none() {
        let mut report = Report::default();
        report.add("B99", 1.0, None);
        assert_eq!(report.rows, []);
    }

    #[test]
    fn a_peer_has_a_line_without_a_goal() {
        let mut report = Report::default();
        report.add_peer("other", 1000.0, 5000.0);
        report.add_peer("other", 2000.0, 5000.0);
        assert!(
            report.markdown().contains("| 1500 [1000–2000] steps/s | 0.30 [0.20–0.40] of b_sep |  |  |  |")
        );
    }

    #[test]
    fn written_report_is_read_again() {
        let path = std::env::temp_dir().join(format!("scoop-bench-report-{}.json", std::process::id()));
        let report = report();
        report.write(&path).expect("the folder is there");
        let read = Report::read(&path);
        std::fs::remove_file(&path).expect("it was written");
        assert_eq!(read.expect("it was written"), report);
    }
}
