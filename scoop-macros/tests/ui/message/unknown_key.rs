use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topik = "orders.placed")]
struct OrderPlaced;

#[derive(Message, Serialize, Deserialize)]
#[message(answer = u32)]
struct QuoteWanted;

fn main() {}
