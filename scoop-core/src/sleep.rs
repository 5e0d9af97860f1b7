//! Sleeping, as the protocol does it: a message on a topic of its own, whose only handler does
//! nothing, but not before a certain time.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::{Context, ContextKey};

/// Where messages go that are only waited for.
pub const SLEEP_TOPIC: &str = "sleep-9d24148d-d851-4107-8beb-e5c57f5cca88";

/// The handler of [`SLEEP_TOPIC`].
pub const SLEEP_HANDLER: &str = "sleep-handler";

/// The only step of [`SLEEP_HANDLER`].
pub const SLEEP_STEP: &str = "sleep";

/// Until when the handlers of a message are not to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SleepUntil {
    #[serde(with = "time::serde::rfc3339")]
    wake_after: OffsetDateTime,
}

impl ContextKey for SleepUntil {
    const KEY: &'static str = "SleepUntilKey";
}

impl SleepUntil {
    /// Until this time, to the microsecond.
    pub fn new(time: OffsetDateTime) -> Self {
        let time = time.to_offset(time::UtcOffset::UTC);
        Self { wake_after: time.replace_nanosecond(time.microsecond() * 1_000).unwrap_or(time) }
    }

    /// The time.
    pub fn time(&self) -> OffsetDateTime {
        self.wake_after
    }
}

impl Context {
    /// Before when the handlers of a message with this context are not to begin. What cannot be
    /// read keeps nobody waiting.
    pub fn not_before(&self) -> Option<OffsetDateTime> {
        self.get::<SleepUntil>().ok().flatten().map(|sleep| sleep.time())
    }
}

#[cfg(test)]
mod tests {
    use time::format_description::well_known::Rfc3339;

    use super::*;

    #[test]
    fn the_element_is_written_as_the_protocol_has_it() {
        let time = OffsetDateTime::parse("2026-06-25T12:31:37.123456789+02:00", &Rfc3339).unwrap();
        let mut context = Context::default();
        context.set(SleepUntil::new(time)).unwrap();
        assert_eq!(
            serde_json::to_string(&context).unwrap(),
            r#"{"SleepUntilKey":{"wakeAfter":"2026-06-25T10:31:37.123456Z"}}"#
        );
        let read: Context =
            serde_json::from_str(r#"{"SleepUntilKey":{"wakeAfter":"2026-06-25T12:31:37+02:00"}}"#).unwrap();
        assert_eq!(read.not_before().unwrap().unix_timestamp(), time.unix_timestamp());
    }
}
