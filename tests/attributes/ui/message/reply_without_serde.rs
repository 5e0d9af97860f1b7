use scoop::prelude::*;

struct Quote;

#[derive(Message, Serialize, Deserialize)]
#[message(reply = Quote)]
struct QuoteWanted;

fn main() {}
