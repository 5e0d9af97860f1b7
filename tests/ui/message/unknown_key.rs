#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topik = "orders.placed")]
struct OrderPlaced;

fn main() {}
