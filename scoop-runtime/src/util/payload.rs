//! Checks of values that are stored as JSON: messages, and the values that steps return.

use scoop_core::{ContextError, Error, Json, Message, TOPIC_BYTES_MAX};
use serde_json::Value;

use crate::RuntimeError;
use crate::error::ErrorKind;

/// The default maximum size of a payload, in bytes of JSON.
pub(crate) const BYTES_MAX_DEFAULT: usize = 1024 * 1024;

/// The default maximum size of a context, in bytes of JSON.
pub(crate) const CONTEXT_BYTES_MAX_DEFAULT: usize = 64 * 1024;

/// The maximum nesting of a value. Readers of JSON have a limit, `serde_json` one of 128, and an unreadable value
/// would leave a run stuck.
const DEPTH_MAX: usize = 100;

/// A value of a step that cannot be written as JSON, such as one with a float that is not finite.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be stored: {why}")]
pub(crate) struct Unstorable {
    what: String,
    why: serde_json::Error,
}

/// A step of a saga, for errors.
#[derive(Clone, Copy)]
pub(crate) struct StepName<'a> {
    pub(crate) saga: &'a str,
    pub(crate) step: &'a str,
}

impl Unstorable {
    /// The value that a step returned.
    pub(crate) fn output(StepName { saga, step }: StepName<'_>, why: serde_json::Error) -> Self {
        Self { what: format!("what step `{step}` of saga `{saga}` returned"), why }
    }

    /// The message with which a step continues as new.
    pub(crate) fn as_new(StepName { saga, step }: StepName<'_>, why: serde_json::Error) -> Self {
        Self { what: format!("the message with which step `{step}` of saga `{saga}` continues as new"), why }
    }

    /// The reply of a step.
    pub(crate) fn reply(StepName { saga, step }: StepName<'_>, why: serde_json::Error) -> Self {
        Self { what: format!("the reply of step `{step}` of saga `{saga}`"), why }
    }

    /// Converts the error of a launch, or of a change of the context, to an error of the step.
    pub(crate) fn in_step(StepName { saga, step }: StepName<'_>, error: RuntimeError) -> Error {
        let (what, why) = match error.into_kind() {
            ErrorKind::Payload { topic, source } => (format!("a message for topic `{topic}`"), source),
            ErrorKind::Context(ContextError::Unwritable { key, source }) => {
                (format!("the value for the key `{key}` of the context"), source)
            }
            other => return RuntimeError::from(other).into(),
        };
        Self { what: format!("{what}, from step `{step}` of saga `{saga}`,"), why }.into()
    }
}

/// Converts the message to JSON. The topic is checked for types without the derive, which checks it, too.
pub(crate) fn of_message<M: Message>(message: &M) -> Result<Value, RuntimeError> {
    check_topic(M::TOPIC, std::any::type_name::<M>())?;
    Json::to_value(message)
        .map_err(|source| RuntimeError::from(ErrorKind::Payload { topic: M::TOPIC, source }))
}

/// Checks that a message can have this topic. `message` is its type, or what launches it without one.
pub(crate) fn check_topic(topic: &str, message: &'static str) -> Result<(), RuntimeError> {
    if !(1..=TOPIC_BYTES_MAX).contains(&topic.len()) || topic.contains('\0') {
        return Err(RuntimeError::from(ErrorKind::Topic { topic: topic.to_owned(), message }));
    }
    Ok(())
}

/// Checks that PostgreSQL can store the value, that it is not too large, and that it can be read back. `what` names
/// it in the error.
pub fn storable(value: Value, limit: usize, what: impl Fn() -> String) -> Result<Value, RuntimeError> {
    measured(value, limit, what).map(|(value, _)| value)
}

/// As [`storable`]; also returns the number of bytes.
pub(crate) fn measured(
    value: Value,
    limit: usize,
    what: impl Fn() -> String,
) -> Result<(Value, usize), RuntimeError> {
    let text = value.to_string();
    if text.len() > limit {
        return Err(RuntimeError::from(ErrorKind::TooLarge { what: what(), bytes: text.len(), limit }));
    }
    // JSON contains a NUL only as this escape, so the value is searched only if the text has it.
    if text.contains("\\u0000") && has_nul(&value) {
        return Err(RuntimeError::from(ErrorKind::NulCharacter { what: what() }));
    }
    // Few values have so many brackets, so the depth is computed only for these.
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).take(DEPTH_MAX + 1).count() > DEPTH_MAX {
        let depth = depth(&value);
        if depth > DEPTH_MAX {
            return Err(RuntimeError::from(ErrorKind::NestingTooDeep {
                what: what(),
                depth,
                limit: DEPTH_MAX,
            }));
        }
    }
    Ok((value, text.len()))
}

/// How many bytes the value has as JSON, about: as if no character was escaped.
pub(crate) fn bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(values) => values.iter().map(|value| bytes(value) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| key.len() + bytes(value) + 4).sum::<usize>() + 2
        }
    }
}

/// Whether a number in the value is farther from zero than `limit`.
pub(crate) fn has_number_beyond(value: &Value, limit: f64) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number.abs() > limit),
        Value::Array(values) => values.iter().any(|value| has_number_beyond(value, limit)),
        Value::Object(fields) => fields.values().any(|value| has_number_beyond(value, limit)),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(values) => values.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 0,
    };
    1 + below.unwrap_or(0)
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn topic_that_cannot_be_stored_is_refused_by_name() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Far;
        impl Message for Far {
            const TOPIC: &'static str =
                "a-topic-that-is-longer-than-the-sixty-three-bytes-of-a-channel-s-name";
            type Reply = ();
        }
        let error = of_message(&Far).unwrap_err().to_string();
        assert!(error.contains("Far` cannot be published on topic \"a-topic-that"), "{error}");
    }

    #[test]
    fn value_that_postgres_cannot_store_is_refused_by_name() {
        let check = |value, limit| storable(value, limit, || "a thing".into()).map_err(|e| e.to_string());
        assert!(check(json!({"a": ["b\u{0}"]}), 100).unwrap_err().starts_with("a thing contains a NUL"));
        assert!(check(json!({"a\u{0}": 1}), 100).is_err());
        assert!(check(json!("0123456789"), 5).unwrap_err().contains("has 12 bytes"));
        assert_eq!(check(json!("\\u0000"), 100), Ok(json!("\\u0000")), "an escaped escape is only text");
    }

    #[test]
    fn value_that_cannot_be_read_back_is_refused_by_name() {
        let nested = |depth| (0..depth).fold(json!(1), |inner, _| json!({ "in": inner }));
        let check = |value| storable(value, 10_000, || "a thing".into()).map_err(|e| e.to_string());
        assert_eq!(
            check(nested(101)).unwrap_err(),
            "a thing is nested 101 levels deep; 100 can be read back"
        );
        let deepest = check(nested(100)).unwrap();
        let stored = json!({ "step": deepest }).to_string();
        assert!(serde_json::from_str::<Value>(&stored).is_ok(), "the outputs of steps are one level deeper");
        assert!(check(json!(vec![json!([]); 1_000])).is_ok(), "wide is not deep");
    }
}

#[cfg(test)]
mod fuzz {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;

    const LIMIT: usize = 200;

    /// Values, some of them with a NUL, deep or wide.
    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![8 => "[a-z\\\\\"{\\[]{0,5}", 1 => Just("a\0".to_owned()), 1 => Just("\\u0000".to_owned())];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        let tree = leaf.prop_recursive(4, 24, 4, move |inner| {
            let list = proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
            let fields = proptest::collection::vec((text.clone(), inner), 0..4);
            prop_oneof![list, fields.prop_map(|fields| Value::from(Map::from_iter(fields)))]
        });
        let levels = prop_oneof![4 => Just(0usize), 1 => 90..110usize];
        (tree, levels, any::<bool>()).prop_map(|(inner, levels, list)| {
            (0..levels).fold(inner, |inner, _| if list { json!([inner]) } else { json!({ "": inner }) })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn accepted_value_can_be_read_back_and_refused_value_cannot(value in value()) {
            let text = value.to_string();
            let read = serde_json::from_str::<Value>(&text).ok();
            match measured(value.clone(), LIMIT, || "a thing".into()).map_err(RuntimeError::into_kind) {
                Ok((taken, bytes)) => {
                    prop_assert_eq!(bytes, text.len());
                    prop_assert_eq!(&taken, &value);
                    prop_assert_eq!(read.as_ref(), Some(&value));
                    prop_assert!(bytes <= LIMIT && !has_nul(&value));
                }
                Err(ErrorKind::TooLarge { bytes, .. }) => prop_assert!(bytes == text.len() && bytes > LIMIT),
                Err(ErrorKind::NulCharacter { .. }) => prop_assert!(text.replace("\\\\", "").contains("\\u0000")),
                Err(ErrorKind::NestingTooDeep { depth, limit, .. }) => {
                    prop_assert!(depth > limit && read.is_some() == (depth < 128), "{depth}");
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
