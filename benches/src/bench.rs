//! Shared by all measures: the server, the limit, the settings, and the report.

use std::time::Duration;

use crate::args::Settings;
use crate::baseline::{CLIENTS, Limit, Rate, Script};
use crate::os_process::family_processor_seconds;
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

/// A rate, with its cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) per_second: f64,
    /// Processor time for each, in microseconds, of the server and of this program with its child processes.
    /// None if the server is on another machine.
    pub(crate) micros: Option<f64>,
}

impl Bench {
    /// Measures the limit now. It also gets a line of its own.
    pub(crate) async fn limit(&mut self) -> Outcome<f64> {
        Ok(self.limit_pace().await?.per_second)
    }

    /// Like `limit`, with its cost.
    pub(crate) async fn limit_pace(&mut self) -> Outcome<Pace> {
        let before = self.processor_seconds().await?;
        let Rate { per_second, transactions } = self.limit.rate(Script::Step, CLIENTS).await?;
        self.report.add("limit", per_second, None);
        Ok(Pace { per_second, micros: self.micros_since(before, transactions).await? })
    }

    /// The processor time that the server and this program have used so far.
    pub(crate) async fn processor_seconds(&self) -> Outcome<Option<f64>> {
        let server = self.server.process_id().await?.map(family_processor_seconds);
        Ok(server.map(|server| server + family_processor_seconds(std::process::id())))
    }

    /// The processor time for each of so many, since that reading.
    pub(crate) async fn micros_since(&self, before: Option<f64>, count: f64) -> Outcome<Option<f64>> {
        let both = self.processor_seconds().await?.zip(before);
        Ok(both.map(|(after, before)| (after - before) / count * 1_000_000.0))
    }

    /// Adds the processor time to the report, if both are known.
    pub(crate) fn add_cost(&mut self, key: &str, pace: Pace, limit: Pace) {
        if let Some((micros, limit)) = pace.micros.zip(limit.micros) {
            self.report.add(&format!("{key} processor"), micros, Some(limit));
        }
    }

    /// The shortest time of a step, in milliseconds: that of a single client alone.
    pub(crate) async fn step_ms(&self) -> Outcome<f64> {
        Ok(1000.0 / self.limit.rate(Script::Step, 1).await?.per_second)
    }

    /// The approximate duration of a round.
    pub(crate) fn seconds(&self) -> Duration {
        Duration::from_secs(self.settings.seconds.into())
    }

    /// One number for a full measurement, another for a quick look.
    pub(crate) fn either<T>(&self, full: T, quick: T) -> T {
        if self.settings.quick { quick } else { full }
    }
}
