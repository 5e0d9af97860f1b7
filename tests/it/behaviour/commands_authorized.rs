//! Commands with `authorize`: who may send them, and what a refused command leaves.

use std::sync::atomic::{AtomicUsize, Ordering};

use scoop::entities::CommandState;
use scoop::errors::NoResult;
use scoop::{Caller, ContextKey, Decider, Unauthorized};

use super::*;
use crate::support::{Database, Notes};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Safe {
    opened: u32,
}

#[entity(name = "safe", key = String)]
impl Safe {
    fn opened(&mut self, _: &Opened) {
        self.opened += 1;
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "safe.opened")]
struct Opened;

#[derive(Debug, PartialEq, thiserror::Error, FailureCode, Serialize, Deserialize)]
#[error("{role} is needed")]
#[failure(code = "test.role-missing")]
struct RoleMissing {
    role: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct Open {
    safe: String,
}

#[command(entity = Safe, name = "open-safe")]
impl Open {
    fn authorize(&self, caller: &Caller) -> Result<()> {
        if caller.subject() == Some("mallory") {
            panic!("not {} again", self.safe);
        }
        match caller.has_role("owner") && caller.get::<String>("safe")?.as_ref() == Some(&self.safe) {
            true => Ok(()),
            false => Err(RoleMissing { role: "owner".into() }.into()),
        }
    }

    fn key(&self) -> String {
        self.safe.clone()
    }

    fn decide(&self, _: &Safe) -> Decision<Opened> {
        Decision::Accepted(Opened)
    }
}

/// The calls of `fetch`.
static FETCHED: AtomicUsize = AtomicUsize::new(0);

#[derive(Serialize, Deserialize)]
struct OpenLater;

#[command(entity = Safe, name = "open-safe-later")]
impl OpenLater {
    fn authorize(&self, caller: &Caller) -> Result<()> {
        if caller.is_anonymous() { Err(Error::msg("a name is needed")) } else { Ok(()) }
    }

    fn key(&self) -> String {
        "later".into()
    }

    #[step(retry(max = 3, backoff = "1ms..2ms"))]
    async fn fetch(&self, _: &mut Scope<'_>) -> Result<u32> {
        FETCHED.fetch_add(1, Ordering::SeqCst);
        Ok(7)
    }

    fn decide(&self, _: &Safe, _: &u32) -> Decision<Opened> {
        Decision::Accepted(Opened)
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "safe.visited")]
struct Visit;

handler! {
    Visiting { notes: Notes }: "visiting" on Visit;

    #[step(name = "open", on_child_failure = explain)]
    async fn open(&self, scope: &mut Scope<'_>, _: &Visit) -> Result<()> {
        scope.launch(Open { safe: "bank".into() }).await?;
        Ok(())
    }

    async fn explain(&self, _: &mut Scope<'_>, _: &Visit, why: &Failure) -> Result<()> {
        let refused = why.find::<Unauthorized>().expect("it says why");
        let missing = why.find::<RoleMissing>().expect("it has the error of `authorize`");
        self.notes.add(format!("{} {:?} {}", refused.command, refused.caller, missing.role));
        Err(Error::failure(why.clone()))
    }
}

async fn start(db: &Database, notes: &Notes) -> Result<Scoop> {
    let builder = db.scoop().only::<Decider<Open>>().only::<Decider<OpenLater>>();
    Ok(builder.only::<Visiting>().provide(Visiting { notes: notes.clone() }).start().await?)
}

fn owner(safe: &str) -> Result<Caller> {
    Ok(Caller::new("alice").role("owner").data("safe", safe.to_owned())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_command_changes_nothing_and_says_who_and_why() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Notes::default()).await?;
    let open = Open { safe: "bank".into() };
    for (caller, named) in [
        (None, "an anonymous caller"),
        (Some(Caller::new("bob")), "the caller `bob`"),
        (Some(owner("attic")?), "the caller `alice`"),
    ] {
        let sent = scoop.send(open.clone());
        let sent = if let Some(caller) = caller { sent.caller(caller).await? } else { sent.await? };
        let error = sent.decision().await.expect_err("it is refused");
        let text = format!("{named} may not send the command `open-safe`: owner is needed");
        assert!(error.to_string().ends_with(&format!("it was refused: {text}")), "{error}");
        let Some(NoResult::Refused(failure)) = error.no_result() else {
            panic!("it is refused: {error}");
        };
        assert_eq!(failure.find::<RoleMissing>(), Some(RoleMissing { role: "owner".into() }));
        assert_eq!(scoop.find(sent.id()).await?.command_state().await?, Some(CommandState::Refused));
        assert!(matches!(sent.wait().await?, Outcome::RolledBack(_)));
        let tree = sent.tree().await?.to_string();
        assert!(tree.contains(&text), "{tree}");
    }
    assert_eq!(scoop.entity::<Safe>("bank".into()).await?.version, 0);

    let allowed = scoop.send(open).caller(owner("bank")?).await?;
    assert_eq!(allowed.decision().await?, Decision::Accepted(Opened));
    assert_eq!(scoop.find(allowed.id()).await?.command_state().await?, Some(CommandState::Accepted));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_command_fetches_nothing_and_is_not_retried() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Notes::default()).await?;
    let refused = scoop.send(OpenLater).await?;
    let error = refused.decision().await.expect_err("it is refused").to_string();
    assert!(
        error.contains("an anonymous caller may not send the command `open-safe-later`: a name"),
        "{error}"
    );
    assert_eq!(FETCHED.load(Ordering::SeqCst), 0);
    assert!(scoop.send(OpenLater).caller(Caller::new("bob")).await?.decision().await?.is_accepted());
    assert_eq!(FETCHED.load(Ordering::SeqCst), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn command_of_a_saga_has_the_caller_of_the_first_message() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let outcome = scoop.launch(Visit).caller(owner("bank")?).await?.wait().await?;
    assert_eq!(outcome, Outcome::Committed);
    let refused = scoop.launch(Visit).caller(Caller::new("bob").role("owner")).await?;
    assert!(matches!(refused.wait().await?, Outcome::RolledBack(_)), "its parent fails, too");
    assert_eq!(notes.all(), ["open-safe Some(\"bob\") owner"]);
    assert_eq!(
        scoop.find(refused.id()).await?.command_state().await?,
        None,
        "the hierarchy is that of no command"
    );
    assert_eq!(scoop.entity::<Safe>("bank".into()).await?.version, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_of_authorize_fails_the_command() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Notes::default()).await?;
    let sent = scoop.send(Open { safe: "bank".into() }).caller(Caller::new("mallory")).await?;
    let Outcome::RolledBack(failure) = sent.wait().await? else { panic!("it is not authorized") };
    assert_eq!(failure.message, "panic in `authorize` of saga `open-safe`: not bank again");
    assert_eq!(scoop.find(sent.id()).await?.command_state().await?, None);
    assert_eq!(scoop.entity::<Safe>("bank".into()).await?.version, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_that_cannot_be_read_is_refused() -> Result<()> {
    #[derive(Serialize, Deserialize)]
    struct Forged(u32);

    impl ContextKey for Forged {
        const KEY: &'static str = "scoop.caller";
    }

    let db = Database::new().await;
    let scoop = start(&db, &Notes::default()).await?;
    let sent = scoop.send(Open { safe: "bank".into() }).with(Forged(7)).await?;
    let error = sent.decision().await.expect_err("it is refused").to_string();
    assert!(error.contains("under the key `scoop.caller`"), "{error}");
    assert_eq!(scoop.find(sent.id()).await?.command_state().await?, Some(CommandState::Refused));
    Ok(())
}
