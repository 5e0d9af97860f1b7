use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders")]
struct Order {
    lines: Vec<u32>,
}

#[derive(Default)]
struct NoField;

#[saga(concurrency(1, by = customer))]
#[subscribes(Order)]
impl NoField {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct NoText;

#[saga(concurrency(1, by = lines))]
#[subscribes(Order)]
impl NoText {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct NoTextOfAFunction;

#[saga(concurrency(1, by = first_line))]
#[subscribes(Order)]
impl NoTextOfAFunction {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }

    fn first_line(&self, order: &Order) -> Option<u32> {
        order.lines.first().copied()
    }
}

#[derive(Default)]
struct OtherMessage;

#[saga(concurrency(1, by = customer))]
#[subscribes(Order)]
impl OtherMessage {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }

    fn customer(&self, order: &String) -> String {
        order.clone()
    }
}

fn main() {}
