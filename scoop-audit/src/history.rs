//! The log of one hierarchy, split into runs and the windows in which they waited.

use std::collections::BTreeMap;

use scoop_core::{Definition, EventKind, Failure, OPERATOR, StepDefinition};
use uuid::Uuid;

use crate::{Invariant, Log, LoggedEvent, LoggedStrategy, Quiescence, Violation};

/// An event and its position in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) at: usize,
    pub(crate) event: &'a LoggedEvent,
}

/// One hierarchy.
pub(crate) struct Hierarchy<'a> {
    pub(crate) log: &'a Log,
    pub(crate) definitions: &'a [Definition],
    pub(crate) at_rest: Quiescence,
    /// The first id of its lineages.
    pub(crate) root: Uuid,
    pub(crate) rows: Vec<Row<'a>>,
    /// In the order in which they began.
    pub(crate) runs: Vec<Run<'a>>,
    /// Whether an operator intervened in this hierarchy.
    pub(crate) repaired: bool,
    /// Whether a run of this hierarchy is stuck.
    pub(crate) set_aside: bool,
}

/// One execution of a handler for a message.
pub(crate) struct Run<'a> {
    pub(crate) seen: Row<'a>,
    pub(crate) handler: &'a str,
    /// All its rows, including its emissions.
    pub(crate) rows: Vec<Row<'a>>,
}

/// The rows of a run between two suspensions, and its next row.
pub(crate) struct Window<'a> {
    /// The suspension that closes it.
    pub(crate) closed: Row<'a>,
    /// Whether the run was in rollback.
    pub(crate) rolling_back: bool,
    /// The emissions.
    pub(crate) emitted: Vec<Row<'a>>,
    /// The rollback requests.
    pub(crate) rollback_requests: Vec<Row<'a>>,
    /// The next row of the run.
    pub(crate) left: Option<Row<'a>>,
}

/// The violations found so far.
pub(crate) type Findings = Vec<Violation>;

impl Row<'_> {
    pub(crate) fn kind(&self) -> EventKind {
        self.event.kind
    }

    pub(crate) fn step(&self) -> &str {
        self.event.step.as_deref().unwrap_or_default()
    }

    /// Whether the run gave up with this row.
    pub(crate) fn gave_up(&self) -> bool {
        self.failure().is_some_and(|failure| kind_of(failure) == "GaveUpException")
    }

    /// Whether an operator caused this row.
    pub(crate) fn is_operators(&self) -> bool {
        self.event.identifier.as_deref() == Some(OPERATOR)
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.event.exception.as_ref()
    }

    /// The row for messages: its number, counted from 1, its kind, handler and step.
    pub(crate) fn describe(&self) -> String {
        let event = self.event;
        let handler = event.handler.as_deref().unwrap_or("·");
        let step = event.step.as_deref().unwrap_or("·");
        format!("row {} ({} {handler} {step})", self.at + 1, event.kind.as_str())
    }
}

/// The last part of the type of a failure. The reference implementation writes a prefix.
pub(crate) fn kind_of(failure: &Failure) -> &str {
    failure.kind.rsplit(['.', ':', '$']).next().unwrap_or_default()
}

/// The log by hierarchies.
pub(crate) fn hierarchies<'a>(
    log: &'a Log,
    definitions: &'a [Definition],
    at_rest: Quiescence,
) -> Vec<Hierarchy<'a>> {
    let mut by_root: BTreeMap<Uuid, Vec<Row<'a>>> = BTreeMap::new();
    for (at, event) in log.events.iter().enumerate() {
        by_root.entry(event.lineage.root_id()).or_default().push(Row { at, event });
    }
    let hierarchies = by_root.into_iter();
    let of = |(root, rows)| Hierarchy::of(log, definitions, at_rest, root, rows);
    hierarchies.map(of).collect()
}

impl<'a> Hierarchy<'a> {
    fn of(
        log: &'a Log,
        definitions: &'a [Definition],
        at_rest: Quiescence,
        root: Uuid,
        rows: Vec<Row<'a>>,
    ) -> Self {
        let mut runs: Vec<Run<'a>> = vec![];
        for row in &rows {
            let Some(handler) = row.event.handler.as_deref() else {
                continue;
            };
            let same =
                |run: &&mut Run<'_>| run.handler == handler && run.seen.event.lineage == row.event.lineage;
            match runs.iter_mut().find(same) {
                Some(run) => run.rows.push(*row),
                None if row.kind() == EventKind::Seen => {
                    runs.push(Run { seen: *row, handler, rows: vec![*row] });
                }
                None => {}
            }
        }
        let here = |ids: &[Uuid]| rows.iter().any(|row| ids.contains(&row.event.lineage.id()));
        let (repaired, set_aside) = (here(&log.repaired), here(&log.set_aside));
        Self { log, definitions, at_rest, root, rows, runs, repaired, set_aside }
    }

    /// Records a violation.
    pub(crate) fn find(&self, findings: &mut Findings, invariant: Invariant, what: impl Into<String>) {
        findings.push(Violation { invariant, hierarchy: self.root, what: what.into() });
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.at_rest == Quiescence::Yes
    }

    /// The rows of this kind that are about the message.
    pub(crate) fn about(&self, message: Uuid, kind: EventKind) -> impl Iterator<Item = Row<'a>> {
        self.rows.iter().copied().filter(move |row| row.kind() == kind && row.event.message == message)
    }

    /// The runs that handle the message.
    pub(crate) fn handling(&self, message: Uuid) -> impl Iterator<Item = &Run<'a>> {
        self.runs.iter().filter(move |run| run.message() == message)
    }

    /// The run whose lineage this is one id longer than.
    pub(crate) fn above(&self, run: &Run<'_>) -> Option<&Run<'a>> {
        let above = run.seen.event.lineage.parent()?;
        self.runs.iter().find(|other| other.seen.event.lineage == above)
    }

    pub(crate) fn topic(&self, message: Uuid) -> Option<&'a str> {
        let mut messages = self.log.messages.iter();
        messages.find(|known| known.id == message).map(|known| &*known.topic)
    }

    /// The definitions of the run's saga: one for each version.
    pub(crate) fn versions(&self, run: &Run<'_>) -> Vec<&'a Definition> {
        let topic = self.topic(run.message());
        let of = |it: &&Definition| it.saga == run.handler && topic.is_none_or(|topic| it.topic == topic);
        self.definitions.iter().filter(of).collect()
    }

    /// Whether the run belongs to a rollback from its beginning: a compensation launched its message, or that of an
    /// ancestor. Such a run cannot be cancelled.
    pub(crate) fn is_compensating(&self, run: &Run<'_>) -> bool {
        let Some(above) = self.above(run) else {
            return false;
        };
        let emitted = self.about(run.message(), EventKind::Emitted).next();
        let turned = above.first(EventKind::RollingBack);
        let launched_backward = turned.zip(emitted).is_some_and(|(turned, emitted)| turned.at < emitted.at);
        launched_backward || self.is_compensating(above)
    }
}

impl<'a> Run<'a> {
    pub(crate) fn message(&self) -> Uuid {
        self.seen.event.message
    }

    pub(crate) fn id(&self) -> Uuid {
        self.seen.event.lineage.id()
    }

    pub(crate) fn of_kind(&self, kind: EventKind) -> impl Iterator<Item = Row<'a>> {
        self.rows.iter().copied().filter(move |row| row.kind() == kind)
    }

    pub(crate) fn first(&self, kind: EventKind) -> Option<Row<'a>> {
        self.of_kind(kind).next()
    }

    /// The rows with which it ended. A run that rolls back after its commit ends more than once.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Row<'a>> {
        let ends = [EventKind::Committed, EventKind::RolledBack, EventKind::RollbackFailed];
        self.rows.iter().copied().filter(move |row| ends.contains(&row.kind()))
    }

    /// Its newest row, if that is an end; a rollback after the end adds newer rows.
    pub(crate) fn end(&self) -> Option<Row<'a>> {
        let newest = self.rows.last().copied()?;
        self.ends().last().filter(|end| end.at == newest.at)
    }

    /// Whether its rollback was requested, by the parent run or from outside.
    pub(crate) fn is_rollback_requested(&self) -> bool {
        self.first(EventKind::RollingBack).is_some_and(|turned| turned.event.step.is_none())
    }

    /// Its next row after this one.
    pub(crate) fn after(&self, row: Row<'_>) -> Option<Row<'a>> {
        self.rows.iter().copied().find(|later| later.at > row.at)
    }

    /// The windows of the forward path of its newest execution, which a rollback undoes.
    pub(crate) fn newest_execution(&self) -> Vec<Window<'a>> {
        let mut windows = self.forward();
        let cut = windows.iter().rposition(|window| window.closed.event.continues_as_new);
        windows.split_off(cut.map_or(0, |cut| cut + 1))
    }

    /// The windows of the forward path.
    pub(crate) fn forward(&self) -> Vec<Window<'a>> {
        self.windows().into_iter().filter(|window| !window.rolling_back).collect()
    }

    /// The windows of the run: one for each suspension.
    pub(crate) fn windows(&self) -> Vec<Window<'a>> {
        let (mut windows, mut emitted, mut rollback_requests) = (vec![], vec![], vec![]);
        let mut rolling_back = false;
        for row in &self.rows {
            match row.kind() {
                EventKind::Emitted => emitted.push(*row),
                EventKind::RollbackEmitted => rollback_requests.push(*row),
                EventKind::RollingBack => rolling_back = true,
                EventKind::Suspended => windows.push(Window {
                    closed: *row,
                    rolling_back,
                    emitted: std::mem::take(&mut emitted),
                    rollback_requests: std::mem::take(&mut rollback_requests),
                    left: self.after(*row),
                }),
                _ => {}
            }
        }
        windows
    }
}

impl<'a> Window<'a> {
    /// The strategy by which the run waits for the handlers of this message.
    pub(crate) fn strategy(&self, emitted: Row<'_>) -> Option<&'a LoggedStrategy> {
        self.closed.event.strategies.iter().find(|strategy| strategy.message == emitted.event.message)
    }
}

/// The step of that name in each version, also under other names.
pub(crate) fn steps<'a>(versions: &[&'a Definition], name: &str) -> impl Iterator<Item = &'a StepDefinition> {
    let steps = versions.iter().flat_map(|version| version.steps.iter());
    let named = steps.clone().filter(|step| step.is_named(name));
    let names: Vec<&str> = named.flat_map(|step| step.was.iter().copied().chain([&*step.name])).collect();
    steps.filter(move |step| names.iter().any(|name| step.is_named(name)))
}

/// Whether both are names of one step, in some version.
pub(crate) fn is_same_step(versions: &[&Definition], one: &str, other: &str) -> bool {
    one == other || steps(versions, one).any(|step| step.is_named(other))
}
