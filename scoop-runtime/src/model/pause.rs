//! What is paused, for operators and errors.

use std::fmt;
use std::time::SystemTime;

use scoop_core::Escaped;
use serde::{Serialize, Serializer};

use crate::model::format::{ahead, utc};
use crate::model::json;

/// What a pause (`operate().pauses().pause`) is about.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use scoop::PauseTarget;
///
/// assert_eq!(PauseTarget::topic("orders.placed").to_string(), "topic `orders.placed`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PauseTarget {
    /// All handlers.
    Everything,
    /// The handlers of a topic, in their runs for messages of that topic.
    Topic(String),
    /// A saga on all of its topics, by its name or a former one.
    Handler(String),
}

/// What `operate().pauses().pause` and `operate().pauses().resume` take: a [`PauseTarget`], or a
/// reference to one. It is implemented for these two.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use scoop::{IntoPauseTarget, PauseTarget};
///
/// let orders = PauseTarget::topic("orders");
/// assert_eq!((&orders).into_pause_target(), orders);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whether a saga, a topic or everything is meant",
    label = "not a `PauseTarget`",
    note = "write `PauseTarget::handler(\"..\")` or `PauseTarget::saga::<YourSaga>()` for a saga, `PauseTarget::topic(\"..\")` for a topic, `PauseTarget::Everything` for all sagas"
)]
pub trait IntoPauseTarget {
    /// The target.
    fn into_pause_target(self) -> PauseTarget;
}

impl IntoPauseTarget for PauseTarget {
    fn into_pause_target(self) -> PauseTarget {
        self
    }
}

impl IntoPauseTarget for &PauseTarget {
    fn into_pause_target(self) -> PauseTarget {
        self.clone()
    }
}

impl PauseTarget {
    /// The handlers of a topic.
    pub fn topic(topic: impl Into<String>) -> Self {
        Self::Topic(topic.into())
    }

    /// A saga of this name. The name may be a former one ([`#[saga(was = ..)]`](https://docs.rs/crate/scoop-saga/latest/source/docs/changing.md)).
    pub fn handler(name: impl Into<String>) -> Self {
        Self::Handler(name.into())
    }

    /// The kind, as it is stored.
    #[doc(hidden)]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Topic(_) => "topic",
            Self::Handler(_) => "handler",
        }
    }

    /// The name, as it is stored.
    #[doc(hidden)]
    pub fn name(&self) -> &str {
        match self {
            Self::Everything => "",
            Self::Topic(name) | Self::Handler(name) => name,
        }
    }

    /// The target of this kind and name; `None` if there is no such kind.
    pub(crate) fn stored(kind: &str, name: String) -> Option<Self> {
        match kind {
            "everything" => Some(Self::Everything),
            "topic" => Some(Self::Topic(name)),
            "handler" => Some(Self::Handler(name)),
            _ => None,
        }
    }

    /// Whether it is about the runs of this handler on this topic, by exactly this name.
    pub(crate) fn covers(&self, topic: &str, handler: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Topic(name) => name == topic,
            Self::Handler(name) => name == handler,
        }
    }
}

impl fmt::Display for PauseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Topic(topic) => write!(f, "topic `{}`", Escaped(topic)),
            Self::Handler(handler) => write!(f, "saga `{}`", Escaped(handler)),
        }
    }
}

/// A pause in force. Display it for one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pause {
    /// What is paused.
    #[serde(flatten, serialize_with = "saga_or_topic")]
    pub target: PauseTarget,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// The requester.
    pub source: String,
    /// The time since which it is paused.
    #[serde(serialize_with = "json::time")]
    pub since: SystemTime,
    /// The time at which the pause ends by itself, if it has a limit.
    #[serde(serialize_with = "json::time")]
    pub until: Option<SystemTime>,
    /// Whether runs that have begun go on, and only new ones wait; see `operate().pauses().pause(..).new_runs_only()`.
    pub new_runs_only: bool,
}

/// A target as two names, both null for everything.
fn saga_or_topic<S: Serializer>(target: &PauseTarget, serializer: S) -> Result<S::Ok, S::Error> {
    let (saga, topic) = match target {
        PauseTarget::Handler(saga) => (Some(saga), None),
        PauseTarget::Topic(topic) => (None, Some(topic)),
        PauseTarget::Everything => (None, None),
    };
    serializer.collect_map([("saga", saga), ("topic", topic)])
}

impl Pause {
    /// What follows `paused` in a sentence.
    pub(crate) fn kind(&self) -> &'static str {
        if self.new_runs_only { " for new runs only" } else { "" }
    }

    /// The requester, the time and the reason, in a few words; `now` is the time of reading.
    #[doc(hidden)]
    pub fn in_words(&self, now: Option<SystemTime>) -> String {
        let until = self.until.map_or_else(String::new, |until| format!(", until {}", ahead(until, now)));
        let reason = self.reason.as_ref().map_or_else(String::new, |why| format!(": {}", Escaped(why)));
        format!(
            "{} is paused{} by {} since {}{until}{reason}",
            self.target,
            self.kind(),
            Escaped(&self.source),
            utc(self.since)
        )
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(None))
    }
}
