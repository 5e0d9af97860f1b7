#![allow(unused)]
use scoop::prelude::*;

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(kode = "stock.out")]
#[error("unknown")]
struct Unknown;

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure = "stock.out"]
#[error("bare")]
struct Bare;

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(code = "stock.out", code = "stock.empty")]
#[failure(code = "stock.out")]
#[error("repeated")]
struct Repeated;

fn main() {}
