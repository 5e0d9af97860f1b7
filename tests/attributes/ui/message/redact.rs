use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(redact(card, cvv))]
struct Order {
    card: String,
    cvc: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(redact())]
struct Nothing {
    card: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(redact = "card")]
struct NoList {
    card: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(redact("card"))]
struct NoField {
    card: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(redact(payment))]
struct Flattened {
    #[serde(flatten)]
    payment: std::collections::BTreeMap<String, u32>,
}

#[derive(Message, Serialize, Deserialize)]
#[message(redact(card))]
struct Positional(String);

fn main() {}
