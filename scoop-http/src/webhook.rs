//! The handler of webhooks.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{MethodRouter, post};
use scoop_core::Message;
use scoop_runtime::{Handle, Launch, LaunchUntyped, RuntimeError, Scoop, SendSignal};
use uuid::Uuid;

use crate::{Delivery, Refusal, Verifier};

/// What a delivery leads to: a launch, a signal, or nothing. Launches and signals convert to it, with all their options:
/// `Ok(scoop.launch(..).priority(..).into())`.
///
/// The launch gets the [key](Delivery::unique_key) of the delivery instead of its own, the signal an id that is derived from it: so
/// each happens once, however often the delivery comes.
#[must_use = "nothing happens unless it is returned"]
pub struct Reaction(Option<Apply>);

type Apply = Box<dyn FnOnce(String) -> Applied + Send>;
type Applied = Pin<Box<dyn Future<Output = Result<(), RuntimeError>> + Send>>;

impl Reaction {
    /// The delivery is of no interest: it is answered with status 204.
    pub fn ignore() -> Self {
        Self(None)
    }

    fn new<F: Future<Output = Result<(), RuntimeError>> + Send + 'static>(
        apply: impl FnOnce(String) -> F + Send + 'static,
    ) -> Self {
        Self(Some(Box::new(move |key| Box::pin(apply(key)))))
    }
}

impl<M: Message, H: From<Handle> + 'static> From<Launch<M, H>> for Reaction {
    fn from(launch: Launch<M, H>) -> Self {
        Self::new(async move |key| launch.unique(key).await.map(drop))
    }
}

impl From<LaunchUntyped> for Reaction {
    fn from(launch: LaunchUntyped) -> Self {
        Self::new(async move |key| launch.unique(key).await.map(drop))
    }
}

impl From<SendSignal> for Reaction {
    fn from(signal: SendSignal) -> Self {
        let id = |key: String| Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes());
        Self::new(async move |key| signal.id(id(key)).await.map(drop))
    }
}

/// A handler of `POST` for the webhooks of one sender, to mount at any path of a router of axum.
///
/// It verifies the delivery, calls `react`, and launches or signals what that returns, once for each id of a delivery. It does not
/// wait for the sagas. `react` is called again if the delivery comes again, so it only computes; look-ups belong into a step.
///
/// | status | when |
/// | --- | --- |
/// | 202 | it is committed: by this delivery, or by an earlier one with its id |
/// | 204 | `react` returned [`Reaction::ignore`] |
/// | 400 | the body does not decode; the text names the field |
/// | 401 | a header is missing, or a signature or a time is wrong; the text names the header |
/// | 413 | the body has more bytes than [`Verifier::body_bytes_max`] |
/// | 429, with `Retry-After` | the queue of a saga is full |
/// | 503, with `Retry-After` | the database is away for longer than [`retry_for`](scoop_runtime::Builder::retry_for), or a handler that is required is missing |
///
/// Senders wait for 10 to 30 seconds: set `retry_for` of the program, by default 30 seconds, below that.
///
/// # Cancel safety
///
/// If the sender closes the connection, the message may be launched nevertheless. The next attempt finds it by its key.
///
/// ```
/// use scoop::prelude::*;
/// use scoop_http::{Reaction, Verifier, webhook};
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[message(topic = "repositories.pushed")]
/// struct Pushed {
///     after: String,
/// }
///
/// fn service(scoop: Scoop, secret: &str) -> Result<axum::Router> {
///     let github = webhook(scoop, Verifier::github(secret)?, |scoop, delivery| match &*delivery.kind {
///         "push" => Ok(scoop.launch(delivery.json::<Pushed>()?).into()),
///         _ => Ok(Reaction::ignore()),
///     });
///     Ok(axum::Router::new().route("/webhooks/github", github))
/// }
/// ```
pub fn webhook<S, F>(scoop: Scoop, verifier: Verifier, react: F) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
    F: Fn(&Scoop, &Delivery) -> Result<Reaction, Refusal> + Send + Sync + 'static,
{
    let limit = DefaultBodyLimit::max(verifier.body_bytes_max);
    let receiver = Arc::new((scoop, verifier, react));
    post(async move |headers: HeaderMap, body: Result<Bytes, BytesRejection>| {
        let (scoop, verifier, react) = &*receiver;
        let body = body.map_err(|rejection| unread(&rejection, verifier.body_bytes_max))?;
        let delivery = verifier.verify(&headers, body)?;
        let Reaction(Some(apply)) = react(scoop, &delivery)? else { return Ok(StatusCode::NO_CONTENT) };
        apply(delivery.unique_key).await?;
        Ok::<_, Refusal>(StatusCode::ACCEPTED)
    })
    .layer(limit)
}

fn unread(rejection: &BytesRejection, bytes_max: usize) -> Refusal {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("body: more than {bytes_max} bytes"))
        }
        status => Refusal::new(status, "body: it could not be read"),
    }
}
