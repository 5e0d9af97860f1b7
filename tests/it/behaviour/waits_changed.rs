//! A program changes a step for whose signal or time runs wait.

use scoop::HierarchyId;

use super::*;
use crate::support::{Database, Notes};

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "orders.approved", keep = "7 days")]
struct Approved;

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

#[tokio::test(flavor = "multi_thread")]
async fn explanation_of_a_wait_without_a_limit_names_no_time() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let root = waiting(&db, &notes).await?;
    let explained = db.client().explain(root).await?.to_string();
    assert!(explained.contains("orders.approved") && !explained.contains("9999"), "{explained}");
    Ok(())
}
