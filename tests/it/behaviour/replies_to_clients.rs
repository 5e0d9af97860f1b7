//! Replies to a client from the handlers of the message that it launched.

use scoop::errors::NoResult;

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "price-asked", reply = u32)]
struct AskPrice {
    /// How many of the two shops reply.
    replies: u32,
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "something-else", reply = u32)]
struct Other;

#[derive(Default)]
struct CornerShop;

/// Asks the wholesaler first, so the hierarchy has more runs than the handlers of the root message.
#[saga(name = "corner-shop")]
#[subscribes(AskPrice)]
impl CornerShop {
    #[step]
    async fn ask(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
        if ask.replies > 0 {
            scope.reply(ask, 10)?;
        }
        scope.launch(Other).await?;
        Ok(())
    }

    #[step]
    async fn quote(&self, _: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
        if ask.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

#[derive(Default)]
struct DepartmentStore;

#[saga(name = "department-store")]
#[subscribes(AskPrice)]
impl DepartmentStore {
    #[step]
    async fn quote(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
        if ask.replies > 1 { scope.reply(ask, 20) } else { Ok(()) }
    }
}

#[derive(Default)]
struct Wholesaler;

#[saga(name = "wholesaler")]
#[subscribes(Other)]
impl Wholesaler {
    #[step]
    async fn quote(&self, scope: &mut Scope<'_>, other: &Other) -> Result<()> {
        scope.reply(other, 5)
    }
}

async fn shops(db: &Database) -> Result<Scoop> {
    let scoop = db.scoop().only::<CornerShop>().only::<DepartmentStore>().only::<Wholesaler>();
    Ok(scoop.start().await?)
}

fn ask(replies: u32, fails: bool) -> AskPrice {
    AskPrice { replies, fails }
}

#[tokio::test(flavor = "multi_thread")]
async fn result_is_the_one_reply_to_the_root_message() -> Result<()> {
    let db = Database::new().await;
    let scoop = shops(&db).await?;
    assert_eq!(scoop.launch(ask(1, false)).result().await?, 10);

    let asked = scoop.launch(ask(1, false)).await?;
    assert_eq!(asked.result::<AskPrice>().await?, 10);
    let found = db.client().find(asked.id()).await?;
    assert_eq!(found.result::<AskPrice>().await?, 10, "another process gets it, too");
    let replies = found.replies::<AskPrice>().await?;
    assert_eq!(replies.len(), 1, "the wholesaler has not replied to the client: {replies:?}");
    assert_eq!((&*replies[0].handler, replies[0].message_id), ("corner-shop", asked.message_id()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_hierarchy_gives_its_failure_instead_of_a_result() -> Result<()> {
    let db = Database::new().await;
    let scoop = shops(&db).await?;
    let asked = scoop.launch(ask(1, true)).await?;
    let error = asked.result::<AskPrice>().await.expect_err("it was rolled back");
    let failure = error.failure().expect("it has failed");
    assert_eq!(failure.root_causes()[0].message, SIMULATED.0);
    assert!(matches!(error.no_result(), Some(NoResult::RolledBack(_))), "{error}");
    assert!(asked.replies::<AskPrice>().await?.is_empty(), "a handler that was rolled back has not replied");
    Ok(())
}

#[derive(Default)]
struct BusyShop;

#[saga(name = "busy-shop")]
#[subscribes(AskPrice)]
impl BusyShop {
    #[step(finally = reply)]
    async fn ask(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
        if ask.fails {
            scope.launch(Other).await?;
        }
        Ok(())
    }

    async fn reply(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
        scope.reply(ask, 30)
    }
}

handler! {
    NoWholesaler: "no-wholesaler" on Other;
    step "fail" fail => fails(SIMULATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn reply_in_a_finally_is_dropped_when_the_step_is_undone() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((BusyShop, NoWholesaler)).await?;
    assert_eq!(scoop.launch(ask(0, false)).result().await?, 30);
    let error = scoop.launch(ask(0, true)).result().await.expect_err("there is nothing to sell");
    assert!(matches!(error.no_result(), Some(NoResult::RolledBack(_))), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn error_of_a_failed_hierarchy_names_the_first_failure_with_saga_and_step() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((BusyShop, NoWholesaler)).await?;
    let error = scoop.launch(ask(0, true)).result().await.expect_err("there is nothing to sell");
    let text = error.to_string();
    let expected = "has no result: it was rolled back: Simulated failure to test rollback (step `fail` of saga \
                    `no-wholesaler` failed)";
    assert!(text.ends_with(expected) && !text.contains("Child"), "{text}");
    let full = format!("{error:#}");
    let report = error.failure().expect("it has failed").report();
    assert_eq!(full, format!("{text}\n{}", report.trim_end()));
    Ok(())
}

#[derive(Default)]
struct ConfusedShop;

/// Replies to a message that it launches, not to its own.
#[saga(name = "confused-shop")]
#[subscribes(AskPrice)]
impl ConfusedShop {
    #[step(finally = reply, retry(max = 3, backoff = "1h"))]
    async fn quote(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
        if ask.fails { scope.reply(&Other, 30) } else { Ok(()) }
    }

    async fn reply(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
        if ask.fails { Ok(()) } else { scope.reply(&Other, 30) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reply_to_a_message_of_another_saga_fails_the_step() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((ConfusedShop,)).await?;
    for (fails, step) in [(true, "quote"), (false, "quote (finally)")] {
        let error = scoop.launch(ask(0, fails)).result().await.expect_err("no reader would find the reply");
        let failure = error.failure().expect("it has failed").root_causes()[0].clone();
        assert_eq!(
            failure.message,
            format!(
                "step `{step}` of saga `confused-shop` replies to a message `Other` on topic `something-else`, but the saga \
                 handles topic `price-asked`, so the reply would be lost; write `scope.reply(message, ..)` with the message \
                 that the step is given, or reply in a saga with `#[subscribes(Other)]`"
            )
        );
        assert_eq!(failure.kind, "ReplyToOtherMessage");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_undone_on_request_has_no_result_any_more() -> Result<()> {
    let db = Database::new().await;
    let scoop = shops(&db).await?;
    let asked = scoop.launch(ask(1, false)).await?;
    assert_eq!(asked.result::<AskPrice>().await?, 10);
    assert_eq!(scoop.rollback(asked.id(), "a mistake").await?, RollbackAnswer::Accepted);
    assert!(matches!(asked.ends().await?, Outcome::RolledBack(_)));
    assert!(asked.replies::<AskPrice>().await?.is_empty());
    let error = asked.result::<AskPrice>().await.expect_err("it was undone");
    assert!(error.failure().is_some(), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reply_and_several_replies_are_errors_with_a_remedy() -> Result<()> {
    let db = Database::new().await;
    let scoop = shops(&db).await?;
    let error = scoop.launch(ask(0, false)).result().await.expect_err("no shop replies");
    assert!(matches!(error.no_result(), Some(NoResult::NoReply)), "{error}");
    assert!(
        error.to_string().contains("on topic `price-asked` has no result: no handler replied; call"),
        "{error}"
    );

    let asked = scoop.launch(ask(2, false)).await?;
    let error = asked.result::<AskPrice>().await.expect_err("both shops reply");
    let expected =
        "it has 2 replies, by `corner-shop`, `department-store`; read all of them with `replies()`";
    assert!(error.to_string().contains(expected), "{error}");
    let replies: Vec<_> = asked.replies::<AskPrice>().await?.iter().map(|reply| reply.value).collect();
    assert_eq!(replies, [10, 20]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unhandled_message_has_no_result_and_another_type_is_refused() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Wholesaler,)).await?;
    let error = scoop.launch(ask(1, false)).result().await.expect_err("no shop is open");
    assert!(matches!(error.no_result(), Some(NoResult::NoHandlers)), "{error}");

    let other = scoop.launch(Other).await?;
    assert_eq!(other.result::<Other>().await?, 5);
    let refusals = [other.replies::<AskPrice>().await.map(drop), other.result::<AskPrice>().await.map(drop)];
    for refusal in refusals {
        let error = refusal.expect_err("that was not launched").to_string();
        assert!(
            error.contains("is on topic `something-else`, but its replies were requested for"),
            "{error}"
        );
        assert!(
            error.contains("a message on topic `price-asked`; name the type that was launched"),
            "{error}"
        );
    }
    Ok(())
}
