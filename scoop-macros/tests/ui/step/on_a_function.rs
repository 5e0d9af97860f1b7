#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[step]
async fn reserve(order: &OrderPlaced) -> Result<()> {
    Ok(())
}

fn main() {}
