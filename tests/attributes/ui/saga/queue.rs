use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders")]
struct Order {
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "payments")]
struct Payment {
    order: u32,
}

macro_rules! saga {
    ($saga:ident, $($setting:tt)*) => {
        #[derive(Default)]
        struct $saga;

        #[saga($($setting)*)]
        #[subscribes(Order)]
        impl $saga {
            #[step]
            async fn run(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
                Ok(())
            }
        }
    };
}

saga!(Zero, queue = 0);
saga!(Many, queue = 1000001);
saga!(Huge, queue = 30000000000);
saga!(Negative, queue = -1);
saga!(Text, queue = "10");
saga!(Bare, queue);
saga!(Nested, queue(10));
saga!(Mistyped, queu = 10);
saga!(OtherName, backlog = 10);

#[derive(Default)]
struct Hourly;

#[saga(every = "1h", queue = 10)]
#[subscribes(Tick)]
impl Hourly {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Joins;

#[saga(queue = 10)]
#[subscribes(join(Order, Payment, by = order))]
impl Joins {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &JoinsMessage) -> Result<()> {
        Ok(())
    }
}

fn main() {}
