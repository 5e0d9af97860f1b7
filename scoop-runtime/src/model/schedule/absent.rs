//! Without the feature `cron` there are no cron expressions: [`Cron`] has no values.

use std::time::SystemTime;

#[derive(Clone, Debug)]
pub(crate) enum Cron {}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its cron expression needs the feature `cron` of the package `scoop-saga`, which this program was built without"
)]
pub(crate) struct CronError;

impl Cron {
    pub(crate) fn new(_: &str, _: &str) -> Result<Self, CronError> {
        Err(CronError)
    }

    pub(crate) fn next_after(&self, _: SystemTime) -> Option<SystemTime> {
        match *self {}
    }
}
