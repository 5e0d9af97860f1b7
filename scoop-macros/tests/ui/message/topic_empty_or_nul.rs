#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "")]
struct Empty;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders\0placed")]
struct Nul;

fn main() {}
