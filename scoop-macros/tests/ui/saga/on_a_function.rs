#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[saga]
async fn checkout(order: &OrderPlaced) -> Result<()> {
    Ok(())
}

fn main() {}
