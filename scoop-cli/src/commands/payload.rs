//! The JSON of a message or a signal, from an argument or standard input.

use std::io::Read;

use serde_json::Value;

use crate::fault::Fault;

/// Reads the JSON: the text, or standard input if the text is `-`.
pub(super) fn read(text: &str) -> Result<Value, Fault> {
    let mut input = String::new();
    let json = if text == "-" {
        std::io::stdin().read_to_string(&mut input)?;
        &input
    } else {
        text
    };
    serde_json::from_str(json).map_err(|error| Fault::Usage(format!("the payload is no JSON: {error}")))
}
