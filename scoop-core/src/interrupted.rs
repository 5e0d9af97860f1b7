//! The failure of a step that runs at most once, and had begun under an earlier claim.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::failure_code::CodedError;
use crate::{Failure, FailureCode};

/// The failure of a step with `delivery = "at_most_once"` whose end is unknown: its worker ended, or lost the answer of
/// the database. It may have had its effects, or a part of them.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{Failure, Interrupted};
///
/// fn needs_a_look(why: &Failure) -> bool {
///     why.find::<Interrupted>().is_some_and(|interrupted| interrupted.step == "charge")
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "step `{step}` of saga `{saga}` runs at most once. It began at {} and was interrupted, so it may have had its effects",
    OffsetDateTime::from(*began_at).format(&Rfc3339).unwrap_or_default()
)]
#[non_exhaustive]
pub struct Interrupted {
    /// The saga.
    pub saga: String,
    /// The step.
    pub step: String,
    /// The time at which its code was about to run.
    pub began_at: SystemTime,
}

impl FailureCode for Interrupted {
    const CODE: &'static str = "scoop.interrupted";
}

inventory::submit! { CodedError::new::<Interrupted>() }

impl Interrupted {
    /// The failure of this step.
    pub fn new(saga: impl Into<String>, step: impl Into<String>, began_at: SystemTime) -> Self {
        Self { saga: saga.into(), step: step.into(), began_at }
    }

    /// The failure, of this source.
    pub fn to_failure(&self, source: &str) -> Failure {
        let data = CodedError::find(self).and_then(|coded| coded.data(self, source));
        Failure::new(Self::CODE, self.to_string(), source).caused_by(data)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn interruption_is_found_in_the_failure_of_a_parent() {
        let began_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let interrupted = Interrupted::new("payments", "charge", began_at);
        let failure = interrupted.to_failure("payments[w]");
        let above = Failure::child_rolled_back(Some("pay"), "orders[w]", vec![failure]);
        assert_eq!(above.find::<Interrupted>(), Some(interrupted));
        let report = above.report().to_string();
        assert!(report.contains("step `charge` of saga `payments` runs at most once"), "{report}");
        assert!(report.contains("2027-01-15T08:00:00Z"), "{report}");
    }
}
