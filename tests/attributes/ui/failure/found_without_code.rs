#![allow(unused)]
use scoop::prelude::*;

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[error("out of stock")]
struct OutOfStock;

fn find(failure: &Failure) -> bool {
    failure.find::<OutOfStock>().is_some()
}

fn main() {}
