use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(reply = u32, replies = u32)]
struct QuoteWanted;

#[derive(Message, Serialize, Deserialize)]
#[message(replies)]
struct OfferWanted;

fn main() {}
