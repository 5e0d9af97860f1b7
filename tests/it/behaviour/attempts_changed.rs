//! Attempts of a step that another program no longer has next.

use scoop::HierarchyId;

use super::*;
use crate::support::{Database, Notes, eventually};

/// A version of the saga, with its notes and its failing step.
pub(super) trait Version: Saga {
    fn new(notes: &Notes, fails: Fails) -> Self;
}

/// The step that fails, and in how many attempts.
#[derive(Clone, Copy)]
pub(super) struct Fails(pub(super) &'static str, pub(super) u32);

const NOTHING: Fails = Fails("", 0);

fn ran(notes: &Notes, fails: Fails, step: &str, scope: &Scope<'_>) -> Result<()> {
    notes.add(format!("{step} {}", scope.attempt()));
    if step == fails.0 && scope.attempt() < fails.1 { Err(SIMULATED.into()) } else { Ok(()) }
}

macro_rules! versions {
    ($($version:ident { $($step:ident [$($settings:tt)*];)* })*) => {$(
        pub(super) mod $version {
            use super::*;

            pub(in super::super) struct Paying {
                notes: Notes,
                fails: Fails,
            }

            impl Version for Paying {
                fn new(notes: &Notes, fails: Fails) -> Self {
                    Self { notes: notes.clone(), fails }
                }
            }

            #[saga(name = "paying")]
            #[subscribes(Root)]
            impl Paying {
                $(#[step(finally = tidy, $($settings)*)]
                async fn $step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
                    ran(&self.notes, self.fails, stringify!($step), scope)
                })*

                async fn tidy(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
                    self.notes.add(format!("tidy {}", scope.step().split(' ').next().unwrap_or_default()));
                    Ok(())
                }
            }
        }
    )*};
}

versions! {
    original { prepare []; pay [retry(max = 100_000, backoff = "1ms..1ms")]; }
    inserted { prepare []; check [retry(max = 1, backoff = "1ms..1ms")]; pay []; }
    renamed { prepare []; check []; charge [was = "pay"]; }
    only_renamed { prepare []; charge [was = "pay", retry(max = 1)]; }
    replaced { prepare []; check []; }
}

/// A run with a failed step `pay`, after the end of the original version.
async fn tried(db: &Database) -> Result<HierarchyId> {
    let notes = Notes::default();
    let saga = original::Paying::new(&notes, Fails("pay", u32::MAX));
    let scoop = db.scoop().only::<original::Paying>().provide(saga).start().await?;
    let root = scoop.launch(Root).await?.id();
    let tried = || notes.all().iter().filter(|note| note.starts_with("pay ")).count();
    eventually("the step was tried three times", async || tried() >= 3).await;
    scoop.shutdown().await?;
    assert!(!notes.all().contains(&"tidy pay".to_owned()), "{:?}", notes.all());
    Ok(root)
}

/// The outcome of the run in the version `S`, and the notes of that.
pub(super) async fn goes_on_in<S: Version>(
    db: &Database,
    root: HierarchyId,
    fails: Fails,
) -> Result<(Outcome, Vec<String>)> {
    let notes = Notes::default();
    let scoop = db.start((S::new(&notes, fails),)).await?;
    let outcome = scoop.find(root).await?.ends().await?;
    scoop.shutdown().await?;
    Ok((outcome, notes.all()))
}

async fn fails_in<S: Version>(fails: Fails) -> Result<(Outcome, Vec<String>)> {
    let db = Database::new().await;
    let root = tried(&db).await?;
    goes_on_in::<S>(&db, root, fails).await
}

/// The notes of the version `S`, which finds the run cancelled.
async fn cancelled_in<S: Version>() -> Result<Vec<String>> {
    let db = Database::new().await;
    let root = tried(&db).await?;
    db.client().cancel(root, "enough").await?;
    let (outcome, notes) = goes_on_in::<S>(&db, root, NOTHING).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
    Ok(notes)
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_do_not_count_for_a_step_inserted_in_front() -> Result<()> {
    let (outcome, notes) = fails_in::<inserted::Paying>(Fails("check", 1)).await?;
    assert_eq!(outcome, Outcome::Committed);
    assert_eq!(notes, ["check 0", "check 1", "tidy check", "pay 0", "tidy pay"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_count_for_a_renamed_step() -> Result<()> {
    let (outcome, notes) = fails_in::<only_renamed::Paying>(Fails("charge", u32::MAX)).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
    let [charge, tidy] = &*notes else { panic!("one attempt more, and no further: {notes:?}") };
    assert!(charge.starts_with("charge ") && charge != "charge 0" && tidy == "tidy charge", "{notes:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_cleans_up_after_the_tried_step_and_not_after_the_inserted_one() -> Result<()> {
    assert_eq!(cancelled_in::<original::Paying>().await?, ["tidy pay"]);
    assert_eq!(cancelled_in::<inserted::Paying>().await?, ["tidy pay"]);
    assert_eq!(cancelled_in::<renamed::Paying>().await?, ["tidy charge"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_cleans_up_after_nothing_if_the_tried_step_is_removed() -> Result<()> {
    assert_eq!(cancelled_in::<replaced::Paying>().await?, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_inserted_step_is_cleaned_up_after_and_so_is_the_tried_one() -> Result<()> {
    let (outcome, notes) = fails_in::<inserted::Paying>(Fails("check", u32::MAX)).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
    assert_eq!(notes, ["check 0", "check 1", "tidy check", "tidy pay"]);
    Ok(())
}
