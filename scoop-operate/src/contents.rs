//! Stored values as operators see them: redacted, and only up to a size.

use std::collections::BTreeSet;
use std::fmt;

use scoop_runtime::internal::FetchExt as _;
use serde::Serialize;
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;

use crate::OperateError;
use crate::database::Database;
use crate::statements::REDACTION_LIST;

/// The maximum size of a value that is shown, in bytes: as it is stored, and as text.
pub(crate) const CONTENT_BYTES_MAX: usize = 64 * 1024;

/// A stored value, as operators see it. Display it as indented JSON.
///
/// A field that a program [redacts](scoop_core::Message::REDACTED) has the text `[redacted]` in place of its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// The value.
    #[serde(rename = "value")]
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

/// A stored value.
#[derive(Debug)]
pub(crate) enum StoredContent {
    Read(Value),
    TooLarge { bytes: u64 },
    Unreadable(String),
}

impl StoredContent {
    /// The value, unless it is too large.
    pub(crate) fn of(value: Value) -> Self {
        let bytes = value.to_string().len();
        if bytes <= CONTENT_BYTES_MAX { Self::Read(value) } else { Self::TooLarge { bytes: bytes as u64 } }
    }

    /// The value of a row; `None` if it is null.
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Option<Self>> {
        let Some(bytes) = row.try_get::<Option<i32>, _>("bytes")? else { return Ok(None) };
        Ok(Some(match row.try_get::<Option<Json<Value>>, _>("value") {
            Ok(Some(Json(value))) => Self::Read(value),
            Ok(None) => Self::TooLarge { bytes: u64::from(bytes.unsigned_abs()) },
            Err(error) => Self::Unreadable(error.to_string()),
        }))
    }
}

/// The value in this column; `None` if it is null.
pub(crate) fn content(row: &PgRow, column: &str) -> Option<StoredContent> {
    match row.try_get::<Option<Value>, _>(column) {
        Ok(value) => value.map(StoredContent::of),
        Err(error) => Some(StoredContent::Unreadable(error.to_string())),
    }
}

/// What stands in the place of a redacted value.
const REDACTED: &str = "[redacted]";

/// The stored names of the fields that are redacted.
#[derive(Debug, Default)]
pub(crate) struct Redaction(BTreeSet<String>);

impl Redaction {
    /// The value as operators see it.
    pub(crate) fn shown(&self, stored: StoredContent) -> Content {
        match stored {
            StoredContent::Read(mut value) => {
                self.apply(&mut value);
                Content::Shown(value)
            }
            StoredContent::TooLarge { bytes } => {
                Content::LeftOut(format!("too large to be shown: {bytes} bytes"))
            }
            StoredContent::Unreadable(why) => Content::LeftOut(format!("not readable: {why}")),
        }
    }

    /// Replaces the values of redacted fields, at any depth.
    fn apply(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if self.0.contains(name) {
                        *value = REDACTED.into();
                    } else {
                        self.apply(value);
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.apply(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

impl Database {
    /// The fields that are redacted.
    pub(crate) async fn redaction(&self) -> Result<Redaction, OperateError> {
        let doing = "redacted fields were looked up";
        self.read_retrying(doing, |_| self.redacted_fields()).await.map(Redaction)
    }

    async fn redacted_fields(&self) -> sqlx::Result<BTreeSet<String>> {
        let rows = sqlx::query(self.text(REDACTION_LIST)).all(self.sessions()).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redacted_field_is_hidden_at_any_depth_and_no_other_is() {
        let redaction = Redaction(["card".to_owned(), "cvc".to_owned()].into());
        let value = json!({
            "card": {"number": 4111}, "cards": 1, "items": [{"cvc": 123, "sku": "card"}], "cvc": null
        });
        let shown = json!({
            "card": "[redacted]", "cards": 1, "items": [{"cvc": "[redacted]", "sku": "card"}], "cvc": "[redacted]"
        });
        assert_eq!(redaction.shown(StoredContent::Read(value)), Content::Shown(shown));
    }

    #[test]
    fn large_value_is_left_out() {
        let large = StoredContent::of(json!("x".repeat(CONTENT_BYTES_MAX)));
        let shown = Redaction::default().shown(large).to_string();
        assert_eq!(shown, "(too large to be shown: 65538 bytes)");
    }
}
