//! Idempotency keys: no two calls of user code share one, unless one is the other run again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use super::*;
use crate::support::{Database, Gate, in_a_process_that_dies};

/// How often the failure handler launches another child, which fails, too.
const RETRIES: usize = 2;

#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<(&'static str, Uuid)>>>);

impl Calls {
    /// Notes a call, and says how many of that name were before.
    fn note(&self, name: &'static str, scope: &Scope<'_>) -> usize {
        let mut calls = self.0.lock().expect("nobody panics here");
        let earlier = calls.iter().filter(|(known, _)| *known == name).count();
        calls.push((name, scope.idempotency_key()));
        earlier
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

#[derive(Default)]
struct FailingChild;

#[saga]
#[subscribes(Child)]
impl FailingChild {
    #[step]
    async fn fail(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
        Err(SIMULATED.into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compensation_and_each_call_of_its_failure_handler_have_keys_of_their_own() -> Result<()> {
    let db = Database::new().await;
    let calls = Calls::default();
    let scoop = db.scoop().only::<Undoing>().only::<FailingChild>();
    let scoop = scoop.provide(Undoing { calls: calls.clone() }).start().await?;
    let root = scoop.launch(Root).await?;
    let outcome = root.ends().await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}\n{}", root.tree().await?);
    let calls = calls.0.lock().expect("nobody panics here").clone();
    let names: Vec<_> = calls.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["begin", "fail", "undo", "cope", "cope", "cope"]);
    let keys: BTreeSet<_> = calls.iter().map(|(_, key)| key).collect();
    assert_eq!(keys.len(), calls.len(), "{calls:#?}");
    Ok(())
}

/// Versions of a saga whose second step is renamed twice.
mod renamed {
    use super::*;

    macro_rules! versions {
        ($($version:ident: #[step($($settings:tt)*)] $step:ident,)*) => {$(
            pub(super) struct $version {
                pub(super) calls: Calls,
                pub(super) gate: Gate,
            }

            #[saga(name = "paying")]
            #[subscribes(Root)]
            impl $version {
                #[step]
                async fn prepare(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
                    Ok(())
                }

                #[step($($settings)*)]
                async fn $step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
                    self.calls.note(stringify!($step), scope);
                    self.gate.pass().await;
                    Ok(())
                }
            }
        )*};
    }

    versions! {
        First: #[step()] pay,
        Second: #[step(was = "pay")] charge,
        Third: #[step(was = ["pay", "charge"])] debit,
    }
}

/// Kills a process with this saga while its step runs.
async fn dies_at_the_gate<S: Saga>(
    db: &Database,
    saga: S,
    gate: &Gate,
    launches: bool,
) -> Result<Option<Uuid>> {
    let gate = gate.clone();
    in_a_process_that_dies(db, move |builder: scoop::Builder| async move {
        let scoop = builder.only::<S>().provide(saga).start().await?;
        let root = if launches { Some(scoop.launch(Root).await?.id()) } else { None };
        gate.arrivals(1).await;
        Ok((scoop, root))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_step_keeps_its_key() -> Result<()> {
    let db = Database::new().await;
    let (calls, gate) = (Calls::default(), Gate::default());
    let first = renamed::First { calls: calls.clone(), gate: gate.clone() };
    let root = dies_at_the_gate(&db, first, &gate, true).await?.expect("it was launched");
    let second = renamed::Second { calls: calls.clone(), gate: gate.clone() };
    dies_at_the_gate(&db, second, &gate, false).await?;
    gate.open(1);
    let scoop = db.scoop().only::<renamed::Third>();
    let scoop = scoop.provide(renamed::Third { calls: calls.clone(), gate }).start().await?;
    assert_eq!(scoop.find(root).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await;
    let calls = calls.0.lock().expect("nobody panics here").clone();
    let names: Vec<_> = calls.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["pay", "charge", "debit"]);
    assert!(calls.iter().all(|(_, key)| *key == calls[0].1), "{calls:#?}");
    Ok(())
}
