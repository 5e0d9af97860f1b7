//! Errors of private servers, with their remedies.

use std::io;
use std::path::Path;

/// An error of starting, restarting or stopping a private server. Its text has the reason and the remedy, with the end
/// of the server's log if that did not start.
///
/// ```no_run
/// # mod scoop { pub use scoop_embedded as embedded; }
/// use scoop::embedded::{Embedded, EmbeddedError};
///
/// # async fn example() {
/// let error: EmbeddedError = Embedded::start_in("/etc").await.unwrap_err();
/// assert_eq!(error.to_string(), "/etc holds other files; give a new or an empty folder");
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct EmbeddedError {
    text: String,
    source: Option<io::Error>,
}

pub(crate) type Result<T> = std::result::Result<T, EmbeddedError>;

impl From<String> for EmbeddedError {
    fn from(text: String) -> Self {
        Self { text, source: None }
    }
}

/// An error of the operating system about this file.
pub(crate) fn at(action: &str, path: &Path) -> impl FnOnce(io::Error) -> EmbeddedError {
    let text = format!("could not {action} {}", path.display());
    |source| EmbeddedError { text, source: Some(source) }
}
