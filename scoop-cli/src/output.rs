//! What commands write: tables and texts for people, JSON for programs. All texts from the database are escaped.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use comfy_table::{Attribute, Cell, ColumnConstraint, ContentArrangement, Row, Table, presets};
use scoop_core::Escaped;
use scoop_runtime::RunPhase;
use serde::Serialize;

use crate::args::{Color, Global};

/// The width of a table whose terminal does not have a width.
const WIDTH_DEFAULT: u16 = 100;

/// The longest text of a cell, in characters.
const CELL_CHARS_MAX: usize = 2_000;

/// Where and how a command writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// JSON instead of tables and texts.
    pub(crate) json: bool,
    is_colored: bool,
    is_terminal: bool,
    /// The options of the connection that are given as arguments.
    given: [Option<&'static str>; 3],
}

/// The meaning of a word in a table, which gives it a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Neutral,
    Good,
    Busy,
    Idle,
    Bad,
}

impl Output {
    pub(crate) fn new(global: &Global, given: [Option<&'static str>; 3]) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let variable = std::env::var_os;
        let is_colored = is_colored(
            global.color,
            is_terminal,
            (variable("NO_COLOR").as_deref(), variable("TERM").as_deref()),
        );
        Self { json: global.json, is_colored, is_terminal, given }
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn record(self, value: &impl Serialize) -> io::Result<()> {
        let json = serde_json::to_string(value)?;
        self.line(escaped_json(&json))
    }

    /// Writes a line. Its parts from the database are escaped by the caller.
    pub(crate) fn line(self, line: impl Display) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{line}")
    }

    /// Writes an additional remark for people, not for programs.
    pub(crate) fn remark(self, line: impl Display) {
        if !self.json {
            eprintln!("{line}");
        }
    }

    /// Names the options of this connection, which the written commands need, too. A URL is not repeated: it may have a password.
    pub(crate) fn remark_options(self) {
        let given: Vec<_> = self.given.into_iter().flatten().collect();
        if !given.is_empty() {
            self.remark(format_args!("the commands need these options, too: {}", given.join(", ")));
        }
    }

    /// Writes a table.
    pub(crate) fn table(self, rows: Rows) -> io::Result<()> {
        let width = self.is_terminal.then(|| rows.table.width().unwrap_or(WIDTH_DEFAULT));
        self.line(rows.text(width, self.is_colored))
    }
}

/// Whether output has colors; the variables are `NO_COLOR` and `TERM`.
fn is_colored(color: Color, is_terminal: bool, (no_color, term): (Option<&OsStr>, Option<&OsStr>)) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
        }
    }
}

/// Escapes the characters in JSON that a terminal interprets and JSON does not forbid. The meaning is the same.
fn escaped_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for char in json.chars() {
        if Escaped::escapes(char) {
            let mut units = [0; 2];
            char.encode_utf16(&mut units).iter().for_each(|unit| text += &format!("\\u{unit:04x}"));
        } else {
            text.push(char);
        }
    }
    text
}

/// A table without lines. On a terminal, long texts are wrapped; otherwise each row is one line.
pub(crate) struct Rows {
    table: Table,
    whole_lines: Vec<String>,
}

/// The character in place of the first whole line, until a table has its width. The characters after it are in place of the
/// others. They are of a private use area, so no text needs them.
const WHOLE_LINE: u32 = 0xF_0000;

/// The indentation of a whole line.
const INDENTATION: &str = "    ";

impl Rows {
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(header.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
        Self { table, whole_lines: vec![] }
    }

    /// What stands in a cell for a line that is never wrapped, such as a command, which users copy.
    pub(crate) fn whole_line(&mut self, line: impl Display) -> String {
        let nth = u32::try_from(self.whole_lines.len()).ok();
        let mark = nth.and_then(|nth| char::from_u32(WHOLE_LINE.checked_add(nth)?));
        self.whole_lines.push(line.to_string());
        mark.map_or_else(|| line.to_string(), String::from)
    }

    /// A column that is never wrapped, such as that of ids, which users copy.
    pub(crate) fn unwrapped(mut self, column: usize) -> Self {
        if let Some(column) = self.table.column_mut(column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        self
    }

    pub(crate) fn add(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.table.add_row(Row::from(cells.into_iter().collect::<Vec<_>>()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    fn text(mut self, width: Option<u16>, is_colored: bool) -> String {
        self.table.column_iter_mut().for_each(|column| {
            column.set_padding((0, 2));
        });
        self.table.force_no_tty();
        if let Some(width) = width {
            self.table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        if is_colored {
            self.table.enforce_styling();
        }
        let text = self.table.trim_fmt();
        if self.whole_lines.is_empty() {
            return text;
        }
        let lines = text.lines().map(|line| self.with_whole_line(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// A line of the table; with the whole line in place of the character for it, which is the last one.
    fn with_whole_line<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let mark = line.chars().next_back();
        let nth = mark.and_then(|mark| u32::from(mark).checked_sub(WHOLE_LINE));
        let whole = nth.and_then(|nth| self.whole_lines.get(usize::try_from(nth).ok()?));
        let Some(whole) = whole else { return line.into() };
        let before = line.trim_end_matches(|char: char| Some(char) == mark || char == ' ');
        let line_break = if before.is_empty() { "" } else { "\n" };
        format!("{before}{line_break}{INDENTATION}{whole}").into()
    }
}

/// A number with the noun for it.
pub(crate) fn counted(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A name as a word of a command line that a person copies: `shipping (join)` with quotes.
pub(crate) fn shell(name: &str) -> Cow<'_, str> {
    // Only a NUL has no quoted form, and PostgreSQL stores none.
    shlex::try_quote(name).unwrap_or(Cow::Borrowed(name))
}

/// Names as words of a command line: after `--` if one of them begins as an option does.
pub(crate) fn shell_words(names: &[&str]) -> String {
    let dashes = names.iter().any(|name| name.starts_with('-')).then_some(Cow::Borrowed("--"));
    let words = dashes.into_iter().chain(names.iter().map(|name| shell(name)));
    words.collect::<Vec<_>>().join(" ")
}

/// An option with a name as its value: after `=` if the name begins as an option does.
pub(crate) fn shell_option(option: &str, name: &str) -> String {
    let separator = if name.starts_with('-') { '=' } else { ' ' };
    format!("{option}{separator}{}", shell(name))
}

/// A cell with a text that may be from the database.
pub(crate) fn cell(text: impl AsRef<str>) -> Cell {
    Cell::new(Escaped(&shortened(text.as_ref())))
}

/// The beginning of a text that may be from the database: as much as a cell has.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    let end = text.char_indices().nth(CELL_CHARS_MAX).map(|(end, _)| end);
    end.and_then(|end| text.get(..end)).map_or(Cow::Borrowed(text), |cut| format!("{cut}…").into())
}

/// A cell with a text that may be from the database, or nothing.
pub(crate) fn cell_if_any(text: Option<impl AsRef<str>>) -> Cell {
    text.map_or_else(|| Cell::new(""), cell)
}

/// A cell with a value of ours: an id, a number, a time.
pub(crate) fn unstyled(value: impl Display) -> Cell {
    Cell::new(value)
}

/// A cell with a word in the color of its meaning.
pub(crate) fn toned(word: impl Display, tone: Tone) -> Cell {
    let cell = Cell::new(word);
    match tone {
        Tone::Neutral => cell,
        Tone::Good => cell.fg(comfy_table::Color::Green),
        Tone::Busy => cell.fg(comfy_table::Color::Cyan),
        Tone::Idle => cell.fg(comfy_table::Color::Yellow),
        Tone::Bad => cell.fg(comfy_table::Color::Red),
    }
}

/// A cell with the state of a run.
pub(crate) fn phase(phase: RunPhase) -> Cell {
    let tone = match phase {
        RunPhase::Committed => Tone::Good,
        RunPhase::Running | RunPhase::Ready => Tone::Busy,
        RunPhase::Stuck | RunPhase::RollbackFailed | RunPhase::RolledBack => Tone::Bad,
        RunPhase::Retrying | RunPhase::Waiting | RunPhase::Sleeping | RunPhase::AwaitingSignal => Tone::Idle,
        _ => Tone::Neutral,
    };
    toned(phase, tone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_on_a_terminal_wraps_long_texts_and_keeps_ids_whole() {
        let id = "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a";
        let mut rows = Rows::new(&["RUN", "WHY"]);
        rows.add([unstyled(id), cell("the bank is closed, and opens again on Monday at nine")]);
        let rows = rows.unwrapped(0);
        let text = rows.text(Some(60), false);
        assert!(text.lines().count() > 2 && text.contains(id), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn whole_line_of_a_table_is_never_wrapped() {
        let command = "scoop retire 'the orders of the shop' 'orders (join)'";
        for width in [5, 30, 60, 200] {
            let mut rows = Rows::new(&["LEVEL", "CHECK", "FINDING"]);
            for _ in 0..20 {
                let line = rows.whole_line(command);
                rows.add([
                    unstyled("warning"),
                    unstyled("handlers of topics"),
                    unstyled(format_args!("nothing has it\n{line}")),
                ]);
            }
            let text = rows.text(Some(width), false);
            let lines = text.lines().filter(|line| *line == format!("{INDENTATION}{command}"));
            assert_eq!(lines.count(), 20, "{width}: {text}");
            assert!(text.chars().all(|char| u32::from(char) < WHOLE_LINE), "{width}: {text}");
        }
    }

    #[test]
    fn names_that_begin_as_options_are_words_and_values() {
        assert_eq!(shell_words(&["shop.orders", "orders (join)"]), "shop.orders 'orders (join)'");
        assert_eq!(shell_words(&["-t", "orders"]), "-- -t orders");
        assert_eq!(shell_words(&["shop", "--all of it"]), "-- shop '--all of it'");
        assert_eq!(shell_option("--saga", "orders (join)"), "--saga 'orders (join)'");
        assert_eq!(shell_option("--saga", "-v x"), "--saga='-v x'");
    }

    #[test]
    fn long_text_of_a_cell_is_cut() {
        let whole = "ü".repeat(CELL_CHARS_MAX);
        assert_eq!(cell(&whole).content(), whole);
        assert_eq!(cell(format!("{whole}ab")).content(), format!("{whole}…"));
    }

    #[test]
    fn colors_are_written_only_when_asked_for() {
        let rows = || {
            let mut rows = Rows::new(&["STATE"]);
            rows.add([phase(RunPhase::Stuck)]);
            rows
        };
        assert!(rows().text(None, true).contains("\u{1b}["));
        assert!(!rows().text(None, false).contains('\u{1b}'));
    }

    #[test]
    fn colors_are_for_terminals_unless_the_environment_refuses_them() {
        let colored = |color, is_terminal, no_color: Option<&str>, term: Option<&str>| {
            is_colored(color, is_terminal, (no_color.map(OsStr::new), term.map(OsStr::new)))
        };
        assert!(colored(Color::Auto, true, None, Some("xterm")) && colored(Color::Auto, true, None, None));
        assert!(!colored(Color::Auto, false, None, Some("xterm")));
        assert!(!colored(Color::Auto, true, Some("1"), Some("xterm")));
        assert!(!colored(Color::Auto, true, Some("0"), None));
        assert!(colored(Color::Auto, true, Some(""), None));
        assert!(!colored(Color::Auto, true, None, Some("dumb")));
        assert!(colored(Color::Always, false, Some("1"), Some("dumb")));
        assert!(!colored(Color::Never, true, None, None));
    }

    #[test]
    fn json_has_no_character_that_a_terminal_interprets() {
        let hostile = "a\u{1b}[2J\u{202e}\u{85}\"\n";
        let json = escaped_json(&serde_json::to_string(hostile).unwrap());
        assert_eq!(json, r#""a\u001b[2J\u202e\u0085\"\n""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }
}
