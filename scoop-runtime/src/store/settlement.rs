//! What follows from a move of a run, as it goes to the database, and what became of it.

use std::collections::BTreeMap;
#[cfg(feature = "in-memory")]
use std::time::Duration;

use scoop_core::{
    Conclusion, Context, Direction, Emission, Event, EventKind, Failure, Fate, FoundBy, NextExecution, Path,
    Required, Run, SentSignal, SignalKey, TraceContext, Wait,
};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::launch::PAYLOADS_BYTES_MAX;
#[cfg(feature = "in-memory")]
use super::signal::{NewSignal, sender};
use super::types::{ClaimKey, HierarchyFlags, timestamps};
use crate::model::failed::FailedOutcome;
use crate::model::run::RowState;
use crate::store::Unhandled;
use crate::util::payload;

/// What follows from one move of one run, as `settle_general.sql` takes it. What is not there is not
/// written: each byte is read twice.
#[derive(Debug, Serialize)]
pub(crate) struct Settlement {
    pub(super) root: Uuid,
    pub(super) id: Uuid,
    pub(super) epoch: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ends: Option<Ending>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jump: Option<String>,
    /// The definition under which the newest step completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) definition: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) iteration: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) handler_iteration: Option<i32>,
    pub(super) suspensions: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completions: Option<BTreeMap<String, u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outputs: Option<BTreeMap<String, Value>>,
    pub(super) rolling_back: bool,
    pub(super) begins_rollback: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rollback_failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) forgets: Option<ForgottenChildren>,
    pub(super) event_count: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<EventRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) emissions: Vec<EmissionRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rollback_requests: Vec<RollbackRequestRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rollback_cause: Option<Failure>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) return_values: Vec<ValueRow>,
    pub(super) replied: bool,
    /// What travels with the run, if that has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Context>,
    #[serde(serialize_with = "timestamps", skip_serializing_if = "Vec::is_empty")]
    pub(super) deadlines: Vec<OffsetDateTime>,
    /// What the run waits for before its next move, besides its children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wait: Option<Wait>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) signals: Vec<SignalRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) as_new: Option<ExecutionRow>,
    /// The failed end to report to the handlers of [`Failed`](crate::Failed).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<FailedOutcome>,
    /// Whether this is void if the run has to give up.
    pub(super) may_give_up: bool,
    /// Whether what it launches is stored ahead of it, in statements of their own, since the payloads are large.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) stored: bool,
    #[serde(skip)]
    bytes: usize,
    /// Whether its failure, if it has one, is the one that it had before.
    #[serde(skip)]
    pub(super) is_same_failure: bool,
    /// Whether the run was on its forward path before.
    #[serde(skip)]
    was_forward: bool,
    /// Whether its newest step completed under the definition that was recorded before.
    #[serde(skip)]
    keeps_definition: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettlePath {
    /// The move went well and launched nothing.
    Advance,
    /// The move went well and launched something.
    LaunchChildren,
    /// The run rolls back, and requests the rollback of the messages that it launched.
    RequestRollback,
    /// Anything else.
    General,
}

/// Something that a step returned or replied.
#[derive(Debug, Serialize)]
pub(super) struct ValueRow {
    pub(super) name: String,
    pub(super) value: Value,
}

/// How a run leaves the working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ending {
    /// Its parent has to take note of its failure first.
    Noted,
    /// At once.
    Unnoted,
    /// It does not: its rollback failed, and it rests.
    Failed,
}

/// The failed children that the run has taken note of, which leave the working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum ForgottenChildren {
    #[serde(rename = "all")]
    All,
    /// The runs without a failed rollback.
    #[serde(rename = "rolled back")]
    RolledBack,
}

/// An event, named after the columns.
#[derive(Debug, Serialize)]
pub(super) struct EventRow {
    pub(super) until_last: usize,
    pub(super) message_id: Uuid,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_step: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) handler_iteration: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jump: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) definition: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exception: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detached_root: Option<Uuid>,
    /// The context of an emission, if it is not the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Context>,
    /// What the run waits for after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wait: Option<Wait>,
}

/// A message to be published.
#[derive(Debug, Serialize)]
pub(super) struct EmissionRow {
    pub(super) at: usize,
    pub(super) id: Uuid,
    pub(super) topic: String,
    pub(super) payload: Payload,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detached_root: Option<Uuid>,
    /// If it is not the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Context>,
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(super) due: Option<OffsetDateTime>,
    #[serde(serialize_with = "timestamps", skip_serializing_if = "Vec::is_empty")]
    pub(super) deadlines: Vec<OffsetDateTime>,
    /// The Rust type of the message if it requires a handler.
    #[serde(skip)]
    pub(super) required: Option<Required>,
    /// By what its runs are found.
    #[serde(skip)]
    pub(super) found_by: Vec<FoundBy>,
}

/// The payload of a message to be published. It is written as null if the message is stored ahead of its settlement.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) value: Value,
    stored: bool,
}

impl Serialize for Payload {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.stored { serializer.serialize_unit() } else { self.value.serialize(serializer) }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SignalRow {
    id: Uuid,
    name: String,
    key: String,
    payload: Value,
    /// For how many seconds it is kept.
    retention: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

/// A new execution of the run.
#[derive(Debug, Serialize)]
pub(super) struct ExecutionRow {
    /// How many executions there were before.
    pub(super) number: i32,
    pub(super) message: Uuid,
    pub(super) payload: Value,
}

/// A message whose handlers have to roll back.
#[derive(Debug, Serialize)]
pub(super) struct RollbackRequestRow {
    pub(super) at: usize,
    pub(super) message_id: Uuid,
}

impl Settlement {
    /// What follows for `before`, held under `key`, which has the context `stored` by the books.
    pub(crate) fn new(
        key: ClaimKey,
        before: &Run,
        flags: HierarchyFlags,
        stored: &Context,
        conclusion: Conclusion,
    ) -> Self {
        let may_give_up = may_give_up(before, &conclusion.fate);
        let context = conclusion.context().unwrap_or(&before.context).clone();
        let keeps_definition = matches!(&conclusion.fate, Fate::GoesOn(run) if run.recorded.is_some());
        let direction = flags.direction(before);
        let mut settlement = Self::from_fate(key, before, flags, conclusion.fate);
        settlement.may_give_up = may_give_up;
        (settlement.was_forward, settlement.keeps_definition) = (!before.is_backward(), keeps_definition);
        settlement.is_same_failure = settlement.failure.as_ref() == before.cause();
        settlement.deadlines = context.give_up_at(match settlement.rolling_back {
            true => Direction::Backward,
            false => direction,
        });
        let count = conclusion.events.len();
        settlement.event_count = count;
        let events = conclusion.events.into_iter().enumerate();
        settlement.events =
            events.map(|(at, event)| EventRow::new(count - at - 1, event, &context)).collect();
        if settlement.ends == Some(Ending::Failed) {
            settlement.set_failed_part(before);
        }
        let emissions = conclusion.emissions.into_iter().enumerate();
        settlement.emissions =
            emissions.map(|(at, emission)| EmissionRow::new(at, emission, direction, &context)).collect();
        let requests = conclusion.rollback_requests.into_iter().enumerate();
        settlement.rollback_requests =
            requests.map(|(at, message_id)| RollbackRequestRow { at, message_id }).collect();
        settlement.rollback_cause = conclusion.rollback_cause;
        settlement.wait = conclusion.wait;
        settlement.signals = conclusion.signals.into_iter().map(SignalRow::from).collect();
        settlement.as_new = conclusion.as_new.map(|NextExecution { message, payload }| {
            let number = signed(before.execution.number).saturating_add(1);
            ExecutionRow { number, message, payload }
        });
        let values = conclusion.values.into_iter();
        settlement.return_values = values.map(|(name, value)| ValueRow { name, value }).collect();
        settlement.measure();
        settlement.context = (context != *stored).then_some(context);
        settlement
    }

    /// The same settlement, by a program that has the definition `at_hand`, of a run whose newest step completed
    /// under `recorded`. What completes a step of the forward path says under which.
    pub(crate) fn under(mut self, at_hand: i32, recorded: Option<i32>) -> Self {
        if self.ends.is_some() {
            return self;
        }
        let completed = if self.keeps_definition { recorded } else { Some(at_hand) };
        let mut forward = self.was_forward;
        self.definition = recorded;
        for event in &mut self.events {
            forward &= !event.is(EventKind::RollingBack);
            if event.is(EventKind::Suspended) {
                event.definition = completed.filter(|_| forward);
                // No step of a new execution has completed.
                self.definition = event.definition.filter(|_| self.as_new.is_none());
            }
        }
        self
    }

    /// The signals to deliver after it: those that it sends, and that which the run awaits.
    pub(crate) fn to_deliver(&self) -> Vec<SignalKey> {
        let sent = self.signals.iter().map(SignalRow::to);
        let awaited = self.wait.as_ref().and_then(Wait::signal).cloned();
        sent.chain(awaited).collect()
    }

    /// The definition under which the newest step of the run completed.
    pub(crate) fn definition(&self) -> Option<i32> {
        self.definition
    }

    /// Which run, and under which epoch.
    pub(crate) fn id(&self) -> (Uuid, i64) {
        (self.id, self.epoch)
    }

    /// The order in which runs are locked that are locked together.
    pub(crate) fn lock_order(&self) -> (Uuid, Uuid) {
        (self.root, self.id)
    }

    /// Has the messages stored ahead if their payloads are large together.
    fn measure(&mut self) {
        let payloads: usize = self.emissions.iter().map(|row| payload::bytes(&row.payload.value)).sum();
        let values: usize = self.return_values.iter().map(|row| payload::bytes(&row.value)).sum();
        let as_new = self.as_new.iter().map(|row| payload::bytes(&row.payload)).sum::<usize>();
        self.bytes = payloads + values + as_new;
        self.stored = payloads > PAYLOADS_BYTES_MAX;
        self.emissions.iter_mut().for_each(|row| row.payload.stored = self.stored);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether what it launches is stored ahead of it, in the same transaction.
    pub(crate) fn is_bulky(&self) -> bool {
        self.stored
    }

    pub(crate) fn requires_handlers(&self) -> bool {
        self.emissions.iter().any(|row| row.required.is_some())
    }

    /// Whether runs of a message that it launches are found by fields.
    pub(crate) fn is_found_by(&self) -> bool {
        self.emissions.iter().any(|row| !row.found_by.is_empty())
    }

    /// Whether it is a move that went well, changes nothing of what the run is part of, and leaves
    /// it neither a deadline, nor a wait, nor a new execution, and sends no signal: the rest of it is its own events, launches and rollback requests.
    pub(super) fn fits_fast_path(&self) -> bool {
        self.may_give_up
            && !self.begins_rollback
            && self.is_same_failure
            && self.rollback_failure.is_none()
            && self.forgets.is_none()
            && self.failed.is_none()
            && self.deadlines.is_empty()
            && self.wait.is_none()
            && self.signals.is_empty()
            && self.as_new.is_none()
            && self.return_values.len() <= 1
    }

    /// Whether the launch sets a timer: a due time or a deadline.
    pub(crate) fn has_timer(&self) -> bool {
        let of_emission = |row: &EmissionRow| row.due.is_some() || !row.deadlines.is_empty();
        self.wait.is_some() || !self.deadlines.is_empty() || self.emissions.iter().any(of_emission)
    }

    fn from_fate(key: ClaimKey, before: &Run, flags: HierarchyFlags, fate: Fate) -> Self {
        let HierarchyFlags { has_parent, .. } = flags;
        let had_failed_children = !before.failed_children.is_empty();
        let mut settlement = Self::empty(key);
        settlement.forgets = had_failed_children.then_some(ForgottenChildren::All);
        match fate {
            Fate::GoesOn(run) => {
                if had_failed_children && !run.failed_children.is_empty() {
                    settlement.forgets = Some(ForgottenChildren::RolledBack);
                }
                settlement.begins_rollback = !before.is_backward() && run.is_backward();
                settlement.set_position(run);
            }
            Fate::Committed => settlement.ends = Some(Ending::Unnoted),
            Fate::RolledBack { cause, rollback_requested } => {
                let noted = has_parent && !rollback_requested;
                settlement.ends = Some(if noted { Ending::Noted } else { Ending::Unnoted });
                settlement.begins_rollback = !before.is_backward();
                settlement.rolling_back = true;
                settlement.failure = Some(cause);
                // The store reports it only if no run waits for it by then.
                settlement.failed = (!has_parent || noted).then_some(FailedOutcome::RolledBack);
            }
            Fate::RollbackFailed { cause, failure, .. } => {
                settlement.ends = Some(Ending::Failed);
                // It failed because of those whose rollback failed, and they stay its children.
                settlement.forgets = had_failed_children.then_some(ForgottenChildren::RolledBack);
                settlement.begins_rollback = !before.is_backward();
                settlement.rolling_back = true;
                settlement.failure = Some(cause);
                settlement.rollback_failure = Some(failure);
                settlement.failed = Some(FailedOutcome::RollbackFailed);
            }
        }
        settlement
    }

    /// Sets the part of the rollback that failed, and how often the failures of its children had been handled before, if these are the
    /// reason. They are not if it gave up.
    fn set_failed_part(&mut self, before: &Run) {
        let Some(failed) = self.events.last() else { return };
        let is_because_of_children = before.give_up.is_empty() && !before.failed_children.is_empty();
        (self.step, self.handler_iteration) =
            (failed.step.clone(), failed.handler_iteration.filter(|_| is_because_of_children));
    }

    fn empty(key: ClaimKey) -> Self {
        Self {
            root: key.root,
            id: key.id,
            epoch: key.epoch,
            ends: None,
            step: None,
            jump: None,
            definition: None,
            iteration: None,
            handler_iteration: None,
            suspensions: 0,
            completions: None,
            outputs: None,
            rolling_back: false,
            begins_rollback: false,
            failure: None,
            rollback_failure: None,
            forgets: None,
            event_count: 0,
            rollback_cause: None,
            return_values: vec![],
            replied: false,
            context: None,
            deadlines: vec![],
            wait: None,
            signals: vec![],
            as_new: None,
            failed: None,
            may_give_up: false,
            stored: false,
            bytes: 0,
            is_same_failure: false,
            was_forward: true,
            keeps_definition: false,
            events: vec![],
            emissions: vec![],
            rollback_requests: vec![],
        }
    }

    fn set_position(&mut self, run: Run) {
        if let Some(last) = run.last {
            self.step = Some(last.step);
            self.jump = last.jump;
            self.iteration = Some(signed(last.iteration));
            self.handler_iteration = last.handler_iteration.map(signed);
        }
        self.suspensions = signed(run.suspensions);
        self.completions = (!run.completions.is_empty()).then_some(run.completions);
        self.replied = run.replied;
        self.outputs = (!run.outputs.is_empty()).then_some(run.outputs);
        if let Path::Backward { cause, .. } = run.path {
            self.rolling_back = true;
            self.failure = Some(cause);
            // It means nothing in a rollback, and a reader of the record does not know it.
            self.iteration = self.iteration.map(|_| 0);
        }
    }
}

/// A failure is recorded in any case; all other results are void if the run has to give up.
fn may_give_up(before: &Run, fate: &Fate) -> bool {
    match fate {
        Fate::GoesOn(run) => run.is_backward() == before.is_backward(),
        Fate::Committed => true,
        Fate::RolledBack { .. } => before.is_backward(),
        Fate::RollbackFailed { .. } => false,
    }
}

fn signed(count: impl TryInto<i32>) -> i32 {
    count.try_into().unwrap_or(i32::MAX)
}

/// How many there are, as stored.
pub(super) fn count(number: usize) -> i32 {
    signed(number)
}

impl From<SentSignal> for SignalRow {
    fn from(SentSignal { id, to: SignalKey { name, key }, payload, retention, trace }: SentSignal) -> Self {
        let traceparent = trace.as_ref().map(TraceContext::traceparent);
        Self { id, name, key, payload, retention: retention.as_secs_f64(), traceparent }
    }
}

impl SignalRow {
    fn to(&self) -> SignalKey {
        SignalKey { name: self.name.clone(), key: self.key.clone() }
    }

    /// The signal as a client sends it.
    #[cfg(feature = "in-memory")]
    pub(super) fn signal(&self) -> NewSignal {
        let retention = Duration::try_from_secs_f64(self.retention).unwrap_or(Duration::MAX);
        let trace = sender(self.traceparent.as_deref());
        NewSignal { id: self.id, to: self.to(), payload: self.payload.clone(), retention, trace }
    }
}

impl EventRow {
    fn new(until_last: usize, event: Event, context: &Context) -> Self {
        Self {
            until_last,
            message_id: event.message,
            kind: event.kind.as_str(),
            step: event.step,
            next_step: event.next_step.map(signed),
            jump: event.jump,
            definition: None,
            handler_iteration: event.handler_iteration.map(signed),
            // Stored once for all of them, as `rollback_cause`.
            exception: event.exception.filter(|_| event.kind != EventKind::RollbackEmitted),
            detached_root: event.detached_root,
            context: Some(event.context).filter(|own| own != context),
            wait: event.wait,
        }
    }

    pub(super) fn is(&self, kind: EventKind) -> bool {
        self.kind == kind.as_str()
    }

    /// Whether it carries nothing but what its run does.
    pub(super) fn inherits_from_run(&self) -> bool {
        self.context.is_none() && self.detached_root.is_none() && self.exception.is_none()
    }
}

impl EmissionRow {
    /// Whether its handlers are children of the run, have something to do at once, and no deadline.
    pub(super) fn is_immediate_child(&self) -> bool {
        self.detached_root.is_none() && self.due.is_none() && self.deadlines.is_empty()
    }

    /// The refusal of a launch without a handler, if the message requires one.
    pub(super) fn unhandled(&self) -> Option<Unhandled> {
        let Required { message, at } = self.required?;
        Some(Unhandled { topic: self.topic.clone(), message: message.to_owned(), at: Some(at) })
    }

    fn new(at: usize, emission: Emission, direction: Direction, context: &Context) -> Self {
        let direction = emission.detached_root.map_or(direction, |_| Direction::Forward);
        Self {
            at,
            id: emission.message,
            topic: emission.topic,
            payload: Payload { value: emission.payload, stored: false },
            detached_root: emission.detached_root,
            due: emission.context.not_before(),
            deadlines: emission.context.give_up_at(direction),
            required: emission.required,
            found_by: emission.found_by,
            context: Some(emission.context).filter(|own| own != context),
        }
    }
}

/// What became of a settlement that was applied.
#[derive(Clone, Debug)]
pub(crate) struct SettleResult {
    /// The new state of the run: it continues at once under the same claim if it is running. One that has ended left the
    /// working set, or will when its parent has recorded that.
    pub(crate) state: RowState,
    /// It has missed a deadline by now.
    pub(crate) overdue: bool,
    /// When its last event was.
    pub(crate) last_event_at: OffsetDateTime,
    pub(crate) ready_handlers: Vec<String>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use scoop_core::{ChildFailure, Lineage, Plan, Suspension};
    use serde_json::json;

    use super::*;

    const KEY: ClaimKey = ClaimKey { root: Uuid::from_u128(1), id: Uuid::from_u128(2), epoch: 7 };
    const ALONE: HierarchyFlags = HierarchyFlags { has_parent: false, in_rollback: false };
    const BELOW: HierarchyFlags = HierarchyFlags { has_parent: true, in_rollback: false };

    fn forward() -> Run {
        let lineage = Lineage::root(KEY.root).child(KEY.id);
        Run::new(lineage, Uuid::from_u128(3), "saga[w]")
    }

    fn failure(kind: &str) -> Failure {
        Failure::new(kind, "m", "saga[w]")
    }

    fn backward() -> Run {
        let (cause, plan) = (failure("Cause"), Some(Arc::new(Plan::default())));
        let path =
            Path::Backward { cause, rollback_requested: false, begun: false, failed_before: false, plan };
        Run { path, ..forward() }
    }

    fn with_failed_child(run: Run) -> Run {
        let child =
            ChildFailure { rolled_back: failure("Child"), rollback_failed: None, rollback_requested: false };
        Run { failed_children: vec![child], ..run }
    }

    fn context(value: Value) -> Context {
        serde_json::from_value(value).unwrap()
    }

    fn deadline() -> Value {
        json!({ "HappyPathDeadlineKey": { "deadline": "2026-01-01T00:00:00Z", "source": "a" } })
    }

    fn emission(detached: bool, context: Context) -> Emission {
        let (message, topic, payload) = (Uuid::from_u128(9), "topic".into(), json!({}));
        Emission {
            message,
            topic,
            payload,
            detached_root: detached.then(Uuid::nil),
            context,
            required: None,
            wait: None,
            found_by: vec![],
        }
    }

    fn conclusion(events: Vec<Event>, fate: Fate) -> Conclusion {
        Conclusion {
            events,
            emissions: vec![],
            rollback_requests: vec![],
            rollback_cause: None,
            values: vec![],
            wait: None,
            signals: vec![],
            as_new: None,
            fate,
        }
    }

    fn suspended(context: Context) -> Event {
        Event::new(EventKind::Suspended, Uuid::from_u128(3)).in_step("a").with(context)
    }

    fn from_fate(before: &Run, flags: HierarchyFlags, fate: Fate) -> Settlement {
        Settlement::new(KEY, before, flags, &Context::default(), conclusion(vec![], fate))
    }

    #[test]
    fn run_that_goes_on_is_written_with_its_position() {
        let last =
            Suspension { step: "a".into(), jump: Some("b".into()), iteration: 2, handler_iteration: Some(3) };
        let outputs = BTreeMap::from([("a".to_owned(), json!(5))]);
        let completions = BTreeMap::from([("a".to_owned(), 3)]);
        let after =
            Run { last: Some(last), suspensions: 4, completions, replied: true, outputs, ..forward() };
        let json = serde_json::to_value(from_fate(&forward(), ALONE, Fate::GoesOn(after.clone()))).unwrap();
        let expected = json!({
            "root": KEY.root, "id": KEY.id, "epoch": 7, "step": "a", "jump": "b", "iteration": 2,
            "handler_iteration": 3, "suspensions": 4, "completions": { "a": 3 }, "outputs": { "a": 5 },
            "rolling_back": false, "begins_rollback": false, "event_count": 0, "replied": true, "may_give_up": true,
        });
        assert_eq!(json, expected);
        let settlement =
            from_fate(&forward(), ALONE, Fate::GoesOn(Run { outputs: BTreeMap::new(), ..after }));
        assert!(settlement.outputs.is_none() && settlement.id() == (KEY.id, 7));
        assert_eq!((signed(u32::MAX), count(7)), (i32::MAX, 7));
    }

    #[test]
    fn run_that_turns_back_does_not_give_up() {
        let turned = from_fate(&forward(), ALONE, Fate::GoesOn(backward()));
        assert!(turned.begins_rollback && turned.rolling_back && !turned.may_give_up);
        assert_eq!(turned.failure, Some(failure("Cause")));
        let goes_on = from_fate(&backward(), ALONE, Fate::GoesOn(backward()));
        assert!(!goes_on.begins_rollback && goes_on.rolling_back && goes_on.may_give_up);
    }

    #[test]
    fn failed_children_are_forgotten_unless_they_are_in_the_way() {
        let forgets = |before: Run, after: Run| from_fate(&before, ALONE, Fate::GoesOn(after)).forgets;
        assert_eq!(forgets(forward(), forward()), None);
        assert_eq!(forgets(with_failed_child(forward()), forward()), Some(ForgottenChildren::All));
        assert_eq!(
            forgets(with_failed_child(forward()), with_failed_child(backward())),
            Some(ForgottenChildren::RolledBack)
        );
        assert_eq!(forgets(forward(), with_failed_child(backward())), None);
    }

    #[test]
    fn failed_end_below_a_parent_that_did_not_request_it_is_noted() {
        let committed = from_fate(&forward(), BELOW, Fate::Committed);
        assert!(committed.ends == Some(Ending::Unnoted) && committed.may_give_up && !committed.rolling_back);
        for (flags, rollback_requested, expected) in
            [(BELOW, false, Ending::Noted), (BELOW, true, Ending::Unnoted), (ALONE, false, Ending::Unnoted)]
        {
            let rolled_back = || Fate::RolledBack { cause: failure("Cause"), rollback_requested };
            let undone = from_fate(&backward(), flags, rolled_back());
            assert_eq!(undone.ends, Some(expected));
            assert!(undone.rolling_back && !undone.begins_rollback && undone.may_give_up);
            assert_eq!((undone.failure, undone.rollback_failure), (Some(failure("Cause")), None));
            let at_once = from_fate(&forward(), flags, rolled_back());
            assert!(at_once.begins_rollback && !at_once.may_give_up);
        }
    }

    #[test]
    fn failed_rollback_rests_with_the_part_that_failed() {
        let (cause, why) = (failure("Cause"), failure("Stuck"));
        let fails = |before: &Run, flags: HierarchyFlags, handler_iteration: Option<u32>| {
            let fate =
                Fate::RollbackFailed { cause: cause.clone(), failure: why.clone(), rollback_requested: true };
            let last = Event::new(EventKind::RollbackFailed, Uuid::from_u128(3)).in_step("undo");
            let last = Event { handler_iteration, ..last };
            Settlement::new(KEY, before, flags, &Context::default(), conclusion(vec![last], fate))
        };
        for flags in [BELOW, ALONE] {
            let failed = fails(&backward(), flags, None);
            assert_eq!((failed.ends, failed.step.as_deref()), (Some(Ending::Failed), Some("undo")));
            assert!(failed.rolling_back && !failed.begins_rollback && !failed.may_give_up);
            assert_eq!(
                (&failed.failure, &failed.rollback_failure),
                (&Some(cause.clone()), &Some(why.clone()))
            );
            assert!(failed.failed.is_some(), "the store reports it if no run waits for it");
            assert!(fails(&forward(), flags, None).begins_rollback);
        }
        let because_of_children = fails(&with_failed_child(backward()), BELOW, Some(1));
        assert_eq!(because_of_children.handler_iteration, Some(1));
        assert_eq!(
            because_of_children.forgets,
            Some(ForgottenChildren::RolledBack),
            "these stay its children"
        );
        let gave_up = Run { give_up: vec![why.clone()], ..with_failed_child(backward()) };
        assert_eq!(fails(&gave_up, BELOW, Some(1)).handler_iteration, None, "it failed by itself");
    }

    #[test]
    fn events_say_only_what_their_run_does_not() {
        let (own, other) = (context(json!({ "a": 1 })), context(json!({ "b": 1 })));
        let message = Uuid::from_u128(9);
        let emitted = Event::new(EventKind::Emitted, message).with(other.clone());
        let requested =
            Event::new(EventKind::RollbackEmitted, message).with(own.clone()).because_of(failure("T"));
        let failed = Event::new(EventKind::RollingBack, message).with(own.clone()).because_of(failure("T"));
        let events = vec![emitted, requested, failed, suspended(own.clone())];
        let conclusion = conclusion(events, Fate::GoesOn(forward()));
        let settlement = Settlement::new(KEY, &forward(), ALONE, &own, conclusion);
        assert_eq!((settlement.event_count, settlement.context), (4, None));
        let until_last: Vec<_> = settlement.events.iter().map(|event| event.until_last).collect();
        assert_eq!(until_last, [3, 2, 1, 0]);
        let [emitted, requested, failed, suspended] = &*settlement.events else { panic!() };
        assert_eq!(emitted.context.as_ref(), Some(&other));
        assert!(emitted.is(EventKind::Emitted) && !emitted.is(EventKind::Suspended));
        assert!(
            !emitted.inherits_from_run() && requested.inherits_from_run() && suspended.inherits_from_run()
        );
        assert!(requested.exception.is_none() && failed.exception.is_some() && !failed.inherits_from_run());
        let detached = EventRow {
            detached_root: Some(message),
            ..EventRow::new(0, super::tests::suspended(own.clone()), &own)
        };
        assert!(!detached.inherits_from_run());
    }

    #[test]
    fn a_context_is_written_if_it_is_another_one() {
        let (old, new) = (context(json!({})), context(json!({ "a": 1 })));
        let written = |now: &Context, stored: &Context| {
            let conclusion = conclusion(vec![suspended(now.clone())], Fate::GoesOn(forward()));
            Settlement::new(KEY, &forward(), ALONE, stored, conclusion).context
        };
        assert_eq!(written(&new, &old), Some(new.clone()));
        assert_eq!(written(&new, &new), None);
        assert_eq!(written(&old, &new), Some(old));
    }

    #[test]
    fn settlement_that_sets_a_time_is_recognised() {
        let sets = |run: Value, emissions: Vec<Emission>| {
            let events = vec![suspended(context(run))];
            let conclusion = Conclusion { emissions, ..conclusion(events, Fate::GoesOn(forward())) };
            let settlement = Settlement::new(KEY, &forward(), ALONE, &Context::default(), conclusion);
            settlement.has_timer()
        };
        let sleep = context(json!({ "SleepUntilKey": { "wakeAfter": "2026-01-01T00:00:00Z" } }));
        assert!(!sets(json!({}), vec![]));
        assert!(!sets(json!({}), vec![emission(false, Context::default())]));
        assert!(sets(deadline(), vec![]));
        assert!(sets(json!({}), vec![emission(false, context(deadline()))]));
        assert!(sets(json!({}), vec![emission(false, Context::default()), emission(true, sleep)]));
        let wait = Some(Wait::until(OffsetDateTime::UNIX_EPOCH));
        let waits = Conclusion { wait, ..conclusion(vec![], Fate::GoesOn(forward())) };
        assert!(Settlement::new(KEY, &forward(), ALONE, &Context::default(), waits).has_timer());
    }

    #[test]
    fn message_launched_in_a_rollback_has_no_deadline_unless_detached() {
        let deadlines = |before: &Run, flags, detached| {
            let emissions = vec![emission(detached, context(deadline()))];
            let conclusion = Conclusion { emissions, ..conclusion(vec![], Fate::GoesOn(before.clone())) };
            let settlement = Settlement::new(KEY, before, flags, &Context::default(), conclusion);
            settlement.emissions[0].deadlines.len()
        };
        let undoing = HierarchyFlags { in_rollback: true, ..BELOW };
        assert_eq!(deadlines(&forward(), BELOW, false), 1);
        assert_eq!(deadlines(&backward(), BELOW, false), 0);
        assert_eq!(deadlines(&forward(), undoing, false), 0);
        assert_eq!(deadlines(&forward(), undoing, true), 1);
    }

    #[test]
    fn plain_settlement_takes_the_short_statements() {
        let events = || vec![suspended(Context::default())];
        let plain = |before: &Run, conclusion| {
            Settlement::new(KEY, before, ALONE, &Context::default(), conclusion).path() == SettlePath::Advance
        };
        let last = Some(Suspension { step: "a".into(), jump: None, iteration: 0, handler_iteration: None });
        let after = Run { last, suspensions: 1, ..forward() };
        assert!(plain(&forward(), conclusion(events(), Fate::GoesOn(after.clone()))));
        let launches = vec![emission(false, Context::default())];
        let goes_on = Fate::GoesOn(after);
        assert!(!plain(&forward(), Conclusion { emissions: launches, ..conclusion(events(), goes_on) }));
        assert!(!plain(&forward(), conclusion(events(), Fate::GoesOn(backward()))));
        let wait = Some(Wait::until(OffsetDateTime::UNIX_EPOCH));
        assert!(!plain(&forward(), Conclusion { wait, ..conclusion(events(), Fate::GoesOn(forward())) }));
    }

    #[test]
    fn a_request_of_the_rollback_of_children_takes_the_statement_for_that() {
        let (message, because) = (Uuid::from_u128(9), failure("Told"));
        let shape = |before: &Run, of_step: &str| {
            let tells = Event::new(EventKind::RollbackEmitted, message).in_step(of_step);
            let events = vec![tells.because_of(because.clone()), suspended(Context::default())];
            let last =
                Some(Suspension { step: "a".into(), jump: None, iteration: 0, handler_iteration: None });
            let requesting = conclusion(events, Fate::GoesOn(Run { last, ..backward() }));
            let requesting = Conclusion {
                rollback_requests: vec![message],
                rollback_cause: Some(because.clone()),
                ..requesting
            };
            Settlement::new(KEY, before, BELOW, &Context::default(), requesting).path()
        };
        assert_eq!(shape(&backward(), "a"), SettlePath::RequestRollback);
        assert_eq!(shape(&backward(), "b"), SettlePath::General);
        // Who turns back at that says so, too.
        assert_eq!(shape(&forward(), "a"), SettlePath::General);
    }
}
