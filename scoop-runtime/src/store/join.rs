//! The messages that a saga joins: [`complete`] decides which of them form a set.
//!
//! A set takes the oldest waiting message of each topic with the same key. So sets are not stored: a message waits until
//! it has a set, and is a member of one at most.

use std::time::Duration;

use scoop_core::TraceContext;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::launch::NewMessage;
use super::types::ClaimKey;
use crate::model::join::RefusedMember;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JoinSpec {
    /// The first name of the saga.
    pub(crate) saga: String,
    /// The topic of the messages that are launched for sets.
    pub(crate) topic: &'static str,
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
    /// The span that records it.
    pub(crate) traceparent: Option<String>,
}

/// A member of a set: the oldest waiting message of its topic, or one whose time is over before that of older ones.
#[derive(Debug)]
pub(crate) struct SetMember {
    pub(crate) run: Uuid,
    pub(crate) topic: String,
    pub(crate) payload: Value,
    /// The span that recorded it.
    pub(crate) traceparent: Option<String>,
}

/// What became of a message that a collector records.
#[derive(Debug)]
pub(crate) enum JoinResult {
    /// It is recorded, and its set was launched if that is complete.
    Recorded(LaunchedSet),
    /// It is not: the claim of the collector does not hold.
    NotClaimed,
    /// It is not: no set can hold it. Its size is that in the database.
    Unfit { bytes: usize },
    /// It is not: another session keeps the key locked.
    Locked,
}

/// What became of a withdrawal.
#[derive(Debug)]
pub(crate) enum Withdrawal {
    /// The message does not wait any more. `joined` is the hierarchy that joins it, if there is one.
    Withdrawn { joined: Option<Uuid> },
    /// Nothing has changed: another session keeps the key locked.
    Locked,
}

#[derive(Debug, Default)]
pub(crate) struct LaunchedSet {
    pub(crate) handlers: Vec<String>,
    /// The waiting messages that were set aside, since no set can hold them.
    pub(crate) refused: Vec<RefusedMember>,
}

/// The result of a look for overdue sets.
#[derive(Debug, Default)]
pub(crate) struct ExpiredJoin {
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

/// The key of the spans that recorded the members of a set, in its payload.
const TRACEPARENTS: &str = "traceparents";

/// The spans that recorded the members of a set with this payload. Malformed ones are left out.
pub(crate) fn recorders(set: &Value) -> Vec<TraceContext> {
    let traceparents = set.get(TRACEPARENTS).and_then(Value::as_array).into_iter().flatten();
    traceparents.filter_map(|it| TraceContext::from_headers(it.as_str()?, None).ok()).collect()
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
    let mut payload = json!({ "saga": spec.saga, "key": key, "members": members });
    if !missing.is_empty() {
        payload["missing"] = json!(missing);
    }
    let traceparents: Vec<_> = oldest.iter().filter_map(|member| member.traceparent.as_deref()).collect();
    if !traceparents.is_empty() {
        payload[TRACEPARENTS] = json!(traceparents);
    }
    Some(NewMessage::new(spec.topic, payload, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> JoinSpec {
        JoinSpec { saga: "ship".into(), topic: "joins.ship", topics: vec!["paid", "picked"], within: None }
    }

    fn member(topic: &str) -> SetMember {
        SetMember { run: Uuid::nil(), topic: topic.into(), payload: json!(topic.len()), traceparent: None }
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
        assert!(recorders(&message.payload).is_empty());
    }

    #[test]
    fn set_has_the_spans_of_its_members() {
        let header = |digit: &str| format!("00-{}-{}-01", digit.repeat(32), digit.repeat(16));
        let recorded = |topic, traceparent| SetMember { traceparent, ..member(topic) };
        let members = [
            recorded("paid", Some(header("1"))),
            recorded("picked", None),
            recorded("other", Some("no span".into())),
        ];
        let message = set_message(&spec(), "7", &members, SetPolicy::IfComplete).unwrap();
        let recorders: Vec<_> = recorders(&message.payload).iter().map(TraceContext::traceparent).collect();
        assert_eq!(recorders, [header("1")]);
        for forged in
            [json!(7), json!(null), json!({ "traceparents": 7 }), json!({ "traceparents": [7, []] })]
        {
            assert!(super::recorders(&forged).is_empty());
        }
    }

    #[test]
    fn overdue_set_names_what_is_missing() {
        let launched = |members: &[SetMember]| set_message(&spec(), "7", members, SetPolicy::AsItIs);
        assert!(launched(&[]).is_none(), "all were withdrawn");
        let message = launched(&[member("picked")]).unwrap();
        assert_eq!(message.payload["missing"], json!(["paid"]));
    }
}
