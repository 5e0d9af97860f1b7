//! Settings of the pages.

use std::fmt;
use std::net::IpAddr;

use axum::http::uri::Authority;
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
    /// The names under which the page may be asked for besides those of loopback addresses; `None` for any name.
    hosts: Option<Vec<String>>,
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
        let Self { token, mode, operator_header, hosts } = self;
        f.debug_struct("Options")
            .field("has_token", &token.is_some())
            .field("mode", mode)
            .field("operator_header", operator_header)
            .field("hosts", hosts)
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
        Self { token: Some(random_token()), mode: Mode::ReadAndAct, operator_header: None, hosts: None }
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
    ///
    /// A browser can be led to it by a page of another site under a name of that site (DNS rebinding): a mounted router needs
    /// [`hosts`](Self::hosts) against that, unless the service checks the header `Host` itself.
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

    /// Answers, where there is no token, only requests for these hosts and for loopback names and addresses, with any port.
    /// Others get status 421. Without this setting [`bind`](crate::bind) answers for loopback names only, and a
    /// [`router`](crate::router), which does not know its host, for all. With a token the host does not matter.
    ///
    /// ```
    /// # use scoop_web::Options;
    /// let options = Options::new().without_token().hosts(["ops.example.com"]);
    /// ```
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts = Some(hosts.into_iter().map(Into::into).collect());
        self
    }

    /// For a page with an address of its own.
    pub(crate) fn on_loopback(mut self) -> Self {
        self.hosts.get_or_insert_default();
        self
    }

    /// Whether requests for this host, with or without a port, are answered.
    pub(crate) fn answers_for(&self, host: Option<&str>) -> bool {
        let (None, Some(hosts)) = (&self.token, &self.hosts) else { return true };
        let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else { return false };
        let host = host.host();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback())
            || hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_without_a_token_answers_for_own_hosts_only() {
        let bound = Options::new().without_token().on_loopback();
        let named = Options::new().without_token().hosts(["ops.example.com"]).on_loopback();
        for host in ["localhost", "LOCALHOST:7676", "127.0.0.1:7676", "127.9.9.9", "[::1]:7676", "[::1]"] {
            assert!(bound.answers_for(Some(host)) && named.answers_for(Some(host)), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.1:7676", "a@", "", "127.0.0.1.evil.example:80"]
        {
            assert!(!bound.answers_for(Some(host)) && !named.answers_for(Some(host)), "{host}");
        }
        assert!(!bound.answers_for(None) && !bound.answers_for(Some("ops.example.com")));
        assert!(named.answers_for(Some("ops.example.com:443")));
        assert!(Options::new().on_loopback().answers_for(Some("evil.example")), "it has a token");
        assert!(Options::new().without_token().answers_for(None), "it is mounted");
    }
}
