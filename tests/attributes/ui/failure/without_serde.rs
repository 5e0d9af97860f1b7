#![allow(unused)]
use scoop::prelude::*;

#[derive(Debug, thiserror::Error, FailureCode)]
#[error("out of stock")]
struct OutOfStock;

fn main() {}
