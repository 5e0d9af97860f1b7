//! The message of scheduled sagas.

use std::marker::PhantomData;

use scoop_core::{Message, Schedule};

use crate::model::tick::Tick;

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
