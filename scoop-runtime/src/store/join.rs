//! The messages that a saga joins: [`complete`] decides which of them form a set.
//!
//! A set takes the oldest waiting message of each topic with the same key. So sets are not stored: a message waits until
//! it has a set, and is a member of one at most.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::launch::NewMessage;
use super::types::ClaimKey;

/// The join of a saga.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JoinSpec {
    /// The first name of the saga.
    pub(crate) saga: String,
    /// The topic of the messages that are launched for sets.
    pub(crate) topic: &'static str,
    /// The topics of the members.
    pub(crate) topics: Vec<&'static str>,
    pub(crate) within: Option<Duration>,
}

impl JoinSpec {
    /// How many bytes of each message a set can hold, as PostgreSQL writes it: a set is one message.
    pub(crate) fn member_bytes_max(&self) -> i32 {
        const SET_BYTES_MAX: usize = 16_000_000;
        i32::try_from(SET_BYTES_MAX / self.topics.len().max(1)).unwrap_or(i32::MAX)
    }
}

/// A message that a collector records.
#[derive(Debug)]
pub(crate) struct NewMember<'a> {
    /// The run of the collector.
    pub(crate) claim: ClaimKey,
    pub(crate) topic: &'a str,
    pub(crate) message: Uuid,
    pub(crate) key: &'a str,
}

/// A member of a set: the oldest waiting message of its topic, or one whose time is over before that of older ones.
#[derive(Debug)]
pub(crate) struct SetMember {
    pub(crate) run: Uuid,
    pub(crate) topic: String,
    pub(crate) payload: Value,
}

/// What became of a message that a collector records.
#[derive(Debug)]
pub(crate) enum JoinResult {
    /// It is recorded, and its set was launched if that is complete.
    Recorded(LaunchedSet),
    /// It is not: the claim of the collector does not hold.
    NotHeld,
    /// It is not: no set can hold it. Its size is that in the database.
    Unfit { bytes: usize },
    /// It is not: another session keeps the key locked.
    Locked,
}

/// What became of a withdrawal.
#[derive(Debug)]
pub(crate) enum Withdrawal {
    /// The message does not wait any more. `joined` is the hierarchy that joins it, if there is one.
    Done { joined: Option<Uuid> },
    /// Nothing has changed: another session keeps the key locked.
    Locked,
}

/// The set that was launched for a key, if any.
#[derive(Debug, Default)]
pub(crate) struct LaunchedSet {
    /// The handlers of its hierarchy.
    pub(crate) handlers: Vec<String>,
    /// The waiting messages that were set aside, since no set can hold them.
    pub(crate) refused: Vec<RefusedMember>,
}

/// A waiting message that was set aside, since no set can hold it.
#[derive(Debug)]
pub(crate) struct RefusedMember {
    pub(crate) saga: String,
    pub(crate) key: String,
    pub(crate) message: Uuid,
    pub(crate) why: String,
}

/// The result of a look for overdue sets.
#[derive(Debug, Default)]
pub(crate) struct ExpiredJoin {
    /// What was launched for an incomplete set.
    pub(crate) launched: LaunchedSet,
    /// The seconds until the time of the next set is over; `None` if there is none.
    pub(crate) seconds: Option<f64>,
}

/// Whether a set is launched although members are missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetPolicy {
    IfComplete,
    AsItIs,
}

/// The message of the set that these members form, if it is to be launched.
pub(crate) fn set_message(
    spec: &JoinSpec,
    key: &str,
    oldest: &[SetMember],
    policy: SetPolicy,
) -> Option<NewMessage> {
    let is_there = |topic: &&&str| oldest.iter().any(|member| member.topic == ***topic);
    let missing: Vec<_> = spec.topics.iter().filter(|topic| !is_there(topic)).collect();
    if oldest.is_empty() || policy == SetPolicy::IfComplete && !missing.is_empty() {
        return None;
    }
    let members: Map<_, _> =
        oldest.iter().map(|member| (member.topic.clone(), member.payload.clone())).collect();
    let payload = match missing.is_empty() {
        true => json!({ "saga": spec.saga, "key": key, "members": members }),
        false => json!({ "saga": spec.saga, "key": key, "members": members, "missing": missing }),
    };
    Some(NewMessage::new(spec.topic, payload, 0))
}

/// A message that waits for the others of its set.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitingMember {
    /// The saga that joins it, by its first name.
    pub saga: String,
    /// The key that the messages of a set have in common.
    pub key: String,
    /// The topic of the message.
    pub topic: String,
    /// The id of the message.
    pub message: Uuid,
    /// The time since which it waits.
    pub since: SystemTime,
    /// The time at which it fails to be joined, if it has a limit.
    pub until: Option<SystemTime>,
    /// Why no set can hold the message, if it was set aside for that: it does not wait any more.
    pub refused: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> JoinSpec {
        JoinSpec { saga: "ship".into(), topic: "joins.ship", topics: vec!["paid", "picked"], within: None }
    }

    fn member(topic: &str) -> SetMember {
        SetMember { run: Uuid::nil(), topic: topic.into(), payload: json!(topic.len()) }
    }

    #[test]
    fn set_is_launched_once_it_is_complete() {
        let launched = |members: &[SetMember]| set_message(&spec(), "7", members, SetPolicy::IfComplete);
        assert!(launched(&[]).is_none());
        assert!(launched(&[member("paid")]).is_none());
        let message = launched(&[member("paid"), member("picked")]).unwrap();
        assert_eq!(message.topic, "joins.ship");
        let members = json!({ "paid": 4, "picked": 6 });
        assert_eq!(message.payload, json!({ "saga": "ship", "key": "7", "members": members }));
    }

    #[test]
    fn overdue_set_names_what_is_missing() {
        let launched = |members: &[SetMember]| set_message(&spec(), "7", members, SetPolicy::AsItIs);
        assert!(launched(&[]).is_none(), "all were withdrawn");
        let message = launched(&[member("picked")]).unwrap();
        assert_eq!(message.payload["missing"], json!(["paid"]));
    }
}
