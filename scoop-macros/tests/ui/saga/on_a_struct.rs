#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[saga]
#[subscribes(OrderPlaced)]
pub struct Checkout;

fn main() {}
