//! Settings of the pages.

use std::fmt;

use axum::http::{HeaderMap, HeaderName};

use crate::secret::random_token;

/// The minimum length of a token, in bytes.
const TOKEN_BYTES_MIN: usize = 16;

/// The settings of [`router`](crate::router) and [`bind`](crate::bind).
///
/// ```
/// let options = scoop_web::Options::new().read_only();
/// assert!(options.token().is_some());
/// ```
#[derive(Clone)]
pub struct Options {
    token: Option<String>,
    mode: Mode,
    operator_header: Option<HeaderName>,
}

/// Whether pages have actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    ReadAndAct,
    ReadOnly,
}

/// A token is too short: it has fewer than 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WeakToken;

impl fmt::Display for WeakToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the token of the web page is too short: it needs {TOKEN_BYTES_MIN} bytes or more")
    }
}

impl std::error::Error for WeakToken {}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, mode, operator_header } = self;
        f.debug_struct("Options")
            .field("has_token", &token.is_some())
            .field("mode", mode)
            .field("operator_header", operator_header)
            .finish()
    }
}

impl Options {
    /// A random token, and pages with actions.
    ///
    /// # Panics
    ///
    /// If the operating system has no random numbers.
    pub fn new() -> Self {
        Self { token: Some(random_token()), mode: Mode::ReadAndAct, operator_header: None }
    }

    /// The token that visitors need; `None` after [`without_token`](Self::without_token).
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Sets the token, so that it stays the same after a restart and in all processes.
    ///
    /// # Errors
    ///
    /// [`WeakToken`] if it has fewer than 16 bytes.
    ///
    /// ```
    /// # use scoop_web::Options;
    /// assert!(Options::new().with_token("correct horse battery staple").is_ok());
    /// assert!(Options::new().with_token("scoop").is_err());
    /// ```
    pub fn with_token(mut self, token: impl Into<String>) -> Result<Self, WeakToken> {
        let token = token.into();
        if token.len() < TOKEN_BYTES_MIN {
            return Err(WeakToken);
        }
        self.token = Some(token);
        Ok(self)
    }

    /// Asks for no token: each client that reaches the router may use it. For a service that has checked its users before.
    pub fn without_token(mut self) -> Self {
        self.token = None;
        self
    }

    /// Shows pages without actions, and refuses these.
    pub fn read_only(mut self) -> Self {
        self.mode = Mode::ReadOnly;
        self
    }

    /// Records the value of this header as the requester of an action, instead of the name that the user enters. The
    /// service or proxy that authenticates users has to set it, and to remove it from requests of clients.
    ///
    /// ```
    /// # use scoop_web::Options;
    /// let options = Options::new().without_token().operator_header("x-forwarded-user".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn operator_header(mut self, header: HeaderName) -> Self {
        self.operator_header = Some(header);
        self
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.mode == Mode::ReadOnly
    }

    /// The name of the user, if a header tells it.
    pub(crate) fn operator(&self, headers: &HeaderMap) -> Operator {
        let Some(header) = &self.operator_header else { return Operator::Asked };
        let name = headers.get(header).and_then(|name| name.to_str().ok()).map(str::trim).unwrap_or_default();
        if name.is_empty() { Operator::Missing } else { Operator::Known(name.to_owned()) }
    }
}

/// Who makes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// The form asks for a name.
    Asked,
    /// A header has the name.
    Known(String),
    /// A header should have the name, and does not.
    Missing,
}
