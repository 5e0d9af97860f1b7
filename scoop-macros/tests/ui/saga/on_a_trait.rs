#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[saga]
trait Checkout {
    fn total(&self) -> u32;
}

fn main() {}
