use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(handlers = "requird")]
struct OrderPlaced;

#[derive(Message, Serialize, Deserialize)]
#[message(handlers = "optional")]
struct OrderCancelled;

#[derive(Message, Serialize, Deserialize)]
#[message(handlers = true)]
struct OrderShipped;

fn main() {}
