use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders")]
struct Order;

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

saga!(Zero, concurrency = 0);
saga!(Many, concurrency = 3000000000);
saga!(Negative, concurrency = -1);
saga!(Text, concurrency = "10");
saga!(Bare, concurrency);
saga!(Nested, concurrency(10));
saga!(Mistyped, concurency = 10);

fn main() {}
