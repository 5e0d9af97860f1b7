//! Accepted forms of the derives.
#![deny(warnings)]
use scoop::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

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

#[derive(Message, Serialize, Deserialize)]
#[message(retention = "1h")]
struct KeptForAnHour;

#[derive(Message, Serialize, Deserialize)]
#[message(retention = forever)]
struct KeptForEver;

#[derive(Message, Serialize, Deserialize)]
#[message(retention(committed = "7 days", rolled_back = "forever", failed = forever))]
struct KeptByOutcome;

#[derive(Message, Serialize, Deserialize)]
#[message(retention(rolled_back = "2 days"))]
struct KeptIfRolledBack;

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
#[signal(name = "Another one's", retention = "1h")]
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
    let times = |keep: scoop::RetentionTimes| [keep.committed, keep.rolled_back];
    let hours = |hours: u64| Some(Duration::from_secs(hours * 60 * 60));
    assert_eq!(times(Silent::RETENTION), [None, None]);
    assert_eq!(times(KeptForAnHour::RETENTION), [hours(1), hours(1)]);
    assert_eq!(times(KeptForEver::RETENTION), [Some(Duration::MAX), Some(Duration::MAX)]);
    assert_eq!(times(KeptByOutcome::RETENTION), [hours(7 * 24), Some(Duration::MAX)]);
    assert_eq!(times(KeptIfRolledBack::RETENTION), [None, hours(48)]);
    assert_eq!(TenantId::KEY, "TenantId");
    assert_eq!(Priority::KEY, "Another one's");
    assert_eq!(Made::KEY, "made");
    let _ = (OfferWanted::Now, Priority::High, PaymentConfirmed { amount: 1 }.amount, Decided::Yes);
    assert_eq!((PaymentConfirmed::NAME, PaymentConfirmed::RETENTION.as_secs()), ("payment-confirmed", 604_800));
    assert_eq!((Decided::NAME, Decided::RETENTION.as_secs()), ("Another one's", 3_600));
}
