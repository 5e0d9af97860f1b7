//! What can be stored as JSON: messages, and what steps return.

use scoop_core::Message;
use serde_json::Value;

use crate::RuntimeError;

/// The largest payload, in bytes of JSON, unless the user says otherwise.
pub(crate) const BYTES_MAX_DEFAULT: usize = 1024 * 1024;

/// The message as JSON.
pub(crate) fn of_message<M: Message>(message: &M) -> Result<Value, RuntimeError> {
    serde_json::to_value(message).map_err(|source| RuntimeError::Payload { topic: M::TOPIC, source })
}

/// The value, if PostgreSQL can store it and it is not too large. `what` names it in the error.
pub(crate) fn storable(value: Value, limit: usize, what: impl Fn() -> String) -> Result<Value, RuntimeError> {
    let text = value.to_string();
    if text.len() > limit {
        return Err(RuntimeError::TooLarge { what: what(), bytes: text.len(), limit });
    }
    // The escape is the only way for a NUL to stand in JSON; only then is a closer look needed.
    if text.contains("\\u0000") && has_nul(&value) {
        return Err(RuntimeError::Nul { what: what() });
    }
    Ok(value)
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
    fn what_postgres_cannot_store_is_refused_by_name() {
        let check = |value, limit| storable(value, limit, || "a thing".into()).map_err(|e| e.to_string());
        assert!(check(json!({"a": ["b\u{0}"]}), 100).unwrap_err().starts_with("a thing contains a NUL"));
        assert!(check(json!({"a\u{0}": 1}), 100).is_err());
        assert!(check(json!("0123456789"), 5).unwrap_err().contains("has 12 bytes"));
        assert_eq!(check(json!("\\u0000"), 100), Ok(json!("\\u0000")), "an escaped escape is only text");
    }
}
