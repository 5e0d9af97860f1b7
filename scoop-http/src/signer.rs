//! Signed callbacks.

use std::time::SystemTime;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::Mac as _;
use scoop_core::{Error, Result};
use serde::Serialize;

use crate::BadSecret;
use crate::key::Key;
use crate::verifier::unix_seconds;

/// Signs callbacks by [Standard Webhooks].
///
/// It makes requests, and sends none: the types of `http` fit `reqwest`, `hyper` and `ureq`, whose TLS, proxies and bounds the program
/// chooses. If others choose the URLs, let the client refuse addresses of your own network.
///
/// ```
/// use scoop::prelude::*;
/// use scoop_http::{Signer, delivered};
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[message(topic = "callbacks.due")]
/// struct CallbackDue {
///     url: String,
///     order: u64,
/// }
///
/// struct Callbacks {
///     signer: Signer,
///     client: reqwest::Client, // with `redirect(Policy::none())`: a redirect would lose the body
/// }
///
/// #[saga]
/// #[subscribes(CallbackDue)]
/// impl Callbacks {
///     #[step(retry(max = 20, backoff = "5s..6h"), timeout = "30s")]
///     async fn send(&self, scope: &mut Scope<'_>, due: &CallbackDue) -> Result<()> {
///         let request = self.signer.request(&due.url, scope.idempotency_key(), due)?; // the same id in each attempt
///         delivered(self.client.execute(request.try_into()?).await?.status())
///     }
/// }
/// ```
///
/// [Standard Webhooks]: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
#[derive(Clone, Debug)]
pub struct Signer {
    keys: Vec<Key>,
}

impl Signer {
    /// Signs with this secret: `whsec_`, and 24 to 64 random bytes in base64.
    ///
    /// # Errors
    ///
    /// If it is not that.
    pub fn standard(secret: impl AsRef<str>) -> Result<Self, BadSecret> {
        Self { keys: vec![] }.and_secret(secret)
    }

    /// Also signs with this secret: an old one, while receivers change to the new one.
    ///
    /// # Errors
    ///
    /// As [`standard`](Self::standard).
    pub fn and_secret(mut self, secret: impl AsRef<str>) -> Result<Self, BadSecret> {
        let secret = Key::decode_standard(secret.as_ref())?;
        if !(24..=64).contains(&secret.len()) {
            return Err(BadSecret::Length);
        }
        self.keys.push(Key::from_bytes(&secret)?);
        Ok(self)
    }

    /// The headers `webhook-id`, `webhook-timestamp` and `webhook-signature` of an attempt at this time with exactly this body.
    ///
    /// # Errors
    ///
    /// A [permanent](Error::permanent) error if the id has a full stop, or what no header can have.
    pub fn headers(&self, id: &str, at: SystemTime, body: &[u8]) -> Result<HeaderMap> {
        let at = unix_seconds(at).to_string();
        let parts: [&[u8]; 5] = [id.as_bytes(), b".", at.as_bytes(), b".", body];
        let sign = |key: &Key| format!("v1,{}", BASE64.encode(key.mac(parts).finalize().into_bytes()));
        let signatures = self.keys.iter().map(sign).collect::<Vec<_>>().join(" ");
        // With a full stop, the end of the id would not be signed.
        let id = Some(id).filter(|id| !id.is_empty() && !id.contains('.'));
        let Some(Ok(id)) = id.map(HeaderValue::try_from) else {
            return Err(Error::msg("a callback cannot have this id").into_permanent());
        };
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", id);
        headers.insert("webhook-timestamp", HeaderValue::try_from(at).map_err(Error::permanent)?);
        headers.insert("webhook-signature", HeaderValue::try_from(signatures).map_err(Error::permanent)?);
        Ok(headers)
    }

    /// A `POST` of this body as JSON, signed for an attempt now. `id` is the same in each attempt, such as
    /// [`Scope::idempotency_key`](scoop_runtime::Scope::idempotency_key).
    ///
    /// # Errors
    ///
    /// As [`headers`](Self::headers), and if the URL is none or the body is not JSON: a [permanent](Error::permanent) error.
    pub fn request(&self, url: &str, id: impl ToString, body: &impl Serialize) -> Result<Request<Vec<u8>>> {
        let body = serde_json::to_vec(body).map_err(Error::permanent)?;
        let mut headers = self.headers(&id.to_string(), SystemTime::now(), &body)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut request = Request::post(url).body(body).map_err(Error::permanent)?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Whether a receiver has accepted a callback: its status is 2xx.
///
/// # Errors
///
/// With any other status, so that the `retry` of the step applies. After 410 the error is [permanent](Error::permanent): the receiver
/// wants no more callbacks.
pub fn delivered(status: StatusCode) -> Result<()> {
    if status.is_success() {
        return Ok(());
    }
    let error = Error::msg(format!("the receiver of the callback answered with status {status}"));
    Err(if status == StatusCode::GONE { error.into_permanent() } else { error })
}
