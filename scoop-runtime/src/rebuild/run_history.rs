//! The recorded events of a hierarchy, grouped by run.

use std::collections::BTreeMap;

use scoop_core::{Context, EventKind, Lineage, Wait, output_name, visible_step};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::repair::{AWAITING_OPERATOR, failed_again_reason};

/// A row of `message_event`, or of `repeated_failure` as another ROLLBACK_FAILED.
#[derive(Clone, Debug)]
pub(crate) struct RecordedEvent {
    pub(crate) lineage: Lineage,
    pub(crate) message: Uuid,
    pub(crate) kind: EventKind,
    pub(crate) handler: Option<String>,
    /// The topic of the message.
    pub(crate) topic: String,
    pub(crate) step: Option<String>,
    pub(crate) jump: Option<String>,
    pub(crate) definition: Option<i32>,
    pub(crate) handling: Option<i32>,
    pub(crate) exception: Option<Value>,
    pub(crate) context: Context,
    pub(crate) at: OffsetDateTime,
    /// The time of the redelivery of a message without a handler.
    pub(crate) redelivered_at: Option<OffsetDateTime>,
    /// What the run waits for after it, besides its children.
    pub(crate) wait: Option<Wait>,
    /// The execution that begins after it, if the run goes on anew.
    pub(crate) begins: Option<RecordedExecution>,
}

/// A row of `execution`, without its time, which is that of the SUSPENDED before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedExecution {
    /// How many executions there were before.
    pub(crate) number: i32,
    /// The message whose payload counts.
    pub(crate) message: Uuid,
    /// How many suspensions of the forward path there were before.
    pub(crate) suspensions: u32,
}

/// An intervention of an operator on a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperatorAction {
    pub(crate) run: Uuid,
    pub(crate) at: OffsetDateTime,
    /// Whether the run was rolled back by hand, so that nothing more of it is executed.
    pub(crate) resolves: bool,
}

/// The recorded events of one run, in order.
#[derive(Debug)]
pub(super) struct RunHistory<'a> {
    pub(super) seen: &'a RecordedEvent,
    /// The events of the run itself, without its launches.
    own: Vec<&'a RecordedEvent>,
    /// The SUSPENDED before its newest execution, if that is not the first one.
    start: Option<&'a RecordedEvent>,
}

/// The phase of a run, according to its own events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It executes its steps.
    Forward,
    /// It rolls back.
    Backward,
    /// Its rollback was requested, and has not begun.
    RollbackRequested,
    /// Its rollback failed.
    Failed,
    /// It has ended.
    Done,
}

/// The recorded events of a hierarchy.
pub(super) struct HierarchyHistory<'a> {
    pub(super) runs: BTreeMap<Uuid, RunHistory<'a>>,
    /// The emission of each message.
    pub(super) emissions: BTreeMap<Uuid, &'a RecordedEvent>,
    /// The rollback request of each message whose handlers have to roll back.
    rollback_requests: BTreeMap<Uuid, &'a RecordedEvent>,
    cancellations: Vec<&'a Lineage>,
    revivals: &'a [OperatorAction],
    /// The time of the newest event.
    pub(super) newest_at: OffsetDateTime,
}

impl<'a> RunHistory<'a> {
    pub(super) fn id(&self) -> Uuid {
        self.seen.lineage.id()
    }

    pub(super) fn handler(&self) -> &'a str {
        self.seen.handler.as_deref().unwrap_or_default()
    }

    fn newest(&self, kind: EventKind) -> Option<&'a RecordedEvent> {
        self.own.iter().rev().find(|event| event.kind == kind).copied()
    }

    pub(super) fn rolling_back_event(&self) -> Option<&'a RecordedEvent> {
        self.newest(EventKind::RollingBack)
    }

    pub(super) fn committed(&self) -> Option<&'a RecordedEvent> {
        self.newest(EventKind::Committed)
    }

    /// The latest failure of its rollback.
    pub(super) fn failed(&self) -> Option<&'a RecordedEvent> {
        self.newest(EventKind::RollbackFailed)
    }

    /// Whether its rollback failed again after an intervention.
    pub(super) fn failed_again(&self) -> bool {
        self.failures().nth(1).is_some()
    }

    /// The first failure of its rollback; determines which ancestors were waiting for it.
    fn failed_first(&self) -> Option<&'a RecordedEvent> {
        self.failures().next()
    }

    fn failures(&self) -> impl Iterator<Item = &'a RecordedEvent> {
        self.own.iter().copied().filter(|event| event.kind == EventKind::RollbackFailed)
    }

    /// The reason for which it awaits an operator.
    pub(super) fn why_held(&self) -> String {
        let failure = self.failures().skip(1).last().and_then(|failed| failed.exception.clone());
        let failure = failure.and_then(|failure| serde_json::from_value(failure).ok());
        failure.map_or_else(|| AWAITING_OPERATOR.to_owned(), |failure| failed_again_reason(&failure))
    }

    /// Its newest event, launches aside.
    pub(super) fn last(&self) -> &'a RecordedEvent {
        self.own.last().copied().unwrap_or(self.seen)
    }

    /// Its latest end, if it has ended.
    pub(super) fn end(&self) -> Option<&'a RecordedEvent> {
        let ends = [EventKind::Committed, EventKind::RolledBack, EventKind::RollbackFailed];
        self.own.iter().rev().find(|event| ends.contains(&event.kind)).copied()
    }

    pub(super) fn suspensions(&self) -> impl DoubleEndedIterator<Item = &'a RecordedEvent> {
        self.own.iter().copied().filter(|event| event.kind == EventKind::Suspended)
    }

    pub(super) fn suspended(&self) -> Option<&'a RecordedEvent> {
        self.suspensions().next_back()
    }

    /// Its newest suspension before the failure of its rollback.
    fn suspended_before_failure(&self) -> Option<&'a RecordedEvent> {
        let failed = self.failed()?;
        self.suspensions().rfind(|event| event.at < failed.at)
    }

    /// The suspensions of the forward path in its newest execution.
    pub(super) fn forward(&self) -> impl Iterator<Item = &'a RecordedEvent> {
        let turned = self.rolling_back_event().map(|turned| turned.at);
        let is_forward = move |event: &&RecordedEvent| turned.is_none_or(|turned| event.at < turned);
        self.suspensions().filter(|event| self.is_of_newest_execution(event)).filter(is_forward)
    }

    /// Its newest suspension in its newest execution.
    pub(super) fn position(&self) -> Option<&'a RecordedEvent> {
        self.suspended().filter(|event| self.is_of_newest_execution(event))
    }

    fn is_of_newest_execution(&self, event: &RecordedEvent) -> bool {
        self.start.is_none_or(|start| event.at > start.at)
    }

    /// Its newest execution, if that is not the first one, and the time before it.
    pub(super) fn execution(&self) -> Option<(RecordedExecution, OffsetDateTime)> {
        self.start.and_then(|start| Some((start.begins?, start.at)))
    }

    /// The suspensions of the forward path in its newest execution, each with its number among all.
    fn numbered(&self) -> impl Iterator<Item = (u32, &'a RecordedEvent)> {
        let former = self.execution().map_or(0, |(execution, _)| execution.suspensions);
        (former..).zip(self.forward())
    }

    /// The number of suspensions of the forward path.
    pub(super) fn suspension_count(&self) -> usize {
        let former = self.execution().map_or(0, |(execution, _)| execution.suspensions);
        self.forward().count() + usize::try_from(former).unwrap_or(usize::MAX)
    }

    /// The names that outputs of its newest execution have, if that is not the first one.
    pub(super) fn output_names(&self) -> Option<Vec<String>> {
        self.start?;
        let named = self.numbered();
        let named =
            named.map(|(number, event)| output_name(event.step.as_deref().unwrap_or_default(), number));
        Some(named.collect())
    }

    /// Its newest suspension of the rollback.
    pub(super) fn suspended_backward(&self) -> Option<&'a RecordedEvent> {
        let turned = self.rolling_back_event()?;
        self.suspended().filter(|event| event.at > turned.at)
    }

    /// Whether its rollback was requested.
    pub(super) fn is_rollback_requested(&self) -> bool {
        self.rolling_back_event().is_some_and(|turned| turned.step.is_none())
    }

    /// The iteration of its newest step. A step that was chosen to run again is the same one after its renaming, too; the wait
    /// before it is another step.
    pub(super) fn iteration(&self) -> i32 {
        let (mut step, mut repeats, mut iteration) = (None, false, 0);
        for event in self.forward() {
            if event.handling.is_none() {
                let is_wait = event.step.as_deref().is_some_and(|step| visible_step(step) != step);
                let again = step == Some(&event.step) || repeats && !is_wait;
                iteration = if again { iteration + 1 } else { 0 };
                step = Some(&event.step);
            }
            repeats = event.jump.is_some() && event.jump == event.step;
        }
        iteration
    }

    /// The steps of the forward path that awaited a signal, each with the number of its newest wait.
    pub(super) fn signal_steps(&self) -> BTreeMap<String, u32> {
        let waits = self
            .numbered()
            .filter(|(_, event)| event.wait.as_ref().is_some_and(|wait| wait.signal().is_some()));
        waits.map(|(number, event)| (event.step.clone().unwrap_or_default(), number)).collect()
    }

    /// The number of completions of each step on the forward path.
    pub(super) fn completions(&self) -> BTreeMap<String, u32> {
        let mut completions = BTreeMap::new();
        for event in self.forward().filter(|event| event.handling.is_none()) {
            *completions.entry(event.step.clone().unwrap_or_default()).or_default() += 1;
        }
        completions
    }

    /// Whether its rollback failed because of those of its children.
    pub(super) fn failed_with_children(&self) -> bool {
        let (Some(failed), Some(turned)) = (self.failed(), self.rolling_back_event()) else {
            return false;
        };
        let suspended = self.suspended_before_failure().filter(|event| event.at > turned.at);
        let handled =
            suspended.and_then(|event| event.handling).map_or(Some(0), |count| count.checked_add(1));
        handled.is_some() && failed.handling == handled
    }

    /// Whether its rollback failed after that of this child, for which it was waiting.
    pub(super) fn failed_after(&self, child: &RunHistory<'_>) -> bool {
        let (Some(failed), Some(below)) = (self.failed(), child.failed_first()) else {
            return false;
        };
        let suspended = self.suspended_before_failure();
        below.at < failed.at && suspended.is_some_and(|suspended| suspended.at < below.at)
    }

    /// Whether it waits for this child, whose rollback failed.
    pub(super) fn waits_for(&self, child: &RunHistory<'_>) -> bool {
        let suspended = self.suspended().map(|suspended| suspended.at);
        child.failed_first().is_some_and(|failed| suspended.is_some_and(|suspended| failed.at > suspended))
    }

    /// Whether it waited for this child, whose rollback failed, at that time.
    fn waited_for(&self, child: &RunHistory<'_>, at: OffsetDateTime) -> bool {
        let suspended = self.suspensions().rfind(|event| event.at < at);
        let failed = child.failed_first().zip(suspended);
        failed.is_some_and(|(failed, suspended)| failed.at > suspended.at)
    }

    /// Whether the part that requested this rollback was repeated after a failure, and the run waits since then.
    pub(super) fn rerun_request(&self, request: &RecordedEvent) -> bool {
        let waits = Some(self.last()).filter(|last| last.kind == EventKind::Suspended);
        let again = waits.zip(self.failed()).filter(|(last, failed)| last.at > failed.at);
        again.is_some_and(|(last, _)| last.step == request.step)
    }

    /// Whether the emission belongs to the newest window: the run waits for the handlers of these messages.
    pub(super) fn is_current_window(&self, emission: &RecordedEvent) -> bool {
        if self.last().kind != EventKind::Suspended {
            return false;
        }
        let mut suspensions = self.suspensions().rev();
        let closes = suspensions.next().is_some_and(|newest| emission.at < newest.at);
        closes && suspensions.next().is_none_or(|before| emission.at > before.at)
    }
}

impl<'a> HierarchyHistory<'a> {
    /// Groups the rows of one hierarchy, which are in order, by run.
    pub(super) fn of(rows: &'a [RecordedEvent], revivals: &'a [OperatorAction]) -> Self {
        let newest_at = rows.iter().map(|row| row.at).max().unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (runs, emissions, rollback_requests, cancellations) = Default::default();
        let mut pasts = Self { runs, emissions, rollback_requests, cancellations, revivals, newest_at };
        for row in rows {
            match row.kind {
                EventKind::Seen => {
                    let past = RunHistory { seen: row, own: vec![row], start: None };
                    pasts.runs.insert(row.lineage.id(), past);
                }
                EventKind::Emitted => {
                    pasts.emissions.insert(row.message, row);
                }
                EventKind::RollbackEmitted => {
                    pasts.rollback_requests.insert(row.message, row);
                }
                EventKind::CancellationRequested => pasts.cancellations.push(&row.lineage),
                _ => {
                    if let Some(past) = pasts.runs.get_mut(&row.lineage.id()) {
                        past.own.push(row);
                        past.start = Some(row).filter(|row| row.begins.is_some()).or(past.start);
                    }
                }
            }
        }
        pasts
    }

    pub(super) fn phase(&self, run: &RunHistory<'_>) -> Phase {
        let end = run.end().map(|end| end.kind);
        let ever = |kind| run.newest(kind).is_some();
        match (run.rolling_back_event(), end) {
            (Some(_), _) if ever(EventKind::RolledBack) => Phase::Done,
            (Some(_), _) if ever(EventKind::RollbackFailed) => Phase::Failed,
            (Some(_), _) => Phase::Backward,
            (None, Some(_)) if self.rollback_requests.contains_key(&run.seen.message) => {
                Phase::RollbackRequested
            }
            (None, Some(_)) => Phase::Done,
            (None, None) => Phase::Forward,
        }
    }

    /// The rollback request for the handlers of the run's message.
    pub(super) fn rollback_request(&self, run: &RunHistory<'_>) -> Option<&'a RecordedEvent> {
        self.rollback_requests.get(&run.seen.message).copied()
    }

    /// The parent run, which launched its message.
    pub(super) fn parent_of(&self, run: &RunHistory<'_>) -> Option<&RunHistory<'a>> {
        self.runs.get(&run.seen.lineage.parent()?.id())
    }

    pub(super) fn below(&self, run: &RunHistory<'_>) -> impl Iterator<Item = &RunHistory<'a>> {
        let id = run.id();
        self.runs.values().filter(move |child| {
            child.seen.lineage.ids().len() > 2
                && child.seen.lineage.parent().is_some_and(|above| above.id() == id)
        })
    }

    /// Whether the parent launched its message during a rollback.
    pub(super) fn launched_by_compensation(&self, run: &RunHistory<'_>) -> bool {
        let emission = self.emissions.get(&run.seen.message);
        let turned = self.parent_of(run).and_then(RunHistory::rolling_back_event);
        turned.zip(emission).is_some_and(|(turned, emission)| emission.at > turned.at)
    }

    /// Whether this run or an ancestor was cancelled.
    pub(super) fn is_asked(&self, lineage: &Lineage) -> bool {
        self.cancellations.iter().any(|request| lineage.ids().starts_with(request.ids()))
    }

    /// The time of the first intervention on the run or a descendant after its latest failure.
    pub(super) fn back_at(&self, run: &RunHistory<'_>) -> Option<OffsetDateTime> {
        let failed_at = run.failed()?.at;
        let is_below = |other: Uuid| {
            let other = self.runs.get(&other);
            other.is_some_and(|other| other.seen.lineage.ids().starts_with(run.seen.lineage.ids()))
        };
        let later = self.revivals.iter().filter(|revival| revival.at > failed_at && is_below(revival.run));
        later.map(|revival| revival.at).min()
    }

    /// Whether the run was resolved: rolled back by hand.
    pub(super) fn is_resolved(&self, run: &RunHistory<'_>) -> bool {
        self.revivals.iter().any(|revival| revival.run == run.id() && revival.resolves)
    }

    /// Whether an operator intervened on the run after the failure of its rollback.
    pub(super) fn is_revived(&self, run: &RunHistory<'_>) -> bool {
        let failed = run.failed().map(|failed| failed.at);
        let mut revivals = self.revivals.iter().filter(|revival| revival.run == run.id());
        revivals.any(|revival| {
            failed.is_some_and(|failed| revival.at > failed) && !self.is_settled_above(run, revival.at)
        })
    }

    /// Whether an ancestor that had waited for this run was settled since then: that settles this run, too.
    pub(super) fn is_settled_above(&self, run: &RunHistory<'_>, since: OffsetDateTime) -> bool {
        let above = self.parent_of(run).filter(|above| above.waited_for(run, since));
        above.is_some_and(|above| above.last().at > since || self.is_settled_above(above, since))
    }

    /// The time since which the run is part of a rollback.
    pub(super) fn rollback_since(&self, run: &RunHistory<'_>) -> Option<OffsetDateTime> {
        if let Some(turned) = run.rolling_back_event() {
            let request = self.rollback_request(run).filter(|_| run.is_rollback_requested());
            return Some(request.map_or(turned.at, |request| request.at));
        }
        if self.phase(run) == Phase::RollbackRequested {
            return self.rollback_request(run).map(|request| request.at);
        }
        let emission = self.emissions.get(&run.seen.message)?;
        // Only one level up, so that the recursion ends even with inconsistent records.
        let emission =
            Some(*emission).filter(|it| Some(&it.lineage) == run.seen.lineage.parent().as_ref())?;
        self.undoing_when_emitted(emission)
    }

    /// The time of the emission, if it was part of a rollback.
    pub(super) fn undoing_when_emitted(&self, emission: &RecordedEvent) -> Option<OffsetDateTime> {
        let emitter = self.runs.get(&emission.lineage.id())?;
        let emitter = Some(emitter).filter(|run| run.seen.lineage == emission.lineage)?;
        let since = self.rollback_since(emitter)?;
        (emission.at > since).then_some(emission.at)
    }
}
