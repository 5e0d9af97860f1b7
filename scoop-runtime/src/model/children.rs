//! The children of a run: the messages it launched, their outcomes and their replies.
//!
//! A reply is a `return_value` of the handler's run, under the name of the reply type. Of several replies of a run, the name
//! continues with `#` and the position, so a repeated settlement cannot duplicate one. A reply counts only if its run has
//! committed. If a handler has none under the name of the requested type, replies of any name count: the replying program
//! may have another name for the type.

use scoop_core::{Error, Failure, Message};
use serde_json::Value;
use uuid::Uuid;

/// One handler of one message that the run launched.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Child {
    /// The saga that handled it.
    pub handler: String,
    /// The topic of the message.
    pub topic: String,
    /// The message.
    pub message_id: Uuid,
    /// The message as JSON. [`Child::message`] decodes it.
    pub payload: Value,
    /// Its outcome.
    pub outcome: ChildOutcome,
    /// Whether an earlier call of `on_child_failure` has handled its failure. Such a child stays among the children
    /// of the step; do not launch its message again. Always `false` without a failure.
    pub handled: bool,
    pub(crate) replies: Vec<Value>,
}

/// The outcome of a message at one of its handlers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChildOutcome {
    /// The handler committed.
    Committed,
    /// The handler failed, and was rolled back.
    RolledBack(Failure),
    /// The handler failed, and its rollback failed, too.
    RollbackFailed {
        /// The reason of the rollback.
        cause: Failure,
        /// The failure of the rollback.
        failure: Failure,
    },
    /// The handler had not begun when the run stopped waiting for it, and never will.
    NeverStarted,
    /// The handler has not ended, or is being rolled back.
    Unfinished,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildQuery<'a> {
    pub(crate) of: Launches<'a>,
    /// Only messages on this topic.
    pub(crate) topic: Option<&'a str>,
    pub(crate) replies: Option<&'a str>,
}

/// The messages whose handlers are the children.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Launches<'a> {
    /// The messages that the run launched in its last step, or that it rolls back in its last part of a rollback. The
    /// `unseen` steps are invisible to the user: they only wait or clean up.
    OfLastStep { run: Uuid, handler: &'a str, unseen: &'a [&'a str] },
    /// All messages that the run launched.
    /// With the time before its newest execution, in microseconds since 1970, if that is not the first one.
    OfRun { run: Uuid, handler: &'a str, after: Option<i64> },
    /// Messages of one hierarchy.
    Given(&'a [Uuid]),
}

impl ChildOutcome {
    /// The failure for which the handler rolled back, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::RolledBack(cause) | Self::RollbackFailed { cause, .. } => Some(cause),
            Self::Committed | Self::NeverStarted | Self::Unfinished => None,
        }
    }
}

impl Child {
    /// Whether the message is an `M`, by its topic.
    pub fn is<M: Message>(&self) -> bool {
        self.topic == M::TOPIC
    }

    /// Decodes the message.
    ///
    /// # Errors
    ///
    /// If the message is not an `M`: it was published on another topic, or its payload does not fit.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct BookNight { night: u32 }
    /// # impl scoop_core::Message for BookNight { const TOPIC: &'static str = "book-night"; type Reply = (); }
    ///
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// for child in scope.children().await? {
    ///     if let Some(failure) = child.outcome.failure() {
    ///         println!("night {}: {failure}", child.message::<BookNight>()?.night);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn message<M: Message>(&self) -> Result<M, Error> {
        let Self { message_id, topic, payload, .. } = self;
        let expected = std::any::type_name::<M>();
        if !self.is::<M>() {
            return Err(Error::msg(format!(
                "message {message_id} is on topic `{topic}`, so it is no `{expected}`, which is on topic `{}`; \
                 ask `child.is::<M>()` first",
                M::TOPIC
            )));
        }
        M::read_stored(payload).map_err(|error| {
            Error::msg(format!("message {message_id} on topic `{topic}` is no `{expected}`: {error}"))
        })
    }
}

/// The name under which the `nth` of several replies of this type is stored.
pub(crate) fn numbered_reply<R>(suspensions: u32, nth: usize) -> String {
    format!("{}#{suspensions}.{nth}", reply_name::<R>())
}

/// The replies of one handler in the order in which they were given. These are the replies of that name, or if there
/// are none, those of any name, since a former version may have used another type.
pub(crate) fn chosen(mut named: Vec<(String, Value)>, name: &str) -> Vec<Value> {
    let is_of =
        |stored: &str| stored.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'));
    if named.iter().any(|(stored, _)| is_of(stored)) {
        named.retain(|(stored, _)| is_of(stored));
    }
    in_order(named)
}

fn in_order(mut named: Vec<(String, Value)>) -> Vec<Value> {
    let position = |name: &str| {
        let (suspensions, nth) = name.rsplit_once('#')?.1.split_once('.')?;
        Some((suspensions.parse::<u32>().ok()?, nth.parse::<usize>().ok()?))
    };
    named.sort_by_cached_key(|(name, _)| position(name));
    named.into_iter().map(|(_, value)| value).collect()
}

/// The name under which replies of this type are stored: that of the type, without its module.
pub(crate) fn reply_name<R>() -> &'static str {
    let name = std::any::type_name::<R>();
    let name = name.split('<').next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_named_after_their_type() {
        assert_eq!(reply_name::<Child>(), "Child");
        assert_eq!(reply_name::<Vec<Child>>(), "Vec");
        assert_eq!(reply_name::<u32>(), "u32");
        assert_eq!(reply_name::<()>(), "()");
    }

    #[test]
    fn many_replies_come_in_the_order_in_which_they_were_given() {
        let position = [(10, 0), (2, 1), (2, 10), (2, 9)];
        let named = position.map(|(suspensions, nth)| {
            (numbered_reply::<u32>(suspensions, nth), Value::from(format!("{suspensions} {nth}")))
        });
        assert_eq!(in_order(named.into()), ["2 1", "2 9", "2 10", "10 0"]);
    }

    #[test]
    fn replies_of_another_name_count_without_replies_of_the_own_name() {
        let named =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Value::from(*name))).collect();
        assert_eq!(chosen(named(&["Price", "Prices", "Cost"]), "Price"), ["Price"]);
        assert_eq!(chosen(named(&["Price#0.0", "Cost"]), "Price"), ["Price#0.0"]);
        assert_eq!(chosen(named(&["Cost#1.0", "Cost#0.0"]), "Price"), ["Cost#0.0", "Cost#1.0"]);
        assert!(chosen(vec![], "Price").is_empty());
    }
}
