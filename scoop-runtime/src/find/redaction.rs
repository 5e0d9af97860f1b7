//! Redaction of stored values: fields that no operator sees.

use std::collections::BTreeSet;

use serde_json::Value;

use super::contents::{Content, StoredContent};

/// What stands in the place of a redacted value.
const REDACTED: &str = "[redacted]";

/// The stored names of the fields that are redacted.
#[derive(Debug, Default)]
pub(crate) struct Redaction(pub(crate) BTreeSet<String>);

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
}
