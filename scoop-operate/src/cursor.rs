//! Cursors: the positions in lists of runs, failed rollbacks and stuck runs at which a page begins, as texts.

use std::fmt;
use std::str::FromStr;

use scoop_runtime::internal::StoredTime;
use uuid::Uuid;

/// The end of a run, as a place in a list: its time as stored, and the run.
pub(crate) type EndedCursor = (StoredTime, Uuid);

/// The place in a list of runs at which its next page begins. Its text is short and can be a part of a URL.
///
/// ```
/// # extern crate scoop_operate as operate;
/// use operate::RunCursor;
///
/// let cursor: RunCursor = "u0197a6b26b1c7d3e9a533f1f7c1d2e4a".parse()?;
/// assert_eq!(cursor.to_string(), "u0197a6b26b1c7d3e9a533f1f7c1d2e4a");
/// assert!("page 2".parse::<RunCursor>().is_err());
/// # Ok::<_, operate::BadCursor>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCursor(pub(crate) PageStart);

/// Unfinished runs come before finished ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageStart {
    /// After this unfinished run.
    Unfinished(Uuid),
    /// At the first finished run.
    Finished,
    /// After this finished run.
    Ended(EndedCursor),
    /// After this run of a list of those that are found by fields.
    Found(FoundPosition),
}

/// A run that is found by a field, as a place in a list. The newest messages come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundPosition {
    /// The number of the field that orders the list, among those that are asked for.
    pub field: u8,
    /// When the message was launched.
    pub launched_at: StoredTime,
    /// What is found: a hierarchy or a message.
    pub found: Uuid,
    /// The run; nil after all runs of the message.
    pub run: Uuid,
}

/// The text is no [`RunCursor`] or [`ListCursor`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place in a list of runs; use the text of a cursor, such as `RunPage::next`")]
pub struct BadCursor(String);

/// The place in a list of failed rollbacks or stuck runs at which its next page begins. Its text is short and can be a part
/// of a URL.
///
/// ```
/// # extern crate scoop_operate as operate;
/// use operate::ListCursor;
///
/// let cursor: ListCursor = "00000000000000070197a6b26b1c7d3e9a533f1f7c1d2e4a".parse()?;
/// assert_eq!(cursor.to_string(), "00000000000000070197a6b26b1c7d3e9a533f1f7c1d2e4a");
/// # Ok::<_, operate::BadCursor>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListCursor(pub(crate) EndedCursor);

impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_end(self.0, f)
    }
}

impl FromStr for ListCursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        read_end(text).map(Self).ok_or_else(|| BadCursor(text.chars().take(80).collect()))
    }
}

impl fmt::Display for RunCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            PageStart::Unfinished(run) => write!(f, "u{}", run.simple()),
            PageStart::Finished => f.write_str("f"),
            PageStart::Ended(ended) => {
                f.write_str("f")?;
                write_end(ended, f)
            }
            PageStart::Found(FoundPosition { field, launched_at, found, run }) => {
                write!(f, "w{field:02x}")?;
                write_end((launched_at, found), f)?;
                write!(f, "{}", run.simple())
            }
        }
    }
}

impl FromStr for RunCursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let start = match text.split_at_checked(1) {
            Some(("u", run)) => read_run(run).map(PageStart::Unfinished),
            Some(("f", "")) => Some(PageStart::Finished),
            Some(("f", ended)) => read_end(ended).map(PageStart::Ended),
            Some(("w", found)) => read_found(found).map(PageStart::Found),
            _ => None,
        };
        start.map(Self).ok_or_else(|| BadCursor(text.chars().take(80).collect()))
    }
}

fn write_end((at, run): EndedCursor, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{:016x}{}", at.micros(), run.simple())
}

fn read_end(text: &str) -> Option<EndedCursor> {
    let (at, run) = text.split_at_checked(16)?;
    let micros = u64::from_str_radix(at, 16).ok()?.cast_signed();
    Some((StoredTime::from_micros(micros), read_run(run)?))
}

fn read_found(text: &str) -> Option<FoundPosition> {
    let (field, rest) = text.split_at_checked(2)?;
    let (message, run) = rest.split_at_checked(48)?;
    let (launched_at, found) = read_end(message)?;
    Some(FoundPosition {
        field: u8::from_str_radix(field, 16).ok()?,
        launched_at,
        found,
        run: read_run(run)?,
    })
}

fn read_run(text: &str) -> Option<Uuid> {
    // other notations of a uuid are no text of a cursor
    Uuid::try_parse(text).ok().filter(|_| text.len() == 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_read_from_its_text() {
        let run = Uuid::from_u128(7);
        for start in [
            PageStart::Unfinished(run),
            PageStart::Finished,
            PageStart::Ended((StoredTime::from_micros(-3), run)),
            PageStart::Ended((StoredTime::from_micros(i64::MAX), run)),
            PageStart::Found(FoundPosition {
                field: 31,
                launched_at: StoredTime::from_micros(-3),
                found: run,
                run,
            }),
        ] {
            let text = RunCursor(start).to_string();
            assert!(text.chars().all(|it| it.is_ascii_alphanumeric()), "{text}");
            assert_eq!(text.parse(), Ok(RunCursor(start)));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "u", "x", "é", "u7", "f00", "f000000000000000é", "w0", "wé7", &format!("u{}", Uuid::nil())]
        {
            assert!(text.parse::<RunCursor>().is_err(), "{text}");
        }
    }
}
