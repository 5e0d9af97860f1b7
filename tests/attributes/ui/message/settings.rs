#![allow(unused)]
include!("../orders.rs");

mod handlers_unknown {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(handlers = "requird")]
    struct OrderPlaced;

    #[derive(Message, Serialize, Deserialize)]
    #[message(handlers = "optional")]
    struct OrderCancelled;

    #[derive(Message, Serialize, Deserialize)]
    #[message(handlers = true)]
    struct OrderShipped;
}

mod not_a_string {
    use super::*;

    const TOPIC: &str = "orders.placed";

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = TOPIC)]
    struct Constant;

    #[derive(Message, Serialize, Deserialize)]
    #[message = "orders.placed"]
    struct Bare;
}

mod repeated {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "orders.placed", topic = "orders")]
    struct Key;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "orders.placed")]
    #[message(topic = "orders")]
    struct Attribute;
}

mod reply_and_replies {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(reply = u32, replies = u32)]
    struct QuoteWanted;

    #[derive(Message, Serialize, Deserialize)]
    #[message(replies)]
    struct OfferWanted;
}

mod reply_is_no_type {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(reply = "Quote")]
    struct QuoteWanted;

    #[derive(Message, Serialize, Deserialize)]
    #[message(reply)]
    struct OfferWanted;

    #[derive(Message, Serialize, Deserialize)]
    #[message(reply(Quote))]
    struct PriceWanted;
}

mod unknown_key {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topik = "orders.placed")]
    struct OrderPlaced;

    #[derive(Message, Serialize, Deserialize)]
    #[message(answer = u32)]
    struct QuoteWanted;
}

fn main() {}
