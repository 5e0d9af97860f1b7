use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders")]
struct Order {
    customer: u64,
    shop: u64,
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

saga!(NoTime, rate("100"));
saga!(Zero, rate("0/s"));
saga!(Unit, rate("100/parsec"));
saga!(Number, rate(100));
saga!(Nothing, rate());
saga!(NoRate, rate(by = customer));
saga!(Bare, rate);
saga!(Assigned, rate = "100/s");
saga!(MistypedKey, rate("100/s", buy = customer));
saga!(TextKey, rate("100/s", by = "customer"));
saga!(TwoKeys, concurrency(1, by = customer), rate("100/s", by = shop));
saga!(OtherName, throttle = "100/s");

fn main() {}
