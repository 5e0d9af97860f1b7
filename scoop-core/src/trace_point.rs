//! The method that `#[saga]` and `#[trace]` insert before each `?`, so that errors record the places they pass.
//!
//! `?` on a result whose error is an [`Error`](crate::Error) already converts nothing, and so cannot record the place.
//! The inserted method can. It is transparent otherwise: it returns the type it is called on, for every type that `?`
//! accepts.

use std::ops::ControlFlow;
use std::panic::Location;
use std::task::Poll;

use crate::error::note;

/// A type that `?` accepts. The call costs nothing without an error.
pub trait TryOperator {
    /// The type itself.
    type Same;

    /// The same value. A scoop error has recorded this place.
    fn try_operator(self, function: &'static str) -> Self::Same;
}

impl<T, E: 'static> TryOperator for Result<T, E> {
    type Same = Self;

    #[inline]
    #[track_caller]
    fn try_operator(mut self, function: &'static str) -> Self {
        if let Err(error) = &mut self {
            note(error, Location::caller(), function);
        }
        self
    }
}

impl<T, E: 'static> TryOperator for Poll<Result<T, E>> {
    type Same = Self;

    #[inline]
    #[track_caller]
    fn try_operator(mut self, function: &'static str) -> Self {
        if let Poll::Ready(Err(error)) = &mut self {
            note(error, Location::caller(), function);
        }
        self
    }
}

impl<T, E: 'static> TryOperator for Poll<Option<Result<T, E>>> {
    type Same = Self;

    #[inline]
    #[track_caller]
    fn try_operator(mut self, function: &'static str) -> Self {
        if let Poll::Ready(Some(Err(error))) = &mut self {
            note(error, Location::caller(), function);
        }
        self
    }
}

impl<T> TryOperator for Option<T> {
    type Same = Self;

    #[inline]
    fn try_operator(self, _: &'static str) -> Self {
        self
    }
}

impl<B, C> TryOperator for ControlFlow<B, C> {
    type Same = Self;

    #[inline]
    fn try_operator(self, _: &'static str) -> Self {
        self
    }
}

/// All other types, so that the compiler reports its usual error on the user's `?` instead of a missing method. Methods
/// of a reference have the lowest precedence.
impl<T> TryOperator for &T {
    type Same = T;

    fn try_operator(self, _: &'static str) -> T {
        const { panic!("scoop does not know this type, which `?` stands after") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Result};

    fn lines(error: Error) -> Vec<(i64, Option<String>)> {
        let frames = error.into_failure("s[w]").stack_trace;
        frames.into_iter().map(|frame| (frame.line_number, frame.function_name)).collect()
    }

    #[test]
    fn scoop_errors_record_the_line_and_others_stay_unchanged() {
        let (line, error) = (i64::from(line!()), || Error::msg("no"));
        let passed = Err::<(), _>(error()).try_operator("f").unwrap_err();
        assert_eq!(lines(passed), [(line, None), (line + 1, Some("f".into()))]);
        let Poll::Ready(passed) = Poll::Ready(Err::<(), _>(error())).try_operator("g") else {
            unreachable!()
        };
        assert_eq!(lines(passed.unwrap_err())[1].1.as_deref(), Some("g"));
        let passed = Poll::Ready(Some(Err::<(), _>(error()))).try_operator("h");
        let Poll::Ready(Some(Err(passed))) = passed else { unreachable!() };
        assert_eq!(lines(passed)[1].1.as_deref(), Some("h"));

        assert_eq!(Err::<(), _>("no").try_operator("f"), Err("no"));
        assert_eq!(Ok::<_, Error>(7).try_operator("f").unwrap(), 7);
        assert_eq!(Some(7).try_operator("f"), Some(7));
        assert_eq!(ControlFlow::<u8, u8>::Break(7).try_operator("f"), ControlFlow::Break(7));
    }

    #[test]
    fn inferred_types_may_be_determined_later() -> Result<()> {
        let number: i32 = "7".parse().try_operator("f")?;
        let numbers: Vec<i32> =
            ["7"].iter().map(|it| it.parse()).collect::<Result<_, _>>().try_operator("f")?;
        assert_eq!(numbers, [number]);
        Ok(())
    }
}
