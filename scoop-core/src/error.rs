//! The error type of steps: any error, with the places of each `?` that passed it.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;

use crate::text::lines;
use crate::{CodedError, Escaped, Failure, Frame};

/// The maximum number of places of an error. More only occurs in deep recursion, where the first ones suffice.
const FRAMES_MAX: usize = 64;

/// The result of user code of a saga.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of user code: any [`std::error::Error`], converted by `?`.
///
/// The conversion records file and line of the `?`. A `?` on a value of this type converts nothing, and so records
/// nothing. In the functions of a saga, and in those with `#[scoop::trace]`, each `?` is recorded nevertheless;
/// elsewhere [`Traced::traced`] does it by hand.
///
/// After the last attempt of the step, the error is stored as a [`Failure`], with type, text and chain of causes. An
/// error with a [code](crate::FailureCode) can be restored from that.
///
/// The type does not implement [`std::error::Error`] itself, since it could not be converted from every error then (the
/// same choice, for the same reason, as in the `anyhow` crate).
///
/// ```
/// # extern crate scoop_core as scoop;
/// fn parse(text: &str) -> scoop::Result<i32> {
///     Ok(text.parse::<i32>()?)
/// }
///
/// let failure = parse("seven").unwrap_err().into_failure("orders[w1]");
/// assert!(failure.kind.ends_with("ParseIntError"));
/// assert_eq!(failure.stack_trace.len(), 1);
/// ```
pub struct Error(Box<Inner>);

/// The content of an error. Boxed, so that it does not enlarge results.
struct Inner {
    cause: Cause,
    raised_at: &'static Location<'static>,
    passed: Vec<PropagationPoint>,
    infrastructure: bool,
    permanent: bool,
}

/// A place that passed the error on.
struct PropagationPoint {
    at: &'static Location<'static>,
    function: Option<&'static str>,
}

enum Cause {
    Error { kind: &'static str, error: Box<dyn StdError + Send + Sync> },
    Text { kind: &'static str, message: String },
    Failure(Box<Failure>),
}

impl Error {
    /// An error from a text.
    #[track_caller]
    pub fn msg(message: impl fmt::Display) -> Self {
        Self::new(Cause::Text { kind: "Error", message: message.to_string() })
    }

    /// An error in a `Box<dyn std::error::Error + Send + Sync>`, or an `anyhow::Error`: neither converts with `?`.
    ///
    /// A boxed error keeps its type for [`Error::downcast_ref`], and for the step to run again after a lost connection.
    /// An `anyhow::Error` hides it, so convert errors of the database with `?` before.
    ///
    /// ```
    /// # extern crate scoop_core as scoop;
    /// use scoop::{Error, Result};
    ///
    /// fn read() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ///     Err("no price list".into())
    /// }
    ///
    /// fn price() -> Result<()> {
    ///     read().map_err(Error::boxed)
    /// }
    ///
    /// assert_eq!(price().unwrap_err().to_string(), "no price list");
    /// ```
    #[track_caller]
    pub fn boxed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Cause::Error { kind: "Error", error: error.into() })
    }

    /// An error from a stored failure, which keeps its type, source and places. `?` and `into` do the same.
    #[track_caller]
    pub fn failure(failure: Failure) -> Self {
        Self::new(Cause::Failure(Box::new(failure)))
    }

    /// An infrastructure error, such as a lost connection or a full disk. The step does not fail with it, but is
    /// retried with a backoff.
    #[track_caller]
    pub fn infrastructure(message: impl fmt::Display) -> Self {
        let cause = Cause::Text { kind: "InfrastructureError", message: message.to_string() };
        Self::new(cause).into_infrastructure()
    }

    /// Marks the error as an infrastructure error: see [`Error::infrastructure`].
    #[must_use]
    pub fn into_infrastructure(mut self) -> Self {
        self.0.infrastructure = true;
        self
    }

    /// Whether this is an infrastructure error, after which the step is retried instead of failing.
    pub fn is_infrastructure(&self) -> bool {
        self.0.infrastructure
    }

    /// A permanent error: a step with [retries] fails with it at once.
    ///
    /// [retries]: https://docs.rs/scoop-saga/latest/scoop/attr.step.html
    #[track_caller]
    pub fn permanent(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::from(error).into_permanent()
    }

    /// Marks the error as permanent: see [`Error::permanent`].
    #[must_use]
    pub fn into_permanent(mut self) -> Self {
        self.0.permanent = true;
        self
    }

    /// Whether this is a permanent error.
    pub fn is_permanent(&self) -> bool {
        self.0.permanent
    }

    /// The converted error, if it is an `E`.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        match &self.0.cause {
            Cause::Error { error, .. } => error.downcast_ref(),
            Cause::Text { .. } | Cause::Failure(_) => None,
        }
    }

    /// The converted error and its chain of [sources](StdError::source), at most 1,000 errors. Empty for a text and for
    /// a stored failure.
    ///
    /// ```
    /// # extern crate scoop_core as scoop;
    /// use scoop::Error;
    ///
    /// #[derive(Debug, thiserror::Error)]
    /// #[error("the price list cannot be read")]
    /// struct Unreadable(#[from] std::num::ParseIntError);
    ///
    /// let error = Error::from(Unreadable("x".parse::<i32>().unwrap_err()));
    /// assert!(error.downcast_ref::<std::num::ParseIntError>().is_none());
    /// assert!(error.chain().any(|cause| cause.is::<std::num::ParseIntError>()));
    /// ```
    pub fn chain(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        let first: Option<&(dyn StdError + 'static)> = match &self.0.cause {
            Cause::Error { error, .. } => Some(&**error),
            Cause::Text { .. } | Cause::Failure(_) => None,
        };
        first.into_iter().flat_map(chain_of)
    }

    /// The error as stored data. `source` is its origin, as in `saga[worker]`.
    pub fn into_failure(self, source: &str) -> Failure {
        self.to_failure(source)
    }

    /// Like [`Error::into_failure`], but keeps the error.
    pub fn to_failure(&self, source: &str) -> Failure {
        let failure = match &self.0.cause {
            Cause::Failure(failure) => return (**failure).clone(),
            Cause::Text { kind, message } => Failure::new(kind, message, source),
            Cause::Error { kind, error } => from_chain(&**error, kind, source),
        };
        Failure { stack_trace: self.frames(), ..failure }
    }

    pub(crate) fn passed_at(&mut self, at: &'static Location<'static>, function: Option<&'static str>) {
        if self.0.passed.len() + 1 < FRAMES_MAX {
            self.0.passed.push(PropagationPoint { at, function });
        }
    }

    /// The place where the error was raised and those that it passed, innermost first. Each line is listed once, even
    /// with several `?`.
    fn frames(&self) -> Vec<Frame> {
        let raised = PropagationPoint { at: self.0.raised_at, function: None };
        let mut frames: Vec<Frame> = vec![];
        for PropagationPoint { at, function } in std::iter::once(&raised).chain(&self.0.passed) {
            let function_name = function.map(str::to_owned);
            let frame = Frame { function_name, ..Frame::from(*at) };
            match frames.last_mut() {
                Some(last)
                    if (&last.file_name, last.line_number) == (&frame.file_name, frame.line_number) =>
                {
                    last.function_name = last.function_name.take().or(frame.function_name);
                }
                _ => frames.push(frame),
            }
        }
        frames
    }

    #[track_caller]
    fn new(cause: Cause) -> Self {
        let raised_at = Location::caller();
        Self(Box::new(Inner { cause, raised_at, passed: vec![], infrastructure: false, permanent: false }))
    }
}

/// The failure of an error with its chain of sources, and the values of those with a code. The types of other sources
/// are erased, so their kind is `Error`.
fn from_chain(error: &(dyn StdError + 'static), kind: &str, source: &str) -> Failure {
    let chain: Vec<_> = chain_of(error).collect();
    let inner = chain.iter().enumerate().rev().fold(None, |inner: Option<Failure>, (depth, error)| {
        let kind = if depth == 0 { kind } else { "Error" };
        let coded = CodedError::find(*error);
        let failure = Failure::new(coded.map_or(kind, |coded| coded.code()), error.to_string(), source);
        Some(failure.wrap(inner).caused_by(coded.and_then(|coded| coded.data(*error, source))))
    });
    inner.unwrap_or_else(|| Failure::new(kind, error.to_string(), source))
}

/// The number of errors of a chain that are read: a chain of errors may be its own source, or have no end.
const CHAIN_MAX: usize = 1_000;

fn chain_of<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source()).take(CHAIN_MAX)
}

/// Records by hand that an error passes, in functions without an attribute that does it.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{Traced, Result};
///
/// fn price(text: &str) -> Result<u32> {
///     Ok(text.parse::<u32>()?)
/// }
///
/// fn total(prices: &[&str]) -> Result<u32> {
///     let mut total = 0;
///     for text in prices {
///         total += price(text).traced()?;
///     }
///     Ok(total)
/// }
///
/// let failure = total(&["7", "a lot"]).unwrap_err().into_failure("orders[w1]");
/// assert_eq!(failure.stack_trace.len(), 2);
/// ```
pub trait Traced<T> {
    /// The same result, with the place of this call recorded if it is an error.
    ///
    /// # Errors
    ///
    /// The original error.
    fn traced(self) -> Result<T>;
}

impl<T, E: Into<Error>> Traced<T> for Result<T, E> {
    #[inline]
    #[track_caller]
    fn traced(self) -> Result<T> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => {
                let mut error = error.into();
                error.passed_at(Location::caller(), None);
                Err(error)
            }
        }
    }
}

/// Records that an error passes, if it is an [`Error`]. For other types the conversion records it.
#[cold]
pub(crate) fn note<E: 'static>(error: &mut E, at: &'static Location<'static>, function: &'static str) {
    if let Some(error) = (error as &mut dyn Any).downcast_mut::<Error>() {
        error.passed_at(at, Some(function));
    }
}

/// Conversion by `?` and `into` to an [`Error`], from any [`std::error::Error`] that threads can share, and from a
/// [`Failure`].
///
/// Conversions from all such types exist; there is nothing else to write. A text is not an error: convert it with
/// [`Error::msg`], and a `Box<dyn std::error::Error + Send + Sync>` with [`Error::boxed`].
///
/// This is a trait of [`Error`] and not a bound of the types, since the compiler then shows the advice below for
/// `into`, too, and not only for `?`.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Error;
///
/// fn from_any(error: impl std::error::Error + Send + Sync + 'static) -> Error {
///     Error::from(error)
/// }
///
/// let error = from_any("seven".parse::<u32>().unwrap_err());
/// assert_eq!(error.to_string(), "invalid digit found in string");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{E}` is not an error: it is no `std::error::Error` that threads can share",
    label = "no error; write `Error::msg(\"text\")` for a text, `.map_err(Error::boxed)` for a boxed one or that of `anyhow`, \
             `#[derive(Debug, thiserror::Error)]` on a type",
    note = "a text becomes one with `Error::msg(\"text\")`",
    note = "an `anyhow::Error` or a `Box<dyn Error + Send + Sync>` becomes one with `.map_err(Error::boxed)`",
    note = "a type becomes one with `#[derive(Debug, thiserror::Error)]`, and if it is `Send + Sync + 'static`"
)]
pub trait FromError<E> {
    /// The error, with the place of the call.
    fn from_error(error: E) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: StdError + Send + Sync + 'static> FromError<E> for Error {
    #[track_caller]
    fn from_error(error: E) -> Self {
        let kind = std::any::type_name::<E>();
        Self::new(Cause::Error { kind, error: Box::new(error) })
    }
}

#[diagnostic::do_not_recommend]
impl FromError<Failure> for Error {
    #[track_caller]
    fn from_error(failure: Failure) -> Self {
        Self::failure(failure)
    }
}

impl<E> From<E> for Error
where
    Self: FromError<E>,
{
    #[track_caller]
    fn from(error: E) -> Self {
        Self::from_error(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.cause {
            Cause::Error { error, .. } => error.fmt(f),
            Cause::Text { message, .. } => f.write_str(message),
            Cause::Failure(failure) => failure.fmt(f),
        }
    }
}

/// The prefix of all lines of a text except the first, so that none looks like a cause or a place.
const CONTINUED: &str = "\n    | ";

/// The output of a `main` that returns the error: the text, its causes, and the place where it was raised.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.cause {
            Cause::Failure(failure) => return f.write_str(&failure.report()),
            Cause::Text { message, .. } => f.write_str(&lines(message, CONTINUED))?,
            Cause::Error { error, .. } => {
                f.write_str(&lines(&error.to_string(), CONTINUED))?;
                for cause in chain_of(&**error).skip(1) {
                    write!(f, "\n  caused by: {}", lines(&cause.to_string(), CONTINUED))?;
                }
            }
        }
        self.frames()
            .iter()
            .try_for_each(|frame| write!(f, "\n  at {}:{}", Escaped(&frame.file_name), frame.line_number))
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
    fn places_are_listed_innermost_first_and_each_line_once() {
        fn passes() -> Result<()> {
            fails().traced()?;
            Ok(())
        }
        fn passes_twice() -> Result<()> {
            passes().traced().traced()
        }
        let error = passes_twice().unwrap_err();
        let shown = format!("{error:?}");
        let failure = error.into_failure("s[w]");
        let lines: Vec<_> = failure.stack_trace.iter().map(|frame| frame.line_number).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0] < lines[1] && lines[1] < lines[2], "{lines:?}");
        assert_eq!(shown.matches("error.rs:").count(), 3, "{shown}");
    }

    #[test]
    fn other_error_is_raised_at_the_call_of_here() {
        let error = "x".parse::<i32>().traced().unwrap_err();
        let failure = error.into_failure("s[w]");
        let [place] = &*failure.stack_trace else { panic!("{failure:?}") };
        assert!(place.file_name.ends_with("error.rs"), "{place:?}");
    }

    #[test]
    fn number_of_places_is_limited() {
        let mut error = Error::msg("deep");
        for _ in 0..1000 {
            error = Err::<(), _>(error).traced().unwrap_err();
        }
        assert!(error.0.passed.len() < FRAMES_MAX);
    }

    #[test]
    fn an_endless_chain_of_sources_can_be_stored() {
        #[derive(Debug, thiserror::Error)]
        #[error("{level}")]
        struct Level {
            level: u32,
            source: Option<Box<Level>>,
        }
        let chain = (0..1000).fold(None, |source, level| Some(Box::new(Level { level, source })));
        let failure = Error::from(*chain.unwrap()).into_failure("s[w]");
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
        assert_eq!((&*failure.message, &*failure.root_causes()[0].message), ("999", "0"));
    }

    #[test]
    fn error_that_is_its_own_source_is_cut() {
        #[derive(Debug)]
        struct Endless;

        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("again")
            }
        }

        impl StdError for Endless {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(self)
            }
        }

        let error = Error::from(Endless);
        assert_eq!(error.chain().count(), CHAIN_MAX);
        assert_eq!(format!("{error:?}").matches("again").count(), CHAIN_MAX);
        assert_eq!(error.into_failure("s[w]").message, "again");
    }

    #[test]
    fn error_keeps_its_type_and_its_marks() {
        let error = fails().unwrap_err();
        assert_eq!(error.to_string(), "cannot read the price list");
        assert!(error.downcast_ref::<Unreadable>().is_some());
        assert!(error.downcast_ref::<std::num::ParseIntError>().is_none(), "that is its source");
        assert!(!error.is_infrastructure() && !error.is_permanent());
        let error = error.into_permanent();
        assert!(error.is_permanent() && !error.is_infrastructure());
        let error = error.into_infrastructure();
        assert!(error.is_permanent() && error.is_infrastructure());

        let full = Error::infrastructure("the disk is full");
        assert!(full.is_infrastructure() && full.downcast_ref::<Unreadable>().is_none());
        assert_eq!(full.to_string(), "the disk is full");
        let stored = Error::failure(Failure::new("T", "m", "elsewhere"));
        assert_eq!(stored.to_string(), "[elsewhere] T: m");
        assert!(Error::permanent("x".parse::<i32>().unwrap_err()).is_permanent());
    }

    #[test]
    fn debug_output_has_the_whole_chain() {
        let shown = format!("{:?}", fails().unwrap_err());
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[..2], ["cannot read the price list", "  caused by: invalid digit found in string"]);
        assert!(lines[2].starts_with("  at ") && lines.len() == 3, "{shown}");
        let text = format!("{:?}", Error::msg("no"));
        assert!(text.starts_with("no\n  at "), "{text}");
        let forged = format!("{:?}", Error::msg("no\n  caused by: \u{1b}[2Jforged\u{202e}"));
        assert!(forged.starts_with("no\n    |   caused by: \\u{1b}[2Jforged\\u{202e}\n  at "), "{forged}");
        let stored = Failure::new("T", "m", "s").caused_by([Failure::new("U", "n", "s")]);
        assert_eq!(format!("{:?}", Error::failure(stored.clone())), stored.report());
    }

    #[test]
    fn a_stored_failure_keeps_its_own_source() {
        let stored = Failure::new("T", "m", "elsewhere");
        assert_eq!(Error::failure(stored.clone()).into_failure("here"), stored);
        let passed_on = || -> Result<()> { Err(stored.clone())? };
        assert_eq!(passed_on().unwrap_err().into_failure("here"), stored);
    }

    #[test]
    fn boxed_error_keeps_its_text_its_sources_and_its_place() {
        let boxed: Box<dyn StdError + Send + Sync> = Box::new(Unreadable("x".parse::<i32>().unwrap_err()));
        let error = Error::boxed(boxed);
        assert!(error.downcast_ref::<Unreadable>().is_some());
        let failure = error.into_failure("s[w]");
        assert_eq!((&*failure.kind, &*failure.message), ("Error", "cannot read the price list"));
        assert_eq!(failure.causes[0].message, "invalid digit found in string");
        assert!(failure.stack_trace[0].file_name.ends_with("error.rs"));
    }
}
