//! The progress of claims in the queues of ready runs.
//!
//! The oldest ready run comes first, and each claim leaves a dead index entry behind until a vacuum. Claims that start
//! with the oldest entry would pass more dead ones with each run of a backlog.
//!
//! Progress is reset periodically, because an older run may become visible late (a slow commit) and must still be
//! claimed in order. After a reset, the next claim of a queue starts with its oldest entry.

use std::collections::BTreeMap;

use scoop_core::Priority;
use time::OffsetDateTime;

use super::{Lanes, Suspect};

/// For each topic, handler and reservation, and for each priority there, the `ready_at` of the newest claimed run. Runs
/// that became ready before it have been claimed, except those that were invisible then (not committed yet), locked by
/// another transaction, or launched later for a time in the past.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct QueueCursors(BTreeMap<(String, String, i32, Priority), OffsetDateTime>);

impl QueueCursors {
    /// Whether a claim that starts there may overlook a run.
    pub(crate) fn may_skip_runs(&self) -> bool {
        !self.0.is_empty()
    }

    /// The start of a claim of runs with this priority in each of these queues; `None` where it is unknown.
    pub(super) fn of(&self, lanes: &Lanes, priority: Priority) -> Vec<Option<OffsetDateTime>> {
        let key = |(topic, handler, lane): (&str, &str, i32)| {
            (topic.to_owned(), handler.to_owned(), lane, priority)
        };
        lanes.each().map(|lane| self.0.get(&key(lane)).copied()).collect()
    }

    /// Positions at a suspect, for its claim.
    pub(super) fn at(suspect: &Suspect) -> Self {
        let mut there = Self::default();
        // A forged time may be earlier than any that can be bound.
        if suspect.ready_at > OffsetDateTime::UNIX_EPOCH {
            let levels = Priority::ALL.into_iter();
            levels.for_each(|level| there.take(suspect.lane(), level, suspect.ready_at));
        }
        there
    }

    /// The positions in these queues alone.
    pub(crate) fn within(&self, lanes: &Lanes) -> Self {
        let mut within = Self::default();
        for lane in lanes.each() {
            for priority in Priority::ALL {
                let key = (lane.0.to_owned(), lane.1.to_owned(), lane.2, priority);
                if let Some(reached) = self.0.get(&key) {
                    within.take(lane, priority, *reached);
                }
            }
        }
        within
    }

    /// Advances the queues as far as these positions go.
    pub(crate) fn extend(&mut self, taken: Self) {
        for (queue, ready_at) in taken.0 {
            let reached = self.0.entry(queue).or_insert(ready_at);
            *reached = ready_at.max(*reached);
        }
    }

    /// Advances a queue to a claimed run with this priority.
    pub(crate) fn take(
        &mut self,
        (topic, handler, lane): (&str, &str, i32),
        priority: Priority,
        ready_at: OffsetDateTime,
    ) {
        let key = (topic.to_owned(), handler.to_owned(), lane, priority);
        let reached = self.0.entry(key).or_insert(ready_at);
        *reached = ready_at.max(*reached);
    }
}
