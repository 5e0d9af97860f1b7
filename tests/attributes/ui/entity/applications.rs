use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Reserved {
    units: i64,
}

#[derive(Default, Serialize, Deserialize)]
struct Stock {
    units: i64,
}

#[entity(name = "stock")]
impl Stock {
    fn reserved(&mut self, event: &Reserved) {
        self.units -= event.units;
    }

    fn again(&mut self, event: &Reserved) {
        self.units -= event.units;
    }

    async fn slow(&mut self, _: &Reserved) {}

    fn owned(&mut self, _: Reserved) {}

    fn with_result(&mut self, _: &Reserved) -> bool {
        true
    }

    fn reset(&mut self) {
        self.units = 0;
    }
}

#[entity(name = "shelf", id = u32)]
struct Shelf;

fn main() {}
