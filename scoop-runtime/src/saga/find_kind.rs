//! How values of the types of the standard library are compared, for `#[message(find_by(..))]`.

use std::borrow::Cow;
use std::time::SystemTime;

use scoop_core::FindKind;
use uuid::Uuid;

/// A type of fields of which it is known how their values are compared.
#[diagnostic::on_unimplemented(
    message = "runs are found by texts, numbers and times, and `{Self}` is not known to be one",
    label = "not known to be a text, a number or a time",
    note = "say how the message has it: `find_by(field = text)`, `find_by(field = number)` or `find_by(field = time)`"
)]
pub trait FindValue {
    /// How its values are compared.
    const KIND: FindKind;
}

/// How the values of a field of this type are compared.
pub const fn find_kind<T: FindValue + ?Sized>() -> FindKind {
    T::KIND
}

macro_rules! kinds {
    ($($kind:ident: $($ty:ty),*;)*) => {
        $($(impl FindValue for $ty {
            const KIND: FindKind = FindKind::$kind;
        })*)*
    };
}

kinds! {
    Text: str, String, char, Uuid;
    Number: u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64;
    Time: SystemTime;
}

#[diagnostic::do_not_recommend]
impl<T: FindValue + ?Sized> FindValue for &T {
    const KIND: FindKind = T::KIND;
}

#[diagnostic::do_not_recommend]
impl<T: FindValue> FindValue for Option<T> {
    const KIND: FindKind = T::KIND;
}

#[diagnostic::do_not_recommend]
impl<T: FindValue + ?Sized> FindValue for Box<T> {
    const KIND: FindKind = T::KIND;
}

#[diagnostic::do_not_recommend]
impl<T: FindValue + ToOwned + ?Sized> FindValue for Cow<'_, T> {
    const KIND: FindKind = T::KIND;
}
