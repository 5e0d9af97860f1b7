use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(reply = "Quote")]
struct QuoteWanted;

#[derive(Message, Serialize, Deserialize)]
#[message(reply)]
struct OfferWanted;

#[derive(Message, Serialize, Deserialize)]
#[message(reply(Quote))]
struct PriceWanted;

fn main() {}
