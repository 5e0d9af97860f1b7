//! The delay of a message: its handlers begin no sooner than a given time.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::{Context, ContextKey, timestamp};

/// The time before which the handlers of a message must not begin.
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
    /// Sleeps until this time, with a resolution of microseconds. A time outside the years 1 to 9999 becomes the
    /// nearest one in that range.
    pub fn new(time: OffsetDateTime) -> Self {
        Self { wake_after: timestamp::clamp(time) }
    }

    /// The time.
    pub fn time(&self) -> OffsetDateTime {
        self.wake_after
    }
}

impl Context {
    /// The time before which the handlers of a message with this context must not begin. An unreadable time delays no
    /// handler.
    pub fn not_before(&self) -> Option<OffsetDateTime> {
        self.get::<SleepUntil>().ok().flatten().and_then(|sleep| timestamp::representable(sleep.time()))
    }
}

#[cfg(test)]
mod tests {
    use time::format_description::well_known::Rfc3339;

    use super::*;

    #[test]
    fn element_has_the_form_of_the_protocol() {
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
        let micros = ::time::Duration::microseconds(123_456);
        assert_eq!(SleepUntil::new(time).time(), read.not_before().unwrap() + micros);
    }

    #[test]
    fn time_that_postgres_cannot_read_delays_no_handler() {
        let context = |text| {
            let text = format!(r#"{{"SleepUntilKey":{{"wakeAfter":"{text}"}}}}"#);
            serde_json::from_str::<Context>(&text).unwrap()
        };
        assert_eq!(context("0000-06-25T12:31:37Z").not_before(), None);
        assert_eq!(context("soon").not_before(), None);
        let offset = context("2026-06-25T12:00:00+23:00").not_before().unwrap().offset();
        assert!(offset.is_utc());
    }
}
