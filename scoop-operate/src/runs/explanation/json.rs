//! The JSON of explanations, as far as it does not follow from the fields: `docs/reference/command_line.md` has it, and it stays as it is.

use std::fmt::Display;
use std::time::SystemTime;

use scoop_core::Priority;
use scoop_core::wait::MessageWait;
pub(super) use scoop_runtime::internal::json::{millis, time};
use scoop_runtime::{Pause, RunId, RunPhase};
use serde::{Serialize, Serializer};

use super::{JoinWait, LimitKey, RunExplanation, RunSummary, WaitReason};

pub(super) fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Whom a run waits for by a strategy, in words.
pub(super) fn strategies<S: Serializer>(messages: &[MessageWait], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Json<'a> {
        topic: &'a str,
        waits_for: &'a str,
        #[serde(serialize_with = "time")]
        until: Option<SystemTime>,
    }
    serializer.collect_seq(messages.iter().map(|message| Json {
        topic: &message.topic,
        waits_for: message.plan.describe(),
        until: message.plan.until().map(Into::into),
    }))
}

/// A key as two fields, for `flatten`.
#[expect(clippy::ref_option, reason = "serde wants a reference")]
pub(super) fn limit_key<S: Serializer>(key: &Option<LimitKey>, serializer: S) -> Result<S::Ok, S::Error> {
    let (from, key) = key.as_ref().map(|key| (&key.from, &key.key)).unzip();
    serializer.collect_map([("key_from", from), ("key", key)])
}

pub(super) fn holders<S: Serializer>(
    holders: &[(RunId, RunPhase)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Json {
        run: RunId,
        state: RunPhase,
    }
    serializer.collect_seq(holders.iter().map(|(run, state)| Json { run: *run, state: *state }))
}

/// With its text, and what would end the wait.
impl Serialize for RunExplanation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json<'a> {
            #[serde(flatten)]
            run: &'a RunSummary,
            waiting: &'a WaitReason,
            priority: Priority,
            giving_up: bool,
            cancelled: bool,
            pauses: &'a [Pause],
            join: Option<&'a JoinWait>,
            text: String,
            ends_by: String,
            #[serde(serialize_with = "time")]
            read_at: SystemTime,
        }
        Json {
            run: &self.run,
            waiting: &self.reason,
            priority: self.priority,
            giving_up: self.giving_up,
            cancelled: self.cancelled,
            pauses: &self.pauses,
            join: self.join.as_ref(),
            text: self.to_string(),
            ends_by: self.ends_by(),
            read_at: self.read_at,
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use scoop_core::SignalKey;
    use uuid::Uuid;

    use super::*;
    use crate::Delay;

    /// Programs read these fields: docs/reference/command_line.md lists them.
    #[test]
    fn each_kind_of_wait_has_its_fields() {
        let at = UNIX_EPOCH + Duration::from_secs(90);
        let key = || Some(LimitKey::new("customer", "7"));
        let expected = [
            (WaitReason::Ended, r#"{"for":"nothing"}"#),
            (WaitReason::Executing { worker: None }, r#"{"for":"step","worker":null}"#),
            (
                WaitReason::Children {
                    unfinished: 2,
                    blocking: vec![],
                    blocking_count: 1,
                    strategies: vec![],
                },
                r#"{"for":"children","unfinished":2,"blocking":[],"blocking_count":1,"strategies":[]}"#,
            ),
            (
                WaitReason::Signal {
                    signal: SignalKey { name: "paid".into(), key: "order 7".into() },
                    until: Some(at),
                },
                r#"{"for":"signal","signal":{"name":"paid","key":"order 7"},"until":"1970-01-01T00:01:30.000Z"}"#,
            ),
            (
                WaitReason::Time { until: at, delay: Delay::Backoff },
                r#"{"for":"time","until":"1970-01-01T00:01:30.000Z","delay":"backoff"}"#,
            ),
            (
                WaitReason::Slot { ahead: 3, queued: 4, is_suspect: false, workers: vec![] },
                r#"{"for":"slot","ahead":3,"queued":4,"suspect":false,"workers":[]}"#,
            ),
            (
                WaitReason::Program { definition: Some(2), why: Some("no step `pack`".into()) },
                r#"{"for":"program","definition":2,"why":"no step `pack`"}"#,
            ),
            (
                WaitReason::Operator {
                    why: "it is stuck".into(),
                    failed_below: vec![],
                    has_more_below: false,
                },
                r#"{"for":"operator","why":"it is stuck","failed_below":[],"more_below":false}"#,
            ),
            (
                WaitReason::Limit {
                    concurrency: 2,
                    serial: false,
                    key: key(),
                    holders: vec![(Uuid::nil().into(), RunPhase::Running)],
                    ahead: 0,
                    queued: 1,
                },
                r#"{"for":"limit","concurrency":2,"serial":false,"key_from":"customer","key":"7","holders":[{"run":"00000000-0000-0000-0000-000000000000","state":"running"}],"ahead":0,"queued":1}"#,
            ),
            (
                WaitReason::Rate {
                    runs: 5,
                    period: Duration::from_secs(60),
                    key: None,
                    opens_at: Some(at),
                    ahead: 0,
                    queued: 1,
                },
                r#"{"for":"rate","runs":5,"period_ms":60000,"key_from":null,"key":null,"opens_at":"1970-01-01T00:01:30.000Z","ahead":0,"queued":1}"#,
            ),
            (WaitReason::Pause { pauses: vec![] }, r#"{"for":"pause","pauses":[]}"#),
        ];
        for (reason, json) in expected {
            assert_eq!(serde_json::to_string(&reason).unwrap(), json);
        }
    }
}
