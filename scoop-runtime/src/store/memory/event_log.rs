//! The record of a hierarchy: its messages, events and return values, as in the protocol's tables, and the
//! interventions.

use std::collections::BTreeMap;
use std::sync::Arc;

use scoop_core::{Context, EventKind, Failure, Lineage, Wait};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::store::types::micros_of;
use crate::tree::RunInfo;
use crate::util::ids;

/// A row of `message_event`.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Its position in the order in which all events of the database were written.
    pub(super) ordinal: u64,
    pub(super) id: Uuid,
    pub(super) message: Uuid,
    pub(super) kind: EventKind,
    pub(super) handler: Option<Arc<str>>,
    pub(super) identifier: Option<Arc<str>>,
    pub(super) step: Option<String>,
    pub(super) lineage: Lineage,
    pub(super) at: OffsetDateTime,
    pub(super) exception: Option<Failure>,
    pub(super) context: Context,
    pub(super) next_step: Option<i32>,
    pub(super) jump: Option<String>,
    pub(super) definition: Option<i32>,
    pub(super) handling: Option<i32>,
    pub(super) wait: Option<Wait>,
    /// The row of `execution` that begins after it.
    pub(super) begins: Option<RecordedExecution>,
}

/// A row of `execution`, without its time, which is that of the SUSPENDED before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedExecution {
    /// How many executions there were before.
    pub(super) number: i32,
    /// The message whose payload counts.
    pub(super) message: Uuid,
    /// How many suspensions of the forward path there were before.
    pub(super) suspensions: u32,
}

/// A row of `message`.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) topic: Arc<str>,
    pub(super) payload: Value,
}

#[derive(Clone, Debug)]
pub(super) struct InterventionRow {
    pub(super) id: Uuid,
    pub(super) run: Uuid,
    pub(super) handler: String,
    pub(super) part: Option<String>,
    pub(super) kind: &'static str,
    pub(super) reruns_part: bool,
    pub(super) note: Option<String>,
    pub(super) source: String,
    pub(super) at: OffsetDateTime,
}

/// The record of one hierarchy, in the order in which it was written.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    pub(super) messages: BTreeMap<Uuid, Message>,
    pub(super) events: Vec<Event>,
    /// The outputs and replies of each run, by name.
    pub(super) values: BTreeMap<Uuid, BTreeMap<String, Value>>,
    /// In the order in which they were written.
    pub(super) interventions: Vec<InterventionRow>,
    /// The messages that had no handler at their launch, and were delivered later, each with the hierarchy of its runs.
    pub(super) redeliveries: BTreeMap<Uuid, Uuid>,
    /// Positions in `events`, by the last of the lineage.
    by_run: BTreeMap<Uuid, Vec<usize>>,
    /// The position of the SUSPENDED before the newest execution, by the id of the run.
    starts: BTreeMap<Uuid, usize>,
    /// Positions in `interventions`, [oldest first](InterventionRow::order), by the id of the run.
    interventions_of: BTreeMap<Uuid, Vec<usize>>,
    /// Positions in `events`, by message and kind.
    by_message: BTreeMap<(Uuid, u8), Vec<usize>>,
}

impl Event {
    /// An event without the fields that are rarely set.
    pub(super) fn new(kind: EventKind, message: Uuid, lineage: Lineage, at: OffsetDateTime) -> Self {
        Self {
            ordinal: 0,
            id: ids::now_v7(),
            message,
            kind,
            handler: None,
            identifier: None,
            step: None,
            lineage,
            at,
            exception: None,
            context: Context::default(),
            next_step: None,
            jump: None,
            definition: None,
            handling: None,
            wait: None,
            begins: None,
        }
    }
}

impl InterventionRow {
    /// Its order in lists: by time, then by id.
    pub(super) fn order(&self) -> (OffsetDateTime, Uuid) {
        (self.at, self.id)
    }
}

impl EventLog {
    /// Whether the unique indices of the table admit this event.
    pub(super) fn admits(&self, event: &Event) -> bool {
        let mut same = self.of_message(event.message, event.kind);
        match event.kind {
            EventKind::Suspended | EventKind::RollbackFailed => true,
            EventKind::Emitted | EventKind::RollbackEmitted => same.next().is_none(),
            EventKind::CancellationRequested => !same.any(|other| other.lineage == event.lineage),
            EventKind::Seen | EventKind::Committed | EventKind::RollingBack | EventKind::RolledBack => {
                !same.any(|other| other.handler == event.handler)
            }
        }
    }

    /// Adds an event that is [admitted](Self::admits).
    pub(super) fn append(&mut self, event: Event) {
        assert!(self.admits(&event), "a second {:?} of {}", event.kind, event.lineage);
        let at = self.events.len();
        self.by_run.entry(event.lineage.id()).or_default().push(at);
        self.by_message.entry((event.message, event.kind as u8)).or_default().push(at);
        if event.begins.is_some() {
            self.starts.insert(event.lineage.id(), at);
        }
        self.events.push(event);
    }

    pub(super) fn intervene(&mut self, intervention: InterventionRow) {
        let of_run = self.interventions_of.entry(intervention.run).or_default();
        let ordinal = of_run.partition_point(|at| self.interventions[*at].order() < intervention.order());
        of_run.insert(ordinal, self.interventions.len());
        self.interventions.push(intervention);
    }

    pub(super) fn interventions_of(&self, run: Uuid) -> impl DoubleEndedIterator<Item = &InterventionRow> {
        self.interventions_of.get(&run).into_iter().flatten().map(|at| &self.interventions[*at])
    }

    pub(super) fn runs_with_interventions(&self) -> Vec<Uuid> {
        self.interventions_of.keys().copied().collect()
    }

    /// The first and the last so many interventions on a run, and the number of the others.
    pub(super) fn limited_interventions(
        &self,
        run: Uuid,
        count: Option<usize>,
    ) -> (Vec<&InterventionRow>, usize) {
        let all = self.interventions_of.get(&run).map_or(&[][..], Vec::as_slice);
        let ends = count.filter(|count| all.len() > count.saturating_mul(2));
        let (first, last) = match ends {
            Some(count) => (&all[..count], &all[all.len() - count..]),
            None => all.split_at(all.len()),
        };
        let read: Vec<_> = first.iter().chain(last).map(|at| &self.interventions[*at]).collect();
        let left_out = (all.len() - read.len()).min(RunInfo::LEFT_OUT_MAX);
        (read, left_out)
    }

    /// The events whose lineage ends with this id, oldest first.
    pub(super) fn of_run(&self, run: Uuid) -> impl DoubleEndedIterator<Item = &Event> {
        self.by_run.get(&run).into_iter().flatten().map(|at| &self.events[*at])
    }

    /// The same up to `until`, in microseconds since 1970, newest first.
    pub(super) fn of_run_until(&self, run: Uuid, until: i64) -> impl Iterator<Item = &Event> {
        let all = self.by_run.get(&run).map_or(&[][..], Vec::as_slice);
        let end = all.partition_point(|at| micros_of(self.events[*at].at) <= until);
        all[..end].iter().rev().map(|at| &self.events[*at])
    }

    /// The events of this kind about a message, oldest first.
    pub(super) fn of_message(&self, message: Uuid, kind: EventKind) -> impl Iterator<Item = &Event> {
        self.by_message.get(&(message, kind as u8)).into_iter().flatten().map(|at| &self.events[*at])
    }

    /// The one event of this kind that a handler has for a message.
    pub(super) fn of_handler(&self, message: Uuid, kind: EventKind, handler: &str) -> Option<&Event> {
        self.of_message(message, kind).find(|event| event.handler.as_deref() == Some(handler))
    }

    /// The SUSPENDED before the newest execution of a run, if that is not the first one.
    pub(super) fn start_of(&self, run: Uuid) -> Option<&Event> {
        self.starts.get(&run).map(|at| &self.events[*at])
    }

    /// The events of a run after the SUSPENDED before its newest execution, oldest first.
    pub(super) fn of_newest_execution(&self, run: Uuid) -> impl DoubleEndedIterator<Item = &Event> {
        let all = self.by_run.get(&run).map_or(&[][..], Vec::as_slice);
        let start = self.starts.get(&run).map_or(0, |start| all.partition_point(|at| at <= start));
        all[start..].iter().map(|at| &self.events[*at])
    }

    pub(super) fn suspended(&self, run: Uuid) -> Option<&Event> {
        self.of_run(run).rev().find(|event| event.kind == EventKind::Suspended)
    }

    pub(super) fn topic_of(&self, message: Uuid) -> Arc<str> {
        self.messages.get(&message).map_or_else(|| "".into(), |message| message.topic.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interventions_of_the_same_time_are_in_the_order_of_their_ids() {
        let (run, mut log) = (Uuid::from_u128(1), EventLog::default());
        for (id, at) in [(3, 5), (2, 5), (9, 4), (4, 5), (1, 6)] {
            log.intervene(InterventionRow {
                id: Uuid::from_u128(id),
                run,
                handler: "saga".to_owned(),
                part: None,
                kind: "skip",
                reruns_part: false,
                note: None,
                source: "a test".to_owned(),
                at: OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(at),
            });
        }
        let ids = |interventions: &[&InterventionRow]| {
            interventions.iter().map(|intervention| intervention.id.as_u128()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&log.interventions_of(run).collect::<Vec<_>>()), [9, 2, 3, 4, 1]);
        let (ends, left_out) = log.limited_interventions(run, Some(2));
        assert_eq!((ids(&ends), left_out), (vec![9, 2, 4, 1], 1));
    }
}
