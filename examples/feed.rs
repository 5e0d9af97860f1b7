//! An endless saga: it reads a feed batch by batch, each in an execution of its own. A rollback goes back to the
//! beginning of the batch that failed, and no further.
//!
//! ```text
//! cargo run -p examples --example feed
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use scoop::prelude::*;

/// A batch of a feed begins here.
#[derive(Clone, Message, Serialize, Deserialize)]
#[message(reply = u64)]
struct Feed {
    cursor: u64,
    end: u64,
    /// An article that cannot be stored.
    broken: Option<u64>,
}

#[derive(Message, Serialize, Deserialize)]
struct Article {
    number: u64,
    broken: bool,
}

const BATCH: u64 = 10;

static STORED: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct Reader;

#[saga]
#[subscribes(Feed)]
impl Reader {
    /// Launches a message for each article of the batch. The next step waits for all of them.
    #[step]
    async fn fetch(&self, scope: &mut Scope<'_>, feed: &Feed) -> Result<()> {
        for number in feed.cursor..feed.cursor + BATCH {
            scope.launch(Article { number, broken: feed.broken == Some(number) }).await?;
        }
        Ok(())
    }

    /// Begins the next batch with an empty history, under the same run.
    #[step]
    async fn turn(&self, scope: &mut Scope<'_>, feed: &Feed) -> Result<ContinueAsNew<ReaderStep, Feed>> {
        let cursor = feed.cursor + BATCH;
        if cursor < feed.end {
            return Ok(Next::continue_as_new(Feed { cursor, ..feed.clone() }));
        }
        scope.reply(feed, cursor)?;
        Ok(Next::Continue.into())
    }
}

#[derive(Default)]
struct Archive;

#[saga]
#[subscribes(Article)]
impl Archive {
    #[step(rollback = remove)]
    async fn store(&self, _: &mut Scope<'_>, article: &Article) -> Result<()> {
        if article.broken {
            return Err(Error::msg(format!("article {} is no text", article.number)));
        }
        STORED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn remove(&self, _: &mut Scope<'_>, _: &Article, _: &Failure) -> Result<()> {
        STORED.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;

    let feed = scoop.launch(Feed { cursor: 0, end: 50, broken: None }).await?;
    assert_eq!(feed.result::<Feed>().await?, 50);
    assert_eq!(STORED.swap(0, Ordering::Relaxed), 50);

    let feed = scoop.launch(Feed { cursor: 0, end: 50, broken: Some(37) }).await?;
    let Outcome::RolledBack(failure) = feed.wait().await? else { panic!("article 37 is broken") };
    println!("{}\n{}", failure.report(), feed.tree().await?);
    let tree = feed.tree().await?;
    assert_eq!(tree.roots()[0].former_executions, 3);
    assert_eq!(STORED.load(Ordering::Relaxed), 30, "three batches stay, the fourth is undone");

    scoop.shutdown().await?;
    Ok(())
}
