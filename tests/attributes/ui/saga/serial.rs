use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders")]
struct Order {
    customer: u64,
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

saga!(Value, serial = true);
saga!(Empty, serial());
saga!(Number, serial(1, by = customer));
saga!(TextKey, serial(by = "customer"));
saga!(Twice, serial, concurrency = 1);
saga!(RateOfKey, serial(by = customer), rate("5/s", by = customer));
saga!(OtherName, sequential);

fn main() {}
