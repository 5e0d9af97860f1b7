//! Steps that wait as a client does, shut their program down, or ignore the error of a launch: they fail, and say why.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::*;
use crate::support::Database;

#[derive(Clone, Copy, Debug, Message, Serialize, Deserialize)]
#[message(topic = "misused.step")]
enum Misuse {
    Wait,
    WaitBeside,
    Result,
    Shutdown,
    ShutdownWithin,
    IgnoredLaunch,
    IgnoredContext,
    IgnoredDetached,
    IgnoredSignal,
    HandedOn,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "misused.other", reply = u32)]
struct Other(String);

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "misused.poke")]
struct Poke;

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "misused.bulk")]
struct Bulk(String);

struct Misusing {
    program: Arc<OnceLock<Scoop>>,
}

#[saga(name = "misusing")]
#[subscribes(Misuse)]
impl Misusing {
    #[step]
    async fn misuse(&self, scope: &mut Scope<'_>, misuse: &Misuse) -> Result<()> {
        let program = self.program.get().expect("it was started before the launch").clone();
        let other = || Other("small".into());
        let too_large = || Other("x".repeat(2 << 20));
        match misuse {
            Misuse::Wait => drop(program.launch(other()).await?.wait().await?),
            Misuse::WaitBeside => {
                let launched = program.launch(other()).await?;
                let (outcome, ()) = tokio::join!(launched.wait(), async {});
                outcome?;
            }
            Misuse::Result => drop(program.launch(other()).await?.result::<Other>().await?),
            Misuse::Shutdown => program.shutdown().await?,
            Misuse::ShutdownWithin => program.shutdown_within(Duration::from_secs(60)).await?,
            Misuse::IgnoredLaunch => drop(scope.launch(too_large()).await),
            Misuse::IgnoredContext => {
                drop(scope.launch(other()).with(Bulk("x".repeat(100 << 10))).await);
            }
            Misuse::IgnoredDetached => drop(scope.detach(too_large()).await),
            Misuse::IgnoredSignal => drop(scope.signal(Poke, "")),
            // Another task has no step.
            Misuse::HandedOn => {
                let waiting = tokio::spawn(async move { program.launch(other()).await?.wait().await });
                drop(waiting.await.expect("it does not panic")?);
            }
        }
        Ok(())
    }
}

handler! {
    Others: "misused-others" on Other;
    step "note" note => done();
}

/// One slot is enough: no step holds it while it waits.
#[tokio::test(flavor = "multi_thread")]
async fn misused_step_fails_with_the_remedy() -> Result<()> {
    let (db, program) = (Database::new().await, Arc::new(OnceLock::new()));
    let misusing = Misusing { program: program.clone() };
    let scoop = db.scoop().only::<Misusing>().only::<Others>().provide(misusing).start().await?;
    program.set(scoop.clone()).ok().expect("it was not started before");
    let step = "step `misuse` of saga `misusing`";
    let expected = [
        (Misuse::Wait, "waits for the end of what a client launched", "scope.launch(..)"),
        (Misuse::WaitBeside, "waits for the end of what a client launched", "scope.launch(..)"),
        (Misuse::Result, "waits for the end of what a client launched", "scope.launch(..)"),
        (Misuse::Shutdown, "shuts the program down", "let that call `Scoop::shutdown`"),
        (Misuse::ShutdownWithin, "shuts the program down", "let that call `Scoop::shutdown`"),
        (Misuse::IgnoredLaunch, "ignores the error of a launch", "more than the 1048576 allowed"),
        (Misuse::IgnoredContext, "ignores the error of a launch", "under the key `misused.bulk`"),
        (Misuse::IgnoredDetached, "ignores the error of a launch", "more than the 1048576 allowed"),
        (Misuse::IgnoredSignal, "ignores the error of a signal", "`misused.poke`"),
    ];
    for (misuse, what, remedy) in expected {
        let Outcome::RolledBack(failure) = scoop.launch(misuse).await?.ends().await? else {
            panic!("{misuse:?} is refused")
        };
        let text = failure.to_string();
        assert!(text.contains(&format!("{step} {what}")) && text.contains(remedy), "{misuse:?}: {text}");
    }
    assert_eq!(scoop.launch(Misuse::HandedOn).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
