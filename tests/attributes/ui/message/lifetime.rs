#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize)]
struct Placed<'a> {
    order: &'a str,
}

fn main() {}
