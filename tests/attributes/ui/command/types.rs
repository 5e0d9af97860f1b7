use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Reserved;

#[derive(Message, Serialize, Deserialize)]
struct Sold;

#[derive(Default, Serialize, Deserialize)]
struct Stock;

#[entity(name = "stock", key = u64)]
impl Stock {
    fn reserved(&mut self, _: &Reserved) {}
}

#[derive(Serialize, Deserialize)]
struct Sell;

#[command(entity = Stock)]
impl Sell {
    fn key(&self) -> u64 {
        7
    }

    fn decide(&self, _: &Stock) -> Decision<Sold> {
        Decision::Accepted(Sold)
    }
}

struct Shelf;

#[derive(Serialize, Deserialize)]
struct Reserve;

#[command(entity = Shelf)]
impl Reserve {
    fn key(&self) -> u64 {
        7
    }

    fn decide(&self, _: &Shelf) -> Decision<Reserved> {
        Decision::Accepted(Reserved)
    }
}

fn main() {}
