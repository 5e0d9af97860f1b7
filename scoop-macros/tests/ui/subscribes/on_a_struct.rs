#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[subscribes(OrderPlaced)]
struct Checkout;

fn main() {}
