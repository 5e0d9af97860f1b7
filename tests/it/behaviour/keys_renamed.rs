//! The idempotency key of a step that is renamed between attempts.

use scoop::HierarchyId;

use super::idempotency_keys::Calls;
use super::*;
use crate::support::{Database, Gate, in_a_process_that_dies};

/// Versions of a saga that rename its second step twice.
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
) -> Result<Option<HierarchyId>> {
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
    let scoop = db.start((renamed::Third { calls: calls.clone(), gate },)).await?;
    assert_eq!(scoop.find(root).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    let calls = calls.0.lock().expect("no test panics with the lock").clone();
    let names: Vec<_> = calls.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["pay", "charge", "debit"]);
    assert!(calls.iter().all(|(_, key)| *key == calls[0].1), "{calls:#?}");
    Ok(())
}
