//! Which runs a command is about: filters, as in `scoop runs`.

use std::time::SystemTime;

use scoop_runtime::{FindRuns, PauseTarget, RunPhase, Scoop, WaitKind};

use super::names;
use crate::fault::Fault;
use crate::times;

/// Filters that can be combined.
#[derive(Debug, clap::Args)]
pub(crate) struct Filters {
    /// Only runs of this saga
    #[arg(long, alias = "saga", value_name = "SAGA")]
    handler: Option<String>,
    /// Only runs of messages of this topic
    #[arg(long)]
    pub(super) topic: Option<String>,
    /// Only runs in this state; may be repeated: pending, ready, retrying, running, waiting, sleeping, awaiting-signal,
    /// stuck, awaiting-operator, committed, rolled-back, rollback-failed
    #[arg(long)]
    pub(super) state: Vec<RunPhase>,
    /// Only runs that came into their state at this time or later: a time, or a duration such as 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    since: Option<SystemTime>,
    /// Only runs that came into their state before this time
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    until: Option<SystemTime>,
    /// Only runs that were rolled back because of a failure with this code, at any depth
    #[arg(long, value_name = "CODE")]
    pub(super) failed_with: Option<String>,
    /// Only runs that wait for this; may be repeated: children, signal, time, slot, limit, program,
    /// operator, pause
    #[arg(long, value_name = "WHAT")]
    waiting_for: Vec<WaitKind>,
    /// Only runs of messages that started a hierarchy
    #[arg(long)]
    roots: bool,
}

impl Filters {
    /// Whether none is given.
    pub(super) fn is_empty(&self) -> bool {
        self.topic.is_none() && self.is_empty_but_topic()
    }

    /// Whether none is given beside the topic.
    pub(super) fn is_empty_but_topic(&self) -> bool {
        let Self { handler, topic: _, state, since, until, failed_with, waiting_for, roots } = self;
        handler.is_none()
            && state.is_empty()
            && since.is_none()
            && until.is_none()
            && failed_with.is_none()
            && waiting_for.is_empty()
            && !roots
    }

    /// The list of the runs that pass.
    pub(super) fn query(&self, scoop: &Scoop) -> FindRuns {
        let mut query = scoop.runs();
        if let Some(handler) = &self.handler {
            query = query.handler(handler);
        }
        if let Some(topic) = &self.topic {
            query = query.topic(topic);
        }
        if let Some(since) = self.since {
            query = query.since(since);
        }
        if let Some(until) = self.until {
            query = query.until(until);
        }
        if let Some(code) = &self.failed_with {
            query = query.failed_with(code);
        }
        query = self.state.iter().fold(query, |query, state| query.state(*state));
        query = self.waiting_for.iter().fold(query, |query, wait| query.waiting_for(*wait));
        if self.roots { query.roots() } else { query }
    }

    /// Checks the names when no run passes: one may be mistyped.
    ///
    /// # Errors
    ///
    /// [`Fault::NotFound`] if no such saga or topic was ever registered.
    pub(super) async fn check_names(&self, scoop: &Scoop) -> Result<(), Fault> {
        let named =
            [self.handler.clone().map(PauseTarget::handler), self.topic.clone().map(PauseTarget::topic)];
        for target in named.into_iter().flatten() {
            names::check(scoop, &target).await?;
        }
        Ok(())
    }
}
