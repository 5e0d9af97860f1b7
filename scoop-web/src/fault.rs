//! The errors of a page, as pages.

use std::error::Error;

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use scoop_operate::OperateError;
use scoop_runtime::RuntimeError;

use crate::assets;
use crate::pages::page;
use crate::shown::block;

/// An error of a request.
#[derive(Debug)]
pub(crate) enum Fault {
    /// An error of the library.
    Library(OperateError),
    /// Nothing has this address.
    NotFound(String),
    /// The request is not allowed.
    Forbidden(String),
    /// The request is wrong.
    BadRequest(String),
    /// The request is for another host.
    Misdirected,
    /// The token of the request is missing or wrong: this text says so.
    Unauthorized(&'static str),
    /// Only GET is answered here.
    NotRead,
    /// The events were not read in time.
    Slow,
}

impl From<OperateError> for Fault {
    fn from(error: OperateError) -> Self {
        Self::Library(error)
    }
}

impl From<RuntimeError> for Fault {
    fn from(error: RuntimeError) -> Self {
        Self::Library(error.into())
    }
}

#[derive(Template)]
#[template(path = "fault.html")]
struct FaultPage {
    base: String,
    style: String,
    title: &'static str,
    text: String,
}

impl Fault {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::NotRead => StatusCode::METHOD_NOT_ALLOWED,
            Self::Slow => StatusCode::SERVICE_UNAVAILABLE,
            Self::Library(error) if error.is_denied() => StatusCode::FORBIDDEN,
            Self::Library(error) if error.is_invalid() => StatusCode::BAD_REQUEST,
            Self::Library(error) if error.is_not_found() => StatusCode::NOT_FOUND,
            Self::Library(error) if error.is_unavailable() => StatusCode::SERVICE_UNAVAILABLE,
            Self::Library(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::NotFound(text) | Self::Forbidden(text) | Self::BadRequest(text) => text.clone(),
            Self::Unauthorized(text) => (*text).into(),
            Self::NotRead => "Only GET is answered here.".into(),
            Self::Slow => {
                "The events were not read in 10 s. Begin later by `since` or `after`, or leave filters out."
                    .into()
            }
            Self::Misdirected => {
                "This page has no token, so it answers only for loopback names. For another host, set \
                                  `Options::hosts` in the program that serves it, or a token."
                    .into()
            }
            Self::Library(error) => {
                let mut text = error.to_string();
                let mut cause = error.source();
                while let Some(error) = cause {
                    let next = error.to_string();
                    if !text.contains(&next) {
                        text = format!("{text}: {next}");
                    }
                    cause = error.source();
                }
                text
            }
        }
    }

    /// The page for it.
    pub(crate) fn page(&self, base: &str) -> Response {
        let status = self.status();
        let title = match status {
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::FORBIDDEN => "Not allowed",
            StatusCode::BAD_REQUEST => "Wrong request",
            StatusCode::MISDIRECTED_REQUEST => "Wrong host",
            _ if matches!(self, Self::Library(error) if error.is_busy()) => "Other pages take too long",
            StatusCode::SERVICE_UNAVAILABLE => "The database does not answer",
            _ => "Failed",
        };
        let shown = FaultPage { base: base.into(), style: assets::style(), title, text: block(&self.text()) };
        (status, page(&shown)).into_response()
    }
}
