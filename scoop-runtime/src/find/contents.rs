//! What operators see of messages, values and entities: redacted, and only up to a size.

use std::fmt;
use std::time::SystemTime;

use scoop_core::read_output_name;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::redaction::Redaction;
use crate::util::format::system_time;
use crate::{RunId, RunSummary};

/// The maximum size of a value that is shown, in bytes: as it is stored, and as text.
pub(crate) const CONTENT_BYTES_MAX: usize = 64 * 1024;

/// A stored value, as operators see it. Display it as indented JSON.
///
/// A field that a program [redacts](scoop_core::Message::REDACTED) has the text `[redacted]` in place of its value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Content {
    /// The value.
    Shown(Value),
    /// The value is left out, for this reason.
    LeftOut(String),
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shown(value) => write!(f, "{value:#}"),
            Self::LeftOut(reason) => write!(f, "({reason})"),
        }
    }
}

/// The messages, values and context of a run: the result of [`Scoop::contents`](crate::Scoop::contents).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunContents {
    /// The message, of a run that went on anew that of its newest execution; `None` if it is missing.
    pub message: Option<Content>,
    /// The cooperation context in the newest event of the run, if it has one.
    pub context: Option<Content>,
    /// The outputs of its steps and its replies, in the order of their stored names.
    pub values: Vec<RunValue>,
    /// Whether `values` has all of them.
    pub is_complete: bool,
}

/// An output of a step, or a reply.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunValue {
    /// The step that returned it, by its stored name; `None` for a reply.
    pub step: Option<String>,
    /// How many steps the run had completed before that one.
    pub position: Option<u32>,
    /// The stored name.
    pub name: String,
    /// The value.
    pub value: Content,
}

/// An entity as operators see it: the result of [`Scoop::entity_contents`](crate::Scoop::entity_contents).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EntityContents {
    /// The number of its events.
    pub version: u64,
    /// The state after these. `None` if it has none, or if it is in a table of the program.
    pub state: Option<Content>,
    /// A page of its events, oldest first.
    pub events: Vec<EntityEventContents>,
    /// The version after which the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// An event of an entity, as operators see it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EntityEventContents {
    /// The version of the entity after it.
    pub version: u64,
    /// The time at which it was recorded, by the clock of the database.
    pub at: SystemTime,
    /// Its topic; `None` if its message is missing.
    pub topic: Option<String>,
    /// The payload of its message.
    pub payload: Option<Content>,
    /// Its message.
    pub message_id: Uuid,
    /// The run of the command.
    pub command: RunId,
}

/// A run, by what its contents are stored under.
#[derive(Clone, Debug)]
pub(crate) struct ContentsKey {
    pub(crate) run: Uuid,
    /// The message of its first execution.
    pub(crate) message: Uuid,
    pub(crate) handler: String,
}

impl From<&RunSummary> for ContentsKey {
    fn from(run: &RunSummary) -> Self {
        Self { run: run.run.uuid(), message: run.message_id, handler: run.handler.clone() }
    }
}

/// The contents of a run as they are stored. A value that is too large is the number of its bytes.
#[derive(Debug, Default)]
pub(crate) struct StoredContents {
    pub(crate) message: Option<StoredContent>,
    pub(crate) context: Option<StoredContent>,
    pub(crate) values: Vec<(String, StoredContent)>,
}

/// A stored value.
#[derive(Debug)]
pub(crate) enum StoredContent {
    Read(Value),
    TooLarge { bytes: u64 },
    Unreadable(String),
}

/// An entity as it is stored.
#[derive(Debug, Default)]
pub(crate) struct EntityRow {
    pub(crate) version: i64,
    pub(crate) state: Option<StoredContent>,
}

/// An event of an entity as it is stored; without a topic and a payload if its message is missing.
#[derive(Debug)]
pub(crate) struct EntityEventRow {
    pub(crate) version: i64,
    pub(crate) at: OffsetDateTime,
    pub(crate) message: Uuid,
    pub(crate) run: Uuid,
    pub(crate) topic: Option<String>,
    pub(crate) payload: Option<StoredContent>,
}

impl EntityEventContents {
    pub(crate) fn new(row: EntityEventRow, redaction: &Redaction) -> Self {
        let EntityEventRow { version, at, message, run, topic, payload } = row;
        Self {
            version: u64::try_from(version).unwrap_or(0),
            at: system_time(at),
            topic,
            payload: payload.map(|payload| redaction.shown(payload)),
            message_id: message,
            command: run.into(),
        }
    }
}

impl StoredContent {
    /// The value, unless it is too large.
    pub(crate) fn of(value: Value) -> Self {
        let bytes = value.to_string().len();
        if bytes <= CONTENT_BYTES_MAX { Self::Read(value) } else { Self::TooLarge { bytes: bytes as u64 } }
    }
}

impl RunContents {
    /// Up to `values_max` values; there are more if one more was read.
    pub(crate) fn new(stored: StoredContents, redaction: &Redaction, values_max: usize) -> Self {
        let StoredContents { message, context, values } = stored;
        let is_complete = values.len() <= values_max;
        let values = values.into_iter().take(values_max).map(|(name, value)| {
            let (step, position) = read_output_name(&name).unzip();
            RunValue { step: step.map(str::to_owned), position, value: redaction.shown(value), name }
        });
        let is_empty = |value: &StoredContent| matches!(value, StoredContent::Read(Value::Object(all)) if all.is_empty());
        Self {
            message: message.map(|message| redaction.shown(message)),
            context: context.filter(|context| !is_empty(context)).map(|context| redaction.shown(context)),
            values: values.collect(),
            is_complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_outputs_or_replies_and_their_number_is_limited() {
        let value = |name: &str| (name.to_owned(), StoredContent::of(json!(1)));
        let stored = || StoredContents {
            values: vec![value("Output of pay#0000000002"), value("Receipt")],
            context: Some(StoredContent::of(json!({}))),
            ..StoredContents::default()
        };
        let all = RunContents::new(stored(), &Redaction::default(), 2);
        assert!(all.is_complete && all.context.is_none());
        assert_eq!((all.values[0].step.as_deref(), all.values[0].position), (Some("pay"), Some(2)));
        assert_eq!((all.values[1].step.as_deref(), &*all.values[1].name), (None, "Receipt"));
        assert!(!RunContents::new(stored(), &Redaction::default(), 1).is_complete);
    }

    #[test]
    fn large_value_is_left_out() {
        let large = StoredContent::of(json!("x".repeat(CONTENT_BYTES_MAX)));
        let shown = Redaction::default().shown(large).to_string();
        assert_eq!(shown, "(too large to be shown: 65538 bytes)");
    }
}
