use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topik = "orders.placed")]
struct OrderPlaced;

#[derive(Message, Serialize, Deserialize)]
#[message(replies = u32)]
struct QuoteWanted;

fn main() {}
