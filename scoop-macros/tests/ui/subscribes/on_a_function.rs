#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[subscribes(OrderPlaced)]
fn on_order(order: &OrderPlaced) {}

fn main() {}
