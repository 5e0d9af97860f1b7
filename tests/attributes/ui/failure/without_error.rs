#![allow(unused)]
use scoop::prelude::*;

#[derive(Debug, Serialize, Deserialize, FailureCode)]
struct OutOfStock;

fn main() {}
