#![allow(unused)]
use scoop::prelude::*;

#[derive(Message)]
union Bits {
    float: f32,
    int: u32,
}

fn main() {}
