#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed", topic = "orders")]
struct Key;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed")]
#[message(topic = "orders")]
struct Attribute;

fn main() {}
