#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct AskPrice;

#[derive(Default)]
struct Shop;

#[saga]
#[subscribes(AskPrice)]
impl Shop {
    #[step]
    async fn quote(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
        scope.reply(ask, 990)
    }
}

async fn nothing(scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
    scope.reply(ask, ())
}

fn main() {}
