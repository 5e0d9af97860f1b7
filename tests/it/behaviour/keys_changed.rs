//! The idempotency key of a step while its saga changes between attempts.

use std::collections::BTreeSet;

use scoop::HierarchyId;
use uuid::Uuid;

use super::idempotency_keys::Calls;
use super::*;
use crate::support::{Database, eventually};

/// How often the steps run that repeat themselves.
const REPEATS: usize = 3;

/// A version of the saga, which notes its calls. Its step `pay` fails unless it `pays`.
trait Version: Saga {
    fn new(calls: &Calls, pays: bool) -> Self;
}

/// The action of each step. A step whose name ends with `often` repeats itself.
fn ran<S>(calls: &Calls, pays: bool, step: &'static str, scope: &Scope<'_>) -> Result<Next<S>> {
    let earlier = calls.note(step, scope);
    if !pays && (step == "pay" || step == "pay_often" && earlier > 0) {
        return Err(SIMULATED.into());
    }
    Ok(if step.ends_with("often") && (scope.iteration() as usize) < REPEATS - 1 {
        Next::Repeat
    } else {
        Next::Continue
    })
}

macro_rules! versions {
    ($($version:ident { $($step:ident $([$($settings:tt)*])?;)* })*) => {$(
        mod $version {
            use super::*;

            pub(super) struct Paying {
                calls: Calls,
                pays: bool,
            }

            impl Version for Paying {
                fn new(calls: &Calls, pays: bool) -> Self {
                    Self { calls: calls.clone(), pays }
                }
            }

            #[saga(name = "paying")]
            #[subscribes(Root)]
            impl Paying {
                $(#[step(retry(max = 100_000, backoff = "1ms..1ms") $(, $($settings)*)?)]
                async fn $step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<PayingStep>> {
                    ran(&self.calls, self.pays, stringify!($step), scope)
                })*
            }
        }
    )*};
}

versions! {
    original { prepare; pay; }
    inserted { prepare; check; pay; }
    removed { pay; }
    renamed { prepare; check; charge [was = "pay"]; }
    sleeping { prepare; rest [sleep = "1ms"]; pay; }
    repeating { prepare; check_often; pay; }
    looping { prepare; pay_often; }
    looping_inserted { prepare; check; check_often; pay_often; }
}

/// A saga that waits for a point in time before the step.
mod delayed {
    use super::*;

    pub(super) struct Paying {
        calls: Calls,
        pays: bool,
    }

    impl Version for Paying {
        fn new(calls: &Calls, pays: bool) -> Self {
            Self { calls: calls.clone(), pays }
        }
    }

    #[saga(name = "paying")]
    #[subscribes(Root)]
    impl Paying {
        #[step]
        async fn prepare(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            Ok(())
        }

        #[step(at = now)]
        async fn pay(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<PayingStep>> {
            ran(&self.calls, self.pays, "pay", scope)
        }

        async fn now(&self, _: &mut Scope<'_>, _: &Root) -> Result<std::time::SystemTime> {
            Ok(std::time::SystemTime::now())
        }
    }
}

/// A run with `tries` failed attempts of its step, after the end of the version `S`.
async fn tried_by<S: Version>(
    db: &Database,
    (calls, step, tries): (&Calls, &'static str, usize),
) -> Result<HierarchyId> {
    let scoop = db.start((S::new(calls, false),)).await?;
    let root = scoop.launch(Root).await?.id();
    eventually("the step was tried", async || calls.keys(step).len() >= tries).await;
    scoop.shutdown().await?;
    Ok(root)
}

async fn goes_on_in<S: Version>(db: &Database, calls: &Calls, root: HierarchyId) -> Result<()> {
    let scoop = db.start((S::new(calls, true),)).await?;
    assert_eq!(scoop.find(root).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

/// The keys of the step, tried by the original version and completed by the version `S` under the name `named`.
async fn keys_across<S: Version>(named: &'static str) -> Result<(BTreeSet<Uuid>, Calls)> {
    let (db, calls) = (Database::new().await, Calls::default());
    let root = tried_by::<original::Paying>(&db, (&calls, "pay", 1)).await?;
    goes_on_in::<S>(&db, &calls, root).await?;
    Ok((calls.keys("pay").into_iter().chain(calls.keys(named)).collect(), calls))
}

#[tokio::test(flavor = "multi_thread")]
async fn tried_step_behind_an_inserted_one_keeps_its_key() -> Result<()> {
    let (keys, calls) = keys_across::<inserted::Paying>("pay").await?;
    assert_eq!((keys.len(), calls.keys("check").len()), (1, 1), "{calls:?}");
    let (keys, calls) = keys_across::<renamed::Paying>("charge").await?;
    assert_eq!((keys.len(), calls.keys("check").len()), (1, 1), "{calls:?}");
    let (keys, calls) = keys_across::<sleeping::Paying>("pay").await?;
    assert_eq!((keys.len(), calls.keys("rest").len()), (1, 1), "{calls:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tried_step_behind_a_repeated_one_keeps_its_key() -> Result<()> {
    let (keys, calls) = keys_across::<repeating::Paying>("pay").await?;
    let checks: BTreeSet<_> = calls.keys("check_often").into_iter().collect();
    assert_eq!((keys.len(), checks.len()), (1, REPEATS), "{calls:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tried_step_keeps_its_key_when_a_step_before_is_removed_or_a_wait_added() -> Result<()> {
    let (keys, calls) = keys_across::<removed::Paying>("pay").await?;
    assert_eq!(keys.len(), 1, "{calls:?}");
    let (keys, calls) = keys_across::<delayed::Paying>("pay").await?;
    assert_eq!(keys.len(), 1, "{calls:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn iterations_have_keys_of_their_own_that_an_inserted_loop_does_not_change() -> Result<()> {
    let (db, calls) = (Database::new().await, Calls::default());
    // The second iteration fails.
    let root = tried_by::<looping::Paying>(&db, (&calls, "pay_often", 2)).await?;
    goes_on_in::<looping_inserted::Paying>(&db, &calls, root).await?;
    let keys = calls.keys("pay_often");
    let (first, later) = keys.split_first().expect("it was called");
    let distinct: BTreeSet<_> = later.iter().collect();
    assert!(!distinct.contains(first), "{calls:?}");
    assert_eq!(distinct.len(), REPEATS - 1, "{calls:?}");
    Ok(())
}
