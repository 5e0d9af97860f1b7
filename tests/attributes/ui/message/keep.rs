use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(keep = "a week")]
struct NoDuration;

#[derive(Message, Serialize, Deserialize)]
#[message(keep = "30m")]
struct BelowAnHour;

#[derive(Message, Serialize, Deserialize)]
#[message(keep = 30)]
struct NoString;

fn main() {}
