//! Tests of sagas, with the feature `testing`: rehearsals, which inject each possible fault once, and the lock file of a program
//! ([`assert_lock!`]), which says what a change breaks. The database of a rehearsal needs its own feature: `in-memory` or
//! `embedded`.
//!
//! Each function of this module runs a *rehearsal*, which you write, many times: first without a fault, and then once
//! for each place where a fault is possible, with exactly that fault. The rehearsal gets a [`Builder`] to start from,
//! launches messages, waits for their end, and checks the results.
//!
//! * [`fail_each_step`]: a step fails after all its effects. Is everything rolled back?
//! * [`run_each_step_twice`]: the results of a step are lost and the step is repeated, as after a crash. Is nothing
//!   done twice?
//! * [`crash_at_each_commit`]: the process loses a run right before or right after a commit. Does the run end as if
//!   nothing had happened?
//!
//! The rehearsal has to take the same course each time, apart from the fault: its first run finds the places. Each
//! run of it should start from a fresh state: dependencies, and an empty database. Dropping the future of one of these functions
//! drops the rehearsal.
//!
//! ```
//! # use scoop_core::Result;
//! # use scoop_runtime::testing;
//! # async fn example() -> Result<()> {
//! testing::fail_each_step(async |builder, failing| {
//!     let scoop = builder.embedded().start().await?;
//!     // Launch, wait, and compare: with `failing`, everything has to be rolled back.
//!     scoop.shutdown().await?;
//!     Ok(())
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```
//!
//! Exhaustive fault injection is an old way to test storage engines; SQLite's tests do it for each allocation and
//! each write.

mod lock;

use scoop_core::{Error, Result};

pub use self::lock::{ChangeClass, LockChange, LockError, check_lock};
use crate::Builder;
pub use crate::assert_lock;
pub use crate::rehearsal::{Fault, FaultPoint};
use crate::rehearsal::{InjectedFault, Rehearsal};

/// Makes each step fail, one in each run of the rehearsal. The code of the step runs to its end, and the step then
/// fails with a failure of the type `Rehearsed`. Its retry policy applies as usual.
///
/// The rehearsal gets the failing step; `None` in the first run. Returns the steps.
///
/// # Errors
///
/// The error of the rehearsal, with the step; or an error if a step of the first run is not reached in a later run.
/// If the rehearsal panics, the step is printed.
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
    rehearse: impl AsyncFn(Builder, Option<&FaultPoint>) -> Result<()>,
) -> Result<Vec<FaultPoint>> {
    let points = steps_of(&rehearse).await?;
    each(&rehearse, &points).await?;
    Ok(points)
}

/// Runs each step and each compensation twice. The first execution loses its effects through the scope, as if the
/// process had crashed before the commit, and keeps its other effects. Returns the number of lost records: one for
/// each step and compensation, and one for each other record without user code.
///
/// # Errors
///
/// The error of the rehearsal.
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
    let rehearsal = Rehearsal::new(InjectedFault::EachTwice);
    rehearse(Builder::new().rehearsed(rehearsal.clone())).await?;
    Ok(rehearsal.faults_injected())
}

/// Makes the process lose a run at each commit, one in each run of the rehearsal: once right before it, and once
/// right after it. The run is then found and continued, as by a process that takes over. Returns the commits.
///
/// # Errors
///
/// The error of the rehearsal, with the commit; or an error if a commit of the first run is not reached in a later
/// run. If the rehearsal panics, the commit is printed.
///
/// ```
/// # use scoop_runtime::testing;
/// # async fn example(ends_well: impl AsyncFn(scoop_runtime::Builder) -> scoop_core::Result<()>) -> scoop_core::Result<()> {
/// let crashes = testing::crash_at_each_commit(async |builder, _| ends_well(builder).await).await?;
/// # Ok(())
/// # }
/// ```
pub async fn crash_at_each_commit(
    rehearse: impl AsyncFn(Builder, Option<&FaultPoint>) -> Result<()>,
) -> Result<Vec<FaultPoint>> {
    let rehearsal = Rehearsal::new(InjectedFault::None);
    rehearse(Builder::new().rehearsed(rehearsal.clone()), None).await?;
    let points = rehearsal.all_commits();
    each(&rehearse, &points).await?;
    Ok(points)
}

async fn steps_of(
    rehearse: &impl AsyncFn(Builder, Option<&FaultPoint>) -> Result<()>,
) -> Result<Vec<FaultPoint>> {
    let rehearsal = Rehearsal::new(InjectedFault::None);
    rehearse(Builder::new().rehearsed(rehearsal.clone()), None).await?;
    Ok(rehearsal.steps())
}

async fn each(
    rehearse: &impl AsyncFn(Builder, Option<&FaultPoint>) -> Result<()>,
    points: &[FaultPoint],
) -> Result<()> {
    for point in points {
        let rehearsal = Rehearsal::new(InjectedFault::At(point.clone()));
        let reporter = PanicReporter(point);
        let rehearsed = rehearse(Builder::new().rehearsed(rehearsal.clone()), Some(point)).await;
        drop(reporter);
        rehearsed.map_err(|error| Error::msg(format!("{point}: {error}")))?;
        if rehearsal.faults_injected() == 0 {
            return Err(Error::msg(format!(
                "{point}: the rehearsal never reached this place; it has to take the same course each time"
            )));
        }
    }
    Ok(())
}

/// Prints the place of the fault if the rehearsal panics.
struct PanicReporter<'a>(&'a FaultPoint);

impl Drop for PanicReporter<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the rehearsal panicked with this fault: {}", self.0);
        }
    }
}
