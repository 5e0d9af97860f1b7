//! Messages as CloudEvents.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use scoop_core::{Json, Message};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Refusal;
use crate::delivery::{decode, decode_slice};

/// What the HTTP binding encodes, besides all that is not ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
const JSON: &str = "application/json";
/// What an event has besides its attributes, or in fields of its own.
const FIELDS: [&str; 5] = ["specversion", "id", "source", "type", "data"];

/// A message as an event of [CloudEvents] 1.0: its type is the topic, its data the payload, its id a unique key.
///
/// It is an event in structured mode as [JSON]: `serde_json::to_vec(&event)`, with the content type [`CloudEvent::JSON`]. In binary
/// mode its attributes are [headers of HTTP](Self::to_binary). Batches, and data that is not JSON, are refused.
///
/// Reading an event verifies nothing: do that before, by a [`Verifier`](crate::Verifier) for instance. The signature of a webhook covers
/// the body alone, so the attributes of an event in binary mode are as safe as its connection.
///
/// ```
/// use scoop::prelude::*;
/// use scoop_http::CloudEvent;
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[message(topic = "orders.placed")]
/// struct OrderPlaced {
///     order: u64,
/// }
///
/// let event = CloudEvent::new("/shop", "order 7", &OrderPlaced { order: 7 }).unwrap();
/// let json = serde_json::to_string(&event).unwrap();
/// let read = CloudEvent::from_json(json.as_bytes()).unwrap();
/// assert_eq!(read.message::<OrderPlaced>().unwrap().order, 7);
/// assert_eq!(event.to_binary().unwrap().0["ce-id"], "order%207");
/// ```
///
/// [CloudEvents]: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
/// [JSON]: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudEvent {
    specversion: String,
    /// The id, unique for its source.
    pub id: String,
    /// Where it happened: a reference by URI.
    pub source: String,
    /// The type: the topic of the message.
    #[serde(rename = "type")]
    pub kind: String,
    /// The payload.
    #[serde(default)]
    pub data: Value,
    /// All other attributes: `time`, `subject`, and extensions.
    #[serde(flatten)]
    pub attributes: Map<String, Value>,
}

impl CloudEvent {
    /// The content type of an event in structured mode.
    pub const JSON: &str = "application/cloudevents+json";

    /// The event of a message. `source` and `id` together identify it, so an event that is sent again has the same.
    ///
    /// # Errors
    ///
    /// If JSON cannot express the message.
    pub fn new<M: Message>(
        source: impl Into<String>,
        id: impl Into<String>,
        message: &M,
    ) -> serde_json::Result<Self> {
        Ok(Self {
            specversion: "1.0".into(),
            id: id.into(),
            source: source.into(),
            kind: M::TOPIC.into(),
            data: Json::to_value(message)?,
            attributes: Map::from_iter([("datacontenttype".into(), JSON.into())]),
        })
    }

    /// Reads an event in structured mode.
    ///
    /// # Errors
    ///
    /// Status 400 if it is none, or its data is not JSON; the text names the field.
    pub fn from_json(json: &[u8]) -> Result<Self, Refusal> {
        decode_slice::<Self>(json)?.checked()
    }

    /// Reads an event of an HTTP request, in the mode that its `Content-Type` names.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json).
    pub fn from_http(headers: &HeaderMap, body: &[u8]) -> Result<Self, Refusal> {
        let content_type = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
        match content_type.and_then(|it| it.strip_prefix("application/cloudevents")) {
            Some(format) if format.starts_with("+json") => Self::from_json(body),
            Some(_) => Err(Refusal::invalid(format!("header `content-type`: `{}` is expected", Self::JSON))),
            None => Self::from_binary(headers, content_type, body),
        }
    }

    fn from_binary(headers: &HeaderMap, content_type: Option<&str>, body: &[u8]) -> Result<Self, Refusal> {
        let mut fields = Map::new();
        for (name, value) in headers {
            let Some(attribute) = name.as_str().strip_prefix("ce-") else { continue };
            let value = decoded(value).ok_or_else(|| {
                Refusal::invalid(format!("header `{name}`: it is not UTF-8 in percent-encoding"))
            })?;
            fields.insert(attribute.into(), value.into());
        }
        fields.insert("datacontenttype".into(), content_type.into());
        fields.insert("data".into(), if body.is_empty() { Value::Null } else { decode_slice(body)? });
        decode::<Self>("event", Value::Object(fields))?.checked()
    }

    /// The event in [binary mode](https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md): headers
    /// and body of a request.
    ///
    /// # Errors
    ///
    /// If an attribute has a name or a value that the specification does not allow.
    pub fn to_binary(&self) -> Result<(HeaderMap, Vec<u8>), Refusal> {
        self.check()?;
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(JSON))]);
        let fields = serde_json::to_value(self).map_err(|error| Refusal::invalid(error.to_string()))?;
        for (name, value) in fields.as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let (header, text) = match &**name {
                "data" => continue,
                _ if value.is_null() => continue,
                "datacontenttype" => (CONTENT_TYPE.to_string(), text),
                _ => (format!("ce-{name}"), utf8_percent_encode(&text, ENCODED).to_string()),
            };
            let (Ok(header), Ok(text)) = (HeaderName::try_from(header), HeaderValue::try_from(text)) else {
                return Err(refused(name, "no header can have it"));
            };
            headers.insert(header, text);
        }
        Ok((headers, self.data.to_string().into_bytes()))
    }

    /// The message.
    ///
    /// # Errors
    ///
    /// Status 400 if the type is another topic, or the data does not decode; the text names the field.
    pub fn message<M: Message>(&self) -> Result<M, Refusal> {
        if self.kind != M::TOPIC {
            return Err(refused("type", &format!("`{}` is expected", M::TOPIC)));
        }
        decode("data", &self.data).map(|Json(message)| message)
    }

    /// The key for [`Launch::unique`](scoop_runtime::Launch::unique): the source, a space, and the id.
    pub fn unique_key(&self) -> String {
        format!("{} {}", self.source, self.id)
    }

    fn checked(mut self) -> Result<Self, Refusal> {
        self.attributes.retain(|_, value| !value.is_null());
        self.check().map(|()| self)
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.specversion != "1.0" {
            return Err(refused("specversion", "`1.0` is expected"));
        }
        for (name, value) in [("id", &self.id), ("source", &self.source), ("type", &self.kind)] {
            if value.is_empty() {
                return Err(refused(name, "it is empty"));
            }
        }
        // With one, the unique key would not show where it ends.
        if self.source.contains(' ') {
            return Err(refused("source", "a reference by URI has no space"));
        }
        for (name, value) in &self.attributes {
            let is_name = name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
            if !is_name || FIELDS.contains(&&**name) || value.is_array() || value.is_object() {
                return Err(refused(name, "no attribute has such a name, or such a value"));
            }
        }
        let media_type =
            self.attributes.get("datacontenttype").map_or(JSON, |it| it.as_str().unwrap_or_default());
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        match media_type.ends_with("/json") || media_type.ends_with("+json") {
            true => Ok(()),
            false => Err(refused("datacontenttype", "the payload of a message is JSON")),
        }
    }
}

fn refused(attribute: &str, why: &str) -> Refusal {
    Refusal::invalid(format!("attribute `{attribute}` of the event: {why}"))
}

/// The value of a header: quotes of older versions are removed, then percent-encoding.
fn decoded(value: &HeaderValue) -> Option<String> {
    let mut unquoted = String::new();
    let mut chars = std::str::from_utf8(value.as_bytes()).ok()?.chars();
    let mut is_quoted = false;
    while let Some(char) = chars.next() {
        match char {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => unquoted.push(chars.next()?),
            _ => unquoted.push(char),
        }
    }
    Some(percent_decode_str(&unquoted).decode_utf8().ok()?.into_owned())
}
