//! Another type of the same name is another message.

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Feed;

mod elsewhere {
    use scoop::prelude::*;

    #[derive(Message, Serialize, Deserialize)]
    pub struct Feed;
}

#[derive(Default)]
struct Reader;

#[saga]
#[subscribes(Feed)]
impl Reader {
    #[step]
    async fn turn(&self, _: &mut Scope<'_>, _: &Feed) -> Result<ContinueAsNew<ReaderStep, elsewhere::Feed>> {
        Ok(Next::continue_as_new(elsewhere::Feed))
    }
}

fn main() {}
