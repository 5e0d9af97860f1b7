//! A program changes a step for whose signal or time runs wait.

use scoop::{Handle, HierarchyId};

use super::*;
use crate::support::{Database, Notes};

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "orders.approved", retention = "7 days")]
struct Approved;

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "orders.released", retention = "7 days")]
struct Released;

trait Version: Saga {
    fn new(notes: &Notes) -> Self;
}

/// Declares versions of the saga. Each step notes its name.
macro_rules! versions {
    ($($version:ident { $($step:ident $([$($settings:tt)*])?;)* $(+ $key:ident)? })*) => {$(
        mod $version {
            use super::*;

            pub(super) struct Shipping(Notes);

            impl Version for Shipping {
                fn new(notes: &Notes) -> Self {
                    Self(notes.clone())
                }
            }

            #[saga(name = "shipping")]
            #[subscribes(Root)]
            impl Shipping {
                $(
                    #[step($($($settings)*)?)]
                    async fn $step(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
                        self.0.add(stringify!($step));
                        Ok(())
                    }
                )*

                $(async fn $key(&self, _: &mut Scope<'_>, _: &Root) -> Result<String> {
                    Ok("7".into())
                })?
            }
        }
    )*};
}

versions! {
    original { reserve; ship [awaits(Approved, by = key)]; thank; + key }
    inserted { reserve; pack; ship [awaits(Approved, by = key)]; thank; + key }
    inserted_twice { reserve; pack; weigh; ship [awaits(Approved, by = key)]; thank; + key }
    renamed_signal { reserve; ship [awaits(Released, by = key)]; thank; + key }
    no_signal { reserve; ship; thank; }
    no_step { reserve; thank; }
}

/// A run that waits for its signal under the original version, whose program has ended.
async fn waiting(db: &Database, notes: &Notes) -> Result<HierarchyId> {
    let scoop = db.start((original::Shipping::new(notes),)).await?;
    let root = scoop.launch(Root).await?;
    root.comes_to(|tree| tree.roots()[0].state == RunState::AwaitingSignal).await?;
    scoop.shutdown().await?;
    Ok(root.id())
}

/// What ran after the signal came under this version.
async fn ran_under<S: Version>() -> Result<Vec<String>> {
    let (db, notes) = (Database::new().await, Notes::default());
    let root = waiting(&db, &notes).await?;
    let scoop = db.start((S::new(&notes),)).await?;
    assert_eq!(scoop.signal(Approved, "7").await?, 1);
    assert_eq!(scoop.find(root).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(notes.all())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_inserted_before_one_that_awaits_a_signal_runs_once_and_the_wait_is_not_repeated() -> Result<()>
{
    assert_eq!(ran_under::<inserted::Shipping>().await?, ["reserve", "pack", "ship", "thank"]);
    assert_eq!(ran_under::<inserted_twice::Shipping>().await?, ["reserve", "pack", "weigh", "ship", "thank"]);
    Ok(())
}

async fn is_stuck(root: &Handle) -> Result<String> {
    let tree = root.comes_to(|tree| matches!(tree.roots()[0].state, RunState::Stuck { .. })).await?;
    match &tree.roots()[0].state {
        RunState::Stuck { reason } => Ok(reason.clone()),
        other => panic!("{other:?}"),
    }
}

/// A run is stuck under this version, and goes on when a program awaits its signal again.
async fn stuck_under<S: Version>() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let root = waiting(&db, &notes).await?;
    let scoop = db.start((S::new(&notes),)).await?;
    let reason = is_stuck(&scoop.find(root).await?).await?;
    assert!(reason.contains("waits for the signal `orders.approved` with the key `7`"), "{reason}");
    assert_eq!(scoop.operate().failures().stuck().await?.len(), 1);
    // A retry does not have it go on without its signal.
    scoop.operate().failures().retry(scoop.operate().failures().stuck().await?[0].lineage.id()).await?;
    is_stuck(&scoop.find(root).await?).await?;
    assert_eq!(scoop.signal(Approved, "7").await?, 0, "it is kept");
    scoop.shutdown().await?;
    let scoop = db.start((original::Shipping::new(&notes),)).await?;
    assert_eq!(scoop.find(root).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["reserve", "ship", "thank"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_whose_signal_no_program_awaits_any_more_is_stuck() -> Result<()> {
    stuck_under::<renamed_signal::Shipping>().await?;
    stuck_under::<no_signal::Shipping>().await?;
    stuck_under::<no_step::Shipping>().await
}

#[tokio::test(flavor = "multi_thread")]
async fn run_whose_signal_an_older_living_program_awaits_is_not_stuck() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let old = db.start((original::Shipping::new(&notes),)).await?;
    let root = old.launch(Root).await?;
    root.comes_to(|tree| tree.roots()[0].state == RunState::AwaitingSignal).await?;
    let new = db.start((no_signal::Shipping::new(&notes),)).await?;
    assert!(new.operate().failures().stuck().await?.is_empty());
    old.shutdown().await?;
    is_stuck(&new.find(root.id()).await?).await?;
    new.shutdown().await?;
    Ok(())
}

/// Cancelled and retried, it rolls back.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_whose_signal_no_program_awaits_gives_up_when_it_is_retried() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let root = waiting(&db, &notes).await?;
    let scoop = db.start((no_step::Shipping::new(&notes),)).await?;
    let handle = scoop.find(root).await?;
    is_stuck(&handle).await?;
    scoop.cancel(root, "enough").await?;
    scoop.operate().failures().retry(scoop.operate().failures().stuck().await?[0].lineage.id()).await?;
    assert!(matches!(handle.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(notes.all(), ["reserve"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn explanation_of_a_wait_without_a_limit_names_no_time() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let root = waiting(&db, &notes).await?;
    let explained = db.client().operate().runs().explain(root).await?.to_string();
    assert!(explained.contains("orders.approved") && !explained.contains("9999"), "{explained}");
    Ok(())
}
