#![allow(unused)]
use scoop::prelude::*;

#[derive(FailureCode)]
union Bits {
    float: f32,
    int: u32,
}

fn main() {}
