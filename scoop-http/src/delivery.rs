//! A verified delivery.

use axum::body::Bytes;
use axum::http::HeaderMap;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::Refusal;

/// A delivery whose signature is right: a [`Verifier`](crate::Verifier) makes it.
///
/// The signature covers the body and, by Standard Webhooks, the id. All other headers are as the request has them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The id that the sender gave it, the same in each attempt: `webhook-id`, `X-GitHub-Delivery`, or the `id` of an event of
    /// Stripe.
    pub id: String,
    /// The key under which it is launched once: the [source](crate::Verifier::source), a space, and the id.
    /// [`Scoop::find_by_key`](scoop_runtime::Scoop::find_by_key) finds its hierarchy.
    pub unique_key: String,
    /// What happened: `X-GitHub-Event`, or the `type` in the body. Empty if there is none.
    pub kind: String,
    /// The headers of the request.
    pub headers: HeaderMap,
    /// The body, as it came.
    pub body: Bytes,
}

impl Delivery {
    /// Decodes the body.
    ///
    /// # Errors
    ///
    /// Status 400 if it is not JSON of this type; the text names the field.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Refusal> {
        decode_slice(&self.body)
    }
}

/// What the bodies of several senders have at the top, if these are texts.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Head {
    pub(crate) id: Value,
    #[serde(rename = "type")]
    pub(crate) kind: Value,
}

pub(crate) fn decode_slice<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Refusal> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = decode("body", &mut reader)?;
    reader.end().map_err(|error| Refusal::invalid(format!("body: {error}")))?;
    Ok(value)
}

/// Decodes a value. The error names it, and the field.
pub(crate) fn decode<'a, T: Deserialize<'a>>(
    what: &str,
    reader: impl Deserializer<'a>,
) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let (path, why) = (error.path().to_string(), error.inner());
        Refusal::invalid(match &*path {
            "." => format!("{what}: {why}"),
            _ => format!("{what}, field `{path}`: {why}"),
        })
    })
}
