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

saga!(Value, pin = true);
saga!(Text, pin = "never");

fn main() {}
