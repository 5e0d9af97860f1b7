//! The fields by which the runs of messages are found: which a type has, and their values in a message.

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::timestamp::representable;

/// The maximum number of fields by which a message is found.
pub const FIND_FIELDS_MAX: usize = 8;

/// The maximum length of the name of such a field in bytes.
pub const FIND_NAME_BYTES_MAX: usize = 63;

/// The maximum length of its text in bytes.
pub const FIND_TEXT_BYTES_MAX: usize = 256;

/// A field by which the runs of a message are found, as `#[message(find_by(order))]` declares it.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{FindField, FindKind, Message};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)] // and `Message`, which writes for `#[message(find_by(order))]`:
/// struct OrderPlaced {
///     order: u32,
/// }
///
/// impl Message for OrderPlaced {
///     const TOPIC: &'static str = "orders.placed";
///     type Reply = ();
///     const FIND_BY: &'static [FindField] = &[FindField { name: "order", kind: FindKind::Number }];
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindField {
    /// The name of the field in the stored message: 1 to 63 bytes.
    pub name: &'static str,
    /// How its values are compared.
    pub kind: FindKind,
}

/// How the values of a field are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindKind {
    /// As texts, byte by byte.
    Text,
    /// As numbers: 7 is 7.0.
    Number,
    /// As instants. The message has one as text of RFC 3339, or as `SystemTime` is written.
    Time,
}

impl FindKind {
    /// Its stored name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "number",
            Self::Time => "time",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Text, Self::Number, Self::Time].into_iter().find(|kind| kind.name() == name)
    }

    /// The value as it is stored and compared: a text or a number. An instant is a text in UTC.
    fn stored(self, value: &Value) -> Result<Value, String> {
        let found = match (self, value) {
            (Self::Text, Value::String(_)) | (Self::Number, Value::Number(_)) => value.clone(),
            (Self::Time, value) => match instant(value).and_then(find_time) {
                Some(time) => Value::String(time),
                None => {
                    let rfc = "`#[serde(with = \"time::serde::rfc3339\")]`";
                    return Err(format!(
                        "it is no time of RFC 3339 in the message: write {rfc} on it, or the like"
                    ));
                }
            },
            (_, other) => {
                return Err(format!("it is to be a {}, and is {} in the message", self.name(), word(other)));
            }
        };
        match &found {
            Value::String(text) if text.len() > FIND_TEXT_BYTES_MAX => {
                Err(format!("its text has {} bytes, more than {FIND_TEXT_BYTES_MAX}", text.len()))
            }
            Value::Number(number) if number.to_string().len() > FIND_TEXT_BYTES_MAX => {
                Err(format!("its number has more than {FIND_TEXT_BYTES_MAX} digits"))
            }
            _ => Ok(found),
        }
    }
}

/// A value by which the runs of a message are found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundBy {
    /// The name of the field.
    pub name: String,
    /// Its number among the fields of the message, from 0 on.
    pub position: usize,
    /// A text or a number.
    pub value: Value,
}

/// A field whose value cannot be stored for finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitField {
    /// Its name.
    pub field: String,
    /// The reason.
    pub why: String,
}

/// The values of these fields in a stored message. A field that is null or missing has none.
///
/// # Errors
///
/// If a value is of another kind, or too long.
pub fn found_by<'a>(
    fields: impl IntoIterator<Item = (&'a str, FindKind)>,
    payload: &Value,
) -> Result<Vec<FoundBy>, UnfitField> {
    let mut found = vec![];
    for (position, (name, kind)) in fields.into_iter().enumerate() {
        let Some(value) = payload.get(name).filter(|value| !value.is_null()) else { continue };
        let unfit = |why| UnfitField { field: name.to_owned(), why };
        if position >= FIND_FIELDS_MAX {
            return Err(unfit(format!("a message is found by {FIND_FIELDS_MAX} fields at most")));
        }
        if !(1..=FIND_NAME_BYTES_MAX).contains(&name.len()) {
            return Err(unfit(format!("its name does not have 1 to {FIND_NAME_BYTES_MAX} bytes")));
        }
        let value = kind.stored(value).map_err(unfit)?;
        found.push(FoundBy { name: name.to_owned(), position, value });
    }
    Ok(found)
}

/// An instant as it is compared: in UTC, without zeros at the end; `None` outside the years 1 to 9999.
pub fn find_time(at: OffsetDateTime) -> Option<String> {
    representable(at)?.format(&Rfc3339).ok()
}

/// The instant that a message has: as text, or as the standard library writes it.
fn instant(value: &Value) -> Option<OffsetDateTime> {
    if let Some(text) = value.as_str() {
        return OffsetDateTime::parse(text, &Rfc3339).ok();
    }
    let seconds = value.get("secs_since_epoch")?.as_i64()?;
    let nanos = value.get("nanos_since_epoch")?.as_i64()?;
    OffsetDateTime::from_unix_timestamp(seconds).ok()?.checked_add(time::Duration::nanoseconds(nanos))
}

fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FIELDS: [(&str, FindKind); 3] =
        [("order", FindKind::Number), ("customer", FindKind::Text), ("at", FindKind::Time)];

    fn values(payload: &Value) -> Result<Vec<(String, Value)>, String> {
        let found = found_by(FIELDS, payload).map_err(|unfit| format!("{}: {}", unfit.field, unfit.why))?;
        Ok(found.into_iter().map(|found| (found.name, found.value)).collect())
    }

    #[test]
    fn field_without_a_value_is_left_out() {
        assert_eq!(values(&json!({ "order": null, "other": 7 })), Ok(vec![]));
        assert_eq!(values(&json!("order")), Ok(vec![]));
        let found = found_by(FIELDS, &json!({ "customer": "ada" })).unwrap();
        assert_eq!(found, [FoundBy { name: "customer".into(), position: 1, value: json!("ada") }]);
    }

    #[test]
    fn instants_are_the_same_in_all_notations() {
        let since_epoch = json!({ "secs_since_epoch": 1_782_390_697_u64, "nanos_since_epoch": 500_000_000 });
        for at in [json!("2026-06-25T12:31:37.5Z"), json!("2026-06-25T14:31:37.500+02:00"), since_epoch] {
            let stored = values(&json!({ "at": at })).unwrap();
            assert_eq!(stored, [("at".to_owned(), json!("2026-06-25T12:31:37.5Z"))]);
        }
        assert!(
            values(&json!({ "at": "yesterday" })).unwrap_err().starts_with("at: it is no time of RFC 3339")
        );
    }

    #[test]
    fn value_of_another_kind_is_refused_by_name() {
        let other = values(&json!({ "order": "7" })).unwrap_err();
        assert_eq!(other, "order: it is to be a number, and is a text in the message");
        let other = values(&json!({ "customer": [7] })).unwrap_err();
        assert_eq!(other, "customer: it is to be a text, and is a list in the message");
    }

    #[test]
    fn text_that_is_too_long_is_refused_by_name() {
        assert!(values(&json!({ "customer": "a".repeat(FIND_TEXT_BYTES_MAX) })).is_ok());
        let long = values(&json!({ "customer": "ü".repeat(FIND_TEXT_BYTES_MAX / 2 + 1) })).unwrap_err();
        assert_eq!(long, "customer: its text has 258 bytes, more than 256");
    }

    #[test]
    fn ninth_field_is_refused() {
        let names: Vec<_> = (0..=FIND_FIELDS_MAX).map(|nth| format!("f{nth}")).collect();
        let payload = Value::Object(names.iter().map(|name| (name.clone(), json!(1))).collect());
        let fields = names.iter().map(|name| (&**name, FindKind::Number));
        assert_eq!(found_by(fields, &payload).unwrap_err().field, "f8");
    }
}
