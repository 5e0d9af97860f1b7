use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(crate = "scoop")]
struct Quoted;

fn main() {}
