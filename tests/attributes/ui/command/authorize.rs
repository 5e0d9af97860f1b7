use scoop::Caller;
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Reserved;

#[derive(Default, Serialize, Deserialize)]
struct Stock;

#[entity(name = "stock", key = u64)]
impl Stock {
    fn reserved(&mut self, _: &Reserved) {}
}

#[derive(Serialize, Deserialize)]
struct Reserve;

#[command(entity = Stock)]
impl Reserve {
    async fn authorize(&mut self, scope: &mut Scope<'_>, caller: Caller) -> bool {
        true
    }

    fn key(&self) -> u64 {
        7
    }

    fn decide(&self, _: &Stock) -> Decision<Reserved> {
        Decision::Accepted(Reserved)
    }
}

#[derive(Serialize, Deserialize)]
struct Sell;

#[command(entity = Stock)]
impl Sell {
    fn authorize(&self, _: &Stock) -> Result<u64> {
        Ok(7)
    }

    fn key(&self) -> u64 {
        7
    }

    fn decide(&self, _: &Stock) -> Decision<Reserved> {
        Decision::Accepted(Reserved)
    }
}

fn main() {}
