//! What all measures need: a server, the limit, the settings, and a place for what they find.

use std::time::Duration;

use crate::args::Settings;
use crate::limit::{CLIENTS, Limit, Script};
use crate::outcome::Outcome;
use crate::report::Report;
use crate::server::Server;

/// Handed to each measure.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) limit: Limit,
    pub(crate) settings: Settings,
    pub(crate) report: Report,
}

impl Bench {
    /// The limit now. It gets a line of its own, too.
    pub(crate) async fn limit(&mut self) -> Outcome<f64> {
        let rate = self.limit.rate(Script::Step, CLIENTS).await?;
        self.report.add("limit", rate, None);
        Ok(rate)
    }

    /// What a step takes at the least, in milliseconds: one client that does nothing else.
    pub(crate) async fn step_ms(&self) -> Outcome<f64> {
        Ok(1000.0 / self.limit.rate(Script::Step, 1).await?)
    }

    /// About how long a round is to take.
    pub(crate) fn seconds(&self) -> Duration {
        Duration::from_secs(self.settings.seconds.into())
    }

    /// One number for a full measurement, another for a quick look.
    pub(crate) fn either<T>(&self, full: T, quick: T) -> T {
        if self.settings.quick { quick } else { full }
    }
}
