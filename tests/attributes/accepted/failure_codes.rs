//! Codes that are given and codes that follow from names; two types with one keep the program from
//! starting.
#![deny(warnings)]
use scoop::errors::SetupError;

#[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize, scoop::FailureCode)]
#[error("out of stock")]
struct OutOfStock;

#[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize, scoop::FailureCode)]
#[failure(code = "payments.declined")]
enum Declined {
    #[error("the card is not good for {cents} cents")]
    TooMuch { cents: i64 },
}

mod another_service {
    #[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize, scoop::FailureCode)]
    #[failure(code = "out-of-stock")]
    #[error("none left")]
    pub(super) struct NoneLeft;
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let failure = scoop::Error::from(Declined::TooMuch { cents: 7 }).into_failure("payments[w]");
    assert_eq!(failure.kind, "payments.declined");
    assert!(matches!(failure.find(), Some(Declined::TooMuch { cents: 7 })));
    assert!(failure.find::<OutOfStock>().is_none());

    let Err(error) = scoop::Scoop::builder().start().await else {
        panic!("it started");
    };
    let same = error.setup().iter().find_map(|it| match it {
        SetupError::DuplicateFailureCode { code, types } => Some((code, types)),
        _ => None,
    });
    let (code, types) = same.expect("two types have one code");
    assert_eq!(code, "out-of-stock");
    assert!(
        types.contains("::OutOfStock`, `") && types.contains("another_service::NoneLeft`"),
        "{types}"
    );
    let _ = another_service::NoneLeft;
}
