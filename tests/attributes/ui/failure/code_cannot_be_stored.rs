#![allow(unused)]
use scoop::prelude::*;

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(code = "")]
#[error("empty")]
struct Empty;

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(code = "stock\0out")]
#[error("NUL")]
struct Nul;

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(
    code = "a-code-that-goes-on-and-on-a-code-that-goes-on-and-on-a-code-that-goes-on-and-on-a-code-that-goes-on-and-on-a-code-that-goes-on-and-on-a-code-that-goes-on-and-on-and-never-comes-to-its-end"
)]
#[error("long")]
struct Long;

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(code = "scoop:data")]
#[error("ours")]
struct Ours;

fn main() {}
