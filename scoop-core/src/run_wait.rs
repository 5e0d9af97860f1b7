//! The wait of a run between two steps: for a time, for a signal, or for handlers by a strategy.

use std::fmt;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::saga::NAME_CHARS_MAX;
use crate::wait::WaitPlan;
use crate::{Emission, Escaped, Failure, timestamp};

/// What a run waits for after a step, besides its children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The time before which the run does not continue, unless its signal comes.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    until: Option<OffsetDateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<SignalKey>,
    /// The launched messages whose handlers are waited for by a strategy, and not all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    messages: Vec<MessageWait>,
}

/// A launched message whose handlers are waited for by a strategy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageWait {
    /// The message.
    pub message: Uuid,
    /// Its topic.
    pub topic: String,
    /// The strategy.
    #[serde(flatten)]
    pub plan: WaitPlan,
    /// Why the launch has failed, once the strategy has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl fmt::Display for MessageWait {
    /// Whom it waits for, as in "at least 2 handlers of `quotes.ask`".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of `{}`", Escaped(self.plan.describe()), Escaped(&self.topic))
    }
}

/// The name of a signal, and the key that tells its receivers apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SignalKey {
    /// The name of the signal.
    pub name: String,
    /// The key: 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: String,
}

/// The maximum length of the key of a signal or an entity, in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// Why a text cannot be stored as the key of a signal or an entity, if it cannot.
pub fn refused_key(key: &str) -> Option<String> {
    if key.contains('\0') {
        return Some("contains a NUL character, which PostgreSQL does not store".into());
    }
    let bytes = key.len();
    (!(1..=KEY_BYTES_MAX).contains(&bytes))
        .then(|| format!("has {bytes} bytes; 1 to {KEY_BYTES_MAX} are possible"))
}

impl Wait {
    /// Waits until this time, with a resolution of microseconds. A time outside the years 1 to 9999 becomes the
    /// nearest one in that range.
    pub fn until(time: OffsetDateTime) -> Self {
        Self { until: Some(timestamp::clamp(time)), signal: None, messages: vec![] }
    }

    /// Waits for a signal, at most until this time.
    pub fn for_signal(signal: SignalKey, limit: Option<OffsetDateTime>) -> Self {
        Self { until: limit.map(timestamp::clamp), signal: Some(signal), messages: vec![] }
    }

    /// The time at which it ends in any case; a far one if it has no limit.
    pub fn time(&self) -> OffsetDateTime {
        self.until.unwrap_or_else(timestamp::last)
    }

    /// The time at which it ends in any case, if it has a limit.
    pub fn limit(&self) -> Option<OffsetDateTime> {
        self.until
    }

    /// The signal that ends it.
    pub fn signal(&self) -> Option<&SignalKey> {
        self.signal.as_ref()
    }

    /// This wait, or none, and the strategies with which messages are launched in the same step.
    pub(crate) fn with_strategies(wait: Option<Self>, emissions: &[Emission]) -> Option<Self> {
        let messages =
            emissions.iter().filter(|emission| emission.detached_root.is_none()).filter_map(|emission| {
                let (message, topic) = (emission.message, emission.topic.clone());
                Some(MessageWait { message, topic, plan: emission.wait.clone()?, failure: None })
            });
        let messages: Vec<_> = messages.collect();
        if messages.is_empty() {
            return wait;
        }
        let (until, signal) = wait.map_or((None, None), |wait| (wait.until, wait.signal));
        Some(Self { until, signal, messages })
    }

    /// The launched messages whose handlers are waited for by a strategy.
    pub fn messages(&self) -> &[MessageWait] {
        &self.messages
    }

    /// The same wait with these messages.
    #[must_use]
    pub fn with_messages(self, messages: Vec<MessageWait>) -> Self {
        Self { messages, ..self }
    }

    /// Whether a strategy has to decide before the run goes on.
    pub fn is_undecided(&self) -> bool {
        self.messages.iter().any(|message| message.failure.is_none())
    }

    /// Waits for this and for another wait: the later time counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if other.time() > self.time() { other } else { self }
    }
}

impl SignalKey {
    /// Why it cannot be stored, if it cannot.
    pub fn refused(&self) -> Option<String> {
        if self.name.contains('\0') {
            return Some("its name contains a NUL character, which PostgreSQL does not store".into());
        }
        let chars = self.name.chars().count();
        if !(1..=NAME_CHARS_MAX).contains(&chars) {
            return Some(format!("its name has {chars} characters; 1 to {NAME_CHARS_MAX} are possible"));
        }
        refused_key(&self.key).map(|why| format!("its key {why}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(key: &str) -> SignalKey {
        SignalKey { name: "paid".into(), key: key.into() }
    }

    #[test]
    fn wait_is_stored_as_its_time_and_signal() {
        let at = OffsetDateTime::from_unix_timestamp_nanos(1_782_390_697_123_456_789).unwrap();
        let until = "2026-06-25T12:31:37.123456Z";
        let signal = json!({ "name": "paid", "key": "7" });
        for (wait, stored) in [
            (Wait::until(at), json!({ "until": until })),
            (Wait::for_signal(key("7"), Some(at)), json!({ "until": until, "signal": signal })),
            (Wait::for_signal(key("7"), None), json!({ "signal": signal })),
        ] {
            assert_eq!(serde_json::to_value(&wait).unwrap(), stored);
            assert_eq!(serde_json::from_value::<Wait>(stored).unwrap(), wait);
        }
        assert_eq!(Wait::for_signal(key("7"), None).time().year(), 9999);
    }

    #[test]
    fn of_two_waits_the_later_counts() {
        let wait = |second| Wait::until(OffsetDateTime::from_unix_timestamp(second).unwrap());
        assert_eq!(wait(1).and(wait(2)), wait(2));
        assert_eq!(wait(2).and(wait(1)), wait(2));
    }

    #[test]
    fn keys_are_short_and_without_nul() {
        assert_eq!(key("7").refused(), None);
        assert_eq!(key(&"x".repeat(255)).refused(), None);
        for (bad, why) in [("", "has 0 bytes"), (&*"x".repeat(256), "has 256 bytes"), ("a\0b", "NUL")] {
            assert!(key(bad).refused().unwrap().contains(why));
        }
    }

    #[test]
    fn names_are_short() {
        let named = |chars| SignalKey { name: "ü".repeat(chars), key: "7".into() };
        assert_eq!(named(180).refused(), None);
        for bad in [0, 181] {
            assert!(named(bad).refused().unwrap().contains(&format!("its name has {bad} characters")));
        }
    }
}
