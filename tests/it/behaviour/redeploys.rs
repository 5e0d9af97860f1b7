//! A changed program meets runs under way: one program after the other, and both at once.
//!
//! Each version of the saga `trip` is a module. A step notes itself and its version in the database, in its own
//! transaction. So the notes are the committed effects, once each.

use scoop::Handle;
use scoop::tree::Tree;

use super::*;
use crate::support::Database;

/// A trip, and the actions of its steps.
#[derive(Clone, Default, Message, Serialize, Deserialize)]
#[message(topic = "trips")]
pub(super) struct Book {
    number: i64,
    /// The steps that launch a child, separated by blanks.
    launches: String,
    /// The step that fails.
    fails: String,
    /// How often `check` goes back to `one`.
    rounds: u32,
}

/// The message that `trip` launches and waits for.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "nights")]
pub(super) struct Night;

handler! {
    pub(super) Hotel: "hotel" on Night;
    step "stay" stay => done();
}

#[derive(Debug, Serialize, Deserialize)]
struct Price(i64);

/// The actions of each step: a note, a child, a failure.
async fn ran(scope: &mut Scope<'_>, book: &Book, version: &str, step: &str) -> Result<()> {
    note(scope, book, version, step).await?;
    if book.launches.split(' ').any(|launches| launches == step) {
        scope.launch(Night).await?;
    }
    if book.fails == step {
        return Err(Error::msg("no room"));
    }
    Ok(())
}

async fn note(scope: &mut Scope<'_>, book: &Book, version: &str, text: &str) -> Result<()> {
    let insert = "INSERT INTO trip_note (number, text, version) VALUES ($1, $2, $3)";
    sqlx::query(insert).bind(book.number).bind(text).bind(version).execute(scope.tx().await?).await?;
    Ok(())
}

/// Declares versions of the saga: their steps with their settings. Each is compensated.
macro_rules! versions {
    ($($version:ident { $($(#[step($($settings:tt)*)])? $step:ident;)* })*) => {$(
        pub(super) mod $version {
            use super::*;

            #[derive(Default)]
            pub(in super::super) struct Trip;

            #[saga(name = "trip")]
            #[subscribes(Book)]
            impl Trip {
                $(#[step(rollback = undo $(, $($settings)*)?)]
                async fn $step(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
                    ran(scope, book, stringify!($version), stringify!($step)).await
                })*

                async fn undo(&self, scope: &mut Scope<'_>, book: &Book, _: &Failure) -> Result<()> {
                    let text = scope.step().to_owned();
                    note(scope, book, stringify!($version), &text).await
                }
            }
        }
    )*};
}

/// Declares versions with a step before `two` that returns a value for `three`.
macro_rules! priced {
    ($($version:ident: $input:ty,)*) => {$(
        mod $version {
            use super::*;

            #[derive(Default)]
            pub(super) struct Trip;

            #[saga(name = "trip")]
            #[subscribes(Book)]
            impl Trip {
                #[step]
                async fn one(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
                    ran(scope, book, stringify!($version), "one").await
                }

                #[step]
                async fn price(&self, scope: &mut Scope<'_>, book: &Book) -> Result<Price> {
                    ran(scope, book, stringify!($version), "price").await?;
                    Ok(Price(7))
                }

                #[step]
                async fn two(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
                    ran(scope, book, stringify!($version), "two").await
                }

                #[step]
                async fn three(&self, scope: &mut Scope<'_>, book: &Book, _: $input) -> Result<()> {
                    ran(scope, book, stringify!($version), "three").await
                }
            }
        }
    )*};
}

priced! {
    inserted_needed: &Price,
    inserted_optional: Option<&Price>,
}

versions! {
    original { one; two; three; }
    inserted_after { one; two; between; three; }
    inserted_before { one; between; two; three; }
    renamed { #[step(was = "one")] eins; #[step(was = "two")] zwei; #[step(was = "three")] drei; }
    next_removed { one; two; four; }
    four_steps { one; two; three; four; }
    following_reordered { one; two; four; three; }
    moved_before { one; three; two; }
    completed_reordered { two; one; three; }
    completed_removed { two; three; }
    replaced { one; other; three; }
    sleeps { one; #[step(sleep = "1ms")] two; three; }
}

/// Declares versions of the saga of which some steps are compensated.
macro_rules! partly_compensated {
    ($($version:ident { $(#[step $(($($settings:tt)*))?] $step:ident;)* })*) => {$(
        mod $version {
            use super::*;

            #[derive(Default)]
            pub(super) struct Trip;

            #[saga(name = "trip")]
            #[subscribes(Book)]
            impl Trip {
                $(#[step $(($($settings)*))?]
                async fn $step(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
                    ran(scope, book, stringify!($version), stringify!($step)).await
                })*

                async fn undo(&self, scope: &mut Scope<'_>, book: &Book, _: &Failure) -> Result<()> {
                    let text = scope.step().to_owned();
                    note(scope, book, stringify!($version), &text).await
                }
            }
        }
    )*};
}

partly_compensated! {
    noted { #[step(rollback = undo)] one; #[step] note; #[step(rollback = undo)] two; #[step] three; }
    without_note { #[step(rollback = undo)] one; #[step(rollback = undo)] two; #[step] three; }
    note_compensated { #[step(rollback = undo)] one; #[step(rollback = undo)] note; #[step(rollback = undo)] two; #[step] three; }
}

/// Versions with other differences between their steps.
mod at_and_finally {
    use super::*;

    #[derive(Default)]
    pub(super) struct Trip;

    #[saga(name = "trip")]
    #[subscribes(Book)]
    impl Trip {
        #[step]
        async fn one(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
            ran(scope, book, "at_and_finally", "one").await
        }

        #[step(finally = tidy, retry(max = 2), on_child_failure = accept)]
        async fn two(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
            ran(scope, book, "at_and_finally", "two").await
        }

        #[step(at = soon)]
        async fn three(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
            ran(scope, book, "at_and_finally", "three").await
        }

        async fn tidy(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
            note(scope, book, "at_and_finally", "tidy").await
        }

        async fn soon(&self, scope: &mut Scope<'_>, book: &Book) -> Result<std::time::SystemTime> {
            note(scope, book, "at_and_finally", "soon").await?;
            Ok(std::time::SystemTime::now())
        }

        async fn accept(&self, _: &mut Scope<'_>, _: &Book, _: &Failure) -> Result<()> {
            Ok(())
        }
    }
}

mod looping {
    use super::*;

    /// How often a trip has gone back to `one`.
    fn rounds(scope: &Scope<'_>) -> Result<u32> {
        Ok(scope.get::<Rounds>()?.map_or(0, |rounds| rounds.0))
    }

    #[derive(Clone, Copy, ContextKey, Serialize, Deserialize)]
    pub(super) struct Rounds(pub(super) u32);

    macro_rules! loops {
        ($($version:ident { $($step:ident)* })*) => {$(
            pub(super) mod $version {
                use super::*;

                #[derive(Default)]
                pub(in super::super) struct Trip;

                #[saga(name = "trip")]
                #[subscribes(Book)]
                impl Trip {
                    $(#[step]
                    async fn $step(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
                        ran(scope, book, stringify!($version), stringify!($step)).await
                    })*

                    #[step]
                    async fn check(&self, scope: &mut Scope<'_>, book: &Book) -> Result<Next<TripStep>> {
                        ran(scope, book, stringify!($version), "check").await?;
                        let gone_back = rounds(scope)?;
                        scope.set(Rounds(gone_back + 1))?;
                        Ok(if gone_back < book.rounds { Next::goto(TripStep::One) } else { Next::Continue })
                    }
                }
            }
        )*};
    }

    loops! {
        before { one }
        after { zero one between }
    }
}

/// A database with the table of notes, and a trip that was launched under `S` and waits for the child of `two`, or of
/// another step.
async fn left_by<S: Saga>(book: Book) -> Result<(Database, Vec<Handle>)> {
    left_waiting::<S>(book, 1).await
}

pub(super) async fn left_waiting<S: Saga>(book: Book, trips: i64) -> Result<(Database, Vec<Handle>)> {
    let db = Database::new().await;
    db.execute("CREATE TABLE trip_note (id bigserial, number bigint, text text, version text)").await;
    db.start((Hotel,)).await?.shutdown().await?;
    let scoop = db.scoop().only::<S>().start().await?;
    let mut left = vec![];
    for number in 0..trips {
        let handle = scoop.launch(Book { number, ..book.clone() }).await?;
        handle.comes_to(waits).await?;
        left.push(db.client().find(handle.id()).await?);
    }
    scoop.shutdown().await?;
    Ok((db, left))
}

fn waits(tree: &Tree) -> bool {
    tree.roots().iter().any(|run| run.state == RunState::Waiting)
}

pub(super) fn launching_in(step: &str) -> Book {
    Book { launches: step.to_owned(), ..Book::default() }
}

/// The steps of a trip that took effect, each with its version.
pub(super) async fn notes(db: &Database, number: i64) -> String {
    let notes = db
        .texts(&format!("SELECT text || '@' || version FROM trip_note WHERE number = {number} ORDER BY id"))
        .await;
    notes.join(" ")
}

/// The outcome and the notes of a trip that was left in the original version after `two`, and goes on in version `S`.
async fn goes_on_in<S: Saga>(book: Book) -> Result<(Outcome, String)> {
    let (db, left) = left_by::<original::Trip>(book).await?;
    let scoop = db.scoop().only::<S>().only::<Hotel>().start().await?;
    let outcome = left[0].ends().await?;
    scoop.shutdown().await?;
    Ok((outcome, notes(&db, 0).await))
}

/// The reason why a trip that version `From` left after `step` is stuck in version `S`. It goes on when `From` is back.
async fn stuck_in<From: Saga, S: Saga>(step: &str) -> Result<String> {
    let (db, left) = left_by::<From>(launching_in(step)).await?;
    let scoop = db.scoop().only::<S>().only::<Hotel>().start().await?;
    let is_stuck = |tree: &Tree| matches!(tree.roots()[0].state, RunState::Stuck { .. });
    left[0].comes_to(is_stuck).await?;
    let [stuck] = &*scoop.operate().failures().stuck().await? else { panic!("one run is stuck") };
    let before = notes(&db, 0).await;
    // A program that has the former steps takes the run at once, while the other one lives on.
    let fitting = db.scoop().only::<From>().only::<Hotel>().start().await?;
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    assert!(scoop.operate().failures().stuck().await?.is_empty());
    assert!(notes(&db, 0).await.starts_with(&before));
    fitting.shutdown().await?;
    scoop.shutdown().await?;
    Ok(stuck.reason.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_inserted_after_the_completed_one_runs_next() -> Result<()> {
    let (outcome, notes) = goes_on_in::<inserted_after::Trip>(launching_in("two")).await?;
    assert_eq!(outcome, Outcome::Committed);
    assert_eq!(notes, "one@original two@original between@inserted_after three@inserted_after");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_rolled_back_skips_and_repeats_nothing() -> Result<()> {
    let (db, left) = left_by::<inserted_after::Trip>(launching_in("between")).await?;
    let scoop = db.start((original::Trip, Hotel)).await?;
    // `between` is gone and `three` follows it in either version.
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    let done = "one@inserted_after two@inserted_after between@inserted_after three@original";
    assert_eq!(notes(&db, 0).await, done);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_inserted_before_the_completed_one_is_not_run() -> Result<()> {
    for (outcome, notes) in [
        goes_on_in::<inserted_before::Trip>(launching_in("two")).await?,
        goes_on_in::<inserted_optional::Trip>(launching_in("two")).await?,
    ] {
        assert_eq!(outcome, Outcome::Committed);
        assert!(notes.starts_with("one@original two@original three@inserted_"), "{notes}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn needed_value_of_an_inserted_step_makes_the_run_stuck_before_anything_runs() -> Result<()> {
    let reason = stuck_in::<original::Trip, inserted_needed::Trip>("two").await?;
    assert!(reason.contains("step `three` takes what `price` returns"), "{reason}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_step_goes_on_and_is_undone() -> Result<()> {
    let (outcome, notes) = goes_on_in::<renamed::Trip>(launching_in("two")).await?;
    assert_eq!((outcome, &*notes), (Outcome::Committed, "one@original two@original drei@renamed"));
    let fails = Book { fails: "drei".into(), ..launching_in("two") };
    let (outcome, notes) = goes_on_in::<renamed::Trip>(fails).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)));
    let undone = "one@original two@original Rollback of two[0,]@renamed Rollback of one[0,]@renamed";
    assert_eq!(notes, undone);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_next_step_gives_way_to_its_successor() -> Result<()> {
    let (db, left) = left_by::<four_steps::Trip>(launching_in("two")).await?;
    let scoop = db.start((next_removed::Trip, Hotel)).await?;
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    assert_eq!(notes(&db, 0).await, "one@four_steps two@four_steps four@next_removed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_completed_step_makes_the_run_stuck() -> Result<()> {
    let reason = stuck_in::<original::Trip, replaced::Trip>("two").await?;
    assert!(reason.contains("no step `two` any more") && reason.contains("was = \"two\""), "{reason}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reordered_following_steps_take_the_new_order() -> Result<()> {
    let (db, left) = left_by::<four_steps::Trip>(launching_in("two")).await?;
    let scoop = db.start((following_reordered::Trip, Hotel)).await?;
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    let done = "one@four_steps two@four_steps four@following_reordered three@following_reordered";
    assert_eq!(notes(&db, 0).await, done);
    let reason = stuck_in::<original::Trip, moved_before::Trip>("two").await?;
    assert!(reason.contains("step `three` was moved and would be skipped"), "{reason}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_steps_stay_done_when_reordered_or_removed() -> Result<()> {
    for (outcome, notes) in [
        goes_on_in::<completed_reordered::Trip>(launching_in("two")).await?,
        goes_on_in::<completed_removed::Trip>(launching_in("two")).await?,
    ] {
        assert_eq!(outcome, Outcome::Committed);
        assert!(notes.starts_with("one@original two@original three@completed_re"), "{notes}");
    }
    let fails = Book { fails: "three".into(), ..launching_in("two") };
    let (_, notes) = goes_on_in::<completed_reordered::Trip>(fails).await?;
    assert!(
        notes.contains("Rollback of two[0,]@completed_reordered Rollback of one[0,]@completed_reordered"),
        "{notes}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_without_a_compensation_waits_for_a_program_that_has_it() -> Result<()> {
    let fails = Book { fails: "three".into(), ..launching_in("two") };
    let (db, left) = left_by::<original::Trip>(fails).await?;
    let scoop = db.start((completed_removed::Trip, Hotel)).await?;
    let is_stuck = |tree: &Tree| matches!(tree.roots()[0].state, RunState::Stuck { .. });
    let tree = left[0].comes_to(is_stuck).await?;
    assert!(tree.to_string().contains("has no step `one`, which has a compensation"), "{tree}");
    assert!(tree.to_string().contains("keep that step, or write a step with `was = \"one\"`"), "{tree}");
    let fitting = db.start((original::Trip, Hotel)).await?;
    assert!(matches!(left[0].ends().await?, Outcome::RolledBack(_)));
    fitting.shutdown().await?;
    scoop.shutdown().await?;
    let done = "one@original two@original Rollback of two[0,]@completed_removed Rollback of one[0,]@original";
    assert_eq!(notes(&db, 0).await, done);
    Ok(())
}

/// The states of the children of a run.
async fn children_of(run: &Handle) -> Result<Vec<RunState>> {
    let tree = run.tree().await?;
    Ok(tree.roots()[0].children.iter().map(|child| child.state.clone()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_step_without_a_compensation_is_passed_in_the_rollback() -> Result<()> {
    // One after the other, and both at once.
    for both in [false, true] {
        let fails = Book { fails: "three".into(), ..launching_in("note") };
        let (db, left) = left_by::<noted::Trip>(fails).await?;
        let old = if both { Some(db.start((noted::Trip,)).await?) } else { None };
        let new = db.start((without_note::Trip, Hotel)).await?;
        assert!(matches!(left[0].ends().await?, Outcome::RolledBack(_)));
        assert!(new.operate().failures().stuck().await?.is_empty());
        for scoop in old.into_iter().chain([new]) {
            scoop.shutdown().await?;
        }
        let done = "one@noted note@noted two@without_note \
                    Rollback of two[0,]@without_note Rollback of one[0,]@without_note";
        assert_eq!(notes(&db, 0).await, done);
        let children = children_of(&left[0]).await?;
        assert!(matches!(&*children, [RunState::RolledBack(_)]), "{children:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_run_is_undone_without_a_removed_step_that_had_no_compensation() -> Result<()> {
    let (db, left) = left_waiting::<noted::Trip>(launching_in("note two"), 1).await?;
    let old = db.start((noted::Trip, Hotel)).await?;
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    let new = db.start((without_note::Trip,)).await?;
    assert_eq!(new.rollback(left[0].id(), "not needed").await?, RollbackAnswer::Accepted);
    left[0].comes_to(|tree| matches!(tree.roots()[0].state, RunState::RolledBack(_))).await?;
    new.shutdown().await?;
    old.shutdown().await?;
    let undone = "Rollback of two[0,]@without_note Rollback of one[0,]@without_note";
    assert!(notes(&db, 0).await.ends_with(&format!("three@noted {undone}")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn compensation_added_or_removed_is_that_of_the_program_that_undoes() -> Result<()> {
    let fails = || Book { fails: "three".into(), ..launching_in("two") };
    let (db, left) = left_by::<noted::Trip>(fails()).await?;
    let new = db.start((note_compensated::Trip, Hotel)).await?;
    assert!(matches!(left[0].ends().await?, Outcome::RolledBack(_)));
    new.shutdown().await?;
    let undone = "Rollback of two[0,]@note_compensated Rollback of note[0,]@note_compensated \
                  Rollback of one[0,]@note_compensated";
    assert_eq!(notes(&db, 0).await, format!("one@noted note@noted two@noted {undone}"));

    let (db, left) = left_by::<note_compensated::Trip>(fails()).await?;
    let new = db.start((noted::Trip, Hotel)).await?;
    assert!(matches!(left[0].ends().await?, Outcome::RolledBack(_)));
    new.shutdown().await?;
    let done = "one@note_compensated note@note_compensated two@note_compensated \
                Rollback of two[0,]@noted Rollback of one[0,]@noted";
    assert_eq!(notes(&db, 0).await, done);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_a_step_added_or_removed_skip_and_repeat_nothing() -> Result<()> {
    let (outcome, added) = goes_on_in::<at_and_finally::Trip>(launching_in("two")).await?;
    assert_eq!(outcome, Outcome::Committed);
    let added_to = "one@original two@original tidy@at_and_finally soon@at_and_finally three@at_and_finally";
    assert_eq!(added, added_to);
    let (outcome, asleep) = goes_on_in::<sleeps::Trip>(launching_in("two")).await?;
    assert_eq!((outcome, &*asleep), (Outcome::Committed, "one@original two@original three@sleeps"));

    let (db, left) = left_by::<at_and_finally::Trip>(launching_in("two")).await?;
    let scoop = db.start((original::Trip, Hotel)).await?;
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    assert_eq!(notes(&db, 0).await, "one@at_and_finally two@at_and_finally three@original");
    Ok(())
}

/// The same step of the next version does not sleep.
#[tokio::test(flavor = "multi_thread")]
async fn sleeping_run_goes_on_in_a_version_that_does_not_sleep() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE trip_note (id bigserial, number bigint, text text, version text)").await;
    let scoop = db.start((sleeps::Trip,)).await?;
    let trip = scoop.launch(Book::default()).await?.id();
    scoop
        .find(trip)
        .await?
        .comes_to(|tree| matches!(tree.roots()[0].state, RunState::Sleeping | RunState::Committed))
        .await?;
    scoop.shutdown().await?;
    let scoop = db.start((inserted_after::Trip,)).await?;
    assert_eq!(scoop.find(trip).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    let done = notes(&db, 0).await;
    let steps: Vec<_> = done.split(' ').filter_map(|note| note.split('@').next()).collect();
    assert!(matches!(steps[..], ["one", "two", "three"] | ["one", "two", "between", "three"]), "{done}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn loop_goes_on_by_the_names_of_its_steps() -> Result<()> {
    let book = Book { rounds: 1, ..launching_in("check") };
    let (db, left) = left_by::<looping::before::Trip>(book).await?;
    let scoop = db.start((looping::after::Trip, Hotel)).await?;
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    assert_eq!(notes(&db, 0).await, "one@before check@before one@after between@after check@after");
    Ok(())
}

/// A rolling deployment: both versions live, runs are launched and continued all the time.
#[tokio::test(flavor = "multi_thread")]
async fn two_versions_at_once_skip_and_repeat_nothing() -> Result<()> {
    let (db, left) = left_waiting::<original::Trip>(launching_in("two"), 20).await?;
    let old = db.start((original::Trip,)).await?;
    let new = db.start((inserted_after::Trip, Hotel)).await?;
    let mut trips = left;
    for number in 20..40 {
        let scoop = if number % 2 == 0 { &old } else { &new };
        trips.push(scoop.launch(Book { number, ..launching_in("one two three") }).await?);
    }
    for (number, trip) in (0..).zip(&trips) {
        assert_eq!(trip.ends().await?, Outcome::Committed);
        let done = notes(&db, number).await;
        let steps: Vec<_> = done.split(' ').filter_map(|note| note.split('@').next()).collect();
        assert_eq!(steps, ["one", "two", "between", "three"], "trip {number}: {done}");
        assert!(done.ends_with("between@inserted_after three@inserted_after"), "the newer one wins: {done}");
    }
    old.shutdown().await?;
    new.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn older_version_finishes_runs_that_the_newer_one_refuses() -> Result<()> {
    let (db, left) = left_waiting::<original::Trip>(launching_in("two"), 10).await?;
    let old = db.start((original::Trip,)).await?;
    let new = db.start((moved_before::Trip, Hotel)).await?;
    for (number, trip) in (0..).zip(&left) {
        assert_eq!(trip.ends().await?, Outcome::Committed);
        assert_eq!(notes(&db, number).await, "one@original two@original three@original");
    }
    assert!(new.operate().failures().stuck().await?.is_empty());
    // New runs begin in the newer version.
    let fresh = old.launch(Book { number: 99, ..Book::default() }).await?;
    assert_eq!(fresh.ends().await?, Outcome::Committed);
    assert_eq!(notes(&db, 99).await, "one@moved_before three@moved_before two@moved_before");
    old.shutdown().await?;
    new.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn last_started_version_wins_and_the_other_takes_over_at_its_end() -> Result<()> {
    let (db, left) = left_waiting::<original::Trip>(launching_in("two"), 3).await?;
    let new = db.start((inserted_after::Trip,)).await?;
    // The deployment is rolled back: the former version registers again, and wins again.
    let old = db.start((original::Trip,)).await?;
    let hotel = db.start((Hotel,)).await?;
    for (number, trip) in (0..).zip(&left) {
        assert_eq!(trip.ends().await?, Outcome::Committed);
        assert_eq!(notes(&db, number).await, "one@original two@original three@original");
    }
    old.shutdown().await?;
    let next = new.launch(Book { number: 7, ..Book::default() }).await?;
    assert_eq!(next.ends().await?, Outcome::Committed);
    let done = notes(&db, 7).await;
    assert!(done.ends_with("between@inserted_after three@inserted_after"), "{done}");
    new.shutdown().await?;
    hotel.shutdown().await?;
    Ok(())
}

/// The saga with a new name, and the former one in its settings.
mod journey {
    use super::*;

    #[derive(Default)]
    pub(super) struct Trip;

    #[saga(name = "journey", was = "trip")]
    #[subscribes(Book)]
    impl Trip {
        #[step(rollback = undo)]
        async fn one(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
            ran(scope, book, scope.handler().to_owned().as_str(), "one").await
        }

        #[step(rollback = undo)]
        async fn two(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
            ran(scope, book, scope.handler().to_owned().as_str(), "two").await
        }

        #[step]
        async fn three(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
            ran(scope, book, scope.handler().to_owned().as_str(), "three").await
        }

        async fn undo(&self, scope: &mut Scope<'_>, book: &Book, _: &Failure) -> Result<()> {
            let text = scope.step().to_owned();
            note(scope, book, "undone", &text).await
        }
    }
}

/// The same without the former name.
mod forgotten {
    use super::*;

    #[derive(Default)]
    pub(super) struct Trip;

    #[saga(name = "journey")]
    #[subscribes(Book)]
    impl Trip {
        #[step]
        async fn one(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
            ran(scope, book, "forgotten", "one").await
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_saga_takes_over_runs_under_way() -> Result<()> {
    let (db, left) = left_by::<original::Trip>(launching_in("two")).await?;
    let new = db.start((journey::Trip, Hotel)).await?;
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    assert_eq!(notes(&db, 0).await, "one@original two@original three@trip");
    // A finished run is undone under its former name.
    assert_eq!(new.rollback(left[0].id(), "not needed").await?, RollbackAnswer::Accepted);
    left[0]
        .comes_to(|tree| tree.roots().iter().all(|run| matches!(run.state, RunState::RolledBack(_))))
        .await?;
    assert!(notes(&db, 0).await.ends_with("Rollback of two[0,]@undone Rollback of one[0,]@undone"));
    // A message launched now is delivered once, under the new name.
    let fresh = new.launch(Book { number: 1, ..Book::default() }).await?;
    assert_eq!(fresh.ends().await?, Outcome::Committed);
    assert_eq!(notes(&db, 1).await, "one@journey two@journey three@journey");
    new.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_saga_and_its_former_version_at_once_handle_each_message_once() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE trip_note (id bigserial, number bigint, text text, version text)").await;
    let old = db.start((original::Trip,)).await?;
    let new = db.start((journey::Trip, Hotel)).await?;
    let mut trips = vec![];
    for number in 0..10 {
        trips.push(old.launch(Book { number, ..launching_in("two") }).await?);
    }
    // An instance of the older program starts again.
    let again = db.start((original::Trip,)).await?;
    for number in 10..20 {
        trips.push(new.launch(Book { number, ..launching_in("two") }).await?);
    }
    for (number, trip) in (0..).zip(&trips) {
        assert_eq!(trip.ends().await?, Outcome::Committed);
        let done = notes(&db, number).await;
        let steps: Vec<_> = done.split(' ').filter_map(|note| note.split('@').next()).collect();
        assert_eq!(steps, ["one", "two", "three"], "trip {number}: {done}");
    }
    let listed: Vec<_> =
        again.operate().handlers().list().await?.into_iter().map(|listed| listed.handler).collect();
    assert!(listed.contains(&"trip".to_owned()) && !listed.contains(&"journey".to_owned()), "{listed:?}");
    for scoop in [old, new, again] {
        scoop.shutdown().await?;
    }
    Ok(())
}

/// The newer program renames the saga, and ends. Runs that it leaves, and those launched later, have the new name.
#[tokio::test(flavor = "multi_thread")]
async fn older_program_takes_a_renamed_saga_back_when_the_newer_one_ends() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE trip_note (id bigserial, number bigint, text text, version text)").await;
    db.start((Hotel,)).await?.shutdown().await?;
    let old = db.start((original::Trip,)).await?;
    let new = db.start((journey::Trip,)).await?;
    let begun = new.launch(Book { number: 0, ..launching_in("two") }).await?;
    begun.comes_to(waits).await?;
    new.shutdown().await?;
    let left = db.client().launch(Book { number: 1, ..launching_in("one") }).await?;
    left.comes_to(waits).await?;
    let hotel = db.start((Hotel,)).await?;
    let fresh = old.launch(Book { number: 2, ..Book::default() }).await?;
    for trip in [&begun, &left, &fresh] {
        assert_eq!(trip.ends().await?, Outcome::Committed);
        assert_eq!(&*trip.tree().await?.roots()[0].handler, "journey");
    }
    assert_eq!(notes(&db, 0).await, "one@journey two@journey three@original");
    assert_eq!(notes(&db, 1).await, "one@original two@original three@original");
    assert_eq!(notes(&db, 2).await, "one@original two@original three@original");
    assert!(old.operate().failures().stuck().await?.is_empty());
    // An instance that starts later takes the old name back, and has both.
    let again = db.start((original::Trip,)).await?;
    assert_eq!(again.rollback(begun.id(), "not needed").await?, RollbackAnswer::Accepted);
    begun
        .comes_to(|tree| tree.roots().iter().all(|run| matches!(run.state, RunState::RolledBack(_))))
        .await?;
    let last = again.launch(Book { number: 3, ..Book::default() }).await?;
    assert_eq!(last.ends().await?, Outcome::Committed);
    assert_eq!(&*last.tree().await?.roots()[0].handler, "trip");
    for scoop in [old, again, hotel] {
        scoop.shutdown().await?;
    }
    Ok(())
}

/// Programs on other topics, and rows that newer ones have replaced, do not determine the handlers of a message.
#[tokio::test(flavor = "multi_thread")]
async fn names_on_other_topics_and_replaced_names_take_no_messages() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE trip_note (id bigserial, number bigint, text text, version text)").await;
    let old = db.start((original::Trip,)).await?;
    old.shutdown().await?;
    db.execute("INSERT INTO scoop.handler (topic, handler, was) VALUES ('elsewhere', 'tour', '{trip}')")
        .await;
    db.execute(
        "INSERT INTO scoop.handler (topic, handler, was, since, retired_at)
         VALUES ('trips', 'cruise', '{trip}', now() - interval '2 days', now() - interval '1 day')",
    )
    .await;
    db.execute("INSERT INTO scoop.handler (topic, handler) VALUES ('trips', 'cruise')").await;
    let scoop = db.start((original::Trip,)).await?;
    let listed = |topic: &'static str, handler: &'static str| {
        let sql = format!(
            "SELECT count(*) FROM scoop.handler WHERE topic = '{topic}' AND handler = '{handler}' AND retired_at IS NULL"
        );
        let db = &db;
        async move { db.number(&sql).await }
    };
    assert_eq!((listed("elsewhere", "tour").await, listed("trips", "cruise").await), (1, 1));
    assert_eq!(db.number("SELECT count(*) FROM scoop.worker WHERE 'cruise' = ANY (handlers)").await, 0);
    assert_eq!(db.number("SELECT count(*) FROM scoop.worker WHERE 'trip' = ANY (handlers)").await, 1);
    scoop.shutdown().await?;
    Ok(())
}

mod charged {
    use super::*;

    /// [`Book`] in a newer program, which needs another field.
    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "trips")]
    pub(super) struct Charged {
        number: i64,
        currency: String,
    }

    #[derive(Default)]
    pub(super) struct Trip;

    #[saga(name = "trip")]
    #[subscribes(Charged)]
    impl Trip {
        #[step]
        async fn one(&self, scope: &mut Scope<'_>, charged: &Charged) -> Result<()> {
            let book = Book { number: charged.number, ..Book::default() };
            ran(scope, &book, &charged.currency, "one").await
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_only_an_older_program_can_decode_goes_to_that_program() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE trip_note (id bigserial, number bigint, text text, version text)").await;
    let old = db.start((original::Trip,)).await?;
    let new = db.start((charged::Trip,)).await?;
    let trip = db.client().launch(Book::default()).await?;
    assert_eq!(trip.ends().await?, Outcome::Committed);
    assert_eq!(notes(&db, 0).await, "one@original two@original three@original");
    // A message that neither can decode fails.
    let unknown = db.client().launch(Unknown).await?;
    let Outcome::RolledBack(failure) = unknown.ends().await? else { panic!("it committed") };
    assert!(failure.to_string().contains("PayloadMismatch"), "{failure}");
    old.shutdown().await?;
    let trip = db.client().launch(Book::default()).await?;
    let Outcome::RolledBack(failure) = trip.ends().await? else { panic!("it committed") };
    assert!(failure.to_string().contains("currency"), "{failure}");
    new.shutdown().await?;
    Ok(())
}

/// A message on the topic of [`Book`] that no program can decode.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "trips")]
struct Unknown;

#[tokio::test(flavor = "multi_thread")]
async fn run_of_a_saga_that_no_program_has_is_listed_as_stuck() -> Result<()> {
    let (db, left) = left_by::<original::Trip>(launching_in("two")).await?;
    let scoop = db.start((forgotten::Trip, Hotel)).await?;
    crate::support::eventually("the run is listed", async || {
        let stuck = scoop.operate().failures().stuck().await.expect("the database answers");
        stuck.len() == 1 && stuck[0].reason.starts_with("no living program has saga `trip`")
    })
    .await;
    assert_eq!(db.client().operate().failures().stuck().limit(1).await?[0].lineage.root_id(), left[0].id());
    let tree = left[0].tree().await?;
    assert!(tree.roots()[0].is_abandoned, "{tree}");
    assert!(tree.to_string().contains("no living program has saga `trip`"), "{tree}");
    let fitting = db.start((original::Trip,)).await?;
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    assert!(scoop.operate().failures().stuck().await?.is_empty());
    fitting.shutdown().await?;
    scoop.shutdown().await?;
    Ok(())
}

mod priced {
    use super::*;

    /// Two versions with different types of the price.
    macro_rules! priced {
        ($($version:ident: $price:ident,)*) => {$(
            #[derive(Default)]
            pub(super) struct $version;

            #[saga(name = "trip")]
            #[subscribes(Book)]
            impl $version {
                #[step]
                async fn price(&self, scope: &mut Scope<'_>, book: &Book) -> Result<$price> {
                    ran(scope, book, stringify!($version), "price").await?;
                    Ok($price::default())
                }

                #[step]
                async fn charge(&self, scope: &mut Scope<'_>, book: &Book, _: &$price) -> Result<()> {
                    ran(scope, book, stringify!($version), "charge").await
                }
            }
        )*};
    }

    #[derive(Default, Serialize, Deserialize)]
    pub(super) struct Cents(i64);

    #[derive(Default, Serialize, Deserialize)]
    pub(super) struct Amount {
        cents: i64,
        currency: String,
    }

    priced! {
        InCents: Cents,
        InAmounts: Amount,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn value_of_another_type_makes_the_run_stuck() -> Result<()> {
    let (db, left) = left_by::<priced::InCents>(launching_in("price")).await?;
    let scoop = db.scoop().only::<priced::InAmounts>().only::<Hotel>().start().await?;
    let is_stuck = |tree: &Tree| matches!(tree.roots()[0].state, RunState::Stuck { .. });
    let tree = left[0].comes_to(is_stuck).await?;
    assert!(tree.to_string().contains("what step `price` returned is not a"), "{tree}");
    scoop.shutdown().await?;
    let scoop = db.scoop().only::<priced::InCents>().start().await?;
    assert_eq!(left[0].ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    assert_eq!(notes(&db, 0).await, "price@InCents charge@InCents");
    Ok(())
}

mod asked {
    use super::*;

    /// A trip that asks for a price, and the shop that replies, in two versions with other types of the reply.
    macro_rules! asked {
        ($($version:ident: $price:ty = $value:expr,)*) => {$(
            pub(super) mod $version {
                use super::*;

                #[derive(Message, Serialize, Deserialize)]
                #[message(topic = "prices", reply = Price)]
                pub(in super::super) struct Ask;

                #[derive(Serialize, Deserialize)]
                pub(in super::super) struct Price(pub(in super::super) $price);

                #[derive(Default)]
                pub(in super::super) struct Trip;

                #[saga(name = "trip")]
                #[subscribes(Book)]
                impl Trip {
                    #[step(rollback = undo)]
                    async fn one(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
                        note(scope, book, stringify!($version), "one").await?;
                        scope.launch(Ask).await?;
                        Ok(())
                    }

                    #[step]
                    async fn two(&self, scope: &mut Scope<'_>, book: &Book) -> Result<()> {
                        note(scope, book, stringify!($version), "two").await?;
                        let replies = scope.replies::<Ask>().await?;
                        assert_eq!(replies.len(), 1);
                        Ok(())
                    }

                    async fn undo(&self, scope: &mut Scope<'_>, book: &Book, _: &Failure) -> Result<()> {
                        note(scope, book, stringify!($version), "undone").await
                    }
                }

                #[derive(Default)]
                pub(in super::super) struct Shop;

                #[saga(name = "shop")]
                #[subscribes(Ask)]
                impl Shop {
                    #[step]
                    async fn quote(&self, scope: &mut Scope<'_>, ask: &Ask) -> Result<()> {
                        scope.reply(ask, Price($value))
                    }
                }
            }
        )*};
    }

    asked! {
        in_cents: i64 = 7,
        in_words: String = "seven".to_owned(),
    }
}

/// The trip is the same in both versions but for the type of the reply that it reads.
#[tokio::test(flavor = "multi_thread")]
async fn reply_of_another_type_is_left_to_a_fitting_program() -> Result<()> {
    use asked::{in_cents, in_words};

    let db = Database::new().await;
    db.execute("CREATE TABLE trip_note (id bigserial, number bigint, text text, version text)").await;
    db.scoop().only::<in_cents::Shop>().start().await?.shutdown().await?;
    let scoop = db.start((in_cents::Trip,)).await?;
    let trip = db.client().find(scoop.launch(Book::default()).await?.id()).await?;
    trip.comes_to(waits).await?;
    scoop.shutdown().await?;
    let shop = db.scoop().only::<in_cents::Shop>().start().await?;
    trip.comes_to(|tree| tree.roots()[0].children[0].state == RunState::Committed).await?;
    shop.shutdown().await?;

    // One after the other.
    let new = db.scoop().only::<in_words::Trip>().only::<in_words::Shop>().start().await?;
    let is_stuck = |tree: &Tree| matches!(tree.roots()[0].state, RunState::Stuck { .. });
    trip.comes_to(is_stuck).await?;
    let [stuck] = &*new.operate().failures().stuck().await? else { panic!("one run is stuck") };
    assert!(stuck.reason.contains("it is stored as number, and the type reads string"), "{}", stuck.reason);
    assert_eq!(notes(&db, 0).await, "one@in_cents", "nothing took effect, and nothing is undone");
    let shops = db.number("SELECT count(*) FROM scoop.definition WHERE handler = 'shop'").await;
    assert_eq!(shops, 2, "the type of its replies belongs to the definition of a handler");

    // Both at once: the version that started last takes new messages. Runs with replies that it cannot read go to the
    // other one.
    let old = db.start((in_cents::Trip,)).await?;
    assert_eq!(trip.ends().await?, Outcome::Committed);
    assert_eq!(notes(&db, 0).await, "one@in_cents two@in_cents");
    for number in 1..4 {
        let trip = new.launch(Book { number, ..Book::default() }).await?;
        assert_eq!(trip.ends().await?, Outcome::Committed);
        let done = notes(&db, number).await;
        assert!(done.ends_with(" two@in_words"), "{done}");
    }
    assert!(new.operate().failures().stuck().await?.is_empty());
    old.shutdown().await?;
    new.shutdown().await?;
    Ok(())
}

/// A newer program has renamed the run's newest step.
#[tokio::test(flavor = "multi_thread")]
async fn step_renamed_by_a_newer_program_stops_an_older_one() -> Result<()> {
    let reason = stuck_in::<renamed::Trip, original::Trip>("zwei").await?;
    assert!(reason.contains("no step `eins`, which was `one` before a newer program renamed it"), "{reason}");
    Ok(())
}
