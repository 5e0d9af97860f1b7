//! Draws charts of result files, as SVG: a line for each figure, with its median and its range.

use std::path::Path;

use svg::Document;
use svg::node::element::{Circle, Line, Rectangle, Text};

use crate::outcome::Outcome;
use crate::report::{Report, Row, spread};
use crate::stats::{median, range};

/// What a chart shows of each row.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    /// The ratio to the base of the row.
    Ratio,
    /// The figure, in the unit of the row.
    Figure,
}

struct Chart {
    file: &'static str,
    title: &'static str,
    shown: Shown,
    /// The keys of its rows: what the label says, and the key. A key that ends with a space is that of several rows.
    keys: &'static [(&'static str, &'static str)],
    /// A value that the figures are to be compared with.
    mark: Option<f64>,
}

const CHARTS: [Chart; 3] = [
    Chart {
        file: "rates.svg",
        title: "Steps, children or launches a second, as multiples of pgbench doing a step by hand",
        shown: Shown::Ratio,
        keys: &[
            ("Saga of three steps, one INSERT each", "B1"),
            ("Saga of three steps without SQL", "B2"),
            ("Tree of 7 runs, one INSERT a step", "B3"),
            ("Fan-out of 10,000 children", "B4"),
            ("Tree that fails: forward and back", "B5"),
            ("Launches, each in its transaction", "B7 single"),
            ("Launches of 1,000 messages at once", "B7 many"),
            ("Another system: ", "peer "),
        ],
        mark: Some(1.0),
    },
    Chart {
        file: "growth.svg",
        title: "Rate beside a million rows, or after them, as a multiple of the rate without",
        shown: Shown::Ratio,
        keys: &[
            ("Beside a million finished runs", "B8"),
            ("Beside a million sleeping runs", "B10"),
            ("Beside a million runs that await signals", "B18"),
            ("Last tenth of a million executions, over the first", "B20"),
            ("Four processes, over one", "B12"),
            ("Rollback of a loop, over one of a tenth", "B17 length"),
        ],
        mark: Some(1.0),
    },
    Chart {
        file: "latency.svg",
        title: "Latency in milliseconds",
        shown: Shown::Figure,
        keys: &[
            ("Saga of three steps, same process, p50", "B6 same"),
            ("the same, p99", "B6 same p99"),
            ("Saga of three steps, another process, p50", "B6 other"),
            ("the same, p99", "B6 other p99"),
            ("Last child to the parent's next step, p50", "B4 resume p50"),
            ("the same, p99", "B4 resume"),
            ("Signal to step, a million runs wait, p50", "B18 start"),
            ("the same, p99", "B18 start p99"),
            ("Page of 50 among a million runs, p50", "B22 p50"),
            ("the same, p99", "B22"),
        ],
        mark: None,
    },
];

const WIDTH: f64 = 820.0;
/// Where the axis begins and ends. The labels are before it, the figures behind it.
const AXIS: (f64, f64) = (330.0, 630.0);
const TOP: f64 = 48.0;
const LINE: f64 = 26.0;

/// A line of a chart.
struct Entry {
    label: String,
    values: Vec<f64>,
    is_peer: bool,
}

/// Draws the charts of which these reports have rows into a folder, and returns the names of the files. Of two reports
/// with the same row, the later one counts.
pub(crate) fn draw(reports: &[Report], folder: &Path) -> Outcome<Vec<&'static str>> {
    let mut drawn = vec![];
    for chart in &CHARTS {
        let entries = entries(chart, reports);
        if !entries.is_empty() {
            std::fs::write(folder.join(chart.file), format!("{}\n", picture(chart, &entries)))?;
            drawn.push(chart.file);
        }
    }
    Ok(drawn)
}

fn entries(chart: &Chart, reports: &[Report]) -> Vec<Entry> {
    let mut entries = vec![];
    for &(label, key) in chart.keys {
        let is_peer = key.ends_with(' ');
        let mut rows: Vec<&Row> = vec![];
        for row in reports.iter().rev().flat_map(|report| &report.rows) {
            let is_meant = row.key == key || is_peer && row.key.starts_with(key);
            if is_meant && !rows.iter().any(|later| later.key == row.key) {
                rows.push(row);
            }
        }
        entries.extend(rows.into_iter().filter_map(|row| {
            let values = if chart.shown == Shown::Ratio { row.ratios() } else { row.figures() };
            let name = if is_peer { &row.key[key.len()..] } else { "" };
            // A logarithm has no place for the others.
            let values: Vec<_> = values.into_iter().filter(|value| *value > 0.0).collect();
            (!values.is_empty()).then(|| Entry { label: format!("{label}{name}"), values, is_peer })
        }));
    }
    entries
}

fn picture(chart: &Chart, entries: &[Entry]) -> Document {
    let scale = Scale::of(entries, chart.mark);
    let bottom = entries.iter().fold(TOP, |bottom, _| bottom + LINE);
    let height = bottom + 30.0;
    let mut picture = Document::new()
        .set("viewBox", (0, 0, WIDTH, height))
        .set("font-family", "system-ui, sans-serif")
        .set("font-size", 13)
        .set("role", "img")
        .set("aria-label", chart.title)
        .add(Rectangle::new().set("width", WIDTH).set("height", height).set("fill", "#ffffff"))
        .add(text(chart.title, (12.0, 24.0), "start").set("font-weight", "bold"));
    for tick in scale.ticks() {
        let (x, is_mark) = (scale.at(tick), chart.mark == Some(tick));
        let grid = Line::new().set("x1", x).set("x2", x).set("y1", TOP - 8.0).set("y2", bottom);
        let grid = grid.set("stroke", if is_mark { "#444444" } else { "#dddddd" });
        picture = picture.add(grid).add(text(&format!("{tick}"), (x, bottom + 18.0), "middle"));
    }
    let mut y = TOP + LINE / 2.0;
    for Entry { label, values, is_peer } in entries {
        let color = if *is_peer { "#8a8a8a" } else { "#1f6feb" };
        picture = picture.add(text(label, (12.0, y + 4.0), "start"));
        if let (Some(middle), Some((least, most))) = (median(values), range(values)) {
            let whisker = Line::new().set("x1", scale.at(least)).set("x2", scale.at(most));
            let whisker = whisker.set("y1", y).set("y2", y).set("stroke", color).set("stroke-width", 3);
            let dot = Circle::new().set("cx", scale.at(middle)).set("cy", y).set("r", 5).set("fill", color);
            picture = picture.add(whisker).add(dot);
        }
        picture = picture.add(text(&spread(values), (AXIS.1 + 24.0, y + 4.0), "start"));
        y += LINE;
    }
    picture
}

fn text(content: &str, (x, y): (f64, f64), anchor: &str) -> Text {
    Text::new(content).set("x", x).set("y", y).set("text-anchor", anchor).set("fill", "#222222")
}

/// A logarithmic axis: halves and doubles are equally long.
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    /// An axis with room for all values, from and to a tick.
    fn of(entries: &[Entry], mark: Option<f64>) -> Self {
        let values = || entries.iter().flat_map(|entry| &entry.values).copied().chain(mark);
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let (least, most) = (least.log2().floor(), most.log2().ceil());
        Self { least: least.exp2(), most: most.max(least + 1.0).exp2() }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value / self.least).log2() / (self.most / self.least).log2();
        // A tenth of a point is not visible.
        ((AXIS.0 + part * (AXIS.1 - AXIS.0)) * 10.0).round() / 10.0
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        std::iter::successors(Some(self.least), |tick| Some(tick * 2.0)).take_while(|tick| *tick <= self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(key: &str, figures: &[f64], base: f64) -> Report {
        let mut report = Report::default();
        figures.iter().for_each(|figure| report.add(key, *figure, Some(base)));
        report
    }

    #[test]
    fn later_report_replaces_rows_of_an_earlier_one() {
        let mut peer = Report::default();
        peer.add_peer("a<b", 50.0, 100.0);
        let reports = [report("B1", &[50.0], 100.0), report("B1", &[80.0, 90.0, 120.0], 100.0), peer];
        let entries = entries(&CHARTS[0], &reports);
        let shown: Vec<_> =
            entries.iter().map(|entry| (entry.label.as_str(), spread(&entry.values))).collect();
        assert_eq!(
            shown,
            [
                ("Saga of three steps, one INSERT each", "0.90 [0.80–1.20]".to_owned()),
                ("Another system: a<b", "0.50".to_owned())
            ]
        );
        let drawn = picture(&CHARTS[0], &entries).to_string();
        assert!(
            drawn.contains("0.90 [0.80–1.20]") && drawn.contains("a&lt;b") && !drawn.contains("a<b"),
            "{drawn}"
        );
    }

    #[test]
    fn axis_ends_at_powers_of_two_and_has_equal_distances() {
        let entries = [Entry { label: String::new(), values: vec![0.6, 7.0], is_peer: false }];
        let scale = Scale::of(&entries, Some(1.0));
        assert_eq!(scale.ticks().collect::<Vec<_>>(), [0.5, 1.0, 2.0, 4.0, 8.0]);
        assert_eq!((scale.at(0.5), scale.at(2.0), scale.at(8.0)), (AXIS.0, (AXIS.0 + AXIS.1) / 2.0, AXIS.1));
    }

    #[test]
    fn charts_of_the_documentation_show_the_recorded_results() -> Outcome<()> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(package.join("results"))?;
        let mut files = files.map(|file| Ok(file?.path())).collect::<Outcome<Vec<_>>>()?;
        files.sort();
        let reports = files.iter().map(|path| Report::read(path)).collect::<Outcome<Vec<_>>>()?;
        for chart in &CHARTS {
            let path = package.join("../docs/images").join(chart.file);
            let entries = entries(chart, &reports);
            if entries.is_empty() {
                assert!(!path.exists(), "{} is of no recorded results", path.display());
                continue;
            }
            let drawn = format!("{}\n", picture(chart, &entries));
            let stored =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            // Not `assert_eq`, which would print both.
            assert!(
                drawn == stored,
                "{} is of other results: draw it by `scoop-bench charts`",
                path.display()
            );
        }
        Ok(())
    }

    #[test]
    fn each_chart_of_the_documentation_is_on_a_page() -> Outcome<()> {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let mut pages = std::fs::read_to_string(docs.join("../README.md"))?;
        for file in std::fs::read_dir(&docs)?.chain(std::fs::read_dir(docs.join("reference"))?) {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages += &std::fs::read_to_string(path)?;
            }
        }
        let drawn = CHARTS.iter().filter(|chart| docs.join("images").join(chart.file).exists());
        let unseen: Vec<_> = drawn
            .map(|chart| chart.file)
            .filter(|file| !pages.contains(&format!("images/{file})")))
            .collect();
        assert_eq!(unseen, [""; 0]);
        Ok(())
    }

    #[test]
    fn charts_name_keys_of_the_table() {
        let keys = CHARTS.iter().flat_map(|chart| chart.keys).map(|(_, key)| *key);
        let unknown: Vec<_> =
            keys.filter(|key| !key.ends_with(' ') && crate::goals::find(key).is_none()).collect();
        assert_eq!(unknown, [""; 0]);
    }
}
