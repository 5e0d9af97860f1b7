#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Placed<T> {
    order: T,
}

fn main() {}
