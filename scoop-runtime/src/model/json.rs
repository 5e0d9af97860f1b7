//! The JSON of what operators read: helpers for the attributes of its types, here and in `scoop-operate`.
//!
//! The command line and the web page write these types as they are. Their form is documented: `docs/reference/command_line.md` lists
//! the fields, and `openapi.json` of `scoop-web` describes them. Fields are added, but not renamed or removed.

use std::time::{Duration, SystemTime};

use scoop_core::{Failure, Lineage};
use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::format::{offset_date_time, utc};
use super::stored_time::StoredTime;

/// A time, in UTC to the millisecond; null if there is none, or if it is the latest one, which means without a
/// limit.
pub fn time<T, S>(time: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Copy + Into<Option<SystemTime>>,
    S: Serializer,
{
    let time: Option<SystemTime> = (*time).into();
    let is_limited = |time: &SystemTime| offset_date_time(*time).is_some_and(|it| it < StoredTime::LATEST);
    time.filter(is_limited).map(utc).serialize(serializer)
}

/// A duration in whole milliseconds, or null.
pub fn millis<T, S>(duration: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Copy + Into<Option<Duration>>,
    S: Serializer,
{
    let duration: Option<Duration> = (*duration).into();
    duration.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
}

/// The ids of a lineage, for `flatten`: `run`, which is null for a whole hierarchy, `hierarchy` and `parent`.
pub fn lineage<S: Serializer>(lineage: &Lineage, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Ids {
        run: Option<Uuid>,
        hierarchy: Uuid,
        parent: Option<Uuid>,
    }
    let mut runs = lineage.ids().iter().skip(1).rev().copied();
    Ids { run: runs.next(), hierarchy: lineage.root_id(), parent: runs.next() }.serialize(serializer)
}

/// The failure of a rollback: its failed compensation.
pub fn rollback_failure<S: Serializer>(failure: &Failure, serializer: S) -> Result<S::Ok, S::Error> {
    FailureReport::of_rollback(failure).serialize(serializer)
}

/// The main cause of a failure, and all causes as text.
#[derive(Serialize)]
pub(crate) struct FailureReport<'a> {
    code: &'a str,
    headline: String,
    source: &'a str,
    report: String,
}

impl<'a> FailureReport<'a> {
    pub(crate) fn of(failure: &'a Failure) -> Self {
        let cause = failure.root_causes().first().copied().unwrap_or(failure);
        Self {
            code: &cause.kind,
            headline: failure.summary(),
            source: &cause.source,
            report: failure.report(),
        }
    }

    pub(crate) fn of_rollback(failure: &'a Failure) -> Self {
        Self { report: failure.report(), ..Self::of(failure.failed_compensation()) }
    }
}
