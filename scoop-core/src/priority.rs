//! The priority of runs, an element of the context.
//!
//! No column repeats it: the index of ready runs computes it (`docs/development/decisions/0017-priority-in-the-index.md`).

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::{Context, ContextKey};

/// The priority of the runs of a message among the other runs of their saga.
///
/// It is an element of the [context](crate::ContextKey), so the runs of all messages of a hierarchy have the priority of
/// the first one, until a launch or a step sets another. A run of each higher level counts as if it had been ready
/// [five minutes](Self::HEAD_START) longer. Thus a run waits behind a limited number of later ones, and none starves.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{Context, Priority};
///
/// let mut context = Context::default();
/// assert_eq!(Priority::of(&context), Priority::Normal);
/// context.set(Priority::High)?;
/// assert_eq!(Priority::of(&context), Priority::High);
/// assert!(Priority::Low < Priority::Normal && Priority::Normal < Priority::High);
/// # Ok::<(), scoop::ContextError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// For work that can wait, such as a recalculation at night.
    Low = -1,
    /// For all runs of which the context says nothing else.
    #[default]
    Normal = 0,
    /// For work that a person waits for.
    High = 1,
}

impl ContextKey for Priority {
    const KEY: &'static str = "scoop.priority";
}

impl Priority {
    /// All levels, the highest first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The time by which each level comes before the next lower one: five minutes.
    // `scoop.queue_time` in the migrations has the same number: claims are ordered by it.
    pub const HEAD_START: std::time::Duration = std::time::Duration::from_secs(300);

    /// The priority in a context. It is [`Normal`](Self::Normal) if there is none, or none that this version knows.
    ///
    /// ```
    /// # extern crate scoop_core as scoop;
    /// # use scoop::{Context, Priority};
    /// let context: Context = serde_json::from_str(r#"{"scoop.priority": ["urgent"]}"#)?;
    /// assert_eq!(Priority::of(&context), Priority::Normal);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn of(context: &Context) -> Self {
        // As a text: an enum could also be read from an object, which the store would not.
        let name = context.read::<String>(Self::KEY).ok().flatten();
        let named = |it: &Self| Some(it.name()) == name.as_deref();
        Self::ALL.into_iter().find(named).unwrap_or_default()
    }

    /// Its name, as the context has it.
    ///
    /// ```
    /// # extern crate scoop_core as scoop;
    /// assert_eq!(scoop::Priority::High.name(), "high");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// The time by which a run is ordered in its queue, which has been ready since `ready_at`.
    ///
    /// ```
    /// # extern crate scoop_core as scoop;
    /// # use scoop::Priority;
    /// # use time::{Duration, OffsetDateTime};
    /// let now = OffsetDateTime::now_utc();
    /// let earlier = now - Duration::minutes(6);
    /// assert!(Priority::High.queue_time(now) < Priority::Normal.queue_time(now));
    /// assert!(Priority::Normal.queue_time(earlier) < Priority::High.queue_time(now));
    /// ```
    pub fn queue_time(self, ready_at: OffsetDateTime) -> OffsetDateTime {
        let head_start = Duration::seconds_f64(Self::HEAD_START.as_secs_f64());
        ready_at.saturating_sub(head_start * (self as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_is_read_as_it_is_written() {
        for priority in Priority::ALL {
            let mut context = Context::default();
            context.set(priority).unwrap();
            assert_eq!(context.raw(Priority::KEY), Some(&*format!("\"{}\"", priority.name())));
            assert_eq!(Priority::of(&context), priority);
            assert_eq!(context.get::<Priority>().unwrap(), Some(priority));
        }
    }

    #[test]
    fn value_that_is_no_level_is_normal() {
        for value in ["1", "null", "\"HIGH\"", "\"urgent\"", "{\"high\":null}", "[\"high\"]"] {
            let context = format!("{{\"scoop.priority\":{value}}}");
            let context: Context = serde_json::from_str(&context).unwrap();
            assert_eq!(Priority::of(&context), Priority::Normal, "{value}");
        }
        let escaped: Context = serde_json::from_str(r#"{"scoop.priority": "\u0068igh"}"#).unwrap();
        assert_eq!(Priority::of(&escaped), Priority::High, "the same text");
    }

    #[test]
    fn time_at_the_end_of_the_range_stays_in_it() {
        let first = time::macros::datetime!(-9999-01-01 0:00 UTC);
        assert!(Priority::High.queue_time(first) <= first);
        assert!(Priority::Low.queue_time(OffsetDateTime::UNIX_EPOCH) > OffsetDateTime::UNIX_EPOCH);
    }
}
