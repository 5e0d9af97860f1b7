use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(wait = scoop::wait::AtLeast(0))]
struct NoCondition;

#[derive(Message, Serialize, Deserialize)]
#[message(wait = scoop::wait::AtLeast(2).within("10 apples"))]
struct NoDuration;

#[derive(Message, Serialize, Deserialize)]
#[message(wait = scoop::wait::Only::these([]))]
struct NoHandler;

#[derive(Message, Serialize, Deserialize)]
#[message(wait = scoop::wait::Window::of("0s"))]
struct NoWindow;

#[derive(Message, Serialize, Deserialize)]
#[message(wait)]
struct NoStrategy;

#[derive(Message, Serialize, Deserialize)]
#[message(wait = 2)]
struct NoStrategyEither;

#[derive(Default)]
struct Checkout;

#[derive(Message, Serialize, Deserialize)]
struct Order;

#[saga(wait = scoop::wait::AtLeast(0).leave_others())]
#[subscribes(Order)]
impl Checkout {
    #[step]
    async fn reserve(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

fn main() {}
