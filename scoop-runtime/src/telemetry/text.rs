//! Prepares texts for the log: in one line, of a bounded length, without payloads and passwords.

use std::fmt::{self, Display, Write};

use scoop_core::{Escaped, Failure};

use crate::util::payload::Unstorable;

const CHARS_MAX: usize = 1_000;

const FAILURES_MAX: usize = 3;

/// The types of failures that only pass others on.
const WRAPPERS: [&str; 4] =
    ["ChildRolledBackException", "ChildRollbackFailedException", "ParentSaidSoException", "GaveUpException"];

/// The types of failures whose messages quote the data that did not fit. These are recorded, but not logged.
const QUOTING: [&str; 3] =
    ["PayloadMismatch", "serde_json::error::Error", "scoop_runtime::payload::Unstorable"];

/// Replaces a text that may quote data.
pub(crate) const WITHHELD: &str = "text withheld, since it may quote a payload; see the run's `tree()`";

/// A failure, without the failures that only pass it on.
pub(super) struct FailureText<'a>(pub(super) &'a Failure);

/// A text without the passwords of connection strings.
pub(super) struct Scrubbed<T>(pub(super) T);

/// Whether a rollback failed because of that of a child run.
pub(super) fn comes_from_below(failure: &Failure) -> bool {
    simple_kind(failure) == "ChildRollbackFailedException"
}

/// Whether the text of this error quotes data, so that it must not be logged.
pub(crate) fn quotes_data(error: &scoop_core::Error) -> bool {
    error.downcast_ref::<serde_json::Error>().is_some() || error.downcast_ref::<Unstorable>().is_some()
}

impl Display for FailureText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut failures = vec![];
        find(self.0, &mut failures);
        for (at, failure) in failures.iter().take(FAILURES_MAX).enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            let Failure { source, kind, message, .. } = failure;
            let message = if QUOTING.contains(&&**kind) { WITHHELD } else { message };
            write!(f, "[{}] {}: {}", Escaped(source), Escaped(kind), Scrubbed(message))?;
        }
        match failures.len().saturating_sub(FAILURES_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

pub(super) fn code_of(failure: &Failure) -> &str {
    let mut failures = vec![];
    find(failure, &mut failures);
    failures.first().map_or("", |first| &first.kind)
}

fn find<'a>(failure: &'a Failure, found: &mut Vec<&'a Failure>) {
    if WRAPPERS.contains(&simple_kind(failure)) && !failure.causes.is_empty() {
        failure.causes.iter().for_each(|cause| find(cause, found));
    } else if !found.contains(&failure) {
        found.push(failure);
    }
}

fn simple_kind(failure: &Failure) -> &str {
    failure.kind.rsplit(['.', ':', '$']).next().unwrap_or_default()
}

impl<T: Display> Display for Scrubbed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let mut rest = &*text;
        let mut line = OneLine { f, left: CHARS_MAX };
        while let Some((start, end)) = password(rest) {
            line.write_str(&rest[..start])?;
            line.write_str("***")?;
            rest = &rest[end..];
        }
        line.write_str(rest)
    }
}

/// Finds the first password: in the authority of a URL, or after the keyword of a connection string.
fn password(text: &str) -> Option<(usize, usize)> {
    [in_authority(text), after_keyword(text)].into_iter().flatten().min()
}

/// `scheme://user:password@host`. A password may contain characters that should have been escaped, so the last `@`
/// counts.
fn in_authority(text: &str) -> Option<(usize, usize)> {
    text.match_indices("://").find_map(|(at, separator)| {
        let start = at + separator.len();
        let word = &text[start..];
        let word = &word[..word.find(char::is_whitespace).unwrap_or(word.len())];
        let end = word.rfind('@')?;
        let colon = word[..end].find(':')?;
        Some((start + colon + 1, start + end)).filter(|_| &word[colon + 1..end] != "***")
    })
}

/// `password=..`, up to a blank, a separator or a quote.
fn after_keyword(text: &str) -> Option<(usize, usize)> {
    const KEYWORD: &str = "password=";
    // `to_ascii_lowercase` keeps the length, so offsets apply to the text.
    let lower = text.to_ascii_lowercase();
    lower.match_indices(KEYWORD).find_map(|(at, _)| {
        let start = at + KEYWORD.len();
        let rest = &text[start..];
        let quoted = rest.strip_prefix('\'').and_then(|quoted| quoted.find('\'')).map(|end| end + 2);
        let unquoted =
            || rest.find(|it: char| it.is_whitespace() || "&;,\"'".contains(it)).unwrap_or(rest.len());
        let length = quoted.unwrap_or_else(unquoted);
        Some((start, start + length)).filter(|_| !matches!(&rest[..length], "" | "***"))
    })
}

/// Writes characters that control a terminal as blanks, up to a maximum length.
struct OneLine<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    left: usize,
}

impl Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match self.left {
                0 => return Ok(()),
                1 => self.f.write_char('…')?,
                _ => self.f.write_char(if Escaped::escapes(character) { ' ' } else { character })?,
            }
            self.left -= 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_in_a_text_is_replaced() {
        for (text, scrubbed) in [
            ("nothing to hide: 7@9", "nothing to hide: 7@9"),
            ("at postgres://shop@db/x it ended", "at postgres://shop@db/x it ended"),
            ("postgres://shop:s3cret@db/x", "postgres://shop:***@db/x"),
            (
                "(postgres://shop:s3c@r:et@db:5432/x) and a://b:c@d",
                "(postgres://shop:***@db:5432/x) and a://b:***@d",
            ),
            ("host=db password=s3cret user=x", "host=db password=*** user=x"),
            ("host=db PASSWORD='s3 cret' user=x", "host=db PASSWORD=*** user=x"),
            ("?password=s3cret&password=other", "?password=***&password=***"),
            ("password=", "password="),
        ] {
            assert_eq!(Scrubbed(text).to_string(), scrubbed);
        }
    }

    #[test]
    fn long_text_of_several_lines_is_cut_to_one_line() {
        let text = Scrubbed(format!("one\n\u{1b}[31mtwo\u{202e}{}", "ž".repeat(2_000))).to_string();
        assert!(text.starts_with("one  [31mtwo žž"), "{text}");
        assert_eq!((text.chars().count(), text.chars().last()), (CHARS_MAX, Some('…')));
    }

    #[test]
    fn failure_is_logged_without_wrappers_and_quotations() {
        let failure = |kind, message| Failure::new(kind, message, "stock[w]");
        let out = failure("stock.out", "no chairs left");
        let unfit = failure("PayloadMismatch", "invalid type: string \"secret\"");
        let failures = failure("x.ChildRolledBackException", "").caused_by([
            out.clone(),
            failure("ParentSaidSoException", "").caused_by([out]),
            unfit,
        ]);
        assert_eq!(
            FailureText(&failures).to_string(),
            format!("[stock[w]] stock.out: no chairs left; [stock[w]] PayloadMismatch: {WITHHELD}")
        );
        let forged = Failure::new("T\n\u{202e}ERROR", "m", "stock\u{1b}[2J[w]");
        assert_eq!(FailureText(&forged).to_string(), r"[stock\u{1b}[2J[w]] T\n\u{202e}ERROR: m");
        let many = (0..5).map(|number| Failure::new("T", number.to_string(), "s"));
        let many = failure("GaveUpException", "").caused_by(many);
        assert_eq!(FailureText(&many).to_string(), "[s] T: 0; [s] T: 1; [s] T: 2; and 2 more");
    }
}
