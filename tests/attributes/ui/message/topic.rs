#![allow(unused)]
include!("../orders.rs");

mod topic_empty_or_nul {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "")]
    struct Empty;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "orders\0placed")]
    struct Nul;
}

mod topic_too_long {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "a.topic.that.goes.on.and.on.until.no.notification.channel.can.be.named.so")]
    struct Long;

    #[derive(Message, Serialize, Deserialize)]
    struct AMessageWhoseNameGoesOnAndOnUntilNoNotificationChannelCanBeNamedSo;
}

fn main() {}
