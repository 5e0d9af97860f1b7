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
pub trait QuestionMark {
    /// The type itself.
    type Same;

    /// The same value. A scoop error has recorded this place.
    fn question_mark(self, function: &'static str) -> Self::Same;
}

impl<T, E: 'static> QuestionMark for Result<T, E> {
    type Same = Self;

    #[inline]
    #[track_caller]
    fn question_mark(mut self, function: &'static str) -> Self {
        if let Err(error) = &mut self {
            note(error, Location::caller(), function);
        }
        self
    }
}

impl<T, E: 'static> QuestionMark for Poll<Result<T, E>> {
    type Same = Self;

    #[inline]
    #[track_caller]
    fn question_mark(mut self, function: &'static str) -> Self {
        if let Poll::Ready(Err(error)) = &mut self {
            note(error, Location::caller(), function);
        }
        self
    }
}

impl<T, E: 'static> QuestionMark for Poll<Option<Result<T, E>>> {
    type Same = Self;

    #[inline]
    #[track_caller]
    fn question_mark(mut self, function: &'static str) -> Self {
        if let Poll::Ready(Some(Err(error))) = &mut self {
            note(error, Location::caller(), function);
        }
        self
    }
}

impl<T> QuestionMark for Option<T> {
    type Same = Self;

    #[inline]
    fn question_mark(self, _: &'static str) -> Self {
        self
    }
}

impl<B, C> QuestionMark for ControlFlow<B, C> {
    type Same = Self;

    #[inline]
    fn question_mark(self, _: &'static str) -> Self {
        self
    }
}

/// All other types, so that the compiler reports its usual error on the user's `?` instead of a missing method. Methods
/// of a reference have the lowest precedence.
impl<T> QuestionMark for &T {
    type Same = T;

    fn question_mark(self, _: &'static str) -> T {
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
        let passed = Err::<(), _>(error()).question_mark("f").unwrap_err();
        assert_eq!(lines(passed), [(line, None), (line + 1, Some("f".into()))]);
        let Poll::Ready(passed) = Poll::Ready(Err::<(), _>(error())).question_mark("g") else {
            unreachable!()
        };
        assert_eq!(lines(passed.unwrap_err())[1].1.as_deref(), Some("g"));
        let passed = Poll::Ready(Some(Err::<(), _>(error()))).question_mark("h");
        let Poll::Ready(Some(Err(passed))) = passed else { unreachable!() };
        assert_eq!(lines(passed)[1].1.as_deref(), Some("h"));

        assert_eq!(Err::<(), _>("no").question_mark("f"), Err("no"));
        assert_eq!(Ok::<_, Error>(7).question_mark("f").unwrap(), 7);
        assert_eq!(Some(7).question_mark("f"), Some(7));
        assert_eq!(ControlFlow::<u8, u8>::Break(7).question_mark("f"), ControlFlow::Break(7));
    }

    #[test]
    fn inferred_types_may_be_determined_later() -> Result<()> {
        let number: i32 = "7".parse().question_mark("f")?;
        let numbers: Vec<i32> =
            ["7"].iter().map(|it| it.parse()).collect::<Result<_, _>>().question_mark("f")?;
        assert_eq!(numbers, [number]);
        Ok(())
    }
}
