//! Typed errors in failures: a stable code for a type, and its value beside the failure.
//!
//! A `Box<dyn Error>` erases the type of an error, and another service does not have it at all. So the derive registers
//! each type with its code at link time, and the conversion to a [`Failure`] checks the error against every registered
//! type.

use std::error::Error as StdError;

use crate::stored::Json;
use crate::{Failure, Stored};

/// The maximum length of a code in characters.
pub const CODE_CHARS_MAX: usize = 180;

/// The type of a cause that holds the value of its error. The stored format has no field of its own for
/// it: a reader that does not know the type treats it as an ordinary cause.
const DATA: &str = "scoop:data";

/// The maximum size of a value as JSON in bytes. Failures are copied to every ancestor.
const DATA_BYTES_MAX: usize = 64 * 1024;

/// An error that other services can find in a [`Failure`] with its original type.
///
/// Derive it: `#[derive(FailureCode)]`, with `#[failure(code = "...")]` to name the code. Without that attribute the
/// code is the type's name in kebab case. The code is stored, so a type with an explicit code can be renamed, and any
/// type can be moved. It becomes the `type` of the failure, together with the error as JSON, unless that has more than
/// 64 kB.
///
/// The errors of the chain of [`source`](StdError::source) are found, too. An enum whose variant is
/// `#[error(transparent)]` hides its content; give the enum the code, or the variant a text. A source that cannot be
/// stored is left out with `#[serde(skip)]`: it is among the causes anyway.
///
/// [`Failure::find`] has an example.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no failure code",
    label = "no failure code",
    note = "write `#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]` on `{Self}`"
)]
pub trait FailureCode: StdError + Stored + Send + Sync + 'static {
    /// The stored name of the type: 1 to [`CODE_CHARS_MAX`] characters.
    const CODE: &'static str;
}

/// An error type of the linked program that has a code.
pub struct CodedError {
    code: &'static str,
    type_name: fn() -> &'static str,
    is: fn(&(dyn StdError + 'static)) -> bool,
    json: fn(&(dyn StdError + 'static)) -> Option<String>,
    reads: fn(&str) -> bool,
}

inventory::collect!(CodedError);

impl CodedError {
    /// The registration of `E`.
    pub const fn new<E: FailureCode>() -> Self {
        Self {
            code: E::CODE,
            type_name: std::any::type_name::<E>,
            is: |error| error.is::<E>(),
            json: |error| serde_json::to_string(&Json(error.downcast_ref::<E>()?)).ok(),
            reads: |json| serde_json::from_str::<Json<E>>(json).is_ok(),
        }
    }

    /// All registrations of this program, in no particular order.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        inventory::iter::<Self>()
    }

    /// The code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The name of the Rust type.
    pub fn type_name(&self) -> &'static str {
        (self.type_name)()
    }

    /// The registration of the type of this error.
    pub(crate) fn find(error: &(dyn StdError + 'static)) -> Option<&'static Self> {
        Self::all().find(|coded| (coded.is)(error))
    }

    /// The value of an error of this type, as a cause of its failure. `None` if it cannot be written as JSON or is too
    /// large. A NUL in a text is allowed, since JSON escapes it.
    pub(crate) fn data(&self, error: &(dyn StdError + 'static), source: &str) -> Option<Failure> {
        let json = (self.json)(error).filter(|json| json.len() <= DATA_BYTES_MAX)?;
        Some(Failure::new(DATA, json, source))
    }
}

impl Failure {
    /// The first error of that type in the tree of causes, with its original value. The search is depth-first, and
    /// visits each failure before its causes.
    ///
    /// A failure that has the code but no fitting value is skipped: the value was too large, or another program has a
    /// different version of the type. [`Failure::has_code`] still finds it.
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
    /// // In the service that requested the payment, which also gets the failures of services between:
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

    /// Whether this failure or one of its causes at any depth has this code. A failure without a
    /// typed error has a code, too: its `type`.
    pub fn has_code(&self, code: &str) -> bool {
        self.tree().any(|failure| failure.kind == code)
    }

    /// The error types of this program that cannot decode a value stored under their code, since a program with another
    /// type wrote it. [`Failure::find`] skips such values.
    pub fn unread_types(&self) -> impl Iterator<Item = &'static CodedError> {
        self.tree().filter_map(|failure| {
            let coded = CodedError::all().find(|coded| coded.code() == failure.kind)?;
            let mut data = failure.causes.iter().filter(|cause| cause.is_data());
            data.any(|data| !(coded.reads)(&data.message)).then_some(coded)
        })
    }

    /// Whether this is not a failure, but the value of the error that has it as a cause.
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

    /// The expansion of the derive, by hand.
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
    fn sources_have_their_own_codes() {
        let failure = failure(NoOrder { because: Some(out("chair")) });
        assert_eq!(failure.kind, "orders.none");
        assert_eq!(failure.causes[0].kind, "stock.out");
        assert_eq!(failure.find(), Some(out("chair")));
        assert_eq!(failure.find(), Some(NoOrder { because: None }));
    }

    #[test]
    fn values_survive_json_and_wrapping() {
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
    fn value_that_cannot_be_stored_is_left_out_and_the_failure_stays() {
        let largest = DATA_BYTES_MAX - r#"{"sku":""}"#.len();
        assert!(failure(out(&"x".repeat(largest))).find::<OutOfStock>().is_some());
        for failure in [failure(out(&"x".repeat(largest + 1))), failure(Unwritable(()))] {
            assert!(failure.causes.is_empty());
            assert!(failure.has_code("stock.out") || failure.has_code("unwritable"));
            assert_eq!((failure.find::<OutOfStock>(), failure.root_causes()), (None, vec![&failure]));
        }
    }

    #[test]
    fn value_within_the_limit_is_stored() {
        assert!(failure(out(&"x".repeat(60_000))).find::<OutOfStock>().is_some());
    }

    #[test]
    fn a_code_is_registered_with_its_type() {
        let of_code = |code| CodedError::all().filter(|coded| coded.code() == code).collect::<Vec<_>>();
        let [registered] = *of_code("stock.out") else { panic!("it is registered once") };
        assert!(registered.type_name().ends_with("::OutOfStock"), "{}", registered.type_name());
    }

    #[test]
    fn value_of_another_form_is_skipped() {
        let other = Failure::new("stock.out", "", "stock[w]").caused_by([Failure::new(DATA, "7", "")]);
        let both = Failure::new("T", "m", "s").caused_by([other, failure(out("chair"))]);
        assert_eq!(both.find(), Some(out("chair")));
        let unread: Vec<_> = both.unread_types().map(CodedError::code).collect();
        assert_eq!(unread, ["stock.out"]);
        assert_eq!(failure(out("chair")).unread_types().count(), 0);
    }

    #[test]
    fn values_are_hidden_in_reports() {
        let failure = failure(out("chair"));
        assert_eq!(failure.root_causes(), [&failure]);
        assert!(!failure.report().contains("scoop:data"), "{}", failure.report());
    }
}
