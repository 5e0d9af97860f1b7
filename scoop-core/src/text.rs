//! Printing of texts from users, programs and other services.

use std::fmt::{self, Write};

/// A text on one line: characters that control a terminal or the direction of a line are escaped.
///
/// Names and messages of errors are untrusted. Printed unchanged, a line break in one could pass for
/// another line of a report, and a terminal escape could change colors or hide text.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Escaped;
///
/// assert_eq!(Escaped("sold out\n└─ refund: committed").to_string(), r"sold out\n└─ refund: committed");
/// assert_eq!(Escaped("\u{1b}[2J").to_string(), r"\u{1b}[2J");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escaped<'a>(pub &'a str);

impl Escaped<'_> {
    /// Whether a terminal interprets this character instead of showing it, so that it is escaped.
    pub fn escapes(char: char) -> bool {
        // Separators of lines and paragraphs, and changes of the direction of a text.
        let directs = matches!(
            char,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        char.is_control() || directs
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| {
            if Self::escapes(char) { write!(f, "{}", char.escape_default()) } else { f.write_char(char) }
        })
    }
}

pub(crate) fn lines(text: &str, between: &str) -> String {
    text.lines().map(|line| Escaped(line).to_string()).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_controls_stays_as_it_is() {
        let text = r#"Žluťoučký kůň says "\n", it costs 5 €"#;
        assert_eq!(Escaped(text).to_string(), text);
    }

    #[test]
    fn controls_and_changes_of_direction_are_escaped() {
        let escaped = Escaped("a\r\n\tb\u{7}\u{1b}[31m\u{85}\u{2028}\u{202e}c").to_string();
        assert_eq!(escaped, r"a\r\n\tb\u{7}\u{1b}[31m\u{85}\u{2028}\u{202e}c");
        assert_eq!(escaped.lines().count(), 1);
    }
}
