//! Clean-up after a step, after each outcome (scenarios TF).
//!
//! Unlike in the reference, the second step that this takes is named after the first, and that it
//! has run is not kept in the context, so that no child ever sees it (W-40).

use super::*;
use crate::support::{Database, Notes};

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Fails {
    Never,
    Step,
    Child,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Try {
    fails: Fails,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic")]
struct TryChild {
    fails: bool,
}

struct RootHandler {
    notes: Notes,
}

#[saga(name = "root-handler")]
#[subscribes(Try)]
impl RootHandler {
    #[step(name = "0", finally = clean_up)]
    async fn zero(&self, scope: &mut Scope<'_>, root: &Try) -> Result<()> {
        self.notes.add("try");
        scope.launch(TryChild { fails: root.fails == Fails::Child }).await?;
        if root.fails == Fails::Step { Err(SIMULATED.into()) } else { Ok(()) }
    }

    async fn clean_up(&self, scope: &mut Scope<'_>, _: &Try) -> Result<()> {
        self.notes.add("finally");
        scope.launch(Finally).await?;
        Ok(())
    }

    #[step(name = "2")]
    async fn two(&self, _: &mut Scope<'_>, _: &Try) -> Result<()> {
        self.notes.add("step 2");
        Ok(())
    }
}

struct ChildHandler {
    notes: Notes,
}

#[saga(name = "child-handler")]
#[subscribes(TryChild)]
impl ChildHandler {
    #[step(name = "0")]
    async fn zero(&self, _: &mut Scope<'_>, child: &TryChild) -> Result<()> {
        self.notes.add("child");
        if child.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

struct FinallyHandler {
    notes: Notes,
}

#[saga(name = "finally-handler")]
#[subscribes(Finally)]
impl FinallyHandler {
    #[step(name = "0")]
    async fn zero(&self, _: &mut Scope<'_>, _: &Finally) -> Result<()> {
        self.notes.add("finally-handler");
        Ok(())
    }
}

async fn play(db: &Database, fails: Fails) -> Result<(Outcome, Vec<String>)> {
    let notes = Notes::default();
    let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().only::<FinallyHandler>();
    let scoop = scoop.provide(RootHandler { notes: notes.clone() });
    let scoop = scoop.provide(ChildHandler { notes: notes.clone() });
    let scoop = scoop.provide(FinallyHandler { notes: notes.clone() }).start().await?;
    let outcome = scoop.launch(Try { fails }).await?.ends().await?;
    Ok((outcome, notes.all()))
}

#[tokio::test(flavor = "multi_thread")]
async fn tf_01_success() -> Result<()> {
    let db = Database::new().await;
    let (outcome, calls) = play(&db, Fails::Never).await?;
    assert_eq!(outcome, Outcome::Committed);
    assert_eq!(calls, ["try", "child", "finally", "finally-handler", "step 2"]);
    db.history().await.expect(
        r#"M0 EMITTED · ·
        M0 SEEN root-handler ·
        M1 EMITTED root-handler 0
        M0 SUSPENDED root-handler 0 next=1
        M1 SEEN child-handler ·
        M1 SUSPENDED child-handler 0
        M1 COMMITTED child-handler 0
        M2 EMITTED root-handler "0 (finally)"
        M0 SUSPENDED root-handler "0 (finally)" next=2
        M2 SEEN finally-handler ·
        M2 SUSPENDED finally-handler 0
        M2 COMMITTED finally-handler 0
        M0 SUSPENDED root-handler 2
        M0 COMMITTED root-handler 2"#,
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tf_02_the_try_body_throws() -> Result<()> {
    let db = Database::new().await;
    let (outcome, calls) = play(&db, Fails::Step).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)));
    assert_eq!(calls, ["try", "finally"]);
    db.history().await.expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M0 ROLLING_BACK root-handler 0
        M0 ROLLED_BACK root-handler RB(0[0,])",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tf_03_a_child_of_the_try_body_fails() -> Result<()> {
    let db = Database::new().await;
    let (outcome, calls) = play(&db, Fails::Child).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)));
    assert_eq!(calls, ["try", "child", "finally", "finally-handler"]);
    db.history().await.expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M1 EMITTED root-handler 0
        M0 SUSPENDED root-handler 0 next=1
        M1 SEEN child-handler ·
        M1 ROLLING_BACK child-handler 0
        M1 ROLLED_BACK child-handler RB(0[0,])
        M0 ROLLING_BACK root-handler 0 cfhi=0
        M1 ROLLBACK_EMITTED root-handler RBC(0[0,])
        M0 SUSPENDED root-handler RBC(0[0,])
        M2 EMITTED root-handler RB(0[0,])
        M0 SUSPENDED root-handler RB(0[0,])
        M2 SEEN finally-handler ·
        M2 SUSPENDED finally-handler 0
        M2 COMMITTED finally-handler 0
        M0 ROLLED_BACK root-handler RB(0[0,])",
    );
    Ok(())
}
