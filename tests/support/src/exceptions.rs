//! Exceptions in the notation of `docs/reference/conformance.md`, and their comparison with stored ones.

use std::fmt;

use scoop::Failure;

use super::rows::{History, in_full};

/// An expected exception.
pub(crate) enum Exception {
    /// The very one of that row of the block, counted from 1.
    OfRow(usize),
    /// One with these parts.
    Parts {
        /// Without module or package.
        kind: String,
        /// `None` is any.
        message: Option<String>,
        source: Option<Source>,
        /// `None` is any.
        causes: Option<Vec<Exception>>,
    },
}

pub(crate) enum Source {
    /// A run of that handler.
    Handler(String),
    Text(String),
}

/// The short names of the protocol's own failures, and the forms of their messages.
const PROTOCOL: [(&str, &str, Message); 6] = [
    ("CRB", "ChildRolledBackException", Message::OfStep("Child failure occurred while suspended in step")),
    (
        "CRF",
        "ChildRollbackFailedException",
        Message::OfStep("Child rollback failure occurred while suspended in step"),
    ),
    ("PSS", "ParentSaidSoException", Message::OfParent),
    ("GU", "GaveUpException", Message::OfReasons),
    ("CR", "CancellationRequestedException", Message::Own),
    ("RR", "RollbackRequestedException", Message::Own),
];

enum Message {
    /// This text and the step in brackets, or none if no step is given.
    OfStep(&'static str),
    /// The message in the block.
    Own,
    /// Names the saga of the source, and repeats the messages of the causes.
    OfParent,
    /// Repeats the messages of its causes.
    OfReasons,
}

const NO_MESSAGE: &str = "<no message>";

const LAUNCHED_FAILED: &str = "what it launched has failed as well";

impl Exception {
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.trim().trim_start_matches('‡');
        if let Some(row) = text.strip_prefix("=row ") {
            return Self::OfRow(row.parse().unwrap_or_else(|_| panic!("`{text}` names no row")));
        }
        let end = text.find(['(', '@', '[']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let (inside, rest) = enclosed(rest, '(', ')');
        let (source, rest) = match rest.strip_prefix('@') {
            Some(rest) => {
                let end = rest.find('[').unwrap_or(rest.len());
                let (source, rest) = rest.split_at(end);
                (Some(Source::parse(source)), rest)
            }
            None => (None, rest),
        };
        let (causes, rest) = enclosed(rest, '[', ']');
        assert!(rest.is_empty(), "`{rest}` after an exception");
        let (kind, message) = kind_and_message(name, inside);
        let causes = causes.map(|causes| listed(causes).into_iter().map(Self::parse).collect());
        Self::Parts { kind, message, source, causes }
    }

    /// A stored failure, for display.
    pub(crate) fn of(failure: &Failure) -> Self {
        let source = failure.source.split_once('[').map_or(&*failure.source, |(handler, _)| handler);
        Self::Parts {
            kind: simple(&failure.kind).into(),
            message: Some(failure.message.clone()),
            source: Some(Source::Handler(source.into())),
            causes: Some(failure.causes.iter().map(Self::of).collect()),
        }
    }

    /// Whether the failure is as expected; `block` are the rows that a number may refer to.
    pub(crate) fn matches(&self, failure: &Failure, block: &History) -> Result<(), String> {
        let (kind, message, source, causes) = match self {
            Self::OfRow(row) => {
                let named = block.rows()[row - 1].exception.as_ref();
                return match named == Some(failure) {
                    true => Ok(()),
                    false => Err(format!("not the exception of row {row}")),
                };
            }
            Self::Parts { kind, message, source, causes } => (kind, message, source, causes),
        };
        let differs = |what: &str, actual: &str| Err(format!("the {what} is `{actual}`"));
        if simple(&failure.kind) != kind {
            return differs("type", &failure.kind);
        }
        if message.as_ref().is_some_and(|message| *message != failure.message) {
            return differs("message", &failure.message);
        }
        if source.as_ref().is_some_and(|source| !source.matches(&failure.source, block)) {
            return differs("source", &failure.source);
        }
        if kind == "ParentSaidSoException" && failure.message != of_parent(failure) {
            return differs("message", &failure.message);
        }
        let Some(causes) = causes else {
            return Ok(());
        };
        if causes.len() != failure.causes.len() {
            return differs("number of causes", &failure.causes.len().to_string());
        }
        causes
            .iter()
            .zip(failure.causes.iter())
            .try_for_each(|(cause, failure)| cause.matches(failure, block))
    }
}

impl Source {
    fn parse(text: &str) -> Self {
        match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(text) => Self::Text(text.into()),
            None => Self::Handler(text.into()),
        }
    }

    fn matches(&self, source: &str, block: &History) -> bool {
        match self {
            Self::Text(text) => text == source,
            Self::Handler(handler) => {
                let inside = source.strip_prefix(&**handler).and_then(|rest| rest.strip_prefix('['));
                let worker = inside.and_then(|rest| rest.strip_suffix(']'));
                // Where the handler is not in this projection, its form must do.
                let workers = block.workers_of(handler);
                worker.is_some_and(|worker| {
                    if workers.is_empty() {
                        worker.starts_with("scoop-rs:")
                    } else {
                        workers.contains(worker)
                    }
                })
            }
        }
    }
}

/// The message of a failure that says why a parent had this rolled back.
fn of_parent(failure: &Failure) -> String {
    let saga = failure.source.split('[').next().unwrap_or_default();
    let reason = failure.causes.first().map_or_else(String::new, Failure::summary);
    format!("the parent saga `{saga}` rolls back: {reason}")
}

fn kind_and_message(name: &str, inside: Option<&str>) -> (String, Option<String>) {
    for (short, kind, text) in PROTOCOL {
        if name == short {
            let message = match (text, inside) {
                (Message::OfStep(text), Some(step)) => format!("{text} [{}]", in_full(step)),
                (Message::OfStep(_), None) => LAUNCHED_FAILED.into(),
                (Message::Own, Some(reason)) => reason.into(),
                (Message::Own, None) => NO_MESSAGE.into(),
                (Message::OfParent | Message::OfReasons, _) => return (kind.into(), None),
            };
            return (kind.into(), Some(message));
        }
    }
    let kind = if name == "RTE" { "RuntimeException" } else { simple(name) };
    (kind.into(), inside.filter(|message| *message != "…").map(str::to_owned))
}

/// The type's own name, without package or module.
fn simple(kind: &str) -> &str {
    kind.rsplit(['.', ':']).next().unwrap_or(kind)
}

/// The text in the brackets at the beginning, and the text after them.
fn enclosed(text: &str, open: char, close: char) -> (Option<&str>, &str) {
    if !text.starts_with(open) {
        return (None, text);
    }
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == open) - i32::from(c == close);
        if depth == 0 {
            return (Some(&text[open.len_utf8()..at]), &text[at + close.len_utf8()..]);
        }
    }
    panic!("`{text}` is not closed");
}

/// Split at the commas that do not stand in brackets.
fn listed(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let comma = |c: char| {
        depth += i32::from("([".contains(c)) - i32::from(")]".contains(c));
        depth == 0 && c == ','
    };
    text.split(comma).collect()
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, message, source, causes) = match self {
            Self::OfRow(row) => return write!(f, "=row {row}"),
            Self::Parts { kind, message, source, causes } => (kind, message, source, causes),
        };
        write!(f, "{kind}({})", message.as_deref().unwrap_or("…"))?;
        match source {
            Some(Source::Handler(handler)) => write!(f, "@{handler}")?,
            Some(Source::Text(text)) => write!(f, "@\"{text}\"")?,
            None => {}
        }
        let causes = causes.as_deref().unwrap_or_default();
        if !causes.is_empty() {
            let causes: Vec<_> = causes.iter().map(Self::to_string).collect();
            write!(f, "[{}]", causes.join(","))?;
        }
        Ok(())
    }
}
