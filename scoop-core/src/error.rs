//! What a step returns when it fails: any error, with the place of the `?` that passed it.

use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;

use crate::{Failure, Frame};

/// What user code of a saga returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of user code: any [`std::error::Error`], converted by `?`.
///
/// The conversion notes file and line of the `?`. When the step has failed for good, the error
/// is stored as a [`Failure`], with type, text and chain of causes.
///
/// The type does not implement [`std::error::Error`] itself, since then it could not be made
/// from every error (the same choice, for the same reason, as in the `anyhow` crate).
///
/// ```
/// fn parse(text: &str) -> scoop_core::Result<i32> {
///     Ok(text.parse::<i32>()?)
/// }
///
/// let failure = parse("seven").unwrap_err().into_failure("orders[w1]");
/// assert!(failure.kind.ends_with("ParseIntError"));
/// assert_eq!(failure.stack_trace.len(), 1);
/// ```
pub struct Error {
    cause: Cause,
    raised_at: &'static Location<'static>,
    infrastructure: bool,
    permanent: bool,
}

enum Cause {
    Error { kind: &'static str, error: Box<dyn StdError + Send + Sync> },
    Text { kind: &'static str, message: String },
    Failure(Box<Failure>),
}

impl Error {
    /// An error that is only a text.
    #[track_caller]
    pub fn msg(message: impl fmt::Display) -> Self {
        Self::new(Cause::Text { kind: "Error", message: message.to_string() })
    }

    /// A failure that was stored before: it keeps its type, source and places.
    #[track_caller]
    pub fn failure(failure: Failure) -> Self {
        Self::new(Cause::Failure(Box::new(failure)))
    }

    /// An error of the ground the step stands on, not of the business: a lost connection, a
    /// full disk. The step is not failed for it; it runs again, after a pause that grows.
    #[track_caller]
    pub fn infrastructure(message: impl fmt::Display) -> Self {
        let cause = Cause::Text { kind: "InfrastructureError", message: message.to_string() };
        Self { infrastructure: true, ..Self::new(cause) }
    }

    /// The same error, as one of the ground the step stands on: see [`Error::infrastructure`].
    #[must_use]
    pub fn into_infrastructure(mut self) -> Self {
        self.infrastructure = true;
        self
    }

    /// Whether the step is to run again instead of failing.
    pub fn is_infrastructure(&self) -> bool {
        self.infrastructure
    }

    /// An error that another attempt would not mend: a step that is to be [retried] fails for it
    /// at once.
    ///
    /// [retried]: https://docs.rs/scoop-saga/latest/scoop/attr.step.html
    #[track_caller]
    pub fn permanent(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::from(error).into_permanent()
    }

    /// The same error, as one that another attempt would not mend: see [`Error::permanent`].
    #[must_use]
    pub fn into_permanent(mut self) -> Self {
        self.permanent = true;
        self
    }

    /// Whether another attempt is not worth it.
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// The error that was converted, if it is an `E`.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        match &self.cause {
            Cause::Error { error, .. } => error.downcast_ref(),
            Cause::Text { .. } | Cause::Failure(_) => None,
        }
    }

    /// The error as stored data. `source` says where it arose, as `saga[worker]`.
    pub fn into_failure(self, source: &str) -> Failure {
        let mut failure = match self.cause {
            Cause::Failure(failure) => return *failure,
            Cause::Text { kind, message } => Failure::new(kind, message, source),
            Cause::Error { kind, error } => Failure::new(kind, error.to_string(), source)
                .caused_by(error.source().map(|cause| from_chain(cause, source))),
        };
        failure.stack_trace.push(Frame {
            file_name: self.raised_at.file().to_owned(),
            line_number: self.raised_at.line().into(),
            class_name: None,
            function_name: None,
        });
        failure
    }

    #[track_caller]
    fn new(cause: Cause) -> Self {
        Self { cause, raised_at: Location::caller(), infrastructure: false, permanent: false }
    }
}

/// A chain of sources. Their types are erased, so they are all just errors.
fn from_chain(error: &dyn StdError, source: &str) -> Failure {
    Failure::new("Error", error.to_string(), source)
        .caused_by(error.source().map(|cause| from_chain(cause, source)))
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    #[track_caller]
    fn from(error: E) -> Self {
        let kind = std::any::type_name::<E>();
        Self::new(Cause::Error { kind, error: Box::new(error) })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Error { error, .. } => error.fmt(f),
            Cause::Text { message, .. } => f.write_str(message),
            Cause::Failure(failure) => failure.fmt(f),
        }
    }
}

/// What a `main` that returns the error prints: the text, its causes, and where it was raised.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Failure(failure) => return f.write_str(&failure.report()),
            Cause::Text { message, .. } => f.write_str(message)?,
            Cause::Error { error, .. } => {
                write!(f, "{error}")?;
                let mut source = error.source();
                while let Some(cause) = source {
                    write!(f, "\n  caused by: {cause}")?;
                    source = cause.source();
                }
            }
        }
        write!(f, "\n  at {}:{}", self.raised_at.file(), self.raised_at.line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the price list")]
    struct Unreadable(#[source] std::num::ParseIntError);

    fn fails() -> Result<()> {
        "x".parse::<i32>().map_err(Unreadable)?;
        Ok(())
    }

    #[test]
    fn a_question_mark_records_type_text_causes_and_place() {
        let failure = fails().unwrap_err().into_failure("s[w]");
        assert!(failure.kind.ends_with("Unreadable"), "{}", failure.kind);
        assert_eq!(failure.message, "cannot read the price list");
        assert_eq!(failure.causes[0].message, "invalid digit found in string");
        assert!(failure.stack_trace[0].file_name.ends_with("error.rs"));
        assert_eq!(failure.source, "s[w]");
    }

    #[test]
    fn a_stored_failure_keeps_its_own_source() {
        let stored = Failure::new("T", "m", "elsewhere");
        assert_eq!(Error::failure(stored.clone()).into_failure("here"), stored);
    }
}
