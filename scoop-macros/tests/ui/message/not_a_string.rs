#![allow(unused)]
use scoop::prelude::*;

const TOPIC: &str = "orders.placed";

#[derive(Message, Serialize, Deserialize)]
#[message(topic = TOPIC)]
struct Constant;

#[derive(Message, Serialize, Deserialize)]
#[message = "orders.placed"]
struct Bare;

fn main() {}
