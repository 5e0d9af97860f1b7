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
    fn key() -> u64 {
        7
    }

    async fn decide(&mut self, scope: &mut Scope<'_>, _: &Stock) -> Decision<Reserved> {
        Decision::Accepted(Reserved)
    }

    fn undo(&self, _: &Stock) -> Option<Reserved> {
        None
    }
}

#[derive(Serialize, Deserialize)]
struct Forget;

#[command(entty = Stock)]
impl Forget {
    fn fetch(&self) -> u64 {
        7
    }
}

#[derive(Serialize, Deserialize)]
struct Count;

#[command(entity = Stock)]
impl Count {
    fn key(&self) -> u64 {
        7
    }

    async fn fetch(&self, _: &mut Scope<'_>) -> Result<u32> {
        Ok(7)
    }

    fn decide(&self, _: &Stock) -> Decision<Reserved> {
        Decision::Accepted(Reserved)
    }
}

#[derive(Serialize, Deserialize)]
struct Borrow;

#[command(entity = Stock)]
impl Borrow {
    fn key(&self) -> u64 {
        7
    }

    fn decide(&self, _: &Stock, id: &uuid::Uuid) -> Decision<Reserved> {
        Decision::Accepted(Reserved)
    }
}

#[derive(Serialize, Deserialize)]
struct Weigh;

#[command(entity = Stock)]
impl Weigh {
    fn key(&self) -> u64 {
        7
    }

    async fn fetch(&self, _: &mut Scope<'_>) -> Result<u32> {
        Ok(7)
    }

    fn decide(&self, _: &Stock, id: uuid::Uuid, _: &u32) -> Decision<Reserved> {
        Decision::Accepted(Reserved)
    }
}

fn main() {}
