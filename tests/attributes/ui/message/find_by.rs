use std::collections::BTreeMap;

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(find_by(order, custmer))]
struct Order {
    order: u32,
    customer: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(redact(card), find_by(order, card))]
struct Redacted {
    order: u32,
    card: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by(items))]
struct NoValue {
    items: Vec<u32>,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by(order = numbr))]
struct NoKind {
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by())]
struct Nothing {
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by = "order")]
struct NoList {
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by("order"))]
struct NoField {
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by(order, order = number))]
struct Twice {
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by(rest))]
struct Flattened {
    #[serde(flatten)]
    rest: BTreeMap<String, u32>,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by(order))]
struct Skipped {
    #[serde(skip)]
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by(order))]
struct Renamed {
    #[serde(rename = "the order")]
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by(order))]
enum Payment {
    Card { order: u32 },
    Cash,
}

#[derive(Message, Serialize, Deserialize)]
#[message(find_by(a, b, c, d, e, f, g, h, i))]
struct Many {
    a: u32,
    b: u32,
    c: u32,
    d: u32,
    e: u32,
    f: u32,
    g: u32,
    h: u32,
    i: u32,
}

fn main() {}
