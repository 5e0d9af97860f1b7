use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Order;

#[derive(Default)]
struct Report;

#[saga(every = "1h")]
#[subscribes(Order)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

fn main() {}
