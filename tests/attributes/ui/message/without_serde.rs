#![allow(unused)]
use scoop::prelude::*;

#[derive(Message)]
struct OrderPlaced {
    order: u32,
}

fn main() {}
