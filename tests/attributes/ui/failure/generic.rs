#![allow(unused)]
use scoop::prelude::*;

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("out of it")]
struct OutOf<T: std::fmt::Debug> {
    what: T,
}

fn main() {}
