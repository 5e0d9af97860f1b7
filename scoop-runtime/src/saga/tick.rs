//! The message of scheduled sagas.

use std::marker::PhantomData;
use std::time::SystemTime;

use scoop_core::{Message, Schedule};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The message of a scheduled saga: a due time of its schedule.
///
/// The engine creates it; programs cannot launch it. Each saga has a private topic for its ticks.
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

    /// The due time, by the clock of the database. The run begins later, if only by milliseconds. If one run makes up
    /// for several missed times, this is the first of them.
    pub fn due(&self) -> SystemTime {
        self.due.into()
    }

    /// The number of this run of the saga, from 1, over all processes and all starts.
    pub fn count(&self) -> u64 {
        self.run
    }
}

/// A topic without handlers: `#[saga]` subscribes each scheduled saga to a private topic.
const TOPIC: &str = "ticks";

#[diagnostic::do_not_recommend]
impl Message for Tick {
    const TOPIC: &'static str = TOPIC;
    type Reply = ();
}

/// The message of a saga with a schedule.
#[diagnostic::on_unimplemented(
    message = "a saga with a schedule handles `Tick`, not `{Self}`",
    label = "no schedule launches this message",
    note = "write `#[subscribes(scoop::Tick)]`, or remove the schedule"
)]
pub trait ScheduledMessage: Message {}

#[diagnostic::do_not_recommend]
impl ScheduledMessage for Tick {}

/// The schedule of a saga that handles `M`.
pub const fn scheduled<M: ScheduledMessage>(schedule: Schedule) -> Schedule {
    schedule
}

/// Determines whether programs launch `M`: `LaunchProbe::<M>::IS_USER_LAUNCHED` is false exactly for [`Tick`], since an
/// inherent constant takes precedence over that of a trait.
pub struct LaunchProbe<M>(PhantomData<M>);

impl LaunchProbe<Tick> {
    /// The engine launches it.
    pub const IS_USER_LAUNCHED: bool = false;
}

/// The default of [`LaunchProbe`].
pub trait UserLaunched {
    /// Programs launch it.
    const IS_USER_LAUNCHED: bool = true;
}

impl<M> UserLaunched for LaunchProbe<M> {}
