//! The context on its way down, along, and back up through a rollback (scenario CP).

use serde_json::json;

use super::*;
use crate::support::{Database, Notes};

#[derive(ContextKey, Serialize, Deserialize)]
struct ParentContextKey {
    value: u32,
}

#[derive(ContextKey, Serialize, Deserialize)]
struct ChildContextKey {
    value: u32,
}

/// The context as JSON, the blanks that PostgreSQL puts into it left out.
fn text_of(scope: &Scope<'_>) -> Result<String> {
    Ok(serde_json::to_value(scope.context())?.to_string())
}

/// Increments the parent's element.
fn parent_goes_on(scope: &mut Scope<'_>, notes: &Notes) -> Result<()> {
    let value = scope.get::<ParentContextKey>()?.map_or(0, |key| key.value);
    scope.set(ParentContextKey { value: value + 1 })?;
    notes.add(text_of(scope)?);
    Ok(())
}

/// Increments the child's element.
fn child_goes_on(scope: &mut Scope<'_>, notes: &Notes) -> Result<()> {
    let value = scope.get::<ChildContextKey>()?.map_or(0, |key| key.value);
    scope.set(ChildContextKey { value: value + 1 })?;
    notes.add(text_of(scope)?);
    Ok(())
}

struct RootHandler {
    notes: Notes,
}

#[saga(name = "root-handler")]
#[subscribes(Root)]
impl RootHandler {
    #[step(name = "0", rollback = undo_zero)]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        self.notes.add(text_of(scope)?);
        parent_goes_on(scope, &self.notes)?;
        scope.launch(Child).with(ChildContextKey { value: 0 }).await?;
        Ok(())
    }

    async fn undo_zero(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        parent_goes_on(scope, &self.notes)
    }

    #[step(name = "1")]
    async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        parent_goes_on(scope, &self.notes)?;
        Err(SIMULATED.into())
    }
}

struct ChildHandler {
    notes: Notes,
}

#[saga(name = "child-handler")]
#[subscribes(Child)]
impl ChildHandler {
    #[step(name = "0", rollback = undo)]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
        child_goes_on(scope, &self.notes)
    }

    #[step(name = "1", rollback = undo)]
    async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
        child_goes_on(scope, &self.notes)
    }

    async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        child_goes_on(scope, &self.notes)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cp_01_context_down_along_and_back_up_through_a_rollback() -> Result<()> {
    let db = Database::new().await;
    let notes = Notes::default();
    let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>();
    let scoop = scoop.provide(RootHandler { notes: notes.clone() });
    let scoop = scoop.provide(ChildHandler { notes: notes.clone() }).start().await?;
    let root = scoop.launch(Root).with(ParentContextKey { value: 0 }).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

    let p = |value: u32| json!({"ParentContextKey": {"value": value}});
    let c = |child: u32, parent: u32| json!({"ChildContextKey": {"value": child}, "ParentContextKey": {"value": parent}});
    let observed = [p(0), p(1), c(1, 1), c(2, 1), p(2), c(3, 2), c(4, 2), p(3)];
    assert_eq!(notes.all(), observed.map(|context| context.to_string()));
    db.history().await.expect_with(
        &[
            ("P0", p(0)),
            ("P1", p(1)),
            ("P2", p(2)),
            ("P3", p(3)),
            ("C0P1", c(0, 1)),
            ("C1P1", c(1, 1)),
            ("C2P1", c(2, 1)),
            ("C2P2", c(2, 2)),
            ("C3P2", c(3, 2)),
            ("C4P2", c(4, 2)),
        ],
        "M0 EMITTED · · ctx=P0
        M0 SEEN root-handler · ctx=P0
        M1 EMITTED root-handler 0 ctx=C0P1
        M0 SUSPENDED root-handler 0 next=1 ctx=P1
        M1 SEEN child-handler · ctx=C0P1
        M1 SUSPENDED child-handler 0 next=1 ctx=C1P1
        M1 SUSPENDED child-handler 1 ctx=C2P1
        M1 COMMITTED child-handler 1 ctx=C2P1
        M0 ROLLING_BACK root-handler 1 ctx=P2
        M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) ctx=P2
        M0 SUSPENDED root-handler RBC(0[0,]) ctx=P2
        M1 ROLLING_BACK child-handler · ctx=P2
        M1 SUSPENDED child-handler RBC(1[0,]) ctx=C2P2
        M1 SUSPENDED child-handler RB(1[0,]) ctx=C3P2
        M1 SUSPENDED child-handler RBC(0[0,]) ctx=C3P2
        M1 SUSPENDED child-handler RB(0[0,]) ctx=C4P2
        M1 ROLLED_BACK child-handler RB(0[0,]) ctx=C4P2
        M0 SUSPENDED root-handler RB(0[0,]) ctx=P3
        M0 ROLLED_BACK root-handler RB(0[0,]) ctx=P3",
    );
    Ok(())
}
