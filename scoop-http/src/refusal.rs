//! Why a delivery is not accepted, as an answer.

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use scoop_runtime::RuntimeError;

/// After how many seconds the sender may try again, if a queue is full or the database is away.
const RETRY_AFTER_SECONDS: u16 = 10;

/// The refusal of a delivery: a status, and a line of text that names what is wrong. It has no secret, and no text of the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    status: StatusCode,
    reason: String,
}

impl Refusal {
    /// A refusal with any status.
    pub fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    /// The body is not what it should be: status 400.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }

    pub(crate) fn unauthorized(header: &str, why: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, format!("header `{header}`: {why}"))
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<RuntimeError> for Refusal {
    fn from(error: RuntimeError) -> Self {
        if error.is_invalid() {
            return Self::invalid(error.to_string());
        }
        let (status, reason) = if error.is_queue_full() {
            (StatusCode::TOO_MANY_REQUESTS, "the queue is full")
        } else if error.is_unavailable() || error.is_transient() {
            (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer")
        } else if error.is_no_handler() {
            (StatusCode::SERVICE_UNAVAILABLE, "no saga handles it")
        } else {
            tracing::error!(%error, "a delivery could not be launched");
            (StatusCode::INTERNAL_SERVER_ERROR, "it could not be launched")
        };
        Self::new(status, reason)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, format!("{}\n", self.reason)).into_response();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        response
    }
}
