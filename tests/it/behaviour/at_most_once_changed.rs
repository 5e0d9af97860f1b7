//! A step that runs at most once, in which the process died, while its saga changes: its code is not called again, and
//! the run fails as interrupted, whatever the next program makes of the step.

use scoop::{HierarchyId, Interrupted};

use super::*;
use crate::support::{Database, Gate, Notes, in_a_process_that_dies};

/// Declares versions of the saga. Each step notes its name, and stops at the gate if it is the one of that name.
macro_rules! versions {
    ($($version:ident { $($step:ident $([$($settings:tt)*])?;)* $(+ { $($function:tt)* })? })*) => {$(
        mod $version {
            use super::*;

            pub(super) struct Paying {
                notes: Notes,
                stops: Option<(&'static str, Gate)>,
            }

            impl Version for Paying {
                fn new(notes: &Notes, stops: Option<(&'static str, Gate)>) -> Self {
                    Self { notes: notes.clone(), stops }
                }
            }

            #[saga(name = "paying")]
            #[subscribes(Root)]
            impl Paying {
                $(
                    #[step($($($settings)*)?)]
                    async fn $step(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
                        ran(&self.notes, self.stops.as_ref(), stringify!($step)).await
                    }
                )*

                $($($function)*)?
            }
        }
    )*};
}

/// A version of the saga that stops at the gate in the step of that name.
trait Version: Saga {
    fn new(notes: &Notes, stops: Option<(&'static str, Gate)>) -> Self;
}

/// The action of each step.
async fn ran(notes: &Notes, stops: Option<&(&'static str, Gate)>, step: &'static str) -> Result<()> {
    notes.add(step);
    match stops {
        Some((name, gate)) if *name == step => gate.pass().await,
        _ => {}
    }
    Ok(())
}

versions! {
    original { open; charge [delivery = "at_most_once"]; ship; }
    inserted { open; inspect; charge [delivery = "at_most_once"]; ship; }
    inserted_first { greet; open; charge [delivery = "at_most_once"]; ship; }
    inserted_once { open; inspect [delivery = "at_most_once"]; charge [delivery = "at_most_once"]; ship; }
    reordered { open; ship; charge [delivery = "at_most_once"]; }
    removed { open; ship; }
    removed_with_the_rest { open; }
    replaced { open; pay [delivery = "at_most_once"]; ship; }
    renamed { open; pay [delivery = "at_most_once", was = "charge"]; ship; }
    renamed_behind_an_inserted_one { open; inspect; pay [delivery = "at_most_once", was = "charge"]; ship; }
    merged { open; both [delivery = "at_most_once", was = ["charge", "ship"]]; }
    at_least_once { open; charge; ship; }
    asleep { open [sleep = "1ms"]; charge [delivery = "at_most_once"]; ship; }
    timed {
        open;
        charge [delivery = "at_most_once", at = now];
        ship;
        + {
            async fn now(&self, _: &mut Scope<'_>, _: &Root) -> Result<std::time::SystemTime> {
                Ok(std::time::SystemTime::now())
            }
        }
    }
    tidied {
        open [finally = tidy];
        charge [delivery = "at_most_once"];
        ship;
        + {
            async fn tidy(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
                Ok(())
            }
        }
    }
}

/// A run in whose step of that name a process with the version `S` died.
async fn left_by_the_dead<S: Version>(
    db: &Database,
    notes: &Notes,
    step: &'static str,
) -> Result<HierarchyId> {
    let gate = Gate::default();
    let saga = S::new(notes, Some((step, gate.clone())));
    in_a_process_that_dies(db, move |builder: scoop::Builder| async move {
        let scoop = builder.only::<S>().provide(saga).start().await?;
        let root = scoop.launch(Root).await?.id();
        gate.arrivals(1).await;
        Ok((scoop, root))
    })
    .await
}

/// The step that was interrupted, as the failure of the run under the version `S` has it, and what is noted by then.
async fn interrupted_in<S: Version>(
    db: &Database,
    notes: &Notes,
    root: HierarchyId,
) -> Result<(String, Vec<String>)> {
    let scoop = db.start((S::new(notes, None),)).await?;
    let outcome = scoop.find(root).await?.ends().await?;
    scoop.shutdown().await?;
    let Outcome::RolledBack(why) = outcome else { panic!("{outcome:?} after {:?}", notes.all()) };
    let interrupted = why.find::<Interrupted>();
    Ok((interrupted.unwrap_or_else(|| panic!("{why}")).step, notes.all()))
}

/// Has the process die in the step under one version, and goes on under another one.
async fn changed<Old: Version, New: Version>(step: &'static str) -> Result<(String, Vec<String>)> {
    let (db, notes) = (Database::new().await, Notes::default());
    let root = left_by_the_dead::<Old>(&db, &notes, step).await?;
    interrupted_in::<New>(&db, &notes, root).await
}

/// Fails unless each of these versions has the run of the original one fail as interrupted, without a call.
macro_rules! is_interrupted_under {
    ($($version:ident: $name:literal,)*) => {$(
        let expected = ($name.to_owned(), vec!["open".to_owned(), "charge".to_owned()]);
        let under = changed::<original::Paying, $version::Paying>("charge").await?;
        assert_eq!(under, expected, "under `{}`", stringify!($version));
    )*};
}

#[tokio::test(flavor = "multi_thread")]
async fn begun_step_behind_an_inserted_one_is_not_called_again() -> Result<()> {
    is_interrupted_under! { inserted: "charge", inserted_first: "charge", inserted_once: "charge", }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn begun_step_that_was_moved_is_not_called_again() -> Result<()> {
    is_interrupted_under! { reordered: "charge", }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn begun_step_with_changed_settings_is_not_called_again() -> Result<()> {
    is_interrupted_under! { timed: "charge", tidied: "charge", asleep: "charge", at_least_once: "charge", }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn begun_step_that_was_renamed_is_not_called_again() -> Result<()> {
    is_interrupted_under! { renamed: "pay", renamed_behind_an_inserted_one: "pay", merged: "both", }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn begun_step_that_was_removed_is_not_forgotten() -> Result<()> {
    is_interrupted_under! { removed: "charge", removed_with_the_rest: "charge", replaced: "charge", }
    Ok(())
}

/// The former program does not know the new name, nor the inserted step.
#[tokio::test(flavor = "multi_thread")]
async fn begun_step_of_a_deployment_that_was_rolled_back_is_not_called_again() -> Result<()> {
    let (step, notes) = changed::<renamed::Paying, original::Paying>("pay").await?;
    assert_eq!((&*step, notes), ("pay", vec!["open".to_owned(), "pay".to_owned()]));
    let (step, notes) = changed::<inserted_once::Paying, original::Paying>("inspect").await?;
    assert_eq!((&*step, notes), ("inspect", vec!["open".to_owned(), "inspect".to_owned()]));
    Ok(())
}

/// A run that gives up says so, too: its compensations ask for the interruption.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_with_a_begun_step_says_that_it_was_interrupted() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let root = left_by_the_dead::<original::Paying>(&db, &notes, "charge").await?;
    let client = db.client();
    client.cancel(root, "enough").await?;
    let (step, notes) = interrupted_in::<removed::Paying>(&db, &notes, root).await?;
    assert_eq!((&*step, notes), ("charge", vec!["open".to_owned(), "charge".to_owned()]));
    Ok(())
}
