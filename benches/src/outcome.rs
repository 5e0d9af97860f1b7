//! The result type of this program: a benchmark that cannot go on reports why and ends.

/// A value, or a sentence as the error.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
