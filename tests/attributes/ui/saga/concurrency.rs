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
saga!(NoKey, concurrency(10,));
saga!(NoNumber, concurrency(by = customer));
saga!(ZeroPerKey, concurrency(0, by = customer));
saga!(MistypedKey, concurrency(1, buy = customer));
saga!(TextKey, concurrency(1, by = "customer"));
saga!(PathKey, concurrency(1, by = Order::customer));
saga!(OtherName, max_concurrency = 10);

#[derive(Default)]
struct WaitingKey;

#[saga(concurrency(1, by = customer))]
#[subscribes(Order)]
impl WaitingKey {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }

    async fn customer(&self, _: &Order) -> String {
        String::new()
    }
}

#[derive(Default)]
struct KeyOfNothing;

#[saga(concurrency(1, by = customer))]
#[subscribes(Order)]
impl KeyOfNothing {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }

    fn customer() -> String {
        String::new()
    }
}

#[derive(Default)]
struct KeyOfStep;

#[saga(concurrency(1, by = run))]
#[subscribes(Order)]
impl KeyOfStep {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

fn main() {}
