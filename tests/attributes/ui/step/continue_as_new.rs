//! A new execution begins with a message of the saga.

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Feed {
    cursor: u32,
}

#[derive(Message, Serialize, Deserialize)]
struct Other;

#[derive(Default)]
struct Reader;

#[saga]
#[subscribes(Feed)]
impl Reader {
    #[step]
    async fn message(&self, _: &mut Scope<'_>, _: &Feed) -> Result<ContinueAsNew<ReaderStep, Other>> {
        Ok(Next::continue_as_new(Other))
    }

    #[step]
    async fn steps(&self, _: &mut Scope<'_>, _: &Feed) -> Result<ContinueAsNew<Feed>> {
        Ok(Next::Continue.into())
    }

    #[step(finally = clean)]
    async fn cleaned(&self, _: &mut Scope<'_>, _: &Feed) -> Result<ContinueAsNew<ReaderStep, Feed>> {
        Ok(Next::Continue.into())
    }

    #[step(on_child_failure = handle)]
    async fn launches(&self, _: &mut Scope<'_>, _: &Feed) -> Result<()> {
        Ok(())
    }

    async fn clean(&self, _: &mut Scope<'_>, _: &Feed) -> Result<()> {
        Ok(())
    }

    async fn handle(&self, _: &mut Scope<'_>, _: &Feed, _: &Failure) -> Result<ContinueAsNew<ReaderStep, Feed>> {
        Ok(Next::Continue.into())
    }
}

fn main() {}
