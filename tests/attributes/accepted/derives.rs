//! Accepted forms of the derives.
#![deny(warnings)]
use scoop::prelude::*;
use std::collections::HashMap;

#[derive(Serialize, Deserialize)]
struct Quote(u32);

#[derive(Message, Serialize, Deserialize)]
#[message(reply = HashMap<String, Quote>, topic = "quotes.wanted")]
struct QuotesWanted;

#[derive(Message, Serialize, Deserialize)]
#[message(reply = Option<(u32, String)>)]
enum OfferWanted {
    Now,
}

#[derive(Message, Serialize, Deserialize)]
#[message(replies = Quote, topic = "offers.wanted")]
struct OffersWanted;

#[derive(Message, Serialize, Deserialize)]
struct Silent;

#[derive(ContextKey, Serialize, Deserialize)]
struct TenantId(u32);

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "Another one's")]
enum Priority {
    High,
}

#[derive(Signal, Serialize, Deserialize)]
struct PaymentConfirmed {
    amount: i64,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "Another one's", keep = "1h")]
enum Decided {
    Yes,
}

macro_rules! element {
    ($name:ident, $key:literal) => {
        #[derive(ContextKey, Serialize, Deserialize)]
        #[context(key = $key)]
        struct $name;
    };
}

element!(Made, "made");

pub(crate) fn main() {
    let _: <QuotesWanted as Message>::Reply = HashMap::from([(String::new(), Quote(1))]);
    let _: <OfferWanted as Message>::Reply = Some((1, String::new()));
    let _: <OffersWanted as Message>::Reply = Quote(1);
    let _: <Silent as Message>::Reply = ();
    const { assert!(OffersWanted::MANY_REPLIES && !QuotesWanted::MANY_REPLIES && !Silent::MANY_REPLIES) };
    assert_eq!(QuotesWanted::TOPIC, "quotes.wanted");
    assert_eq!(TenantId::KEY, "TenantId");
    assert_eq!(Priority::KEY, "Another one's");
    assert_eq!(Made::KEY, "made");
    let _ = (OfferWanted::Now, Priority::High, PaymentConfirmed { amount: 1 }.amount, Decided::Yes);
    assert_eq!((PaymentConfirmed::NAME, PaymentConfirmed::KEEP.as_secs()), ("payment-confirmed", 604_800));
    assert_eq!((Decided::NAME, Decided::KEEP.as_secs()), ("Another one's", 3_600));
}
