//! Rehearsals: for the tests of sagas, everything that can go wrong goes wrong once.
//!
//! A saga that works when all goes well has shown little. Each function of this module runs a
//! *rehearsal*, which you write, again and again: first as it is, and then once for each place where
//! something can go wrong, with exactly that going wrong. The rehearsal gets a [`Builder`] to start from,
//! launches what is to be tried, waits for its end, and looks whether everything is as it should be.
//!
//! * [`fail_each_step`]: a step does all that it does, and then fails. Is everything undone?
//! * [`run_each_step_twice`]: whatever a step did is lost and done again, as after a crash. Is nothing done twice?
//! * [`crash_at_each_commit`]: the process forgets a run right before or right after something of it is
//!   on record. Does it end as if nothing had happened?
//!
//! The rehearsal has to take the same course each time, as far as nothing goes wrong: the places are found
//! by its first run. Each run of it should begin in a world of its own: dependencies, and a database that
//! is empty.
//!
//! ```
//! # use scoop_core::Result;
//! # use scoop_runtime::testing;
//! # async fn example() -> Result<()> {
//! testing::fail_each_step(async |builder, failing| {
//!     let scoop = builder.embedded().start().await?;
//!     // Launch, wait, and compare: with `failing`, everything has to be undone.
//!     scoop.shutdown().await?;
//!     Ok(())
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```
//!
//! Exhausting the places of a fault one by one is an old way to test storage engines; SQLite's tests do it for
//! each allocation and each write.

mod rehearsal;

use std::fmt;

use scoop_core::{Error, Result};

use crate::Builder;
use rehearsal::Trouble;
pub(crate) use rehearsal::{Commit, Rehearsal};

/// A place in a rehearsal where something goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The saga.
    pub saga: String,
    /// Which of the saga's runs, in the order in which they first got to such a place, from 0.
    pub run: usize,
    /// What of it: a step that fails, or the record that a crash is close to, such as
    /// `SUSPENDED reserve`.
    pub what: String,
    /// Which of several such places of this run, from 0: the iteration of a step, or the number of a record.
    pub number: usize,
    /// What goes wrong there.
    pub fault: Fault,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A step fails after it has done everything.
    Fails,
    /// The process forgets a run before what it did is committed.
    CrashBefore,
    /// The process forgets a run after what it did was committed, before it learns of that.
    CrashAfter,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { saga, run, what, number, fault } = self;
        match fault {
            Fault::Fails => write!(f, "step `{what}` of saga `{saga}` fails")?,
            Fault::CrashBefore => write!(f, "crash of saga `{saga}` before `{what}` is on record")?,
            Fault::CrashAfter => write!(f, "crash of saga `{saga}` after `{what}` was put on record")?,
        }
        write!(f, " (run {run}, number {number})")
    }
}

/// Has each step fail, one in each run of the rehearsal: its code runs to its end, and then counts as failed
/// with a failure of the type `Rehearsed`. If it has a retry policy, that is asked as ever.
///
/// The rehearsal is told which step fails, and nothing the first time. Returns the steps.
///
/// # Errors
///
/// What the rehearsal returns, along with the step; and if a step that ran the first time does not
/// run any more. If the rehearsal panics, the step is printed.
///
/// # Cancel safety
///
/// Dropping the future drops the rehearsal.
///
/// ```
/// # use std::sync::atomic::{AtomicI64, Ordering};
/// # use std::sync::Arc;
/// # use scoop_runtime::testing;
/// # struct Transfer { balance: Arc<AtomicI64> }
/// # async fn example(transfer: impl AsyncFn(scoop_runtime::Builder, &AtomicI64) -> scoop_core::Result<bool>) -> scoop_core::Result<()> {
/// testing::fail_each_step(async |builder, failing| {
///     let balance = AtomicI64::new(100);
///     let committed = transfer(builder, &balance).await?;   // your sagas, on a fresh database
///     assert_eq!(committed, failing.is_none());
///     assert_eq!(balance.into_inner(), if committed { 70 } else { 100 });
///     Ok(())
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
pub async fn fail_each_step(
    rehearse: impl AsyncFn(Builder, Option<&Place>) -> Result<()>,
) -> Result<Vec<Place>> {
    let places = steps_of(&rehearse).await?;
    each(&rehearse, &places).await?;
    Ok(places)
}

/// Runs each step and each compensation twice: whatever it did the first time through its scope is lost, as
/// if the process had crashed before the commit, and what it did elsewhere is there. Returns how much
/// was lost in this way: a record for each step and compensation, and one for each sleep, or whatever else a run does that
/// is no code of yours.
///
/// # Errors
///
/// What the rehearsal returns.
///
/// # Cancel safety
///
/// Dropping the future drops the rehearsal.
///
/// ```
/// # use scoop_runtime::testing;
/// # async fn example(charged_once: impl AsyncFn(scoop_runtime::Builder) -> scoop_core::Result<()>) -> scoop_core::Result<()> {
/// let steps = testing::run_each_step_twice(async |builder| charged_once(builder).await).await?;
/// assert!(steps > 0);
/// # Ok(())
/// # }
/// ```
pub async fn run_each_step_twice(rehearse: impl AsyncFn(Builder) -> Result<()>) -> Result<usize> {
    let rehearsal = Rehearsal::new(Trouble::EachTwice);
    rehearse(Builder::new().rehearsed(rehearsal.clone())).await?;
    Ok(rehearsal.struck())
}

/// Has the process forget a run at each commit, one in each run of the rehearsal: once right before it, and once
/// right after it. The run is then found and gone on with, as by a process that takes over. Returns
/// the commits.
///
/// # Errors
///
/// What the rehearsal returns, along with the commit; and if a commit that was there the first
/// time is not there any more. If the rehearsal panics, the commit is printed.
///
/// # Cancel safety
///
/// Dropping the future drops the rehearsal.
///
/// ```
/// # use scoop_runtime::testing;
/// # async fn example(ends_well: impl AsyncFn(scoop_runtime::Builder) -> scoop_core::Result<()>) -> scoop_core::Result<()> {
/// let crashes = testing::crash_at_each_commit(async |builder, _| ends_well(builder).await).await?;
/// # Ok(())
/// # }
/// ```
pub async fn crash_at_each_commit(
    rehearse: impl AsyncFn(Builder, Option<&Place>) -> Result<()>,
) -> Result<Vec<Place>> {
    let rehearsal = Rehearsal::new(Trouble::None);
    rehearse(Builder::new().rehearsed(rehearsal.clone()), None).await?;
    let places = rehearsal.all_commits();
    each(&rehearse, &places).await?;
    Ok(places)
}

/// The steps of a run of the rehearsal in which nothing goes wrong.
async fn steps_of(rehearse: &impl AsyncFn(Builder, Option<&Place>) -> Result<()>) -> Result<Vec<Place>> {
    let rehearsal = Rehearsal::new(Trouble::None);
    rehearse(Builder::new().rehearsed(rehearsal.clone()), None).await?;
    Ok(rehearsal.steps())
}

/// Runs the rehearsal once for each of these places.
async fn each(
    rehearse: &impl AsyncFn(Builder, Option<&Place>) -> Result<()>,
    places: &[Place],
) -> Result<()> {
    for place in places {
        let rehearsal = Rehearsal::new(Trouble::At(place.clone()));
        let told = Told(place);
        let rehearsed = rehearse(Builder::new().rehearsed(rehearsal.clone()), Some(place)).await;
        drop(told);
        rehearsed.map_err(|error| Error::msg(format!("{place}: {error}")))?;
        if rehearsal.struck() == 0 {
            return Err(Error::msg(format!(
                "{place}: the rehearsal never got there; it has to take the same course each time"
            )));
        }
    }
    Ok(())
}

/// Tells where a rehearsal panicked.
struct Told<'a>(&'a Place);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the rehearsal panicked with this going wrong: {}", self.0);
        }
    }
}
