#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "a.topic.that.goes.on.and.on.until.no.notification.channel.can.be.named.so")]
struct Long;

#[derive(Message, Serialize, Deserialize)]
struct AMessageWhoseNameGoesOnAndOnUntilNoNotificationChannelCanBeNamedSo;

fn main() {}
