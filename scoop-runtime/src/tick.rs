//! The message of a saga that runs by itself.

use std::marker::PhantomData;
use std::time::SystemTime;

use scoop_core::{Message, Schedule};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The message of a saga that runs by itself: a time has come.
///
/// Nobody launches it. Each saga has ticks of its own, so that there is no topic either on which one
/// could.
///
/// ```
/// # use scoop_runtime::Tick;
/// fn describe(tick: &Tick) -> String {
///     format!("run {}, which was due at {:?}", tick.count(), tick.due())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    #[serde(with = "time::serde::rfc3339")]
    due: OffsetDateTime,
    run: u64,
}

impl Tick {
    pub(crate) fn new(due: OffsetDateTime, run: u64) -> Self {
        Self { due, run }
    }

    /// The time that has come, by the clock of the database. The run begins later, if only by
    /// milliseconds. Where one run makes up for many times that were missed, this is the first.
    pub fn due(&self) -> SystemTime {
        self.due.into()
    }

    /// Which run of the saga this is, from 1, over all processes and all starts.
    pub fn count(&self) -> u64 {
        self.run
    }
}

/// Where nobody listens: what `#[saga]` makes listens on a topic of its own.
const TOPIC: &str = "ticks";

#[diagnostic::do_not_recommend]
impl Message for Tick {
    const TOPIC: &'static str = TOPIC;
    type Reply = ();
}

/// The message of a saga with a schedule.
#[diagnostic::on_unimplemented(
    message = "a saga with a schedule handles `Tick`, not `{Self}`",
    label = "nobody launches this by a schedule",
    note = "write `#[subscribes(scoop::Tick)]`, or remove the schedule"
)]
pub trait Timed: Message {}

#[diagnostic::do_not_recommend]
impl Timed for Tick {}

/// The schedule of a saga that handles `M`.
pub const fn scheduled<M: Timed>(schedule: Schedule) -> Schedule {
    schedule
}

/// Finds out whether somebody launches `M`: `Launched::<M>::BY_HAND` is false exactly for
/// [`Tick`], since an inherent constant goes before that of a trait.
pub struct Launched<M>(PhantomData<M>);

impl Launched<Tick> {
    /// Nobody does.
    pub const BY_HAND: bool = false;
}

/// The other answer of [`Launched`].
pub trait ByHand {
    /// Somebody does.
    const BY_HAND: bool = true;
}

impl<M> ByHand for Launched<M> {}
