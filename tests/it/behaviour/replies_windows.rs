//! The window of messages whose replies a step gets.

use std::time::SystemTime;

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "ask-price", reply = u32)]
struct AskPrice(u32);

#[derive(Default)]
struct Answering;

#[saga(name = "answering")]
#[subscribes(AskPrice)]
impl Answering {
    #[step]
    async fn answer(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
        scope.reply(ask, ask.0 * 10)
    }
}

#[derive(Default)]
struct Asking;

/// Between `ask` and `collect` lie two generated steps: one cleans up, and one waits.
#[saga(name = "asking")]
#[subscribes(Root)]
impl Asking {
    #[step]
    async fn ask_first(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        scope.launch(AskPrice(1)).await?;
        Ok(())
    }

    #[step(finally = hang_up)]
    async fn ask(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        scope.launch(AskPrice(2)).await?;
        scope.launch(AskPrice(3)).await?;
        Ok(())
    }

    #[step(at = any_time)]
    async fn collect(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        let answers = scope.replies::<AskPrice>().await?;
        let children = scope.children().await?.len();
        let all = scope.all_replies::<AskPrice>().await?.len();
        let values: Vec<_> = answers.iter().map(|answer| answer.value).collect();
        assert_eq!((values, children, all), (vec![20, 30], 2, 3));
        Ok(())
    }

    #[step]
    async fn later(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        assert!(scope.replies::<AskPrice>().await?.is_empty());
        Ok(())
    }

    async fn hang_up(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        assert_eq!(scope.replies::<AskPrice>().await?.len(), 2);
        Ok(())
    }

    async fn any_time(&self, _: &mut Scope<'_>, _: &Root) -> Result<SystemTime> {
        Ok(SystemTime::UNIX_EPOCH)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_or_cleanup_in_between_hides_no_reply() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Asking, Answering)).await?;
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    Ok(())
}
