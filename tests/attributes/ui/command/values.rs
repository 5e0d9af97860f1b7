use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Reserved;

#[derive(Message, Serialize, Deserialize)]
struct Released;

#[derive(Default, Serialize, Deserialize)]
struct Stock;

#[entity(name = "stock", key = u64)]
impl Stock {
    fn reserved(&mut self, _: &Reserved) {}

    fn released(&mut self, _: &Released) {}
}

#[derive(Serialize, Deserialize)]
struct Reserve;

#[command(entity = Stock)]
impl Reserve {
    fn key(&self) -> String {
        "7".into()
    }

    async fn fetch(&self, _: &mut Scope<'_>) -> Result<u32> {
        Ok(7)
    }

    fn decide(&self, _: &Stock, _: &String) -> Decision<Reserved> {
        Decision::Accepted(Reserved)
    }

    fn undo(&self, _: &Stock, _: &Released) -> Option<Released> {
        None
    }
}

fn main() {}
