//! Idempotency keys: no two calls of user code share one, unless one is the other run again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use super::*;
use crate::support::Database;

/// How often the failure handler launches another child, which fails, too.
const RETRIES: usize = 2;

#[derive(Clone, Debug, Default)]
pub(super) struct Calls(pub(super) Arc<Mutex<Vec<(&'static str, Uuid)>>>);

impl Calls {
    /// Notes a call, and says how many of that name were before.
    pub(super) fn note(&self, name: &'static str, scope: &Scope<'_>) -> usize {
        let mut calls = self.0.lock().expect("no thread panics here");
        let earlier = calls.iter().filter(|(known, _)| *known == name).count();
        calls.push((name, scope.idempotency_key()));
        earlier
    }

    /// The keys of the calls of that name.
    pub(super) fn keys(&self, name: &str) -> Vec<Uuid> {
        let calls = self.0.lock().expect("no thread panics here");
        calls.iter().filter(|(known, _)| *known == name).map(|(_, key)| *key).collect()
    }
}

struct Undoing {
    calls: Calls,
}

#[saga]
#[subscribes(Root)]
impl Undoing {
    #[step(rollback = undo, on_child_failure = cope)]
    async fn begin(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        self.calls.note("begin", scope);
        Ok(())
    }

    #[step]
    async fn fail(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        self.calls.note("fail", scope);
        Err(SIMULATED.into())
    }

    async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        self.calls.note("undo", scope);
        scope.launch(Child).await?;
        Ok(())
    }

    async fn cope(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        if self.calls.note("cope", scope) < RETRIES {
            scope.launch(Child).await?;
        }
        Ok(())
    }
}

handler! {
    FailingChild: "failing-child" on Child;
    step "fail" fail => fails(SIMULATED).silently();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compensation_and_each_call_of_its_failure_handler_have_keys_of_their_own() -> Result<()> {
    let db = Database::new().await;
    let calls = Calls::default();
    let scoop = db.start((Undoing { calls: calls.clone() }, FailingChild)).await?;
    let root = scoop.launch(Root).await?;
    let outcome = root.ends().await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}\n{}", root.tree().await?);
    let calls = calls.0.lock().expect("no thread panics here").clone();
    let names: Vec<_> = calls.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["begin", "fail", "undo", "cope", "cope", "cope"]);
    let keys: BTreeSet<_> = calls.iter().map(|(_, key)| key).collect();
    assert_eq!(keys.len(), calls.len(), "{calls:#?}");
    Ok(())
}
