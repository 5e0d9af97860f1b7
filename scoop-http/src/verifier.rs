//! The schemes by which senders sign.

use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::Mac as _;

use crate::delivery::{Head, decode_slice};
use crate::key::Key;
use crate::{BadSecret, Delivery, Refusal};

/// By default, the time of a delivery may differ by this much from the clock of this server: as the libraries of the senders have it.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// The default bound of a body: that of a payload.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// How a sender signs its deliveries, and with which secrets.
///
/// Signatures are compared in constant time. Neither `Debug` nor an error shows a secret.
///
/// ```
/// # use scoop_http::Verifier;
/// # fn example(new: &str, old: &str) -> Result<Verifier, scoop_http::BadSecret> {
/// Verifier::stripe(new)?.or_secret(old)    // while the secret is changed
/// # }
/// # assert!(example("whsec_new", "whsec_old").is_ok());
/// # assert!(example("whsec_new", "").is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Verifier {
    scheme: Scheme,
    keys: Vec<Key>,
    source: String,
    tolerance: Duration,
    pub(crate) body_bytes_max: usize,
}

#[derive(Clone, Copy, Debug)]
enum Scheme {
    Standard,
    Stripe,
    GitHub,
}

impl Verifier {
    /// [Standard Webhooks], symmetric signatures: `webhook-id`, `webhook-timestamp` and `webhook-signature`. The secret is `whsec_`
    /// and base64.
    ///
    /// # Errors
    ///
    /// If the secret is empty, or not base64.
    ///
    /// [Standard Webhooks]: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    pub fn standard(secret: impl AsRef<str>) -> Result<Self, BadSecret> {
        Self::new(Scheme::Standard, "standard").or_secret(secret)
    }

    /// [Stripe]: `Stripe-Signature`. The secret is that of the endpoint, with its `whsec_`. The id is that of the event in the body.
    ///
    /// # Errors
    ///
    /// If the secret is empty.
    ///
    /// [Stripe]: https://docs.stripe.com/webhooks#verify-manually
    pub fn stripe(secret: impl AsRef<str>) -> Result<Self, BadSecret> {
        Self::new(Scheme::Stripe, "stripe").or_secret(secret)
    }

    /// [GitHub]: `X-Hub-Signature-256`. The id is `X-GitHub-Delivery`, which the signature does not cover; nor is there a time. Choose
    /// the content type `application/json` there.
    ///
    /// # Errors
    ///
    /// If the secret is empty.
    ///
    /// [GitHub]: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    pub fn github(secret: impl AsRef<str>) -> Result<Self, BadSecret> {
        Self::new(Scheme::GitHub, "github").or_secret(secret)
    }

    fn new(scheme: Scheme, source: &str) -> Self {
        let (source, body_bytes_max) = (source.to_owned(), BODY_BYTES_MAX);
        Self { scheme, keys: vec![], source, tolerance: TOLERANCE, body_bytes_max }
    }

    /// Also accepts what is signed with this secret: an old one, or the next one, while it is changed.
    ///
    /// # Errors
    ///
    /// As the constructor.
    pub fn or_secret(mut self, secret: impl AsRef<str>) -> Result<Self, BadSecret> {
        let secret = secret.as_ref();
        self.keys.push(match self.scheme {
            Scheme::Standard => Key::from_bytes(&Key::decode_standard(secret)?)?,
            Scheme::Stripe | Scheme::GitHub => Key::from_bytes(secret.as_bytes())?,
        });
        Ok(self)
    }

    /// Names the source in [unique keys](Delivery::unique_key), instead of `standard`, `stripe` or `github`. Give each sender a name of
    /// its own if several launch messages of one topic, so that none can use the ids of another. The id after it has no space.
    pub fn source(mut self, name: impl Into<String>) -> Self {
        self.source = name.into();
        self
    }

    /// Sets by how much the time of a delivery may differ from the clock of this server; by default 5 minutes.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets the most bytes of a body that [`webhook`](crate::webhook) reads; by default 1 MiB, as for payloads.
    pub fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }

    /// Verifies a request: for other frameworks, and for launches `in_transaction`. [`webhook`](crate::webhook) calls it.
    ///
    /// # Errors
    ///
    /// Status 401 if a header is missing or the signature or time is wrong; 400 if a body of Stripe has no `id`, or an id has a space
    /// or, in Standard Webhooks, a full stop.
    pub fn verify(&self, headers: &HeaderMap, body: Bytes) -> Result<Delivery, Refusal> {
        let (id, kind) = match self.scheme {
            Scheme::Standard => self.verify_standard(headers, &body)?,
            Scheme::Stripe => self.verify_stripe(headers, &body)?,
            Scheme::GitHub => self.verify_github(headers, &body)?,
        };
        if id.contains(' ') {
            return Err(Refusal::invalid("the id of the delivery has a space"));
        }
        let unique_key = format!("{} {id}", self.source);
        Ok(Delivery { id, unique_key, kind, headers: headers.clone(), body })
    }

    fn verify_standard(&self, headers: &HeaderMap, body: &[u8]) -> Result<(String, String), Refusal> {
        const SIGNATURE: &str = "webhook-signature";
        const TIMESTAMP: &str = "webhook-timestamp";
        let (id, timestamp) = (text(headers, "webhook-id")?, text(headers, TIMESTAMP)?);
        let signatures = text(headers, SIGNATURE)?.split(' ').filter_map(|it| it.strip_prefix("v1,"));
        let signatures = signatures.filter_map(|it| BASE64.decode(it).ok());
        self.check_signature(SIGNATURE, &[id, ".", timestamp, "."], body, signatures)?;
        self.check_time(TIMESTAMP, timestamp)?;
        if id.contains('.') {
            return Err(Refusal::invalid("header `webhook-id`: the signature does not show where it ends"));
        }
        let head: Head = decode_slice(body).unwrap_or_default();
        Ok((id.to_owned(), head.kind.as_str().unwrap_or_default().to_owned()))
    }

    fn verify_stripe(&self, headers: &HeaderMap, body: &[u8]) -> Result<(String, String), Refusal> {
        const SIGNATURE: &str = "stripe-signature";
        let header = text(headers, SIGNATURE)?;
        let values = |name| {
            let fields = header.split(',').filter_map(|field| field.trim().split_once('='));
            fields.filter(move |field| field.0 == name).map(|field| field.1)
        };
        let timestamp =
            values("t").next().ok_or_else(|| Refusal::unauthorized(SIGNATURE, "it has no `t`"))?;
        self.check_signature(SIGNATURE, &[timestamp, "."], body, values("v1").filter_map(from_hex))?;
        self.check_time(SIGNATURE, timestamp)?;
        let head: Head = decode_slice(body)?;
        let id = head.id.as_str().filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| Refusal::invalid("body, field `id`: an event has one"))?;
        Ok((id.to_owned(), head.kind.as_str().unwrap_or_default().to_owned()))
    }

    fn verify_github(&self, headers: &HeaderMap, body: &[u8]) -> Result<(String, String), Refusal> {
        const SIGNATURE: &str = "x-hub-signature-256";
        let signature = text(headers, SIGNATURE)?.strip_prefix("sha256=").and_then(from_hex);
        self.check_signature(SIGNATURE, &[], body, signature.into_iter())?;
        let (id, kind) = (text(headers, "x-github-delivery")?, text(headers, "x-github-event")?);
        Ok((id.to_owned(), kind.to_owned()))
    }

    /// Whether one of the signatures is that of the parts and the body, by one of the keys.
    fn check_signature(
        &self,
        header: &str,
        parts: &[&str],
        body: &[u8],
        signatures: impl Iterator<Item = Vec<u8>>,
    ) -> Result<(), Refusal> {
        let signatures: Vec<_> = signatures.collect();
        let is_of = |key: &Key| {
            let mac = key.mac(parts.iter().map(|part| part.as_bytes()).chain([body]));
            signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
        };
        let why = match signatures.is_empty() {
            true => "it has no signature of the scheme that is expected",
            false => "no signature is that of this request with a known secret",
        };
        self.keys.iter().any(is_of).then_some(()).ok_or_else(|| Refusal::unauthorized(header, why))
    }

    fn check_time(&self, header: &str, timestamp: &str) -> Result<(), Refusal> {
        let Ok(at) = timestamp.parse::<u64>() else {
            return Err(Refusal::unauthorized(header, "the time is no number of seconds since 1970"));
        };
        let (now, most) = (unix_seconds(SystemTime::now()), self.tolerance.as_secs());
        if now.abs_diff(at) <= most {
            return Ok(());
        }
        let why = format!("the time is more than {most} s from the clock of this server");
        Err(Refusal::unauthorized(header, &why))
    }
}

pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Refusal> {
    let Some(value) = headers.get(name) else { return Err(Refusal::unauthorized(name, "it is missing")) };
    let text = value.to_str().ok().filter(|text| !text.is_empty());
    text.ok_or_else(|| Refusal::unauthorized(name, "it is empty, or no text"))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let fields = digits.filter(|digits| digits.len() % 2 == 0)?;
    fields.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}
