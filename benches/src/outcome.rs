//! What everything here returns: a benchmark that cannot go on says why and ends.

/// An answer, or a sentence.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
