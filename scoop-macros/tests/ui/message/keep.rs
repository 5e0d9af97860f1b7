#![allow(unused)]
include!("../orders.rs");

mod no_time {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(keep = "always")]
    struct OrderPlaced;

    #[derive(Message, Serialize, Deserialize)]
    #[message(keep = 7)]
    struct OrderCancelled;
}

mod too_short {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(keep = "30 minutes")]
    struct OrderShipped;
}

fn main() {}
