//! Errors that come back typed: a stable code for a type, and its value beside the failure.
//!
//! The type of an error is gone once it is a `Box<dyn Error>`, and the more so in another
//! service. So the derive registers each type with its code at link time, and whoever turns an
//! error into a [`Failure`] asks every registered type whether the error is one of it.

use std::error::Error as StdError;

use crate::stored::Json;
use crate::{Failure, Stored};

/// The most characters a code can have.
pub const CODE_CHARS_MAX: usize = 180;

/// The type of a cause that holds the value of the error it belongs to. The wire format has no
/// place of its own for that, and participants in other languages take it for a cause like any
/// other.
const DATA: &str = "scoop:data";

/// The most bytes of JSON that travel with a failure. Failures are copied to every run above.
const DATA_BYTES_MAX: usize = 64 * 1024;

/// An error that a service above can find in a [`Failure`] as the type it was.
///
/// Derive it: `#[derive(FailureCode)]`, with `#[failure(code = "...")]` to name the code. Without
/// that attribute the code is the type's name in kebab case. The code is what is stored, so it
/// stays when the type is renamed or moved. It becomes the `type` of the failure, and the error as
/// JSON goes with it, unless that has more than 64 kB.
///
/// The errors of the chain of [`source`](StdError::source) are found as well as the error that a
/// step returns. An enum whose variant is `#[error(transparent)]` hides what is in it; give the
/// enum the code, or the variant a text. A source that is no data itself is left out with
/// `#[serde(skip)]`: it is among the causes anyway.
///
/// [`Failure::find`] has an example.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no failure code",
    label = "no failure code",
    note = "write `#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]` on `{Self}`"
)]
pub trait FailureCode: StdError + Stored + Send + Sync + 'static {
    /// What the type is stored as: 1 to [`CODE_CHARS_MAX`] characters.
    const CODE: &'static str;
}

/// A type of errors that the linked program has a code for.
pub struct CodedError {
    code: &'static str,
    type_name: fn() -> &'static str,
    is: fn(&(dyn StdError + 'static)) -> bool,
    json: fn(&(dyn StdError + 'static)) -> Option<String>,
    reads: fn(&str) -> bool,
}

inventory::collect!(CodedError);

impl CodedError {
    /// What is registered for `E`.
    pub const fn new<E: FailureCode>() -> Self {
        Self {
            code: E::CODE,
            type_name: std::any::type_name::<E>,
            is: |error| error.is::<E>(),
            json: |error| serde_json::to_string(&Json(error.downcast_ref::<E>()?)).ok(),
            reads: |json| serde_json::from_str::<Json<E>>(json).is_ok(),
        }
    }

    /// All that are linked into this program, in no order.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        inventory::iter::<Self>()
    }

    /// The code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The type that has it.
    pub fn type_name(&self) -> &'static str {
        (self.type_name)()
    }

    /// What is registered for the type of this error.
    pub(crate) fn of(error: &(dyn StdError + 'static)) -> Option<&'static Self> {
        Self::all().find(|coded| (coded.is)(error))
    }

    /// The value of the error, which is of this type, as a cause of its failure; nothing if it is
    /// no JSON or too much of it. A NUL in a text is no trouble: JSON has an escape for it.
    pub(crate) fn data(&self, error: &(dyn StdError + 'static), source: &str) -> Option<Failure> {
        let json = (self.json)(error).filter(|json| json.len() <= DATA_BYTES_MAX)?;
        Some(Failure::new(DATA, json, source))
    }
}

impl Failure {
    /// The error of that type in the tree of causes, as its service returned it: this failure
    /// before its causes, and of those the first with all below it.
    ///
    /// A failure that has the code but no value that fits the type is passed over: it was too
    /// large, or is from a program that has another idea of the type. [`Failure::has_code`] sees
    /// it all the same.
    ///
    /// ```
    /// # use scoop_core::{Error, Failure, FailureCode, Result};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Debug, thiserror::Error, Serialize, Deserialize)] // and `FailureCode`, which writes:
    /// #[error("the card is not good for {cents} cents")]
    /// struct Declined { cents: i64 }
    ///
    /// impl FailureCode for Declined {
    ///     const CODE: &'static str = "payments.declined";
    /// }
    /// # inventory::submit! { scoop_core::CodedError::new::<Declined>() }
    ///
    /// // In the service that has the payments:
    /// let failure = Error::from(Declined { cents: 7 }).into_failure("payments[w1]");
    /// assert_eq!(failure.kind, "payments.declined");
    ///
    /// // In the one that asked for them, which sees the failures of all between as well:
    /// fn offer_another_card(why: &Failure) -> Result<i64> {
    ///     match why.find::<Declined>() {
    ///         Some(declined) => Ok(declined.cents),
    ///         None => Err(Error::failure(why.clone())),
    ///     }
    /// }
    /// let above = Failure::new("ChildRolledBackException", "", "orders[w1]").caused_by([failure]);
    /// assert_eq!(offer_another_card(&above)?, 7);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn find<E: FailureCode>(&self) -> Option<E> {
        self.tree().find_map(Self::read)
    }

    /// All errors of that type in the tree of causes, in the order of [`Failure::find`].
    pub fn find_all<E: FailureCode>(&self) -> Vec<E> {
        self.tree().filter_map(Self::read).collect()
    }

    /// Whether this failure or one below it has this code. What is not from a program in Rust has
    /// a code just as well: it is the `type` of the failure.
    pub fn has_code(&self, code: &str) -> bool {
        self.tree().any(|failure| failure.kind == code)
    }

    /// The error types of this program that cannot decode a value stored under their code, since a program with another type
    /// wrote it. [`Failure::find`] skips such values.
    pub fn unread_types(&self) -> impl Iterator<Item = &'static CodedError> {
        self.tree().filter_map(|failure| {
            let coded = CodedError::all().find(|coded| coded.code() == failure.kind)?;
            let mut data = failure.causes.iter().filter(|cause| cause.is_data());
            data.any(|data| !(coded.reads)(&data.message)).then_some(coded)
        })
    }

    /// Whether this is no failure, but the value of the error that it is a cause of.
    pub(crate) fn is_data(&self) -> bool {
        self.kind == DATA
    }

    fn read<E: FailureCode>(&self) -> Option<E> {
        let data = self.causes.iter().filter(|cause| self.kind == E::CODE && cause.is_data());
        let mut read = data.filter_map(|data| serde_json::from_str(&data.message).ok());
        read.next().map(|Json(error)| error)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::Error;

    /// By hand, as the derive would write it.
    macro_rules! coded {
        ($code:literal, $ty:ty) => {
            impl FailureCode for $ty {
                const CODE: &'static str = $code;
            }
            inventory::submit! { CodedError::new::<$ty>() }
        };
    }

    #[derive(Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
    #[error("{sku} is out")]
    struct OutOfStock {
        sku: String,
    }
    coded!("stock.out", OutOfStock);

    #[derive(Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
    #[error("no order")]
    struct NoOrder {
        #[serde(skip)]
        #[source]
        because: Option<OutOfStock>,
    }
    coded!("orders.none", NoOrder);

    #[derive(Debug, thiserror::Error, Serialize, Deserialize)]
    #[error("cannot be written")]
    struct Unwritable(#[serde(serialize_with = "refuse")] ());
    coded!("unwritable", Unwritable);

    fn refuse<S: serde::Serializer>(_: &(), _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no"))
    }

    fn out(sku: &str) -> OutOfStock {
        OutOfStock { sku: sku.into() }
    }

    fn failure(error: impl StdError + Send + Sync + 'static) -> Failure {
        Error::from(error).into_failure("stock[w]")
    }

    #[test]
    fn the_code_is_the_type_and_the_value_comes_back() {
        let failure = failure(out("chair"));
        assert_eq!(failure.kind, "stock.out");
        assert_eq!(failure.find(), Some(out("chair")));
        assert_eq!(failure.find::<NoOrder>(), None);
        assert!(failure.has_code("stock.out") && !failure.has_code("orders.none"));
    }

    #[test]
    fn sources_have_codes_of_their_own() {
        let failure = failure(NoOrder { because: Some(out("chair")) });
        assert_eq!(failure.kind, "orders.none");
        assert_eq!(failure.causes[0].kind, "stock.out");
        assert_eq!(failure.find(), Some(out("chair")));
        assert_eq!(failure.find(), Some(NoOrder { because: None }));
    }

    #[test]
    fn values_survive_json_and_the_way_up() {
        let mut failure = failure(NoOrder { because: Some(out("a\0b\u{1F984}\"\\")) });
        for level in 0..500 {
            failure = match level % 2 {
                0 => Failure::child_rolled_back(Some("0"), "above[w]", vec![failure]),
                _ => Failure::parent_said_so("beside[w]", failure),
            };
        }
        let json = serde_json::to_string(&failure).unwrap();
        let read: Failure = serde_json::from_str(&json).unwrap();
        assert_eq!(read.find(), Some(out("a\0b\u{1F984}\"\\")));
        assert!(read.has_code("orders.none"));
        let without_escaped_backslashes = json.replace("\\\\", "");
        assert!(!without_escaped_backslashes.contains("\\u0000"), "PostgreSQL would refuse it");
    }

    #[test]
    fn all_of_a_type_are_found_in_their_order() {
        let children = ["chair", "table"].map(|sku| failure(out(sku)));
        let failure = Failure::child_rolled_back(Some("0"), "above[w]", children.into());
        assert_eq!(failure.find_all::<OutOfStock>(), [out("chair"), out("table")]);
    }

    #[test]
    fn what_cannot_travel_is_left_out_and_the_failure_stays() {
        let largest = DATA_BYTES_MAX - r#"{"sku":""}"#.len();
        assert!(failure(out(&"x".repeat(largest))).find::<OutOfStock>().is_some());
        for failure in [failure(out(&"x".repeat(largest + 1))), failure(Unwritable(()))] {
            assert!(failure.causes.is_empty());
            assert!(failure.has_code("stock.out") || failure.has_code("unwritable"));
            assert_eq!((failure.find::<OutOfStock>(), failure.root_causes()), (None, vec![&failure]));
        }
    }

    #[test]
    fn what_is_not_large_travels() {
        assert!(failure(out(&"x".repeat(60_000))).find::<OutOfStock>().is_some());
    }

    #[test]
    fn a_code_is_registered_with_its_type() {
        let of_code = |code| CodedError::all().filter(|coded| coded.code() == code).collect::<Vec<_>>();
        let [registered] = *of_code("stock.out") else { panic!("it is registered once") };
        assert!(registered.type_name().ends_with("::OutOfStock"), "{}", registered.type_name());
    }

    #[test]
    fn a_value_of_another_form_is_passed_over() {
        let other = Failure::new("stock.out", "", "stock[w]").caused_by([Failure::new(DATA, "7", "")]);
        let both = Failure::new("T", "m", "s").caused_by([other, failure(out("chair"))]);
        assert_eq!(both.find(), Some(out("chair")));
        let unread: Vec<_> = both.unread_types().map(CodedError::code).collect();
        assert_eq!(unread, ["stock.out"]);
        assert_eq!(failure(out("chair")).unread_types().count(), 0);
    }

    #[test]
    fn values_do_not_show() {
        let failure = failure(out("chair"));
        assert_eq!(failure.root_causes(), [&failure]);
        assert!(!failure.report().contains("scoop:data"), "{}", failure.report());
    }
}
