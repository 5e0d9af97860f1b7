use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Paid {
    cents: i64,
}

#[derive(Default, Serialize, Deserialize)]
struct Account {
    cents: i64,
}

#[entity(name = "account", key = i64, table)]
impl Account {
    fn paid(&mut self, event: &Paid) {
        self.cents -= event.cents;
    }
}

fn main() {}
