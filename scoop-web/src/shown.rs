//! Texts, times and states as parts of a page. A text from the database is made harmless here: it is cut, and its control
//! characters are escaped. The templates escape HTML.

use std::fmt;
use std::time::SystemTime;

use askama::filters::HtmlSafe;
use scoop_core::Escaped;
use scoop_runtime::RunPhase;
use scoop_runtime::shown::{humane, utc};

/// The maximum number of characters of a text on one line.
const LINE_CHARS_MAX: usize = 300;

/// The maximum number of characters of a text of several lines.
const BLOCK_CHARS_MAX: usize = 10_000;

/// The maximum number of characters of one of many texts of several lines.
const EXCERPT_CHARS_MAX: usize = 2_000;

/// A text from the database on one line.
pub(crate) fn line(text: &str) -> String {
    let (cut, rest) = cut(text, LINE_CHARS_MAX);
    format!("{}{rest}", Escaped(cut))
}

/// A text from the database that may have several lines.
pub(crate) fn block(text: &str) -> String {
    lines(text, BLOCK_CHARS_MAX)
}

/// The beginning of a text from the database that may have several lines.
pub(crate) fn excerpt(text: &str) -> String {
    lines(text, EXCERPT_CHARS_MAX)
}

fn lines(text: &str, chars_max: usize) -> String {
    let (cut, rest) = cut(text, chars_max);
    let lines: Vec<_> = cut.lines().map(|line| Escaped(line).to_string()).collect();
    lines.join("\n") + &rest
}

/// The first characters, and a remark about the others.
fn cut(text: &str, chars_max: usize) -> (&str, String) {
    match text.char_indices().nth(chars_max) {
        None => (text, String::new()),
        Some((at, _)) => {
            let (cut, rest) = text.split_at(at);
            (cut, format!("… ({} more bytes)", rest.len()))
        }
    }
}

/// A number with the noun for it.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A time, as its distance from the time of reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: SystemTime,
    pub(crate) now: SystemTime,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = utc(self.at);
        write!(f, "<time datetime=\"{at}\" title=\"{at}\">")?;
        match (self.now.duration_since(self.at), self.at.duration_since(self.now)) {
            (_, Ok(ahead)) if !ahead.is_zero() => write!(f, "in {}", humane(ahead))?,
            (Ok(ago), _) => write!(f, "{} ago", humane(ago))?,
            (Err(_), _) => f.write_str("now")?,
        }
        f.write_str("</time>")
    }
}

// It has no text of a user.
impl HtmlSafe for Moment {}

/// The state of a run, with its color.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase(pub(crate) RunPhase);

impl Phase {
    /// The class of its color.
    pub(crate) fn tone(self) -> &'static str {
        match self.0 {
            RunPhase::Committed => "good",
            RunPhase::Running | RunPhase::Ready => "busy",
            RunPhase::Stuck | RunPhase::RollbackFailed => "bad",
            RunPhase::RolledBack => "undone",
            _ => "idle",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<span class=\"phase {}\">{}</span>", self.tone(), self.0)
    }
}

// It has no text of a user.
impl HtmlSafe for Phase {}

/// A query of a URL, beginning with `?`; empty without pairs.
pub(crate) fn query<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let text = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
    if text.is_empty() { text } else { format!("?{text}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn long_and_hostile_texts_are_cut_and_escaped() {
        assert_eq!(line("a\nb\u{202e}"), r"a\nb\u{202e}");
        assert_eq!(block("a\nb\u{7}\n"), "a\nb\\u{7}");
        let long = "x".repeat(1 << 20);
        assert_eq!(line(&long), format!("{}… (1048276 more bytes)", "x".repeat(300)));
        assert!(block(&long).len() < 11_000);
    }

    #[test]
    fn moment_is_told_from_the_time_of_reading() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let text = |at| Moment { at, now }.to_string();
        assert!(text(now - Duration::from_secs(90)).contains(">1 min 30 s ago<"));
        assert!(text(now + Duration::from_secs(5)).contains(">in 5.0 s<"));
        assert!(text(now).contains("title=\"1970-01-01T00:01:40.000Z\">0 ms ago<"));
    }
}
